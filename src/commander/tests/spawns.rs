//! Spawns that fail: no capacity apart from a mistake, and the pauses between them (G4).

use std::time::Duration;

use elastic_pool_engine::ids::Birth;

use super::manifest::{group, spec};
use super::world::World;
use crate::channel::proto::Report;
use crate::vehicle::{Fact, SpawnFailure, WorkerFact};

fn no_room() -> SpawnFailure {
    SpawnFailure::NoCapacity("0/3 nodes are available".into())
}

fn mistake() -> SpawnFailure {
    SpawnFailure::Mistake("container app: ErrImagePull: not found".into())
}

/// A group whose one worker is full, so that a second is wanted.
fn wanting() -> (World, Birth) {
    let mut world = World::serving();
    world.saturate();
    let wanted = world.wanted(&group())[0];
    (world, wanted)
}

/// Seconds until the group wants a worker again.
fn pause(world: &mut World) -> u64 {
    let since = world.now;
    for tick in 0..4000 {
        if !world.wanted(&group()).is_empty() {
            break;
        }
        if tick % 50 == 0 {
            // The full worker goes on reporting: else nothing would be known of it.
            for birth in world.births() {
                let report = Report {
                    cpu: Some(0.9),
                    ..Report::default()
                };
                world.report(birth, report);
            }
        }
        world.pass(Duration::from_millis(100));
    }
    world.now.saturating_sub(since).as_secs()
}

#[test]
fn failed_spawns_are_tried_again_after_doubling_pauses() {
    let (mut world, mut birth) = wanting();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        world.fact(Fact::SpawnFailed(group(), birth, mistake()));
        assert!(world.wanted(&group()).is_empty(), "not at once");
        pauses.push(pause(&mut world));
        assert_ne!(
            world.wanted(&group()),
            [birth],
            "a birth number is never used twice"
        );
        birth = world.wanted(&group())[0];
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
}

#[test]
fn no_capacity_is_pending_and_nobody_s_mistake() {
    let (mut world, birth) = wanting();
    world.fact(Fact::SpawnFailed(group(), birth, no_room()));
    assert_eq!(
        world.condition("CapacityPending"),
        (Some(true), "NoCapacity".into())
    );
    assert_eq!(world.condition("Degraded").0, Some(false));
    world.reports(&[0.1]);
    world.reports(&[0.1]);
    assert_eq!(
        world.condition("CapacityPending").0,
        Some(false),
        "nobody waits for it any more"
    );
}

#[test]
fn a_mistake_degrades_the_group_until_a_spawn_comes_up() {
    let (mut world, birth) = wanting();
    world.fact(Fact::SpawnFailed(group(), birth, mistake()));
    assert_eq!(world.condition("Degraded"), (Some(true), "SpawnsFailing".into()));
    assert_eq!(world.condition("CapacityPending").0, Some(false));
    world.reports(&[0.1]);
    world.reports(&[0.1]);
    assert_eq!(world.condition("Degraded").0, Some(true), "it would fail again");
    world.reports(&[0.9]);
    world.reports(&[0.9]);
    pause(&mut world);
    world.make_wanted();
    assert_eq!(world.condition("Degraded").0, Some(false));
}

#[test]
fn another_template_is_tried_at_once() {
    let (mut world, birth) = wanting();
    world.fact(Fact::SpawnFailed(group(), birth, mistake()));
    assert!(world.wanted(&group()).is_empty());
    world.change(|spec| spec.template_hash = "t2".into());
    assert_eq!(
        world.wanted(&group()).len(),
        1,
        "the pause was the other template's"
    );
    assert_eq!(world.condition("Degraded").0, Some(false));
}

#[test]
fn a_spawn_that_cannot_start_is_not_waited_for_once_the_template_changes() {
    let (mut world, birth) = wanting();
    let stuck = WorkerFact {
        ready: false,
        address: String::new(),
        failure: Some(mistake()),
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(stuck)));
    assert_eq!(world.condition("Degraded"), (Some(true), "SpawnsFailing".into()));
    assert!(world.wanted(&group()).is_empty(), "G2: it is on its way");
    world.change(|spec| spec.template_hash = "t2".into());
    assert_eq!(world.retired(), [birth]);
    assert_eq!(world.wanted(&group()).len(), 1);
}

#[test]
fn a_spawn_that_takes_too_long_is_given_up_and_says_why() {
    let (mut world, birth) = wanting();
    let stuck = WorkerFact {
        ready: false,
        address: String::new(),
        failure: Some(no_room()),
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(stuck)));
    assert_eq!(world.told("SpawnHindered"), 1);
    for _ in 0..23 {
        world.reports(&[0.9]);
    }
    assert!(world.retired().is_empty());
    world.reports(&[0.9]);
    assert_eq!(world.retired(), [birth], "G4: after spawnTimeout");
    assert_eq!(world.condition("CapacityPending").0, Some(true));
    assert!(
        world.wanted(&group()).is_empty(),
        "and not replaced before the pause is over"
    );
}

#[test]
fn a_pod_that_ends_before_it_was_routable_counts_as_a_failed_spawn() {
    let (mut world, birth) = wanting();
    let ended = WorkerFact {
        finished: true,
        ready: false,
        failure: Some(no_room()),
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(ended)));
    assert_eq!(world.condition("CapacityPending").0, Some(true));
    assert_eq!(pause(&mut world), 10);
}

#[test]
fn a_worker_that_could_not_be_emptied_is_passed_over_for_twice_as_long_each_time() {
    let mut world = World::with_workers(spec(), &[0.3, 0.3]);
    let (reception, second) = (world.births()[0], world.births()[1]);
    world.login("alice", 1, second);
    world.agents.get_mut(&second).unwrap().nack_snapshots = true;
    let mut pauses = Vec::new();
    for _ in 0..200 {
        world.reports(&[0.01, 0.01]);
        if let Some(until) = world.view(second).passed_over_until {
            let pause = (until.saturating_sub(world.now)).as_secs();
            if pauses.last().is_none_or(|last| pause > *last) {
                pauses.push(pause);
            }
        }
    }
    assert_eq!(world.owner("alice").unwrap().0, second, "he stays");
    assert!(world.births().contains(&reception));
    let minutes: Vec<u64> = pauses.iter().map(|seconds| seconds.div_ceil(60)).collect();
    assert_eq!(minutes, [1, 2, 4, 8, 15], "C7");
}
