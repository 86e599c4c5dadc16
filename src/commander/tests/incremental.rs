//! What gateways and the vehicle are told event by event is what they would be told of everything anew.

use std::collections::BTreeMap;
use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use proptest::prelude::*;

use super::groups::green;
use super::manifest::{group, pool, spec};
use super::world::World;
use crate::channel::proto::{self, Report, gateway_command};
use crate::vehicle::{Fact, GroupSpec, GroupView, Mode, ObjectKey, SpawnFailure, WorkerFact};

#[derive(Debug, Clone)]
enum Step {
    Report {
        worker: usize,
        cpu: f64,
    },
    Pass(u64),
    Login {
        user: u8,
        worker: usize,
    },
    Make,
    MakeUnready,
    Fact {
        worker: usize,
        change: u8,
    },
    Gone(usize),
    SpawnFails,
    Restart(usize),
    Change {
        green: bool,
        min: u32,
        max: u32,
        hash: bool,
        mode: u8,
    },
    GroupGone,
    Gateway,
}

fn step() -> impl Strategy<Value = Step> {
    let worker = 0usize..6;
    prop_oneof![
        8 => (worker.clone(), prop::sample::select(vec![0.0, 0.2, 0.6, 0.9, -1.0]))
            .prop_map(|(worker, cpu)| Step::Report { worker, cpu }),
        4 => (100u64..9000).prop_map(Step::Pass),
        4 => (0u8..8, worker.clone()).prop_map(|(user, worker)| Step::Login { user, worker }),
        3 => Just(Step::Make),
        1 => Just(Step::MakeUnready),
        2 => (worker.clone(), 0u8..5).prop_map(|(worker, change)| Step::Fact { worker, change }),
        1 => worker.clone().prop_map(Step::Gone),
        1 => Just(Step::SpawnFails),
        1 => worker.prop_map(Step::Restart),
        2 => (any::<bool>(), 1u32..4, 1u32..5, any::<bool>(), 0u8..3)
            .prop_map(|(green, min, max, hash, mode)| Step::Change { green, min, max, hash, mode }),
        1 => Just(Step::GroupGone),
        1 => Just(Step::Gateway),
    ]
}

fn nth(world: &World, worker: usize) -> Option<Birth> {
    let births: Vec<Birth> = world.commander.workers.keys().copied().collect();
    (!births.is_empty()).then(|| births[worker % births.len()])
}

fn take(world: &mut World, step: &Step) {
    match *step {
        Step::Report { worker, cpu } => {
            if let Some(birth) = nth(world, worker) {
                let report = Report {
                    cpu: Some(cpu),
                    ..Report::default()
                };
                world.report(birth, report);
            }
        }
        Step::Pass(milliseconds) => world.pass(Duration::from_millis(milliseconds)),
        Step::Login { user, worker } => {
            let at = nth(world, worker).filter(|birth| world.agents.contains_key(birth));
            if let Some(at) = at {
                world.login(&format!("user-{user}"), user, at);
            }
        }
        Step::Make => drop(world.make_wanted()),
        Step::MakeUnready => {
            for birth in world.wanted(&group()) {
                let fact = WorkerFact {
                    ready: false,
                    address: String::new(),
                    ..World::fact_of(birth)
                };
                world.fact(Fact::Worker(Box::new(fact)));
            }
        }
        Step::Fact { worker, change } => change_fact(world, worker, change),
        Step::Gone(worker) => {
            if let Some(birth) = nth(world, worker) {
                world.fact(Fact::WorkerGone(birth));
                world.agents.remove(&birth);
            }
        }
        Step::SpawnFails => {
            if let Some(birth) = world.wanted(&group()).first().copied() {
                let failure = SpawnFailure::NoCapacity("quota".into());
                world.fact(Fact::SpawnFailed(group(), birth, failure));
            }
        }
        Step::Restart(worker) => {
            if let Some(birth) = nth(world, worker).filter(|birth| world.agents.contains_key(birth)) {
                world.restart_app(birth);
            }
        }
        Step::Change {
            green: second,
            min,
            max,
            hash,
            mode,
        } => {
            let key = if second { green() } else { group() };
            let spec = GroupSpec {
                key,
                default_group: !second,
                session_users: second,
                min: min.min(max),
                max: Some(max),
                template_hash: if hash { "t2" } else { "t1" }.into(),
                mode: [Mode::Active, Mode::Recommend, Mode::Frozen][usize::from(mode)],
                ..spec()
            };
            world.fact(Fact::Group(Box::new(spec)));
        }
        Step::GroupGone => world.fact(Fact::GroupGone(green())),
        Step::Gateway => {
            world.gateway();
        }
    }
}

fn change_fact(world: &mut World, worker: usize, change: u8) {
    let Some(birth) = nth(world, worker) else { return };
    let Some(mut fact) = world.commander.workers[&birth].fact.clone() else {
        return;
    };
    match change {
        0 => fact.address = "10.0.0.9:15080".into(),
        1 => fact.ready = !fact.ready,
        2 => fact.must_go = true,
        3 => fact.failure = Some(SpawnFailure::Mistake("crash".into())),
        _ => fact.template_hash = "t0".into(),
    }
    world.fact(Fact::Worker(Box::new(fact)));
}

/// A view without the figures that are brought up to date once a second.
fn lasting(view: &GroupView) -> GroupView {
    GroupView {
        users: 0,
        capacity_points: 0,
        occupied_points: 0,
        headroom_points: 0,
        ..view.clone()
    }
}

/// What the gateway copied, from the tables that it was sent one after the other.
fn copied(world: &World, gateway: usize) -> (BTreeMap<u64, proto::Worker>, Vec<proto::Group>) {
    let (mut workers, mut groups) = (BTreeMap::new(), Vec::new());
    for command in &world.gateways[gateway].told {
        let gateway_command::Command::Table(table) = command else {
            continue;
        };
        if table.full {
            workers.clear();
        }
        if table.full || !table.groups.is_empty() {
            groups.clone_from(&table.groups);
        }
        workers.extend(table.workers.iter().map(|worker| (worker.birth, worker.clone())));
        for dead in &table.dead {
            workers.remove(dead);
        }
    }
    (workers, groups)
}

fn check(world: &World) {
    let commander = &world.commander;
    for (key, group) in &commander.groups {
        assert_eq!(world.orders.desired.get(key), Some(&group.desired()), "{key}");
        let told = world.orders.views.get(key).map(|view| lasting(view));
        assert_eq!(told, Some(lasting(&commander.group_view(group))), "{key}");
    }
    assert_eq!(world.orders.desired.len(), commander.groups.len());
    let of_pool = |key: &&ObjectKey| commander.groups[*key].spec.pool == pool();
    let groups: Vec<&ObjectKey> = commander.groups.keys().filter(of_pool).collect();
    let births = groups.iter().flat_map(|key| world.births_of(key));
    let workers: BTreeMap<u64, proto::Worker> = births
        .filter_map(|birth| Some((birth.0, commander.gateway_view(birth)?)))
        .collect();
    let rows: Vec<proto::Group> = groups.iter().filter_map(|key| commander.group_row(key)).collect();
    for gateway in 0..world.gateways.len() {
        assert_eq!(
            copied(world, gateway),
            (workers.clone(), rows.clone()),
            "gateway {gateway}"
        );
    }
}

fn check_figures(world: &World) {
    for (key, group) in &world.commander.groups {
        assert_eq!(
            *world.orders.views[key],
            world.commander.group_view(group),
            "{key}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_event_by_event_is_what_would_be_told_anew(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::serving();
        for step in steps {
            take(&mut world, &step);
            check(&world);
        }
        world.pass(Duration::from_millis(1200));
        check_figures(&world);
    }
}
