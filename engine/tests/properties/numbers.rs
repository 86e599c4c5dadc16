//! Arithmetic, also at the ends of the number types.

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::Survivors;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress};
use elastic_pool_engine::ledger::{Ledger, Transit};
use elastic_pool_engine::placement::place;
use elastic_pool_engine::{Action, Birth, Group, MoveMode, Policy, Share, WorkerState, WorkerView};
use proptest::prelude::*;
use std::collections::BTreeMap;

use crate::world::{config, plan_at};

/// A number as its type's ends and middle are.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        Just(1),
        0usize..20,
        Just(usize::MAX),
        Just(usize::MAX - 1),
        any::<usize>()
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        Just(Duration::MAX.saturating_sub(Duration::from_nanos(1))),
        Just(Duration::from_nanos(1)),
        any::<u64>().prop_map(Duration::from_secs),
        (0u64..2000).prop_map(Duration::from_secs),
    ]
}

/// The largest share; its negative is one unit above the least.
fn largest() -> Share {
    Share::from_percent(u32::MAX).times_count(usize::MAX)
}

fn least() -> Share {
    Share::ZERO - largest() - largest()
}

fn share() -> impl Strategy<Value = Share> {
    let unit = Share::from_f64(1e-12).unwrap();
    let near = move |share: Share, off: usize, less: bool| {
        let off = unit.times_count(off);
        if less { share - off } else { share + off }
    };
    let base = prop_oneof![
        Just(Share::ZERO),
        Just(Share::ONE),
        Just(largest()),
        Just(least()),
        (0u32..=300).prop_map(Share::from_percent),
        (-1e6..1e6).prop_map(|value| Share::from_f64(value).unwrap()),
    ];
    (base, 0usize..3, any::<bool>()).prop_map(move |(share, off, less)| near(share, off, less))
}

fn extreme_worker() -> impl Strategy<Value = WorkerView> {
    let state = prop_oneof![
        3 => Just(None),
        1 => (0u8..5, time()).prop_map(Some),
    ];
    let times = prop::array::uniform3(prop::option::of(time()));
    (state, share(), share(), 0usize..3, times, any::<[bool; 2]>()).prop_map(
        |(state, occupancy, transit, users, [stale_from, room_until, passed_over_until], [stale, warm])| {
            let drain = |kind, progress, since| {
                WorkerState::Draining(Drain {
                    kind,
                    since,
                    progress,
                })
            };
            WorkerView {
                state: match state {
                    None => WorkerState::Routable,
                    Some((0, since)) => WorkerState::Nascent { since },
                    Some((1, since)) => drain(DrainKind::MustGo, DrainProgress::Running, since),
                    Some((2, since)) => drain(DrainKind::Compaction, DrainProgress::Stuck, since),
                    Some((3, since)) => drain(DrainKind::Compaction, DrainProgress::Empty, since),
                    Some(_) => WorkerState::Retiring { must_go: true },
                },
                occupancy,
                transit,
                users,
                stale: stale && !warm,
                warm,
                stale_from,
                room_until,
                passed_over_until,
                ..WorkerView::new(Birth(0), "w")
            }
        },
    )
}

fn extreme_workers() -> impl Strategy<Value = Vec<WorkerView>> {
    let birth = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    prop::collection::vec((extreme_worker(), birth), 0..8).prop_map(|workers| {
        let named = |(worker, birth)| WorkerView {
            birth: Birth(birth),
            ..worker
        };
        workers.into_iter().map(named).collect()
    })
}

fn extreme_policy() -> impl Strategy<Value = Policy> {
    let shares = prop::array::uniform3(share());
    let sizes = (size(), prop::option::of(size()), size(), size());
    (shares, sizes, time(), time(), any::<bool>()).prop_map(
        |(
            [reception, admission, margin],
            (min, max, max_surge, rows),
            spawn_timeout,
            drain_timeout,
            live,
        )| {
            Policy {
                reception,
                admission,
                margin,
                min,
                max: max.map(|max| max.max(min)),
                max_surge,
                smoothing_rows: rows,
                spawn_timeout,
                drain_timeout,
                interval: spawn_timeout,
                moves: if live { MoveMode::Live } else { MoveMode::Drain },
                ..Policy::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn g5_min_is_aimed_for_on_every_path_and_nothing_overflows(
        workers in extreme_workers(),
        policy in extreme_policy(),
        failures in any::<u32>(),
        last in prop::option::of(time()),
        now in time(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let spawns = SpawnHistory { failures, last_failure: last, fault: None };
        let plan = plan_at(&mut group, &policy, &spawns, now);
        let ledger = Ledger::of(&group, &policy);
        prop_assert_eq!(plan.ledger, ledger);
        prop_assert!(!ledger.to_string().is_empty() && policy.smoothing_window() >= Duration::ZERO);
        let coming = group.in_flight(policy.spawn_timeout, now).count();
        let before = (group.placeable_count() + coming) as u128;
        let (mut target, mut grows, mut codes) = (before, false, Vec::new());
        for decision in &plan.decisions {
            codes.push(decision.because.code);
            match decision.action {
                Some(Action::Spawn { count }) => {
                    grows = true;
                    target += count as u128;
                    if let Some(max) = policy.max {
                        let surge = policy.max_surge.min(group.must_go_count()) as u128;
                        let given_up = group.overdue(policy.spawn_timeout, now).count();
                        let living = (group.living() - given_up) as u128;
                        prop_assert!(living + count as u128 <= max as u128 + surge);
                    }
                }
                Some(Action::CancelDrain { .. }) => target += 1,
                Some(Action::Drain { .. } | Action::CancelSpawn { .. }) => {
                    target -= 1;
                    prop_assert!(target >= policy.min as u128, "shrinks below min: {:?}", plan.decisions);
                }
                _ => {}
            }
        }
        let held = codes.iter().any(|code| matches!(*code, "max_workers" | "backing_off"));
        // Max may stop short of min only where those who leave still count.
        let limited = policy.max.is_some() && grows;
        prop_assert!(held || limited || target >= policy.min as u128, "{} in {:?}", target, plan.decisions);
        prop_assert!(place(&group, &policy, None).is_ok() || group.placeable_count() == 0);
        let drained = group.workers().next().map(|worker| worker.birth);
        let mut survivors = Survivors::without(&group, &policy, drained.unwrap_or_default(), &BTreeMap::new());
        survivors.take(largest());
        survivors.take(largest());
    }

    #[test]
    fn shares_add_up_in_any_order(mut loads in prop::collection::vec(0u32..=1_000_000, 0..60), at in 0usize..60) {
        let share = |load: &u32| Share::from_f64(f64::from(*load) / 1e6).unwrap();
        let sum: Share = loads.iter().map(share).sum();
        let middle = at.min(loads.len());
        loads.rotate_left(middle);
        let (head, tail) = loads.split_at(loads.len() / 2);
        let halves: Share = [head, tail].into_iter().map(|part| part.iter().map(share).sum()).sum();
        prop_assert_eq!(sum, halves);
        let millionths: u64 = loads.iter().map(|load| u64::from(*load)).sum();
        prop_assert_eq!(sum, Share::from_f64(millionths as f64 / 1e6).unwrap());
        let mut kept = sum;
        for load in &loads {
            kept -= share(load);
        }
        prop_assert_eq!(kept, Share::ZERO);
    }

    #[test]
    fn shares_saturate_and_keep_their_order(a in share(), b in share(), c in share()) {
        let (low, high) = (a.min(b), a.max(b));
        prop_assert!(low + c <= high + c && low - c <= high - c && c - high <= c - low);
        prop_assert_eq!(a + b, b + a);
        prop_assert!(high + c.max(Share::ZERO) >= high && low - c.max(Share::ZERO) <= low);
        prop_assert_eq!(a.clamped(), a.max(Share::ZERO).min(Share::ONE));
        prop_assert!(least() <= a && a <= largest());
        prop_assert!(!(a.exceeds(b) && b.exceeds(a)));
        prop_assert!(!a.exceeds(a) && !a.exceeds(a + Share::TOLERANCE) && !(a + Share::TOLERANCE).exceeds(a));
        prop_assert_eq!(a.exceeds(b), a - b > Share::TOLERANCE);
        prop_assert_eq!(a.times(Share::ONE), a);
        prop_assert_eq!(a.times(b), b.times(a));
    }

    #[test]
    fn shares_divide_and_multiply_to_the_nearest_unit(a in share(), parts in size(), factor in 0u32..1000) {
        prop_assert_eq!(a.divided(1), a);
        prop_assert_eq!(a.divided(0), a);
        prop_assert_eq!(a.times_count(1), a);
        prop_assert_eq!(a.times_count(0), Share::ZERO);
        prop_assert_eq!(a.divided(2).times_count(2).exceeds(a), false);
        let part = a.divided(parts);
        let (low, high) = (a.min(Share::ZERO), a.max(Share::ZERO));
        prop_assert!(low <= part && part <= high);
        if parts > 0 && parts < 1000 && a.as_f64().abs() <= 1e6 {
            // What is lost or won by rounding is at most half a unit a part.
            let unit = Share::from_f64(1e-12).unwrap();
            let back = part.times_count(parts);
            let lost = (a.max(back) - a.min(back)).times_count(2);
            prop_assert!(lost <= unit.times_count(parts), "{} in {}: {}", a, parts, part);
            let factor = factor as usize;
            prop_assert_eq!(a.times_count(factor), std::iter::repeat_n(a, factor).sum());
        }
    }

    #[test]
    fn c4_what_is_in_transit_is_never_more_than_was_moved(moved in share(), rows in size(), smoothing in size()) {
        let left = Transit { target: Birth(1), moved, rows }.remaining(smoothing);
        let (low, high) = (moved.min(Share::ZERO), moved.max(Share::ZERO));
        let saturates = moved.as_f64().abs() > 1e3;
        prop_assert!(saturates || smoothing > 1 << 20 || (low <= left && left <= high), "{} of {}", left, moved);
    }

    #[test]
    fn a_share_reads_as_people_write_it(percent in 0u32..1_000_000) {
        let text = Share::from_percent(percent).to_string();
        prop_assert_eq!(&text, &format!("{}.{:02}", percent / 100, percent % 100));
    }
}
