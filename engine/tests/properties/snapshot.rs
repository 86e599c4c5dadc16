//! A saved group answers the same ever after.

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::snapshot::{Saved, SavedUser, Stays};
use elastic_pool_engine::{Birth, Group, Policy, Snapshot, UserId, WorkerView};
use proptest::prelude::*;
use std::time::Duration;

use crate::order::{history, lived_through};
use crate::world::{NOW, any_workers, config, moment, plan_at, policy_of_either_moves, spawns};

/// Users by the number of their worker; some of them busy, some of them bound to stay.
fn users() -> impl Strategy<Value = Vec<SavedUser>> {
    let stays = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Stays::PinnedStream)),
        1 => Just(Some(Stays::PackageTooLarge)),
        1 => moment().prop_map(|until| Some(Stays::BackingOff { until })),
    ];
    prop::collection::vec((1u64..13, 0usize..3, stays), 0..12).prop_map(|users| {
        let named = |((worker, open_requests, stays), number)| SavedUser {
            worker: Birth(worker),
            user: UserId::new(&format!("u{number}")).unwrap(),
            open_requests,
            stays,
        };
        users.into_iter().zip(0..).map(named).collect()
    })
}

fn saved(group: &Group, policy: &Policy, spawns: &SpawnHistory, users: Vec<SavedUser>) -> Saved {
    let snapshot = Snapshot {
        group,
        policy,
        spawns,
    };
    Saved::of("shop/blue", &snapshot, NOW, users)
}

/// The workers with as many users as are named on them.
fn housing(mut workers: Vec<WorkerView>, users: &[SavedUser]) -> Vec<WorkerView> {
    for worker in &mut workers {
        worker.users = users.iter().filter(|user| user.worker == worker.birth).count();
    }
    workers
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_same_snapshot_gives_the_same_bytes(
        workers in any_workers(10).prop_shuffle(),
        events in history(),
        policy in policy_of_either_moves(),
        spawns in spawns(),
        users in users(),
    ) {
        let workers = housing(workers, &users);
        let mut group = lived_through(&workers, events);
        group.expire(NOW);
        let taken = saved(&group, &policy, &spawns, users.clone()).answered();
        let line = taken.to_json();
        let read = Saved::parse(&line).unwrap();
        prop_assert_eq!(read.to_json(), line.clone());
        let answer = read.answer().to_json();
        prop_assert_eq!(Some(answer.as_str()), read.given());
        // However the group came to be what it is.
        let mut anew: Group = workers.into_iter().rev().collect();
        anew.expire(NOW);
        prop_assert_eq!(saved(&anew, &policy, &spawns, users).answered().to_json(), line);
    }

    #[test]
    fn a_read_snapshot_plans_as_the_group_did_then_and_later(
        workers in any_workers(10),
        policy in policy_of_either_moves(),
        spawns in spawns(),
        later in 0u64..500,
    ) {
        let workers = housing(workers, &[]);
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let read = Saved::parse(&saved(&group, &policy, &spawns, vec![]).to_json()).unwrap();
        prop_assert_eq!(read.taken_at(), NOW);
        let mut again = read.group().clone();
        prop_assert_eq!(plan_at(&mut again, read.policy(), read.snapshot().spawns, NOW), plan);
        let later = NOW + Duration::from_secs(later);
        let expected = plan_at(&mut group, &policy, &spawns, later);
        prop_assert_eq!(plan_at(&mut again, read.policy(), read.snapshot().spawns, later), expected);
    }
}
