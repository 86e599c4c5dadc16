//! Workers that must go though nobody deleted them yet: their node is emptied (D2, G2).

use std::time::Duration;

use elastic_pool_engine::ids::Birth;

use super::manifest::{group, spec};
use super::world::World;
use crate::vehicle::{Fact, GroupSpec, WorkerFact};

fn cordon(world: &mut World, birth: Birth, must_go: bool) {
    let fact = WorkerFact {
        must_go,
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(fact)));
}

fn delete(world: &mut World, birth: Birth) {
    let fact = WorkerFact {
        must_go: true,
        terminating: true,
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(fact)));
}

/// A group that may have one worker, with somebody on it.
fn one_worker(max_surge: u32) -> (World, Birth) {
    let spec = GroupSpec {
        max: Some(1),
        max_surge,
        ..spec()
    };
    let mut world = World::with_workers(spec, &[0.2]);
    let birth = world.births()[0];
    world.login("alice", 1, birth);
    (world, birth)
}

#[test]
fn a_cordoned_worker_is_replaced_above_max_emptied_by_moves_and_retired() {
    let (mut world, old) = one_worker(1);
    cordon(&mut world, old, true);
    let fresh = world.make_wanted();
    assert_eq!(fresh.len(), 1, "G2: above max by maxSurge");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.owner("alice").unwrap().0, fresh[0]);
    world.reports(&[0.2]);
    assert_eq!(world.retired(), [old]);
    assert_eq!(
        world.orders.desired[&group()].released,
        [old],
        "it may be evicted at once"
    );
}

#[test]
fn without_surge_nobody_is_made_above_max() {
    let (mut world, old) = one_worker(0);
    cordon(&mut world, old, true);
    world.pass(Duration::from_secs(10));
    assert!(world.wanted(&group()).is_empty());
    assert_eq!(world.owner("alice").unwrap().0, old);
}

#[test]
fn an_uncordon_puts_the_worker_back_to_service() {
    let (mut world, old) = one_worker(0);
    cordon(&mut world, old, true);
    assert_eq!(world.drained(), [old]);
    assert!(world.agents[&old].closed);
    cordon(&mut world, old, false);
    assert_eq!(world.drained(), []);
    assert!(!world.agents[&old].closed);
    assert_eq!(world.told("DrainCancelled"), 1);
    assert_eq!(world.owner("alice").unwrap().0, old);
}

#[test]
fn a_cordon_alone_ends_nobody_and_the_time_runs_from_the_deletion() {
    let (mut world, old) = one_worker(0);
    cordon(&mut world, old, true);
    world.pass(Duration::from_mins(5));
    assert_eq!(world.owner("alice").unwrap().0, old);
    assert!(world.retired().is_empty(), "nobody else could take her");
    delete(&mut world, old);
    world.pass(Duration::from_secs(115));
    assert!(world.retired().is_empty(), "D2: within drainTimeout");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.retired(), [old]);
}

#[test]
fn an_uncordon_after_the_deletion_cancels_nothing() {
    let (mut world, old) = one_worker(0);
    delete(&mut world, old);
    let fact = WorkerFact {
        terminating: true,
        ..World::fact_of(old)
    };
    world.fact(Fact::Worker(Box::new(fact)));
    assert_eq!(world.drained(), [old]);
}

#[test]
fn a_spawn_on_a_node_that_is_emptied_leaves_once_it_is_routable() {
    let mut world = World::with_workers(spec(), &[0.9]);
    let fresh = world.wanted(&group())[0];
    let fact = WorkerFact {
        must_go: true,
        ..World::fact_of(fresh)
    };
    world.fact(Fact::Worker(Box::new(fact)));
    world.hello(fresh, Vec::new());
    assert_eq!(world.drained(), [fresh]);
}
