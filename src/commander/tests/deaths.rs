//! Workers that die or restart (D1).

use std::time::Duration;

use elastic_pool_engine::ids::UserId;

use super::manifest::{group, pool, spec};
use super::world::World;
use crate::channel::proto::agent_command;
use crate::vehicle::{Fact, GroupSpec, WorkerFact};

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
fn a_restarted_app_makes_its_pod_a_new_worker_with_a_new_birth_number() {
    let mut world = World::with_workers(GroupSpec { min: 2, ..spec() }, &[0.1, 0.1]);
    let (reception, second) = (world.births()[0], world.births()[1]);
    world.restart_app(reception);
    let births = world.births();
    assert_eq!(
        births[0], second,
        "the reception is the oldest of those that live"
    );
    let reborn = births[1];
    assert!(reborn > second, "{reborn}");
    let told = &world.commander.pools[&pool()].told;
    assert_eq!(
        told.workers.keys().collect::<Vec<_>>(),
        [&second, &reborn],
        "gateways know"
    );
    assert_eq!(told.groups["shop-blue"].reception, second.0);

    // The vehicle goes on speaking of the pod under the number on its label.
    let leaving = WorkerFact {
        must_go: true,
        ..World::fact_of(reception)
    };
    world.fact(Fact::Worker(Box::new(leaving)));
    assert_eq!(world.drained(), [reborn]);
    world.reports(&[0.1]);
    assert_eq!(
        world.retired(),
        [reception],
        "and is told to delete it under that"
    );
    world.fact(Fact::WorkerGone(reception));
    assert!(!world.births().contains(&reborn));
    assert!(world.retired().is_empty());
}

#[test]
fn an_app_that_restarts_again_and_again_is_new_each_time() {
    let mut world = World::serving();
    let first = world.births()[0];
    let mut last = first;
    for _ in 0..3 {
        world.restart_app(first);
        let births = world.births();
        assert_eq!(births.len(), 1);
        assert!(births[0] > last);
        last = births[0];
    }
    world.fact(Fact::WorkerGone(first));
    assert!(!world.births().contains(&last));
    assert_eq!(world.wanted(&group()).len(), 1, "G5");
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

#[test]
fn who_lost_his_session_begins_anew_without_the_pause_of_a_failed_move() {
    let (mut world, reception) = World::growing();
    world.agents.get_mut(&reception).unwrap().nack_snapshots = true;
    world.login("alice", 1, reception);
    let alice = (pool(), UserId::new("alice").unwrap());
    assert!(world.commander.operations.is_paused(&alice, world.now), "V6");
    world.restart_app(reception);
    assert!(!world.commander.operations.is_paused(&alice, world.now));
}
