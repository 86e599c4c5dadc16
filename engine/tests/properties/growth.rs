//! When a group grows, and what holds it back (G1-G5).

use std::time::Duration;

use elastic_pool_engine::backoff::Backoff;
use elastic_pool_engine::capacity::{SpawnHistory, growth, has_room};
use elastic_pool_engine::placement::place;
use elastic_pool_engine::{Action, Birth, Group, Policy, WorkerState, WorkerView};
use proptest::prelude::*;

use crate::oracle::{Grows, Oracle};
use crate::world::{NOW, actions, any_workers, config, moment, plan_at, policy_of_either_moves, spawns};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn g1_room_is_that_of_the_rule_read_plainly(workers in any_workers(12), policy in policy_of_either_moves()) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns: SpawnHistory::default(), now: NOW };
        prop_assert_eq!(has_room(&group, &policy, NOW).is_ok(), oracle.has_room());
    }

    #[test]
    fn g2_the_guards_stand_in_their_order(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let group: Group = workers.iter().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns, now: NOW };
        let seen = spawns.with_given_up(&group, &policy, NOW);
        let found = growth(&group, &policy, &seen, NOW);
        let expected = oracle.growth();
        prop_assert_eq!(Grows { spawn: found.spawn, cancel: found.cancel, code: found.because.code }, expected);
    }

    #[test]
    fn g2_max_is_never_exceeded_but_by_the_surge_of_who_must_go(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let overdue = group.overdue(policy.spawn_timeout, NOW).count();
        for action in actions(&plan) {
            if let (Action::Spawn { count }, Some(max)) = (action, policy.max) {
                let surge = policy.max_surge.min(group.must_go_count());
                prop_assert!(count > 0 && group.living() - overdue + count <= max + surge);
            }
        }
    }

    #[test]
    fn g3_a_login_never_lands_on_who_it_caused_to_be_born(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        at in prop::option::of((1u64..13).prop_map(Birth)),
    ) {
        let mut group: Group = workers.into_iter().collect();
        group.expire(NOW);
        let before = place(&group, &policy, at);
        for action in actions(&plan_at(&mut group, &policy, &SpawnHistory::default(), NOW)) {
            if let Action::Spawn { count } = action {
                for birth in 100..100 + count as u64 {
                    let state = WorkerState::Nascent { since: NOW };
                    group.put(WorkerView { state, ..WorkerView::new(Birth(birth), "new") });
                }
                prop_assert_eq!(place(&group, &policy, at), before.clone());
            }
        }
    }

    #[test]
    fn g4_nobody_is_spawned_before_the_pause_is_over(
        workers in any_workers(8),
        policy in policy_of_either_moves(),
        failures in 1u32..40,
        last in moment(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let spawns = SpawnHistory { failures, last_failure: Some(last), fault: None };
        let pause = Duration::from_secs(10 * (1 << (failures - 1).min(5))).min(Duration::from_mins(5));
        let over = last + pause;
        prop_assert_eq!(spawns.blocked_until(NOW), (over > NOW).then_some(over));
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let spawned = actions(&plan).iter().any(|action| matches!(action, Action::Spawn { .. }));
        prop_assert!(!(spawned && over > NOW));
    }

    #[test]
    fn g4_pauses_only_grow_from_the_first_to_the_most(
        first in 0u64..=u64::MAX,
        more in 0u64..=u64::MAX,
        failures in prop_oneof![1u32..70, any::<u32>()],
    ) {
        let first = Duration::from_nanos(first);
        let backoff = Backoff { first, most: first.saturating_add(Duration::from_nanos(more)) };
        let (pause, next) = (backoff.pause(failures), backoff.pause(failures.saturating_add(1)));
        prop_assert_eq!(backoff.pause(0), Duration::ZERO);
        prop_assert_eq!(backoff.pause(1), first);
        prop_assert!(failures == 0 || first <= pause);
        prop_assert!(pause <= next && next <= backoff.most);
        // Doubled each time, until the most.
        prop_assert!(failures == 0 || failures > 30 || next == (pause * 2).min(backoff.most));
    }

    #[test]
    fn g5_fewer_than_min_are_replaced_at_once_whatever_was_measured(
        workers in any_workers(8),
        policy in policy_of_either_moves(),
        min in 0usize..20,
    ) {
        let policy = Policy { min, max: None, ..policy };
        let group: Group = workers.into_iter().collect();
        let plan = growth(&group, &policy, &SpawnHistory::default(), NOW);
        let on_the_way = group.in_flight(policy.spawn_timeout, NOW).count();
        let target = group.placeable_count() + on_the_way + plan.spawn + plan.cancel.len();
        prop_assert!(target >= min.max(1), "{} and {:?}", target, plan);
    }
}
