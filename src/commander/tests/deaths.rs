//! Workers that die or restart (D1).

use std::time::Duration;

use super::world::{World, group};
use crate::channel::proto::agent_command;
use crate::vehicle::Fact;

#[test]
fn a_dead_workers_users_are_swept_and_it_is_replaced() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    world.fact(Fact::WorkerGone(reception));
    world.agents.remove(&reception);
    assert_eq!(world.owner("alice"), None);
    assert_eq!(
        world.orders.desired[&group()].spawn.len(),
        1,
        "G5: fewer than min are replaced at once"
    );
    assert_ne!(
        world.orders.desired[&group()].spawn,
        [reception],
        "a birth number is never used twice"
    );
}

#[test]
fn a_restarted_app_holds_nobody() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    world.restart_app(reception);
    assert_eq!(world.owner("alice"), None);
}

#[test]
fn a_user_whose_package_the_target_holds_survives_the_restart_of_his_app() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    let activate = |command: &agent_command::Command| matches!(command, agent_command::Command::Activate(_));
    world.agents.get_mut(&second).unwrap().ignores = activate;
    world.login("alice", 1, reception);
    assert_eq!(
        world.owner("alice").unwrap().0,
        reception,
        "his move stands before its switch"
    );
    world.restart_app(reception);
    assert!(world.owner("alice").is_some(), "V7: he is not swept");
    world.agents.get_mut(&second).unwrap().ignores = |_| false;
    world.pass(Duration::from_secs(5));
    assert_eq!(world.owner("alice").unwrap().0, second);
}
