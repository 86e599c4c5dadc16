//! A group that is to be empty: it never grows, the reception goes last, and it comes to an end.

use std::collections::BTreeMap;
use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::evacuation::{outlet, users};
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress};
use elastic_pool_engine::{Action, Birth, Group, Mode, Policy, Share, WorkerState, WorkerView};
use proptest::prelude::*;

use super::world::{
    NOW, actions, any_workers, config, lives, load, moment, plan_at, policy, policy_of_either_moves, spawns,
    steady,
};

fn evacuating() -> impl Strategy<Value = Policy> {
    (policy_of_either_moves(), any::<bool>()).prop_map(|(policy, outlet)| Policy {
        mode: Mode::Evacuate,
        outlet,
        ..policy
    })
}

fn with_guests(most: usize) -> impl Strategy<Value = Group> {
    let guests = prop::collection::vec(prop::option::of(moment()), most);
    (any_workers(most), guests).prop_map(|(workers, guests)| {
        let guest = |(worker, guests_until): (WorkerView, Option<Duration>)| WorkerView {
            guests_until,
            ..worker
        };
        workers.into_iter().zip(guests).map(guest).collect()
    })
}

fn may_have_guests(worker: &WorkerView) -> bool {
    worker.guests_until.is_some_and(|until| until > NOW)
}

/// Carries a plan out at once: users of who goes are gone elsewhere, or have left.
fn carry_out(group: &mut Group, actions: &[Action], now: Duration) {
    for action in actions {
        match *action {
            Action::CancelSpawn { birth } | Action::AbandonSpawn { birth } | Action::Retire { birth } => {
                group.remove(birth);
            }
            Action::Drain { birth } | Action::Replace { birth } => {
                group.update(birth, |worker| {
                    let (kind, progress) = (DrainKind::Compaction, DrainProgress::Empty);
                    worker.state = WorkerState::Draining(Drain {
                        kind,
                        since: now,
                        progress,
                    });
                    worker.users = 0;
                });
            }
            Action::CancelDrain { birth } => {
                group.update(birth, |worker| worker.state = WorkerState::Routable);
            }
            Action::Spawn { count } => {
                let next = group.workers().next_back().map_or(0, |worker| worker.birth.0);
                for n in 1..=count as u64 {
                    group.put(WorkerView::new(Birth(next + n), "spawned"));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nobody_is_spawned_while_one_stays_or_nobody_lives_there(
        mut group in with_guests(10),
        policy in evacuating(),
        spawns in spawns(),
    ) {
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let on_the_way = group.in_flight(policy.spawn_timeout, NOW).count();
        for action in plan.actions() {
            if let Action::Spawn { count } = action {
                prop_assert_eq!((count, group.placeable_count(), on_the_way), (1, 0, 0));
                prop_assert!(users(&group) > 0);
            }
        }
    }

    #[test]
    fn the_reception_goes_last(mut group in with_guests(10), policy in evacuating(), spawns in spawns()) {
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let Some(reception) = group.reception() else { return Ok(()) };
        let goes = actions(&plan).contains(&Action::Drain { birth: reception.birth });
        let others = group.placeable_count() > 1 || group.drains().next().is_some();
        prop_assert!(!goes || (!others && users(&group) == 0 && !may_have_guests(reception)));
    }

    #[test]
    fn with_an_outlet_all_the_others_go_and_nobody_is_kept_for_min(
        mut group in with_guests(10),
        policy in evacuating(),
        spawns in spawns(),
    ) {
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        let drained: Vec<Birth> = plan.actions().filter_map(|action| match action {
            Action::Drain { birth } => Some(birth),
            _ => None,
        }).collect();
        for worker in group.placeable().skip(1) {
            if policy.outlet || worker.users == 0 {
                prop_assert!(drained.contains(&worker.birth), "{}", worker.birth);
            }
        }
    }

    #[test]
    fn a_plan_of_an_evacuated_group_holds_until_it_says_to_plan_again(
        mut group in with_guests(6),
        policy in evacuating(),
        spawns in spawns(),
        part in 0u32..=1000,
    ) {
        let plan = plan_at(&mut group, &policy, &spawns, NOW);
        prop_assert!(plan.wake_at.is_none_or(|at| at > NOW), "{:?}", plan.wake_at);
        let horizon = plan.wake_at.map_or(Duration::from_secs(100_000), |at| at.saturating_sub(NOW));
        let at = NOW + (horizon * part / 1000).saturating_sub(Duration::from_millis(2));
        let later = plan_at(&mut group, &policy, &spawns, at);
        prop_assert_eq!(actions(&plan), actions(&later), "at {:?}", at);
    }

    #[test]
    fn an_outlet_has_room_and_is_the_least_loaded(
        one in any_workers(6),
        other in steady(0..=6),
        policies in (policy(), policy()),
        coming in prop::collection::vec(load(), 12),
        anyway in any::<bool>(),
    ) {
        let one: Group = one.into_iter().collect();
        let other: Group = other.into_iter().map(|worker| WorkerView { birth: Birth(worker.birth.0 + 6), ..worker }).collect();
        let coming: BTreeMap<Birth, Share> = coming.into_iter().zip(1..).map(|(share, n)| (Birth(n), share)).collect();
        let groups = [(&one, &policies.0), (&other, &policies.1)];
        let load = |worker: &WorkerView| worker.load() + coming[&worker.birth];
        let known = |group: &Group, worker: &WorkerView| !worker.stale || group.placeable().all(|worker| worker.stale);
        let room: Vec<(Share, Birth)> = groups.iter().flat_map(|(group, policy)| {
            let reception = group.reception().map(|worker| worker.birth);
            group.placeable().filter(move |worker| {
                known(group, worker) && load(worker) < policy.threshold(Some(worker.birth) == reception)
            }).map(load_of(&load)).collect::<Vec<_>>()
        }).collect();
        let chosen = outlet(groups, &coming, anyway);
        match room.iter().min() {
            Some((_, birth)) => prop_assert_eq!(chosen, Some(*birth)),
            None if !anyway => prop_assert_eq!(chosen, None),
            None => prop_assert_eq!(chosen.is_some(), one.placeable_count() + other.placeable_count() > 0),
        }
    }
}

fn load_of(load: &impl Fn(&WorkerView) -> Share) -> impl Fn(&WorkerView) -> (Share, Birth) {
    move |worker| (load(worker), worker.birth)
}

proptest! {
    #![proptest_config(lives())]

    #[test]
    fn an_evacuation_comes_to_an_end_once_the_users_left(workers in steady(1..=12), policy in evacuating()) {
        let mut group: Group = workers.into_iter().collect();
        let mut now = NOW;
        for _ in 0..60 {
            let plan = plan_at(&mut group, &policy, &SpawnHistory::default(), now);
            carry_out(&mut group, &actions(&plan), now);
            // Users leave, one of each worker at a time.
            let births: Vec<Birth> = group.workers().map(|worker| worker.birth).collect();
            for birth in births {
                group.update(birth, |worker| worker.users = worker.users.saturating_sub(1));
            }
            now += Duration::from_secs(5);
        }
        prop_assert_eq!(group.living(), 0);
    }
}
