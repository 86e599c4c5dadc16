//! The same workers give the same answers, however they came to be known.

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::placement::place;
use elastic_pool_engine::{Birth, Group, Policy, Share, WorkerState, WorkerView};
use proptest::prelude::*;

use crate::oracle::{Facts, Oracle};
use crate::world::{NOW, any_workers, config, plan_at, policy_of_either_moves, spawns, worker};

/// What happened to a group before it came to be what it is.
pub(crate) fn history() -> impl Strategy<Value = Vec<(u64, u8, WorkerView)>> {
    prop::collection::vec((1u64..14, 0u8..4, worker(30)), 0..30)
}

/// The group of `workers`, put in that order between other events.
pub(crate) fn lived_through(workers: &[WorkerView], events: Vec<(u64, u8, WorkerView)>) -> Group {
    let mut group = Group::default();
    let mut late = workers.iter();
    for (birth, kind, view) in events {
        let view = WorkerView {
            birth: Birth(birth),
            name: format!("w{birth}").into(),
            ..view
        };
        match kind {
            0 => group.put(view),
            1 => drop(group.remove(Birth(birth))),
            2 => drop(group.update(Birth(birth), |worker| *worker = view)),
            _ => late
                .next()
                .into_iter()
                .for_each(|worker| group.put(worker.clone())),
        }
    }
    for worker in workers {
        group.put(worker.clone());
    }
    let gone: Vec<Birth> = group.workers().map(|worker| worker.birth).collect();
    for birth in gone {
        if workers.iter().all(|worker| worker.birth != birth) {
            group.remove(birth);
        }
    }
    group
}

fn answers(group: &Group, policy: &Policy, spawns: &SpawnHistory) -> String {
    let mut group = group.clone();
    let placed = place(&group, policy, None);
    let plan = plan_at(&mut group, policy, spawns, NOW);
    format!("{placed:?} {plan:?} {:?}", group.load())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_order_of_workers_in_memory_does_not_matter(
        workers in any_workers(12).prop_shuffle(),
        events in history(),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let group = lived_through(&workers, events);
        let mut sorted = workers;
        sorted.sort_by_key(|worker| worker.birth);
        let anew: Group = sorted.into_iter().collect();
        prop_assert_eq!(answers(&group, &policy, &spawns), answers(&anew, &policy, &spawns));
    }

    #[test]
    fn c1_sums_kept_equal_sums_computed_anew(
        workers in any_workers(12).prop_shuffle(),
        events in history(),
    ) {
        let group = lived_through(&workers, events);
        let open = || workers.iter().filter(|worker| worker.is_open());
        let occupied: Share = open().map(|worker| worker.occupancy).sum();
        let transit: Share = open().rev().map(|worker| worker.transit).sum();
        prop_assert_eq!(group.load(), (occupied, transit));
        prop_assert_eq!(group.placeable_count(), open().count());
        let retires = |worker: &&WorkerView| matches!(worker.state, WorkerState::Retiring { .. });
        let cold = workers.iter().filter(|worker| !worker.warm && !retires(worker));
        prop_assert_eq!(group.cold_count(), cold.count());
        prop_assert_eq!(group.living(), workers.len());
    }

    #[test]
    fn the_same_group_gives_the_same_bytes(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let group: Group = workers.into_iter().collect();
        prop_assert_eq!(answers(&group, &policy, &spawns), answers(&group, &policy, &spawns));
    }

    #[test]
    fn p1_the_reception_is_the_first_open_worker_by_birth(workers in any_workers(12), policy in policy_of_either_moves()) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns: SpawnHistory::default(), now: NOW };
        prop_assert_eq!(group.reception(), oracle.reception());
        let draining = workers.iter().find(|worker| worker.drain().is_some());
        prop_assert_eq!(group.guest_home(), oracle.reception().or(draining));
        let mut known = oracle.open();
        known.retain(|worker| !worker.stale);
        known.sort_by_key(|worker| (worker.occupancy, worker.birth));
        prop_assert_eq!(group.fresh().collect::<Vec<_>>(), known);
        prop_assert_eq!(group.must_go_count(), workers.iter().filter(|worker| worker.must_go()).count());
    }
}
