//! Where a login lives (P2-P4, L5).

use elastic_pool_engine::placement::{PlaceError, Verdict, place};
use elastic_pool_engine::{Birth, Group, Policy, WorkerView};
use proptest::prelude::*;

use crate::oracle::Oracle;
use crate::world::{NOW, any_workers, config, load, policy, policy_of_either_moves, steady};
use elastic_pool_engine::capacity::SpawnHistory;

fn arrival() -> impl Strategy<Value = Option<Birth>> {
    prop::option::of((1u64..14).prop_map(Birth))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn p3_a_placement_is_that_of_the_rules_read_plainly(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        at in arrival(),
    ) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns: SpawnHistory::default(), now: NOW };
        let found = place(&group, &policy, at).ok();
        let closed = at.and_then(|birth| group.get(birth)).is_some_and(|source| !source.is_placeable());
        prop_assert!(found.as_ref().is_none_or(|found| (found.because.code == "source_closed") == closed));
        let found = found.map(|found| (found.verdict == Verdict::Keep, found.worker, found.warning));
        prop_assert_eq!(found, oracle.place(at));
    }

    #[test]
    fn p3_a_login_is_never_refused_while_a_worker_is_open(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        at in arrival(),
    ) {
        let group: Group = workers.into_iter().collect();
        match place(&group, &policy, at) {
            Err(PlaceError::NoRoutableWorker) => prop_assert_eq!(group.placeable_count(), 0),
            Ok(placement) => prop_assert!(group.get(placement.worker).unwrap().is_placeable()),
        }
    }

    #[test]
    fn p3_who_is_passed_on_never_lands_on_the_reception(workers in any_workers(12), policy in policy()) {
        let group: Group = workers.into_iter().collect();
        if let Ok(placement) = place(&group, &policy, None) {
            let is_reception = group.reception().unwrap().birth == placement.worker;
            prop_assert_eq!(is_reception, placement.verdict == Verdict::Keep);
        }
    }

    #[test]
    fn p3_a_tie_goes_to_the_oldest(
        size in 3u64..20,
        equal in load(),
        policy in policy(),
    ) {
        let worker = |birth| WorkerView { occupancy: equal, ..WorkerView::new(Birth(birth), "w") };
        let full = WorkerView { occupancy: policy.admission, ..WorkerView::new(Birth(1), "w1") };
        let group: Group = [full].into_iter().chain((2..=size).map(worker)).collect();
        let placement = place(&group, &policy, None).unwrap();
        // Nobody below admission: the youngest, with a warning.
        let room = equal < policy.admission;
        prop_assert_eq!(placement.worker, Birth(if room { 2 } else { size }));
        prop_assert_eq!(placement.warning, !room);
    }

    #[test]
    fn p2_the_reception_keeps_below_its_threshold_or_alone(workers in steady(1..=50), policy in policy()) {
        let group: Group = workers.iter().cloned().collect();
        let placement = place(&group, &policy, None).unwrap();
        let keeps = workers.len() == 1 || workers[0].occupancy < policy.reception;
        prop_assert_eq!(placement.verdict == Verdict::Keep, keeps);
    }

    #[test]
    fn e5_a_stale_worker_is_no_candidate_while_another_is(
        workers in any_workers(12),
        at in arrival(),
    ) {
        let policy = Policy::default();
        let group: Group = workers.into_iter().collect();
        let reception = group.reception().map(|worker| worker.birth);
        let is_candidate = |worker: &&WorkerView| Some(worker.birth) != reception && Some(worker.birth) != at;
        let known = group.fresh().filter(is_candidate).count();
        if let Ok(placement) = place(&group, &policy, at)
            && placement.verdict == Verdict::Pass
            && Some(placement.worker) != reception
        {
            prop_assert!(known == 0 || !group.get(placement.worker).unwrap().stale);
        }
    }
}
