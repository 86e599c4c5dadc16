//! Moves of live users (V).

use std::time::Duration;

use super::world::World;
use crate::channel::proto::gateway_command;

#[test]
fn an_aborted_move_leaves_its_user_where_he_was_under_a_higher_epoch() {
    let (mut world, reception) = World::growing();
    world.agents.get_mut(&reception).unwrap().nack_snapshots = true;
    world.login("alice", 1, reception);
    let (owner, epoch) = world.owner("alice").unwrap();
    assert_eq!(owner, reception);
    let cancelled = world.gateways[0]
        .told
        .iter()
        .rev()
        .find_map(|command| match command {
            gateway_command::Command::Cancel(cancel) => cancel.user.clone(),
            _ => None,
        });
    assert_eq!(
        cancelled.map(|user| (user.birth, user.epoch)),
        Some((reception.0, epoch.0))
    );
    assert!(world.commander.operations.active.is_empty());
}

#[test]
fn a_gateway_that_connects_in_a_move_holds_too() {
    let (mut world, reception) = World::growing();
    world.agents.get_mut(&reception).unwrap().ignores = |_| true;
    world.login("alice", 1, reception);
    let late = world.gateway();
    let held = world.gateways[late]
        .told
        .iter()
        .any(|command| matches!(command, gateway_command::Command::Hold(_)));
    assert!(held);
}

#[test]
fn a_leader_that_is_about_to_hand_over_starts_no_move() {
    let (mut world, reception) = World::growing();
    world.commander.rest();
    world.login("alice", 1, reception);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.owner("alice").unwrap().0, reception);
    assert!(world.commander.is_at_rest());
}

/// Found by the simulation: his thaw was refused and asked for again without end, and his requests were held.
#[test]
fn a_user_who_left_while_his_move_waited_is_nobodys() {
    let (mut world, reception) = World::growing();
    world.agents.get_mut(&reception).unwrap().knows_nobody = true;
    world.login("alice", 1, reception);
    assert_eq!(world.owner("alice"), None);
    assert!(world.commander.operations.active.is_empty());
}
