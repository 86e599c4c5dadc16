//! spec.mode: Recommend decides and tells, Frozen does neither; `min`, the dead and D2 go on in both.

use std::time::Duration;

use elastic_pool_engine::ids::{Birth, Term};

use super::manifest::{group, spec};
use super::world::World;
use crate::vehicle::{Fact, GroupSpec, Mode, WorkerFact};

const QUIET: [Mode; 2] = [Mode::Recommend, Mode::Frozen];

fn in_mode(mode: Mode) -> GroupSpec {
    GroupSpec { mode, ..spec() }
}

/// Three workers of an earlier leader's, which this one has just met.
fn new_leader(spec: GroupSpec) -> (World, [Birth; 3]) {
    let mut world = World::new(7, spec);
    let births = [1, 2, 3].map(|n| Birth(Term(3).number(n)));
    for birth in births {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    world.gateway();
    for birth in births {
        world.hello(birth, Vec::new());
    }
    (world, births)
}

#[test]
fn a_quiet_mode_neither_grows_nor_compacts() {
    for mode in QUIET {
        let mut world = World::serving_with(in_mode(mode));
        for _ in 0..4 {
            world.saturate();
        }
        assert!(world.wanted(&group()).is_empty(), "{mode:?}");
        let mut world = World::with_workers(in_mode(mode), &[0.1, 0.1, 0.1]);
        for _ in 0..10 {
            world.reports(&[0.0]);
        }
        assert!(world.drained().is_empty(), "{mode:?}");
    }
}

#[test]
fn a_quiet_mode_survives_a_new_leader() {
    for mode in QUIET {
        for load in [0.9, 0.0] {
            let (mut world, births) = new_leader(in_mode(mode));
            for _ in 0..20 {
                world.reports(&[load]);
            }
            assert!(world.wanted(&group()).is_empty(), "{mode:?} at {load}");
            assert_eq!(world.births(), births, "{mode:?} at {load}");
            assert!(world.drained().is_empty(), "{mode:?} at {load}");
        }
    }
}

#[test]
fn the_same_new_leader_acts_in_an_active_group() {
    let (mut world, births) = new_leader(spec());
    for _ in 0..20 {
        world.reports(&[0.9]);
    }
    assert_eq!(world.wanted(&group()).len(), 1);
    let (mut world, _) = new_leader(spec());
    for _ in 0..20 {
        world.reports(&[0.0]);
    }
    assert!(births.contains(&world.retired()[0]));
}

#[test]
fn a_new_leader_decides_nothing_before_it_knows_the_manifest() {
    let mut world = World::new(7, in_mode(Mode::Frozen));
    let other = Birth(Term(3).number(1));
    let unknown = WorkerFact {
        group: super::groups::green(),
        ..World::fact_of(other)
    };
    world.fact(Fact::Worker(Box::new(unknown)));
    world.fact(Fact::Synced);
    world.pass(Duration::from_secs(30));
    let desired = world.orders.desired.get(&super::groups::green());
    assert!(desired.is_none(), "its workers are nobody's to touch");
}

#[test]
fn in_a_quiet_mode_the_floor_is_kept_and_the_dead_are_replaced() {
    for mode in QUIET {
        let mut world = World::serving_with(in_mode(mode));
        let reception = world.births()[0];
        world.change(|spec| spec.min = 2);
        assert_eq!(world.make_wanted().len(), 1, "{mode:?}: min");
        world.fact(Fact::WorkerGone(reception));
        world.agents.remove(&reception);
        assert_eq!(world.wanted(&group()).len(), 1, "{mode:?}: the dead");
    }
}

#[test]
fn in_a_quiet_mode_a_worker_that_must_go_is_emptied() {
    for mode in QUIET {
        let mut world = World::with_workers(
            GroupSpec {
                min: 2,
                ..in_mode(mode)
            },
            &[0.1, 0.1],
        );
        let second = world.births()[1];
        world.login("alice", 1, second);
        let leaving = WorkerFact {
            must_go: true,
            ..World::fact_of(second)
        };
        world.fact(Fact::Worker(Box::new(leaving)));
        assert_ne!(world.owner("alice").unwrap().0, second, "{mode:?}: D2");
    }
}

#[test]
fn a_recommendation_is_told_once_until_its_reason_changes() {
    let mut world = World::serving_with(in_mode(Mode::Recommend));
    assert_eq!(world.condition("Recommendation").0, Some(false));
    for _ in 0..4 {
        world.saturate();
    }
    assert_eq!(world.told("Recommended"), 1);
    assert_eq!(world.condition("Recommendation"), (Some(true), "Spawned".into()));
    let advice = world.commander.monitor().groups[0].advice.clone().unwrap();
    assert_eq!((advice.action, advice.reason), ("Spawned", "cannot_place"));
    world.reports(&[0.0]);
    world.reports(&[0.0]);
    assert_eq!(world.condition("Recommendation").0, Some(false));
    assert_eq!(world.commander.monitor().groups[0].advice, None);
    world.saturate();
    assert_eq!(world.told("Recommended"), 2, "it came again");
}

#[test]
fn a_frozen_group_recommends_nothing() {
    let mut world = World::serving_with(in_mode(Mode::Frozen));
    world.saturate();
    assert_eq!(world.told("Recommended"), 0);
    assert_eq!(world.condition("Recommendation"), (None, "absent".into()));
    assert_eq!(world.commander.monitor().groups[0].advice, None);
}
