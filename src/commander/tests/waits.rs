//! Drains that wait: who waits for what is said in decisions, conditions and on the monitor, and blocks no other (C7, D2, V6).

use std::time::Duration;

use super::manifest::{group, spec};
use super::world::World;
use crate::channel::proto::Report;
use crate::commander::DrainView;
use crate::vehicle::{Fact, GroupSpec, WorkerFact};

fn sessions() -> GroupSpec {
    GroupSpec {
        live_moves: false,
        ..spec()
    }
}

fn drain_of(world: &mut World, index: usize) -> DrainView {
    let state = world.commander.monitor();
    state.groups[0].workers[index]
        .drain
        .clone()
        .expect("it is drained")
}

fn notes(world: &World, action: &str) -> Vec<String> {
    let notes = &world.orders.views[&group()].decisions;
    let told = notes.iter().filter(|note| note.action == action);
    told.map(|note| note.because.clone()).collect()
}

#[test]
fn under_drain_it_is_said_who_waits_for_whom_and_the_next_goes_all_the_same() {
    let mut world = World::with_workers(sessions(), &[0.3, 0.3, 0.3]);
    let births = world.births();
    world.login("alice", 1, births[1]);
    for _ in 0..6 {
        world.pass(Duration::from_secs(5));
        for birth in world.births() {
            let report = Report {
                cpu: Some(0.01),
                unconfirmed: u64::from(birth == births[1]),
                open_streams: if birth == births[1] { 2 } else { 0 },
                ..Report::default()
            };
            if world.agents.contains_key(&birth) {
                world.report(birth, report);
            }
        }
    }
    assert_eq!(world.condition("DrainWaiting").0, Some(true));
    assert_eq!(world.retired(), [births[2]], "a long wait blocks nobody else");
    let drain = drain_of(&mut world, 1);
    assert_eq!((drain.users, drain.unconfirmed, drain.open_streams), (1, 1, 2));
    let told = notes(&world, "DrainWaits");
    assert!(
        told.iter()
            .any(|text| text.contains("1 users to leave, 1 clients seen once, 2 open streams")),
        "{told:?}"
    );
    world.reports(&[0.01]);
    assert_eq!(notes(&world, "DrainWaits").len(), told.len(), "once per kind");
}

#[test]
fn whom_a_move_failed_is_counted_by_what_it_failed_of() {
    let mut world = World::with_workers(GroupSpec { min: 2, ..spec() }, &[0.1, 0.1]);
    let births = world.births();
    world.login("alice", 1, births[1]);
    world.agents.get_mut(&births[1]).expect("an agent").nack_snapshots = true;
    let leaves = WorkerFact {
        must_go: true,
        ..World::fact_of(births[1])
    };
    world.fact(Fact::Worker(Box::new(leaves)));
    world.pass(Duration::from_secs(1));
    let drain = drain_of(&mut world, 1);
    assert_eq!(
        (drain.kind, drain.users, drain.paused.get("busy")),
        ("must_go", 1, Some(&1))
    );
    assert_eq!(world.condition("DrainWaiting"), (Some(true), "UsersStay".into()));
    let told = notes(&world, "DrainWaits");
    assert!(
        told[0].contains("1 users with a request that outlives quiesceTimeout"),
        "{told:?}"
    );
    world.agents.get_mut(&births[1]).expect("an agent").nack_snapshots = false;
    world.pass(Duration::from_secs(61));
    assert_ne!(
        world.owner("alice").expect("she lives").0,
        births[1],
        "V6: tried again after its pause"
    );
    assert_eq!(world.condition("DrainWaiting").0, Some(false));
}

#[test]
fn a_compaction_that_gives_up_says_why() {
    let mut world = World::with_workers(GroupSpec { min: 3, ..spec() }, &[0.1, 0.1, 0.1]);
    let births = world.births();
    world.login("alice", 1, births[1]);
    world.agents.get_mut(&births[1]).expect("an agent").nack_snapshots = true;
    world.change(|spec| spec.min = 1);
    world.pass(Duration::from_secs(1));
    let told = notes(&world, "DrainCancelled");
    assert!(
        told[0].ends_with("; 1 users with a request that outlives quiesceTimeout"),
        "{told:?}"
    );
    assert_eq!(world.drained(), [births[2]], "C7: passed over for the next");
}
