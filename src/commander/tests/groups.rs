//! Several groups at once, in one pool and in several (T1), and groups whose users are client ids (P7).

use std::time::Duration;

use super::manifest::{group, pool, spec};
use super::world::World;
use crate::channel::proto::{Report, UserBorn, agent_message, gateway_command};
use crate::credentials::Key;
use crate::vehicle::{Fact, GroupSpec, ObjectKey, PoolKeys};

pub(super) fn green() -> ObjectKey {
    ObjectKey {
        name: "shop-green".into(),
        ..group()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        name: name.into(),
        ..group()
    }
}

/// A second group in the first pool, and a third in a pool of its own.
fn three_groups() -> World {
    let mut world = World::serving();
    let groups = [(green(), pool()), (key("desk-blue"), key("desk"))];
    let keys = PoolKeys {
        pool: Key::random().unwrap(),
        ticket: Key::random().unwrap(),
    };
    world.fact(Fact::Keys(key("desk"), keys));
    for (key, pool) in groups {
        let spec = GroupSpec {
            key,
            pool,
            default_group: false,
            ..spec()
        };
        world.fact(Fact::Group(Box::new(spec)));
    }
    world.make_wanted();
    world
}

fn cpu(cpu: f64) -> Report {
    Report {
        cpu: Some(cpu),
        ..Report::default()
    }
}

#[test]
fn each_group_grows_by_itself() {
    let mut world = three_groups();
    let busy = world.births_of(&green())[0];
    for _ in 0..2 {
        world.pass(Duration::from_secs(5));
        world.report(busy, cpu(0.9));
    }
    assert!(world.wanted(&group()).is_empty());
    assert!(world.wanted(&key("desk-blue")).is_empty());
    assert_eq!(world.wanted(&green()).len(), 1);
}

#[test]
fn births_are_unique_over_all_groups() {
    let world = three_groups();
    let mut births: Vec<_> = [group(), green(), key("desk-blue")]
        .iter()
        .flat_map(|group| world.births_of(group))
        .collect();
    births.sort();
    births.dedup();
    assert_eq!(births.len(), 3);
}

#[test]
fn a_deleted_group_takes_nothing_of_the_others_along() {
    let mut world = three_groups();
    let doomed = world.births_of(&green())[0];
    world.fact(Fact::GroupGone(green()));
    world.fact(Fact::WorkerGone(doomed));
    assert!(!world.orders.desired.contains_key(&green()));
    assert!(world.orders.desired.contains_key(&group()));
    assert_eq!(world.births().len(), 1);
    let told = &world.commander.pools[&pool()].told;
    assert_eq!(told.groups.keys().collect::<Vec<_>>(), ["shop-blue"]);
    assert_eq!(told.workers.len(), 1);
}

#[test]
fn a_report_of_one_group_rebuilds_nothing_of_the_others() {
    let mut world = three_groups();
    let before = world.orders.clone();
    let busy = world.births_of(&green())[0];
    world.pass(Duration::from_secs(5));
    world.report(busy, cpu(0.3));
    let views = |orders: &crate::vehicle::Orders, key: &ObjectKey| std::sync::Arc::as_ptr(&orders.views[key]);
    for other in [group(), key("desk-blue")] {
        assert_eq!(views(&before, &other), views(&world.orders, &other));
    }
}

fn sessions() -> GroupSpec {
    GroupSpec {
        session_users: true,
        live_moves: false,
        ..spec()
    }
}

fn newcomer(world: &World) -> u64 {
    world.commander.pools[&pool()].told.groups["shop-blue"].newcomer
}

#[test]
fn clients_of_a_session_group_are_placed_before_their_first_request() {
    let mut world = World::with_workers(sessions(), &[0.4, 0.2]);
    let (reception, second) = (world.births()[0], world.births()[1]);
    assert_eq!(newcomer(&world), reception.0, "P2: the reception keeps them");
    world.reports(&[0.7, 0.2]);
    world.reports(&[0.7, 0.2]);
    assert_eq!(newcomer(&world), second.0, "P3: it passes them");
    let told = world.gateways[0]
        .told
        .iter()
        .rev()
        .find_map(|command| match command {
            gateway_command::Command::Table(table) if !table.groups.is_empty() => {
                Some(table.groups[0].newcomer)
            }
            _ => None,
        });
    assert_eq!(told, Some(second.0), "gateways know");
}

#[test]
fn a_session_stays_where_it_began_and_a_drain_waits_for_it() {
    let mut world = World::with_workers(sessions(), &[0.3, 0.3]);
    let second = world.births()[1];
    let client = "04".repeat(16);
    let born = UserBorn {
        user: client.clone(),
        client: client.clone(),
    };
    world.say(second, agent_message::Message::UserBorn(born));
    assert_eq!(world.owner(&client).map(|(owner, _)| owner), Some(second));
    for _ in 0..12 {
        world.reports(&[0.01, 0.01]);
    }
    assert_eq!(world.drained(), [second], "C7: under Drain it waits");
    assert_eq!(world.owner(&client).map(|(owner, _)| owner), Some(second), "P7");
    assert!(world.retired().is_empty());
}

#[test]
fn a_drain_waits_for_clients_seen_once() {
    let mut world = World::with_workers(sessions(), &[0.3, 0.3]);
    let second = world.births()[1];
    for _ in 0..6 {
        world.pass(Duration::from_secs(5));
        for birth in world.births() {
            let report = Report {
                unconfirmed: u64::from(birth == second),
                ..cpu(0.01)
            };
            world.report(birth, report);
        }
    }
    assert_eq!(world.drained(), [second]);
    assert!(world.retired().is_empty(), "P7: a second request may come");
    world.reports(&[0.01]);
    assert_eq!(world.retired(), [second]);
}
