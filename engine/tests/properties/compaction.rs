//! Who goes, and what his going leaves behind (C1-C8).

use elastic_pool_engine::capacity::{SpawnHistory, growth, has_room};
use elastic_pool_engine::compaction::{Step, Survivors, compaction, move_order};
use elastic_pool_engine::ledger::{Ledger, Transit};
use elastic_pool_engine::{Action, Birth, Group, Policy, Share, WorkerView};
use proptest::prelude::*;
use std::collections::BTreeMap;

use crate::oracle::{Oracle, Shrinks};
use crate::world::{
    NOW, actions, any_workers, config, empty, load, planned, policy, policy_of_either_moves, steady, worker,
};

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
            Action::Drain { birth } => {
                empty(group, policy, birth);
            }
            other => panic!("{other:?} without a drain or a spawn under way"),
        }
        sizes.push(group.living());
        assert!(sizes.len() < 200, "never settles: {sizes:?}");
    }
    sizes
}

/// The victim of a group without a ceiling, so that the margin alone decides.
fn victim(group: &Group, policy: &Policy) -> Option<WorkerView> {
    assert_eq!(policy.max, None);
    match compaction(group, policy, NOW).step {
        Step::Drain(victim) => group.get(victim).cloned(),
        _ => None,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn c5_with_constant_input_the_size_changes_in_one_direction_then_not_at_all(
        workers in steady(0..=50),
        policy in policy(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let sizes = settle(&mut group, &policy);
        prop_assert!(sizes.is_sorted() || sizes.is_sorted_by(|a, b| a >= b), "{:?}", sizes);
        prop_assert!(group.living() >= policy.min);
        prop_assert_eq!(actions(&planned(&group, &policy)), []);
    }

    #[test]
    fn c5_a_compaction_leaves_at_least_margin_less_admission(
        workers in steady(2..=50),
        policy in policy(),
        moved_already in any::<bool>(),
    ) {
        let policy = Policy { max: None, ..policy };
        let mut group: Group = workers.into_iter().collect();
        if let Some(victim) = victim(&group, &policy) {
            let before = Ledger::of(&group, &policy);
            let moves = empty(&mut group, &policy, victim.birth);
            if !moved_already {
                // C4: the readings show nothing of it yet, so it is debt in transit.
                for (target, share) in moves {
                    let fresh = Transit { target, moved: share, rows: 0 };
                    group.update(target, |worker| {
                        worker.occupancy -= share;
                        worker.transit += fresh.remaining(policy.smoothing_rows);
                    });
                }
            }
            let after = Ledger::of(&group, &policy);
            prop_assert!(!(policy.margin - policy.admission).exceeds(after.headroom), "{}", after);
            // Nothing of what was moved is lost or counted twice, whether the readings show it or not.
            let expected = before.headroom - policy.admission;
            let differs = expected.exceeds(after.headroom) || after.headroom.exceeds(expected);
            prop_assert!(!differs, "{} became {}", before, after);
            prop_assert!(group.placeable_count() >= policy.min);
        }
    }

    #[test]
    fn c5_what_the_victim_held_fits_with_half_a_worker_to_spare(workers in steady(2..=50), policy in policy()) {
        let policy = Policy { max: None, ..policy };
        let group: Group = workers.iter().cloned().collect();
        if let Some(victim) = victim(&group, &policy) {
            let staying = workers.iter().filter(|worker| worker.birth != victim.birth);
            let room: Share = staying
                .enumerate()
                .map(|(place, worker)| policy.threshold(place == 0) - worker.occupancy)
                .sum();
            let spare = room - victim.occupancy;
            prop_assert!(spare >= policy.margin - policy.admission, "{} for {}", room, victim.occupancy);
            if policy.margin >= policy.admission.times(Share::from_percent(150)) {
                prop_assert!(spare >= policy.admission.divided(2));
            }
        }
    }

    #[test]
    fn c5_growth_is_not_triggered_by_a_compaction(workers in steady(2..=50), policy in policy()) {
        let mut group: Group = workers.into_iter().collect();
        if let Step::Drain(victim) = compaction(&group, &policy, NOW).step {
            let above_max = policy.max.is_some_and(|max| group.living() > max);
            empty(&mut group, &policy, victim);
            let grows = growth(&group, &policy, &SpawnHistory::default(), NOW);
            prop_assert_eq!((grows.spawn, grows.cancel), (0, vec![]));
            prop_assert!(above_max || has_room(&group, &policy, NOW).is_ok());
        }
    }

    #[test]
    fn c5_who_was_just_born_is_not_compacted(workers in steady(0..=50), policy in policy()) {
        let mut group: Group = workers.into_iter().collect();
        let born = growth(&group, &policy, &SpawnHistory::default(), NOW).spawn;
        for birth in 0..born as u64 {
            group.put(WorkerView::new(Birth(1000 + birth), "new"));
        }
        prop_assert!(born == 0 || actions(&planned(&group, &policy)).is_empty());
    }

    #[test]
    fn c2_the_step_is_that_of_the_rules_read_plainly(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
    ) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns: SpawnHistory::default(), now: NOW };
        let step = match compaction(&group, &policy, NOW).step {
            Step::None => Shrinks::No,
            Step::CancelSpawn(birth) => Shrinks::CancelSpawn(birth),
            Step::Drain(birth) => Shrinks::Drain(birth),
        };
        prop_assert_eq!(step, oracle.compaction());
    }

    #[test]
    fn c2_the_step_of_a_steady_group_is_that_of_the_rules_read_plainly(
        workers in steady(0..=50),
        policy in policy(),
    ) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns: SpawnHistory::default(), now: NOW };
        let step = match compaction(&group, &policy, NOW).step {
            Step::Drain(birth) => Shrinks::Drain(birth),
            _ => Shrinks::No,
        };
        prop_assert_eq!(step, oracle.compaction());
    }

    #[test]
    fn c2_the_reception_is_never_a_victim(workers in any_workers(12), policy in policy_of_either_moves()) {
        let group: Group = workers.into_iter().collect();
        let reception = group.reception().map(|worker| worker.birth);
        let step = compaction(&group, &policy, NOW).step;
        prop_assert!(step == Step::None || reception.is_none_or(|birth| step != Step::Drain(birth)));
    }

    #[test]
    fn e5_nothing_is_compacted_on_stale_or_cold_figures(
        workers in any_workers(10),
        doubtful in worker(100),
        policy in policy_of_either_moves(),
        cold in any::<bool>(),
    ) {
        let unknown = WorkerView {
            birth: Birth(500),
            state: elastic_pool_engine::WorkerState::Routable,
            warm: !cold,
            stale: !cold,
            ..doubtful
        };
        let group: Group = workers.into_iter().chain([unknown]).collect();
        prop_assert_eq!(compaction(&group, &policy, NOW).step, Step::None);
        let drains = actions(&planned(&group, &policy)).into_iter().any(|action| matches!(action, Action::Drain { .. }));
        prop_assert!(!drains);
    }

    #[test]
    fn c7_a_victim_is_open_known_and_not_passed_over_and_min_stays(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
    ) {
        let group: Group = workers.into_iter().collect();
        for action in actions(&planned(&group, &policy)) {
            if let Action::Drain { birth } = action {
                let victim = group.get(birth).unwrap();
                prop_assert!(victim.is_placeable() && !victim.stale && victim.warm);
                prop_assert!(victim.passed_over_until.is_none_or(|until| until <= NOW));
                prop_assert_eq!(group.stale().len() + group.cold_count(), 0);
                prop_assert!(group.placeable_count() > policy.min);
            }
        }
    }

    #[test]
    fn c6_users_go_one_by_one_to_the_lowest_below_its_own_threshold(
        workers in any_workers(10),
        policy in policy(),
        added in prop::collection::vec(load(), 10),
        users in 1usize..40,
    ) {
        let group: Group = workers.iter().cloned().collect();
        let Some(drained) = workers.iter().rev().find(|worker| worker.is_placeable()) else { return Ok(()) };
        let drained = WorkerView { users, ..drained.clone() };
        let extra: BTreeMap<Birth, Share> = workers.iter().map(|w| w.birth).zip(added).collect();
        let with_extra = |w: &WorkerView| WorkerView { transit: extra[&w.birth], ..w.clone() };
        let any_known = workers.iter().any(|w| w.is_placeable() && !w.stale && w.birth != drained.birth);
        // The reception keeps its role though nothing is known of it; unknown ones take nobody while another is known.
        let plain: Vec<WorkerView> = workers.iter().map(with_extra).collect();
        let reception = plain.iter().find(|w| w.is_placeable() && w.birth != drained.birth).map(|w| w.birth);
        let mut loads: Vec<(Birth, Share)> = plain
            .iter()
            .filter(|w| w.is_placeable() && w.birth != drained.birth && !(any_known && w.stale))
            .map(|w| (w.birth, w.occupancy + w.transit))
            .collect();
        let mut survivors = Survivors::without(&group, &policy, drained.birth, &extra);
        for _ in 0..users {
            let lowest = loads.iter_mut().min_by_key(|(birth, load)| {
                (*load >= policy.threshold(Some(*birth) == reception), *load, *birth)
            });
            let expected = lowest.map(|(birth, load)| {
                *load += drained.share_per_user();
                *birth
            });
            prop_assert_eq!(survivors.take(drained.share_per_user()), expected);
        }
    }

    #[test]
    fn c6_the_idle_leave_first_and_nobody_is_forgotten(open in prop::collection::vec(0usize..3, 0..20)) {
        let order = move_order(open.iter().copied().enumerate());
        prop_assert!(order.is_sorted_by_key(|user| (open[*user] > 0, *user)));
        prop_assert_eq!(order.len(), open.len());
    }

    #[test]
    fn c4_load_in_transit_only_shrinks_and_ends(moved in load(), rows in 1usize..20) {
        let left = |seen| Transit { target: Birth(1), moved, rows: seen }.remaining(rows);
        prop_assert_eq!(left(0), moved);
        prop_assert!((0..rows + 3).map(left).is_sorted_by(|a, b| a >= b));
        prop_assert_eq!(left(rows), Share::ZERO);
        prop_assert!((0..rows).all(|seen| moved == Share::ZERO || left(seen) > Share::ZERO || moved < Share::TOLERANCE));
    }

    #[test]
    fn c2_on_the_margin_nobody_goes_whatever_the_float_says(
        parts in prop::collection::vec(0u32..=4000, 3),
    ) {
        // Four workers that hold 1.7 between them, in decimals that no float holds.
        let last = 17_000u32.saturating_sub(parts.iter().sum());
        let loads: Vec<f64> = parts.iter().chain([&last]).map(|part| f64::from(*part) / 10_000.0).collect();
        let mut group = Group::default();
        for (load, birth) in loads.iter().zip(1..) {
            let occupancy = Share::from_f64(*load).unwrap();
            group.put(WorkerView { occupancy, ..WorkerView::new(Birth(birth), "w") });
        }
        let policy = Policy::default();
        let ledger = Ledger::of(&group, &policy);
        prop_assert_eq!(ledger.headroom, ledger.margin);
        prop_assert_eq!(compaction(&group, &policy, NOW).step, Step::None);
    }
}
