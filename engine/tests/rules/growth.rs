//! When a group grows, and what holds it back (G2, G4, G5).

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Action, Birth, Group, MoveMode, Policy, WorkerView};
use rstest::rstest;

use crate::scene::{
    NOW, SPAWN, actions, acts, ago, cancel_drain, cancel_spawn, codes, decided, drained, planned,
    planned_after, seconds, spawned, with_max, with_min, worker, workers,
};

use DrainKind::{Compaction, MustGo};
use DrainProgress::{Running, Stuck};

// G2

#[test]
fn growth_cancels_a_drain_before_it_waits_for_a_spawn_or_minds_max() {
    let full = [worker(1, 60), worker(2, 90)];
    let drained = drained(3, 10, Compaction, Running);
    let both = full.iter().cloned().chain([drained.clone(), spawned(4, 1)]);
    assert_eq!(acts(both), [cancel_drain(3)]);
    let all = full.iter().cloned().chain([drained]);
    assert_eq!(actions(&planned(all, &with_max(3))), [cancel_drain(3)]);
    let waiting = full.into_iter().chain([spawned(4, 1)]);
    let plan = planned(waiting, &with_max(3));
    assert_eq!((actions(&plan), codes(&plan)[0]), (vec![], "spawn_in_flight"));
}

#[test]
fn of_several_drains_only_the_emptiest_is_cancelled() {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..Policy::default()
    };
    let drains = [
        drained(3, 40, Compaction, Running),
        drained(4, 10, Compaction, Running),
        drained(5, 5, MustGo, Running),
    ];
    let full = workers(&[60, 90]).into_iter().chain(drains);
    assert_eq!(actions(&planned(full, &policy)), [cancel_drain(4)]);
}

#[test]
fn a_replacement_of_an_older_template_exceeds_max_by_the_surge_and_is_not_cancelled_for_it() {
    let outdated = |view| WorkerView {
        outdated: true,
        ..view
    };
    let full = [worker(1, 60), outdated(worker(2, 90))];
    let limited = planned([worker(1, 60), worker(2, 90)], &with_max(2));
    assert_eq!(limited.conditions, [Condition::ScalingLimited]);
    assert_eq!(actions(&planned(full.clone(), &with_max(2))), [SPAWN]);
    let replaced = [worker(1, 10), outdated(worker(2, 60)), spawned(3, 1)];
    let plan = planned(replaced.clone(), &with_max(2));
    assert_eq!((actions(&plan), plan.conditions), (vec![], vec![]));
    // One surge for all of them.
    let more = full.into_iter().chain([outdated(worker(3, 90))]);
    assert_eq!(actions(&planned(more, &with_max(2))), []);
    let none = Policy {
        max_surge: 0,
        ..with_max(2)
    };
    assert_eq!(actions(&planned(replaced, &none)), [cancel_spawn(3)]);
}

// G4

#[rstest]
#[case(SpawnFault::NoCapacity, "no_capacity", "the last for want of capacity")]
#[case(SpawnFault::Mistake, "spawn_mistake", "the last by a mistake in its template")]
fn no_capacity_and_a_mistake_are_told_apart(
    #[case] fault: SpawnFault,
    #[case] code: &str,
    #[case] words: &str,
) {
    let mut spawns = SpawnHistory::default();
    spawns.fail(ago(5), fault);
    let plan = planned_after([worker(1, 60)], &Policy::default(), &spawns);
    assert_eq!((actions(&plan), codes(&plan)[0]), (vec![], code));
    assert!(plan.decisions[0].because.text().contains(words));
    assert_eq!(plan.conditions, [Condition::SpawnsFailing(fault)]);
    let late = WorkerView {
        hindered: Some(fault),
        ..spawned(2, 121)
    };
    let plan = planned([worker(1, 60), late], &Policy::default());
    assert_eq!(actions(&plan), [Action::AbandonSpawn { birth: Birth(2) }]);
    assert_eq!(codes(&plan), [code, code, "within_margin"]);
}

#[test]
fn spawns_that_fail_together_are_one_failure() {
    let mut spawns = SpawnHistory::default();
    (0..5).for_each(|_| spawns.fail(NOW, SpawnFault::NoCapacity));
    spawns.fail(NOW + seconds(9), SpawnFault::Mistake);
    assert_eq!((spawns.failures, spawns.fault), (1, Some(SpawnFault::Mistake)));
    assert_eq!(spawns.blocked_until(NOW), Some(NOW + seconds(10)));
    spawns.fail(NOW + seconds(10), SpawnFault::Mistake);
    assert_eq!(spawns.blocked_until(NOW + seconds(10)), Some(NOW + seconds(30)));
}

#[test]
fn five_late_spawns_are_given_up_at_once_and_replaced_after_one_pause() {
    let late = (2..7).map(|birth| spawned(birth, 121));
    let policy = with_min(6);
    let mut group: Group = [worker(1, 0)].into_iter().chain(late).collect();
    let mut spawns = SpawnHistory::default();
    let births = || (2..7).map(Birth);
    let given_up: Vec<Action> = births().map(|birth| Action::AbandonSpawn { birth }).collect();
    assert_eq!(actions(&decided(&group, &policy, &spawns, NOW)), given_up);
    for birth in births() {
        group.remove(birth);
        spawns.fail(NOW, SpawnFault::TimedOut);
    }
    let pause = decided(&group, &policy, &spawns, NOW);
    let over = NOW + seconds(10);
    assert_eq!((actions(&pause), pause.wake_at), (vec![], Some(over)));
    let five = Action::Spawn { count: 5 };
    assert_eq!(actions(&decided(&group, &policy, &spawns, over)), [five]);
}

// G5

#[rstest]
#[case::idle_ones_too(with_min(3), workers(&[0]), &[Action::Spawn { count: 2 }])]
#[case::counting_those_on_their_way(with_min(3), vec![worker(1, 0), spawned(2, 1)], &[SPAWN])]
#[case::not_those_that_leave(with_min(2), vec![worker(1, 0), drained(2, 0, MustGo, Running)], &[SPAWN])]
#[case::nobody_at_all(with_min(3), vec![], &[Action::Spawn { count: 3 }])]
#[case::never_more_than_max(Policy { max: Some(3), ..with_min(9) }, workers(&[0]), &[Action::Spawn { count: 2 }])]
#[case::no_more_than_are_missing(with_min(2), workers(&[0, 0]), &[])]
fn fewer_than_min_are_replaced_at_once(
    #[case] policy: Policy,
    #[case] workers: Vec<WorkerView>,
    #[case] expected: &[Action],
) {
    assert_eq!(actions(&planned(workers, &policy)), expected);
}

#[test]
fn min_takes_drained_workers_back_first_the_emptiest_of_them() {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..with_min(2)
    };
    let drains = [
        drained(2, 40, Compaction, Running),
        drained(3, 10, Compaction, Stuck),
    ];
    let few = [worker(1, 0)].into_iter().chain(drains.clone());
    assert_eq!(actions(&planned(few, &policy)), [cancel_drain(3)]);
    let policy = Policy { min: 4, ..policy };
    let fewer = [worker(1, 0)].into_iter().chain(drains);
    assert_eq!(
        actions(&planned(fewer, &policy)),
        [cancel_drain(3), cancel_drain(2), SPAWN]
    );
}
