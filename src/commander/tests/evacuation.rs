//! spec.mode Evacuate and deleted groups: users move to another group of their pool where it takes them (V9), newcomers go
//! elsewhere, the reception goes last.

use std::time::Duration;

use elastic_pool_engine::ids::Birth;

use super::groups::green;
use super::manifest::{group, pool, spec};
use super::world::World;
use crate::channel::proto::{self, Totals, WorkerTotals, claim, gateway_message};
use crate::vehicle::{Fact, GroupSpec, Mode, WorkerFact};

const FORMAT: &str = "cart/1";

fn blue_spec() -> GroupSpec {
    GroupSpec {
        snapshot_format: FORMAT.into(),
        ..spec()
    }
}

fn green_spec() -> GroupSpec {
    GroupSpec {
        key: green(),
        default_group: false,
        ..blue_spec()
    }
}

/// Blue with as many workers as `cpu` names, alice on the first and bob on the last of them, and `other` with its first worker.
fn two_groups(cpu: &[f64], other: GroupSpec) -> World {
    let mut world = World::with_workers(blue_spec(), cpu);
    world.fact(Fact::Group(Box::new(other)));
    world.make_wanted();
    let births = world.births();
    world.login("alice", 1, births[0]);
    world.login("bob", 2, births[births.len() - 1]);
    world
}

fn evacuate(world: &mut World) {
    world.change(|spec| spec.mode = Mode::Evacuate);
    world.pass(Duration::from_secs(1));
}

/// What was retired is gone.
fn bury(world: &mut World) {
    for birth in world.retired() {
        world.fact(Fact::WorkerGone(birth));
        world.agents.remove(&birth);
    }
}

fn at(world: &World, user: &str) -> Birth {
    world.owner(user).expect("he lives").0
}

fn green_worker(world: &World) -> Birth {
    world.births_of(&green())[0]
}

fn row(world: &World) -> &proto::Group {
    &world.commander.pools[&pool()].told.groups[&group().name]
}

/// A report of everybody each five seconds.
fn reports(world: &mut World, minutes: u32) {
    for _ in 0..minutes * 12 {
        world.reports(&[0.1]);
    }
}

/// A gateway tells of requests to a worker.
fn ask(world: &mut World, birth: Birth, requests: u64) {
    let totals = Totals {
        workers: vec![WorkerTotals {
            birth: birth.0,
            requests,
            ..WorkerTotals::default()
        }],
        ..Totals::default()
    };
    world.gateway_says(0, gateway_message::Message::Totals(totals));
}

#[test]
fn users_move_to_a_group_of_the_same_format_and_all_workers_go() {
    let mut world = two_groups(&[0.1, 0.1, 0.1], green_spec());
    evacuate(&mut world);
    let green = green_worker(&world);
    assert_eq!((at(&world, "alice"), at(&world, "bob")), (green, green), "V9");
    reports(&mut world, 1);
    bury(&mut world);
    assert_eq!(world.births().len(), 1);
    reports(&mut world, 10);
    bury(&mut world);
    assert_eq!(world.births(), [], "the reception too: no guest came");
    assert_eq!(world.condition("Evacuating"), (Some(false), "Evacuated".into()));
    assert_eq!(world.told("Evacuated"), 1);
    world.pass(Duration::from_mins(1));
    assert!(world.wanted(&group()).is_empty(), "min counts as 0");
    let view = &world.orders.views[&group()];
    assert_eq!((view.workers, view.users), (0, 0));
    assert_eq!(world.orders.views[&super::groups::green()].users, 2);
}

#[test]
fn without_an_equal_format_they_leave_by_themselves_and_newcomers_go_elsewhere() {
    for format in ["", "cart/2"] {
        let other = GroupSpec {
            snapshot_format: format.into(),
            ..green_spec()
        };
        let mut world = two_groups(&[0.4, 0.7], other);
        let births = world.births();
        evacuate(&mut world);
        world.pass(Duration::from_mins(5));
        assert_eq!((at(&world, "alice"), at(&world, "bob")), (births[0], births[1]));
        assert_eq!(
            world.condition("Evacuating"),
            (Some(true), "WaitingForUsers".into())
        );
        assert!(row(&world).closed);
        assert_eq!(world.condition("NewcomersRefused").0, Some(false));
    }
}

#[test]
fn an_empty_format_is_equal_to_none() {
    let plain = |spec: GroupSpec| GroupSpec {
        snapshot_format: String::new(),
        ..spec
    };
    let mut world = two_groups(&[0.1], plain(green_spec()));
    world.change(|spec| spec.snapshot_format.clear());
    let reception = world.births()[0];
    evacuate(&mut world);
    assert_eq!(at(&world, "alice"), reception);
}

#[test]
fn newcomers_without_any_other_group_are_refused_and_people_told() {
    let mut world = World::serving_with(blue_spec());
    assert!(!row(&world).closed);
    evacuate(&mut world);
    assert!(row(&world).closed);
    assert_eq!(
        world.condition("NewcomersRefused"),
        (Some(true), "NoActiveGroup".into())
    );
    let other = GroupSpec {
        mode: Mode::Evacuate,
        ..green_spec()
    };
    world.fact(Fact::Group(Box::new(other)));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.condition("NewcomersRefused").0, Some(true), "nor that one");
    world.fact(Fact::Group(Box::new(green_spec())));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.condition("NewcomersRefused").0, Some(false));
}

#[test]
fn active_again_who_is_left_stays_and_everybody_serves_as_before() {
    let mut world = two_groups(&[0.1, 0.1, 0.1], green_spec());
    world.change(|spec| spec.min = 3);
    let births = world.births();
    let busy = world.agents.get_mut(&births[2]).expect("an agent");
    busy.nack_snapshots = true;
    evacuate(&mut world);
    assert_eq!(world.drained(), births[1..]);
    assert_eq!(at(&world, "bob"), births[2], "his move failed");
    world.change(|spec| spec.mode = Mode::Active);
    assert_eq!(world.drained(), []);
    assert!(births.iter().all(|birth| !world.agents[birth].closed));
    world.agents.get_mut(&births[2]).expect("an agent").nack_snapshots = false;
    world.login("carol", 3, births[0]);
    world.pass(Duration::from_mins(3));
    assert_eq!((at(&world, "bob"), at(&world, "carol")), (births[2], births[0]));
    assert_eq!(at(&world, "alice"), green_worker(&world), "who moved stays there");
    assert!(!row(&world).closed);
    assert_eq!(world.condition("Evacuating").1, "absent");
    assert_eq!(world.told("EvacuationCancelled"), 1);
}

#[test]
fn users_wait_while_the_other_group_is_full_and_move_on_once_it_grew() {
    let mut world = two_groups(&[0.1], green_spec());
    let (reception, full) = (world.births()[0], green_worker(&world));
    for _ in 0..2 {
        world.reports(&[0.1, 0.9]);
    }
    assert_eq!(world.wanted(&green()).len(), 1, "G1");
    evacuate(&mut world);
    assert_eq!(at(&world, "alice"), reception);
    assert_eq!(world.condition("Evacuating"), (Some(true), "NoRoom".into()));
    world.make_wanted();
    world.pass(Duration::from_secs(1));
    assert_ne!(at(&world, "alice"), full);
    assert_eq!(at(&world, "alice"), world.births_of(&green())[1]);
}

#[test]
fn guests_keep_the_reception_until_none_came_for_guest_timeout() {
    // As its agent says, and where that says nothing, as gateways do.
    for says_agent in [true, false] {
        let mut world = two_groups(&[0.1], green_spec());
        let reception = world.births()[0];
        let came = |world: &mut World, requests: u64| {
            if says_agent {
                world.guests.insert(reception, world.now);
            } else {
                ask(world, reception, requests);
            }
        };
        came(&mut world, 5);
        evacuate(&mut world);
        reports(&mut world, 9);
        assert_eq!(
            world.condition("Evacuating"),
            (Some(true), "WaitingForGuests".into())
        );
        came(&mut world, 6);
        reports(&mut world, 9);
        assert!(world.retired().is_empty(), "a guest came");
        reports(&mut world, 2);
        assert_eq!(world.retired(), [reception]);
    }
}

#[test]
fn a_guest_who_logs_in_there_is_moved_on() {
    let mut world = two_groups(&[0.1], green_spec());
    let reception = world.births()[0];
    ask(&mut world, reception, 5);
    evacuate(&mut world);
    world.login("carol", 3, reception);
    world.pass(Duration::from_secs(1));
    assert_eq!(at(&world, "carol"), green_worker(&world));
}

#[test]
fn what_a_resident_of_the_other_group_did_there_is_joined_to_him() {
    let mut world = two_groups(&[0.1], green_spec());
    let reception = world.births()[0];
    evacuate(&mut world);
    let placed = world.login("alice", 9, reception);
    assert!(placed.join_follows, "V9: both declare one format");
    assert_eq!(placed.user.expect("her owner").birth, green_worker(&world).0);
    let other = GroupSpec {
        snapshot_format: "cart/2".into(),
        ..green_spec()
    };
    world.fact(Fact::Group(Box::new(other)));
    assert!(!world.login("alice", 8, reception).join_follows);
}

#[test]
fn the_dead_are_replaced_while_users_live_there_and_not_afterwards() {
    let other = GroupSpec {
        snapshot_format: String::new(),
        ..green_spec()
    };
    let mut world = two_groups(&[0.4, 0.7], other);
    let births = world.births();
    evacuate(&mut world);
    world.fact(Fact::WorkerGone(births[0]));
    world.agents.remove(&births[0]);
    world.pass(Duration::from_secs(1));
    assert!(world.wanted(&group()).is_empty(), "bob's worker serves on");
    let leaves = WorkerFact {
        must_go: true,
        ..World::fact_of(births[1])
    };
    world.fact(Fact::Worker(Box::new(leaves)));
    assert_eq!(world.wanted(&group()).len(), 1, "where else could he go");
    world.fact(Fact::WorkerGone(births[1]));
    world.agents.remove(&births[1]);
    world.pass(Duration::from_secs(1));
    assert!(world.wanted(&group()).is_empty(), "nobody lives there");
}

#[test]
fn a_worker_that_must_go_hands_its_users_to_the_other_group_though_it_is_full() {
    let mut world = two_groups(&[0.1], green_spec());
    let reception = world.births()[0];
    for _ in 0..2 {
        world.reports(&[0.1, 0.9]);
    }
    evacuate(&mut world);
    assert_eq!(at(&world, "alice"), reception);
    let leaves = WorkerFact {
        terminating: true,
        ..World::fact_of(reception)
    };
    world.fact(Fact::Worker(Box::new(leaves)));
    world.pass(Duration::from_secs(1));
    assert_eq!(at(&world, "alice"), green_worker(&world), "D2");
}

#[test]
fn a_new_leader_goes_on_with_an_evacuation() {
    let blue = GroupSpec {
        mode: Mode::Evacuate,
        ..blue_spec()
    };
    let mut world = World::new(7, blue);
    world.fact(Fact::Group(Box::new(green_spec())));
    let old = |n: u64| Birth(elastic_pool_engine::ids::Term(3).number(n));
    let facts = [World::fact_of(old(1)), World::fact_in(&green(), old(2))];
    for fact in facts {
        world.fact(Fact::Worker(Box::new(fact)));
    }
    world.fact(Fact::Synced);
    world.gateway();
    let epoch = elastic_pool_engine::ids::Term(3).number(9);
    let alice = world.owned("alice", old(1), epoch);
    assert_eq!(alice.state, i32::from(claim::State::Owned));
    world.hello(old(1), vec![alice]);
    world.hello(old(2), Vec::new());
    world.pass(Duration::from_secs(3));
    assert_eq!(at(&world, "alice"), old(2));
    assert!(
        world.retired().is_empty(),
        "an earlier leader's guests are not known"
    );
}

#[test]
fn a_deleted_group_hands_its_users_over_and_admits_nobody() {
    let mut world = two_groups(&[0.1, 0.1], green_spec());
    let births = world.births();
    world.fact(Fact::GroupGone(group()));
    world.pass(Duration::from_secs(1));
    let green = green_worker(&world);
    assert_eq!((at(&world, "alice"), at(&world, "bob")), (green, green), "V9");
    assert!(row(&world).closed);
    assert!(births.iter().all(|birth| world.agents[birth].closed));
    assert!(world.wanted(&group()).is_empty());
    for birth in births {
        world.fact(Fact::WorkerGone(birth));
    }
    assert!(!world.orders.desired.contains_key(&group()));
}

#[test]
fn users_of_a_deleted_group_whom_nobody_takes_are_served_until_its_pods_end_and_counted() {
    let other = GroupSpec {
        snapshot_format: "cart/2".into(),
        ..green_spec()
    };
    let mut world = two_groups(&[0.1, 0.1], other);
    let births = world.births();
    world.fact(Fact::GroupGone(group()));
    for birth in &births {
        let ends = WorkerFact {
            terminating: true,
            ..World::fact_of(*birth)
        };
        world.fact(Fact::Worker(Box::new(ends)));
    }
    world.pass(Duration::from_mins(1));
    assert_eq!((at(&world, "alice"), at(&world, "bob")), (births[0], births[1]));
    for birth in births {
        world.fact(Fact::WorkerGone(birth));
    }
    assert_eq!((world.owner("alice"), world.owner("bob")), (None, None));
    assert_eq!(world.lost("group_deleted"), 2);
    assert_eq!(world.lost("worker_died"), 0);
}

#[test]
fn a_pool_without_any_group_keeps_its_gateways_told() {
    let mut world = World::serving_with(blue_spec());
    let reception = world.births()[0];
    world.fact(Fact::GroupGone(group()));
    world.fact(Fact::WorkerGone(reception));
    world.agents.remove(&reception);
    let told = &world.commander.pools[&pool()].told;
    assert!(told.groups.is_empty() && told.workers.is_empty());
    let late = world.gateway();
    assert!(
        world.full_table(late).groups.is_empty(),
        "a gateway that dials now"
    );
    world.fact(Fact::Group(Box::new(green_spec())));
    world.make_wanted();
    assert_eq!(world.births_of(&green()).len(), 1, "its keys are still known");
    assert_eq!(world.commander.pools[&pool()].told.workers.len(), 1);
}
