//! Growth and compaction put together, modes, and how long a plan holds.

use std::time::Duration;

use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Action, Birth, Group, Mode, MoveMode, Policy, WorkerView};
use proptest::prelude::*;

use crate::oracle::{Facts, Oracle, Shrinks};
use crate::world::{NOW, actions, any_workers, config, load, plan_at, policy_of_either_moves, spawns};

fn in_mode(policy: &Policy, mode: Mode) -> Policy {
    Policy {
        mode,
        ..policy.clone()
    }
}

/// What a drain comes to (C2, C7, D2), read plainly.
fn end_of(worker: &WorkerView, policy: &Policy) -> Option<Action> {
    let (drain, birth) = (worker.drain()?, worker.birth);
    let time_is_up = NOW.saturating_sub(drain.since) >= policy.drain_timeout && NOW >= drain.since;
    match drain.progress {
        DrainProgress::Empty => Some(Action::Retire { birth }),
        _ if drain.kind == DrainKind::MustGo => time_is_up.then_some(Action::Retire { birth }),
        DrainProgress::Stuck if policy.moves == MoveMode::Live => Some(Action::CancelDrain { birth }),
        _ => None,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_whole_plan_is_that_of_the_rules_read_plainly(
        workers in any_workers(10),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.iter().cloned().collect();
        group.expire(NOW);
        let workers: Vec<WorkerView> = group.workers().cloned().collect();
        let oracle = Oracle { workers: &workers, policy: &policy, spawns, now: NOW };
        let (grows, shrinks) = (oracle.growth(), oracle.compaction());
        let is_overdue = |since: Duration| NOW.saturating_sub(since) > policy.spawn_timeout;
        let mut late: Vec<_> = workers.iter().filter_map(|w| Some((w.nascent_since()?, w.birth))).collect();
        late.retain(|(since, _)| is_overdue(*since));
        late.sort_unstable();
        let mut expected: Vec<Action> = late.into_iter().map(|(_, birth)| Action::AbandonSpawn { birth }).collect();
        let goes_on = workers.iter().filter(|worker| !grows.cancel.contains(&worker.birth));
        expected.extend(goes_on.filter_map(|worker| end_of(worker, &policy)));
        expected.extend(grows.cancel.iter().map(|birth| Action::CancelDrain { birth: *birth }));
        if grows.spawn > 0 {
            expected.push(Action::Spawn { count: grows.spawn });
        }
        if grows.spawn == 0 && grows.cancel.is_empty() {
            match shrinks {
                Shrinks::No => {}
                Shrinks::CancelSpawn(birth) => expected.push(Action::CancelSpawn { birth }),
                Shrinks::Drain(birth) => expected.push(Action::Drain { birth }),
            }
        }
        prop_assert_eq!(actions(&plan_at(&mut group, &policy, &spawns, NOW)), expected);
    }

    #[test]
    fn every_action_fits_who_it_names_and_nobody_is_named_twice(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let mut named: Vec<Birth> = Vec::new();
        for action in plan.actions() {
            let (birth, fits): (Birth, fn(&WorkerView) -> bool) = match action {
                Action::Spawn { count } => {
                    prop_assert!(count > 0);
                    continue;
                }
                Action::CancelSpawn { birth } | Action::AbandonSpawn { birth } => {
                    (birth, |worker| worker.nascent_since().is_some())
                }
                Action::Drain { birth } => (birth, WorkerView::is_placeable),
                Action::Replace { birth } => (birth, |worker| worker.is_placeable() && worker.outdated),
                Action::CancelDrain { birth } => (birth, |worker| {
                    worker.drain().is_some_and(|drain| drain.kind != DrainKind::MustGo)
                }),
                Action::Retire { birth } => (birth, |worker| worker.drain().is_some()),
            };
            prop_assert!(fits(group.get(birth).unwrap()), "{:?}", action);
            prop_assert!(!named.contains(&birth), "{:?}", action);
            named.push(birth);
        }
        let drains = plan.actions().filter(|action| matches!(action, Action::Drain { .. })).count();
        let grows = plan.actions().any(|action| matches!(action, Action::Spawn { .. }));
        prop_assert!(drains <= 1 && !(drains == 1 && grows));
        prop_assert!(plan.reasons().all(|why| !why.code.is_empty() && !why.text().is_empty()));
    }

    #[test]
    fn a_plan_holds_until_it_says_to_plan_again(
        workers in any_workers(8),
        policy in policy_of_either_moves(),
        spawns in spawns(),
        part in 0u32..=1000,
    ) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        prop_assert!(plan.wake_at.is_none_or(|at| at > NOW), "{:?}", plan.wake_at);
        let horizon = plan.wake_at.map_or(Duration::from_secs(100_000), |at| at.saturating_sub(NOW));
        // A spawn is overdue a little before the millisecond in which that is looked at.
        let at = NOW + (horizon * part / 1000).saturating_sub(Duration::from_millis(2));
        let later = plan_at(&mut group, &policy, &spawns, at);
        prop_assert_eq!(actions(&plan), actions(&later), "at {:?}", at);
        prop_assert_eq!((plan.conditions, plan.wake_at), (later.conditions, later.wake_at), "at {:?}", at);
    }

    #[test]
    fn recommend_and_frozen_do_their_duties_only(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let [active, recommend, frozen] = [Mode::Active, Mode::Recommend, Mode::Frozen]
            .map(|mode| plan_at(&mut group, &in_mode(&policy, mode), &spawns, NOW));
        prop_assert_eq!(&recommend.decisions, &frozen.decisions);
        prop_assert!(active.advice.is_empty() && frozen.advice.is_empty());
        for decision in &recommend.decisions {
            // Neither grows for load nor compacts; `min`, the dead and what was begun go on.
            match decision.action {
                Some(Action::Drain { .. } | Action::CancelSpawn { .. }) => prop_assert!(false, "{:?}", decision),
                Some(Action::Spawn { .. }) => {
                    prop_assert!(matches!(decision.because.code, "no_routable_worker" | "below_min"));
                }
                _ => {}
            }
        }
        let mut all: Vec<_> = recommend.decisions.iter().chain(&recommend.advice).collect();
        let mut whole: Vec<_> = active.decisions.iter().collect();
        all.sort_by_key(|decision| format!("{decision:?}"));
        whole.sort_by_key(|decision| format!("{decision:?}"));
        prop_assert_eq!(all, whole);
    }

    #[test]
    fn e5_nothing_is_done_on_the_last_figure_of_who_is_stale(
        workers in any_workers(10),
        others in prop::collection::vec((load(), load()), 10),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let silent: Vec<Birth> = group.placeable().filter(|worker| worker.stale).map(|worker| worker.birth).collect();
        for (birth, (occupancy, transit)) in silent.into_iter().zip(others) {
            group.update(birth, |worker| (worker.occupancy, worker.transit) = (occupancy, transit));
        }
        let again = plan_at(&mut group, &policy, &spawns, NOW);
        prop_assert_eq!(actions(&plan), actions(&again));
        prop_assert_eq!(plan.conditions, again.conditions);
    }

    #[test]
    fn conditions_say_what_is_wrong(
        workers in any_workers(12),
        policy in policy_of_either_moves(),
        spawns in spawns(),
    ) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let stale: Vec<Birth> = group
            .workers()
            .filter(|worker| worker.stale && (worker.is_open() || worker.drain().is_some()))
            .map(|worker| worker.birth)
            .collect();
        let says_stale = stale.first().map(|first| Condition::ReportsStale { workers: stale.len(), first: *first });
        let is_stale = |condition: &&Condition| matches!(condition, Condition::ReportsStale { .. });
        prop_assert_eq!(plan.conditions.iter().find(is_stale), says_stale.as_ref());
        let limited = plan.reasons().any(|why| why.code == "max_workers");
        prop_assert_eq!(plan.conditions.contains(&Condition::ScalingLimited), limited);
        let late = plan.actions().any(|action| matches!(action, Action::AbandonSpawn { .. }));
        prop_assert_eq!(plan.conditions.contains(&Condition::SpawnsFailing(SpawnFault::TimedOut)), late || spawns.failures > 0);
        let staying = group.placeable_count() + group.in_flight(policy.spawn_timeout, NOW).count();
        let above = policy.max.is_some_and(|max| staying > max);
        prop_assert_eq!(plan.conditions.contains(&Condition::AboveMax), above);
    }
}
