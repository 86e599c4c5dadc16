//! Properties of placement, growth and compaction over random groups (C5 above all).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::time::Duration;

use elastic_pool_engine::capacity::{SpawnHistory, growth, has_room};
use elastic_pool_engine::compaction::{Step, Survivors, compaction};
use elastic_pool_engine::ledger::Ledger;
use elastic_pool_engine::occupancy::{Limits, Reading};
use elastic_pool_engine::placement::{Verdict, place};
use elastic_pool_engine::report::{Executor, Report};
use elastic_pool_engine::window::{Row, Window};
use elastic_pool_engine::{
    Action, Birth, Group, Plan, Policy, Share, Snapshot, WorkerState, WorkerView, forward::Forwards,
    group::Drain, group::DrainKind, group::DrainProgress, plan,
};
use proptest::prelude::*;

const NOW: Duration = Duration::from_secs(1000);

fn thresholds() -> impl Strategy<Value = Policy> {
    (
        0u32..=100,
        1u32..=100,
        100u32..=300,
        1usize..5,
        prop::option::of(5usize..40),
    )
        .prop_map(|(reception, admission, margin, min, max)| {
            let admission_share = Share::from_percent(admission);
            Policy {
                reception: Share::from_percent(reception.min(admission)),
                admission: admission_share,
                margin: admission_share.times(Share::from_percent(margin)),
                min,
                max,
                ..Policy::default()
            }
        })
}

fn defaults_or_any() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::default()), thresholds()]
}

/// Loads as the last three digits of a fraction and users, of 0 to 50 routable workers.
fn loads() -> impl Strategy<Value = Vec<(u32, usize)>> {
    prop::collection::vec((prop_oneof![Just(0), 0u32..=20, 0u32..=100], 0usize..30), 0..50)
}

fn group(loads: &[(u32, usize)]) -> Group {
    let worker = |((load, users), birth): (&(u32, usize), u64)| WorkerView {
        occupancy: Share::from_percent(*load),
        users: *users,
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    };
    loads.iter().zip(1..).map(worker).collect()
}

/// Any worker in any state, known or not.
fn any_group() -> impl Strategy<Value = Vec<WorkerView>> {
    let worker = (0u8..9, 0u32..=100, 0usize..5, any::<[bool; 4]>(), 0u64..2000);
    prop::collection::vec(worker, 0..12).prop_map(|workers| {
        let view = |((state, load, users, flags, at), birth): (_, u64)| {
            let [stale, warm, young, passed] = flags;
            let since = Duration::from_secs(at);
            let drain = |kind, progress| {
                WorkerState::Draining(Drain {
                    kind,
                    since,
                    progress,
                })
            };
            WorkerView {
                state: match state {
                    0 => WorkerState::Nascent { since },
                    1 => drain(DrainKind::Compaction, DrainProgress::Running),
                    2 => drain(DrainKind::MustGo, DrainProgress::Empty),
                    3 => WorkerState::Retiring { must_go: stale },
                    _ => WorkerState::Routable,
                },
                occupancy: Share::from_percent(load),
                users,
                stale: stale && at % 3 == 0,
                warm: warm || at % 2 == 0,
                room_until: young.then_some(since),
                passed_over_until: passed.then_some(since),
                ..WorkerView::new(Birth(birth), &format!("w{birth}"))
            }
        };
        workers.into_iter().zip(1..).map(view).collect()
    })
}

fn planned(group: &Group, policy: &Policy) -> Plan {
    plan(
        &Snapshot {
            group,
            policy,
            spawns: &SpawnHistory::default(),
        },
        NOW,
    )
}

/// Carries a drain out: every user goes where C6 says, then the worker is gone.
fn empty(group: &mut Group, policy: &Policy, drained: Birth) {
    let worker = group.get(drained).unwrap().clone();
    let mut survivors = Survivors::without(group, policy, drained, &BTreeMap::new());
    let users = if worker.occupancy == Share::ZERO {
        0
    } else {
        worker.users.max(1)
    };
    let targets: Vec<Birth> = (0..users)
        .map(|_| survivors.take(worker.share_per_user()).unwrap())
        .collect();
    group.remove(drained);
    for target in targets {
        group.update(target, |view| {
            view.occupancy += worker.share_per_user();
            view.users += 1;
        });
    }
}

/// Lets a group run on constant input; how many workers it has after each step.
fn settle(group: &mut Group, policy: &Policy) -> Vec<usize> {
    let mut sizes = vec![group.living()];
    for birth in 1000.. {
        let Some(action) = planned(group, policy).actions().next() else {
            return sizes;
        };
        match action {
            Action::Spawn { count } => (0..count as u64).for_each(|i| {
                group.put(WorkerView::new(Birth(birth * 1000 + i), "new"));
            }),
            Action::Drain { birth } => empty(group, policy, birth),
            other => panic!("{other:?} without a drain or a spawn under way"),
        }
        sizes.push(group.living());
        assert!(sizes.len() < 200, "never settles: {sizes:?}");
    }
    sizes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn with_constant_input_the_size_changes_in_one_direction_only(loads in loads(), policy in defaults_or_any()) {
        let mut group = group(&loads);
        let sizes = settle(&mut group, &policy);
        prop_assert!(sizes.is_sorted() || sizes.is_sorted_by(|a, b| a >= b), "{:?}", sizes);
        prop_assert!(group.living() >= policy.min);
    }

    #[test]
    fn growing_then_shrinking_is_a_fixed_point(loads in loads(), policy in defaults_or_any()) {
        let mut group = group(&loads);
        settle(&mut group, &policy);
        let before = group.living();
        prop_assert_eq!(settle(&mut group, &policy), [before]);
    }

    #[test]
    fn a_compaction_leaves_headroom_and_asks_for_nobody(loads in loads(), policy in defaults_or_any()) {
        let policy = Policy { max: None, ..policy };
        let mut group = group(&loads);
        if let Step::Drain(victim) = compaction(&group, &policy, NOW).step {
            empty(&mut group, &policy, victim);
            let ledger = Ledger::of(&group, &policy);
            let spare = policy.margin - policy.admission;
            prop_assert!(!spare.exceeds(ledger.headroom), "{} with {} to spare", ledger, spare);
            prop_assert!(has_room(&group, &policy, NOW).is_ok());
            prop_assert_eq!(growth(&group, &policy, &SpawnHistory::default(), NOW).spawn, 0);
            prop_assert!(group.placeable_count() >= policy.min);
        }
    }

    #[test]
    fn a_victim_is_known_free_and_not_the_reception(workers in any_group(), policy in defaults_or_any()) {
        let group: Group = workers.into_iter().collect();
        for action in planned(&group, &policy).actions() {
            if let Action::Drain { birth } = action {
                let victim = group.get(birth).unwrap();
                prop_assert!(Some(birth) != group.reception().map(|worker| worker.birth));
                prop_assert!(victim.is_placeable() && !victim.stale && victim.warm);
                prop_assert!(victim.passed_over_until.is_none_or(|until| until <= NOW));
                prop_assert_eq!(group.stale().len() + group.cold_count(), 0);
                prop_assert!(group.placeable_count() > policy.min);
            }
        }
    }

    #[test]
    fn growth_stays_within_max_and_its_surge(workers in any_group(), policy in defaults_or_any()) {
        let group: Group = workers.into_iter().collect();
        let growth = growth(&group, &policy, &SpawnHistory::default(), NOW);
        let overdue = group.overdue(policy.spawn_timeout, NOW).count();
        if growth.spawn > 0 && let Some(max) = policy.max {
            prop_assert!(group.living() - overdue + growth.spawn <= max + policy.max_surge);
        }
    }

    #[test]
    fn the_order_in_memory_does_not_matter(workers in any_group().prop_shuffle(), policy in defaults_or_any()) {
        let shuffled: Group = workers.iter().cloned().collect();
        let mut sorted = workers;
        sorted.sort_by_key(|worker| worker.birth);
        let sorted: Group = sorted.into_iter().collect();
        let (one, other) = (planned(&shuffled, &policy), planned(&sorted, &policy));
        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
        prop_assert_eq!(place(&shuffled, &policy, None), place(&sorted, &policy, None));
    }

    #[test]
    fn a_login_is_never_refused_while_a_worker_is_open(
        workers in any_group(),
        policy in defaults_or_any(),
        at in prop::option::of(1u64..13),
    ) {
        let group: Group = workers.into_iter().collect();
        let at = at.map(Birth);
        match place(&group, &policy, at) {
            Err(_) => prop_assert_eq!(group.placeable_count(), 0),
            Ok(placement) => {
                let worker = group.get(placement.worker).unwrap();
                prop_assert!(worker.is_placeable());
                let room = worker.occupancy < policy.admission;
                // Of a stale worker nothing is known: its last figure is no room.
                prop_assert!(!placement.warning || !room || worker.stale);
                let home = at.filter(|birth| group.get(*birth).is_some());
                let home = home.or_else(|| group.reception().map(|worker| worker.birth));
                prop_assert_eq!(placement.verdict == Verdict::Keep, Some(placement.worker) == home);
            }
        }
    }

    #[test]
    fn an_occupancy_is_a_share_of_one_whatever_is_reported(readings in prop::collection::vec(any::<[f64; 4]>(), 0..8)) {
        let mut window = Window::new(60, "a");
        for [cpu, rss, busy, total] in readings {
            let executor = Executor { busy: Some(busy), total: Some(total), queue_depth: None };
            let report = Report { cpu: Some(cpu), rss: Some(rss), executor, ..Report::default() };
            // On purpose without the sanitising that every report goes through: nothing else may lean on it.
            window.push(Row { at: NOW, report, forward: Forwards::default() });
        }
        let limits = Limits { memory_bytes: Some(1 << 29), cpu_cores: 0.2 };
        let reading = Reading::of(&window, 6, &limits);
        prop_assert!(reading.occupancy >= Share::ZERO && reading.occupancy <= Share::ONE);
    }
}

#[test]
fn one_silent_worker_stops_the_shrinking_and_not_the_growing() {
    let mut idle = group(&[(0, 1), (0, 0), (0, 3)]);
    idle.update(Birth(2), |worker| worker.stale = true);
    assert_eq!(
        planned(&idle, &Policy::default()).actions().collect::<Vec<_>>(),
        []
    );
    let mut full = group(&[(100, 1), (30, 0), (100, 3)]);
    full.update(Birth(2), |worker| worker.stale = true);
    assert_eq!(
        planned(&full, &Policy::default()).actions().collect::<Vec<_>>(),
        [Action::Spawn { count: 1 }]
    );
}
