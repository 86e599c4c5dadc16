//! How many users move at once (V, C7): per source, per target and per group, fewer when their packages are large.

use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use rstest::rstest;

use super::manifest::spec;
use super::world::World;
use crate::channel::proto::agent_command::Command;
use crate::commander::Event;
use crate::vehicle::{Fact, GroupSpec, WorkerFact};

fn is_for_a_target(command: &Command) -> bool {
    matches!(command, Command::Fetch(_) | Command::Activate(_))
}

/// Three workers with `users` on each of the first two; no target ever answers, so what began stays under way.
fn two_full_workers(parallelism: u32, users: u8, package_bytes: u64) -> (World, [Birth; 2]) {
    let spec = GroupSpec {
        parallelism,
        min: 3,
        ..spec()
    };
    let mut world = World::with_workers(spec, &[0.1, 0.1, 0.1]);
    let births = world.births();
    let full = [births[0], births[1]];
    for (worker, birth) in (0_u8..).zip(full) {
        for number in 0..users {
            let client = worker * 100 + number + 1;
            world.login(&format!("user-{worker}-{number:02}"), client, birth);
        }
    }
    for agent in world.agents.values_mut() {
        agent.ignores = is_for_a_target;
        agent.package_bytes = package_bytes;
    }
    (world, full)
}

fn delete(world: &mut World, birth: Birth) {
    let fact = WorkerFact {
        must_go: true,
        terminating: true,
        ..World::fact_of(birth)
    };
    world.fact(Fact::Worker(Box::new(fact)));
}

/// Ends of the moves under way.
fn under_way(world: &World) -> Vec<(Birth, Birth)> {
    let active = world.commander.operations.active.values();
    active
        .map(|active| (active.operation.source, active.operation.target))
        .collect()
}

#[test]
fn no_more_than_the_parallelism_move_at_once_in_a_group_whoever_must_go() {
    let (mut world, [first, second]) = two_full_workers(3, 6, 1000);
    delete(&mut world, first);
    delete(&mut world, second);
    let moves = under_way(&world);
    assert_eq!(moves.len(), 3, "{moves:?}");
    world.pass(Duration::from_millis(500));
    assert_eq!(under_way(&world).len(), 3);
}

#[rstest]
#[case::of_a_kibibyte(1 << 10, 8)]
#[case::of_a_mebibyte(1 << 20, 4)]
#[case::of_sixteen_mebibytes(16 << 20, 1)]
fn large_packages_are_fewer_at_a_time(#[case] bytes: u64, #[case] at_once: usize) {
    let (mut world, [first, _]) = two_full_workers(8, 12, bytes);
    delete(&mut world, first);
    assert_eq!(under_way(&world).len(), at_once);
}

#[test]
fn users_who_cannot_be_moved_do_not_hold_up_the_others() {
    let (mut world, [first, _]) = two_full_workers(2, 6, 1000);
    world.agents.get_mut(&first).unwrap().nack_snapshots = true;
    delete(&mut world, first);
    assert_eq!(begun(&world, first), 6, "each once");
    world.pass(Duration::from_secs(50));
    assert_eq!(begun(&world, first), 6, "V6: a minute's pause");
    world.pass(Duration::from_secs(20));
    assert_eq!(begun(&world, first), 12);
}

/// Users whose snapshot was asked for.
fn begun(world: &World, birth: Birth) -> usize {
    let told = &world.agents[&birth].told;
    told.iter()
        .filter(|command| matches!(command, Command::Snapshot(_)))
        .count()
}

#[test]
fn a_long_drain_goes_at_a_beat_that_those_who_stay_do_not_feel() {
    let (mut world, [first, _]) = two_full_workers(8, 60, 1000);
    world
        .agents
        .values_mut()
        .for_each(|agent| agent.ignores = |_| false);
    delete(&mut world, first);
    assert_eq!(begun(&world, first), 16, "a small one is done at once");
    let next = world.commander.beat_at().unwrap();
    world.now = next;
    world.event(Event::Beat);
    assert_eq!(begun(&world, first), 17);
    assert_eq!(world.commander.beat_at(), Some(next + Duration::from_millis(10)));
    world.pass(Duration::from_millis(200));
    assert!(
        (36..=38).contains(&begun(&world, first)),
        "{}",
        begun(&world, first)
    );
    world.pass(Duration::from_millis(400));
    assert_eq!(begun(&world, first), 60);
    assert_eq!(world.commander.beat_at(), None);
}

#[test]
fn a_drain_s_beat_leaves_it_most_of_its_time() {
    let (mut world, [first, _]) = two_full_workers(8, 60, 1000);
    world.change(|spec| spec.drain_timeout = Duration::from_millis(480));
    world
        .agents
        .values_mut()
        .for_each(|agent| agent.ignores = |_| false);
    let began = world.now;
    delete(&mut world, first);
    while let Some(next) = world.commander.beat_at() {
        world.now = next;
        world.event(Event::Beat);
    }
    assert_eq!(begun(&world, first), 60);
    // The first 16 at once, then 2 ms a user: a quarter of the time for all.
    assert_eq!(world.now.saturating_sub(began), Duration::from_millis(2 * 44));
}
