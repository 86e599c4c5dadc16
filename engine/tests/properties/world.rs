//! Random policies, workers and groups, and how a plan is carried out on them.

use std::collections::BTreeMap;
use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::Survivors;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::{
    Action, Birth, Group, MoveMode, Plan, Policy, Share, Snapshot, WorkerState, WorkerView, plan,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};

/// The moment at which everything is asked.
pub(crate) const NOW: Duration = Duration::from_secs(1000);

/// As many cases as the environment asks for.
pub(crate) fn config() -> ProptestConfig {
    with_cases(cases())
}

/// For properties of which one case is a life of hundreds of plans: a fiftieth of the cases.
pub(crate) fn lives() -> ProptestConfig {
    ProptestConfig {
        max_shrink_iters: 300,
        ..with_cases(cases().div_ceil(50))
    }
}

fn cases() -> u32 {
    let wanted = std::env::var("ELASTIC_POOL_CASES");
    wanted.map_or(2_000, |text| {
        text.parse()
            .expect("ELASTIC_POOL_CASES must be a number of cases")
    })
}

fn with_cases(cases: u32) -> ProptestConfig {
    let seed = std::env::var("ELASTIC_POOL_SEED").unwrap_or_else(|_| "1".to_owned());
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 10_000,
        // Quicker than the default one, which takes longer than the engine.
        rng_algorithm: RngAlgorithm::XorShift,
        rng_seed: seed.parse().unwrap_or(RngSeed::Random),
        ..ProptestConfig::default()
    }
}

/// Thresholds and bounds that a PoolGroup may ask for.
pub(crate) fn any_policy() -> impl Strategy<Value = Policy> {
    let margin = prop_oneof![Just(150u32), 100u32..=300, 100u32..=1000];
    // Round ones, so that loads stand exactly on them, and any.
    let threshold = || prop_oneof![(1u32..=10).prop_map(|tens| tens * 10), 1u32..=100];
    let above_min = prop_oneof![0usize..6, 0usize..40];
    let bounds = (1usize..6, prop::option::of(above_min), 0usize..3);
    (threshold(), threshold(), margin, bounds, 1usize..10).prop_map(
        |(one, other, margin, (min, above_min, max_surge), smoothing_rows)| {
            let admission = Share::from_percent(one.max(other));
            Policy {
                reception: Share::from_percent(one.min(other)),
                admission,
                margin: admission.times(Share::from_percent(margin)),
                min,
                max: above_min.map(|more| min + more),
                max_surge,
                smoothing_rows,
                ..Policy::default()
            }
        },
    )
}

/// The defaults, or any.
pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![1 => Just(Policy::default()), 3 => any_policy()]
}

/// The same, with users that are moved or waited for.
pub(crate) fn policy_of_either_moves() -> impl Strategy<Value = Policy> {
    (policy(), any::<bool>()).prop_map(|(policy, live)| Policy {
        moves: if live { MoveMode::Live } else { MoveMode::Drain },
        ..policy
    })
}

/// A load of 0 to 1: nothing, little, any, round, and some within the tolerance of a round figure.
pub(crate) fn load() -> impl Strategy<Value = Share> {
    let near = (0u32..=100, -3i32..=3).prop_map(|(percent, off)| {
        let value = f64::from(percent) / 100.0 + f64::from(off) * 4e-10;
        Share::from_f64(value.clamp(0.0, 1.0)).unwrap()
    });
    prop_oneof![
        2 => Just(Share::ZERO),
        3 => (0u32..=20).prop_map(Share::from_percent),
        3 => (0u32..=100).prop_map(Share::from_percent),
        3 => (0u32..=10).prop_map(|tens| Share::from_percent(tens * 10)),
        1 => near,
    ]
}

/// Loads of one group: any, or only idle and full ones, where taking one away may leave nobody with room.
fn load_of(extreme: bool) -> BoxedStrategy<Share> {
    if extreme {
        let full = (8u32..=10).prop_map(|tens| Share::from_percent(tens * 10));
        let idle = (0u32..=5).prop_map(Share::from_percent);
        prop_oneof![2 => Just(Share::ZERO), 1 => idle, 3 => full].boxed()
    } else {
        load().boxed()
    }
}

/// Loads and users of as many routable workers as `sizes` allows, half of the groups small, of the others every size as likely as another.
pub(crate) fn steady(sizes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<WorkerView>> {
    let small = *sizes.start()..=*sizes.end().min(&(sizes.start() + 5));
    (prop_oneof![small, sizes], any::<bool>())
        .prop_flat_map(|(size, extreme)| prop::collection::vec((load_of(extreme), 0usize..30), size))
        .prop_map(|loads| {
            let view = |((occupancy, users), birth): ((Share, usize), u64)| WorkerView {
                occupancy,
                users,
                ..WorkerView::new(Birth(birth), &format!("w{birth}"))
            };
            loads.into_iter().zip(1..).map(view).collect()
        })
}

/// A moment around [`NOW`], so that every timeout lies before and after some of them.
pub(crate) fn moment() -> impl Strategy<Value = Duration> {
    let usual = prop_oneof![
        Just(NOW),
        (800u64..1200).prop_map(Duration::from_secs),
        (0u64..2000).prop_map(Duration::from_secs)
    ];
    (usual, -1i64..=1).prop_map(|(at, nanos)| match nanos {
        -1 => at.saturating_sub(Duration::from_nanos(1)),
        _ => at.saturating_add(Duration::from_nanos(nanos.unsigned_abs())),
    })
}

fn state() -> impl Strategy<Value = WorkerState> {
    let kind = prop_oneof![3 => Just(DrainKind::Compaction), 1 => Just(DrainKind::MustGo)];
    let progress = prop_oneof![
        Just(DrainProgress::Running),
        Just(DrainProgress::Empty),
        Just(DrainProgress::Stuck)
    ];
    prop_oneof![
        10 => Just(WorkerState::Routable),
        1 => moment().prop_map(|since| WorkerState::Nascent { since }),
        1 => (kind, moment(), progress).prop_map(|(kind, since, progress)| {
            WorkerState::Draining(Drain { kind, since, progress })
        }),
        1 => any::<bool>().prop_map(|must_go| WorkerState::Retiring { must_go }),
    ]
}

/// Any worker in any state; how much of it is known depends on `doubt`.
pub(crate) fn worker(doubt: u32) -> impl Strategy<Value = WorkerView> {
    worker_of(doubt, false)
}

fn worker_of(doubt: u32, extreme: bool) -> impl Strategy<Value = WorkerView> {
    let doubtful = move || prop::bool::weighted(f64::from(doubt) / 100.0);
    let at = || prop::option::weighted(0.2, moment());
    let transit = prop_oneof![4 => Just(Share::ZERO), 1 => load()];
    (
        state(),
        (load_of(extreme), transit, 0usize..6),
        (doubtful(), doubtful()),
        (at(), at(), at()),
    )
        .prop_map(
            |(state, (occupancy, transit, users), (stale, cold), (stale_from, room_until, passed))| {
                WorkerView {
                    state,
                    occupancy,
                    transit,
                    users,
                    stale,
                    warm: !cold,
                    stale_from,
                    room_until,
                    passed_over_until: passed,
                    ..WorkerView::new(Birth(0), "")
                }
            },
        )
}

/// Up to `most` workers in any state, in order of birth; everything is known of half of the groups.
pub(crate) fn any_workers(most: usize) -> impl Strategy<Value = Vec<WorkerView>> {
    let doubt = prop_oneof![Just(0), Just(0), Just(10), Just(40)];
    (doubt, prop_oneof![Just(4.min(most)), Just(most)], any::<bool>())
        .prop_flat_map(|(doubt, most, extreme)| prop::collection::vec(worker_of(doubt, extreme), 0..=most))
        .prop_map(|mut workers| {
            for (worker, birth) in workers.iter_mut().zip(1..) {
                worker.birth = Birth(birth);
                worker.name = format!("w{birth}").into();
            }
            workers
        })
}

/// Up to five failures, the last of them around [`NOW`].
pub(crate) fn spawns() -> impl Strategy<Value = SpawnHistory> {
    let none = Just(SpawnHistory::default());
    let some = (1u32..6, moment()).prop_map(|(failures, at)| SpawnHistory {
        failures,
        last_failure: Some(at),
        fault: Some(SpawnFault::TimedOut),
    });
    prop_oneof![3 => none, 1 => some]
}

/// The plan at `now`, after silence was seen.
pub(crate) fn plan_at(group: &mut Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Plan {
    group.expire(now);
    plan(
        &Snapshot {
            group,
            policy,
            spawns,
        },
        now,
    )
}

/// The plan of these workers at [`NOW`], no spawn having failed.
pub(crate) fn planned(group: &Group, policy: &Policy) -> Plan {
    plan_at(&mut group.clone(), policy, &SpawnHistory::default(), NOW)
}

/// What a plan does.
pub(crate) fn actions(plan: &Plan) -> Vec<Action> {
    plan.actions().collect()
}

/// Carries a drain out: every user goes where C6 says, then the worker is gone. Who took how much of it.
pub(crate) fn empty(group: &mut Group, policy: &Policy, drained: Birth) -> Vec<(Birth, Share)> {
    let worker = group.get(drained).unwrap().clone();
    let mut survivors = Survivors::without(group, policy, drained, &BTreeMap::new());
    let users = match worker.occupancy {
        Share::ZERO => 0,
        _ => worker.users.max(1),
    };
    let share = worker.share_per_user();
    let targets: Vec<Birth> = (0..users).map(|_| survivors.take(share).unwrap()).collect();
    group.remove(drained);
    for target in &targets {
        group.update(*target, |view| {
            view.occupancy += share;
            view.users += 1;
        });
    }
    targets.into_iter().map(|target| (target, share)).collect()
}

/// Closes a worker: it is emptied from `since` on.
pub(crate) fn close(group: &mut Group, birth: Birth, kind: DrainKind, since: Duration) {
    let progress = DrainProgress::Running;
    let drain = Drain {
        kind,
        since,
        progress,
    };
    group.update(birth, |worker| worker.state = WorkerState::Draining(drain));
}

/// A closed worker takes newcomers again.
pub(crate) fn reopen(group: &mut Group, birth: Birth) {
    group.update(birth, |worker| worker.state = WorkerState::Routable);
}

/// Takes a worker out of its group; nobody may live there.
pub(crate) fn retire(group: &mut Group, users: &[(Birth, Share)], birth: Birth) {
    assert!(users.iter().all(|(home, _)| *home != birth), "retired with users");
    group.remove(birth);
}
