//! Growth and compaction on reports (G, C, E).

use std::time::Duration;

use super::manifest::{group, pool, spec};
use super::world::World;
use crate::vehicle::Fact;

#[test]
fn the_floor_is_made_at_once_and_each_birth_is_asked_for_once() {
    let mut world = World::new(1, spec());
    world.fact(Fact::Synced);
    let first = world.orders.desired[&group()].spawn.clone();
    assert_eq!(first.len(), 1);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.orders.desired[&group()].spawn, first);
    world.make_wanted();
    assert!(world.orders.desired[&group()].spawn.is_empty());
    assert_eq!(world.orders.views[&group()].ready_workers, 1);
}

#[test]
fn nothing_is_decided_before_the_vehicle_has_told_all() {
    let mut world = World::new(1, spec());
    world.pass(Duration::from_secs(30));
    assert!(
        world
            .orders
            .desired
            .get(&group())
            .is_none_or(|desired| desired.spawn.is_empty())
    );
}

#[test]
fn a_worker_without_fresh_reports_is_never_compacted() {
    let mut world = World::serving();
    world.saturate();
    world.make_wanted();
    world.reports(&[0.4, 0.4]);
    world.reports(&[0.4, 0.4]);
    let second = world.births()[1];
    let deaf = world.agents.remove(&second).unwrap();
    for _ in 0..8 {
        world.reports(&[0.0]);
    }
    assert_eq!(world.commander.groups[&group()].engine.drains().count(), 0);
    let fresh = world.orders.views[&group()]
        .conditions
        .iter()
        .find(|condition| condition.kind == "ReportsFresh");
    assert_eq!(fresh.unwrap().reason, "Stale");
    drop(deaf);
}

#[test]
fn impossible_readings_are_shown_and_never_become_numbers() {
    let mut world = World::serving();
    for bad in [f64::NAN, -1.0, f64::INFINITY, 1e300] {
        world.reports(&[bad]);
        let view = &world.orders.views[&group()];
        let fresh = view
            .conditions
            .iter()
            .find(|condition| condition.kind == "ReportsFresh")
            .unwrap();
        assert_eq!(
            (fresh.status, fresh.reason.as_str()),
            (Some(false), "ImpossibleReadings")
        );
        assert_eq!(view.occupied_points, 0);
        assert!(world.orders.desired[&group()].spawn.is_empty());
    }
}

#[test]
fn the_least_occupied_worker_is_emptied_by_moves_and_then_retired() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    for (number, user) in ["alice", "bob", "carol"].iter().enumerate() {
        world.login(user, u8::try_from(number).unwrap(), reception);
    }
    assert_eq!(world.commander.pools[&pool()].surface.count(second), 3);
    for _ in 0..8 {
        world.reports(&[0.02, 0.01]);
    }
    assert_eq!(world.commander.pools[&pool()].surface.count(second), 0);
    assert_eq!(world.owner("alice").unwrap().0, reception);
    assert_eq!(world.retired(), [second]);
    world.fact(Fact::WorkerGone(second));
    assert_eq!(world.births(), [reception]);
    assert!(world.retired().is_empty());
}
