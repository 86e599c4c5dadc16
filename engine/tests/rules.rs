//! Rules E5, G1-G5 and C2-C8 of growth and compaction, each claim a test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scene;

use elastic_pool_engine::backoff::Backoff;
use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::Survivors;
use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::ledger::Transit;
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Action, Birth, Group, MoveMode, Policy, WorkerState, WorkerView};
use rstest::rstest;
use scene::{
    NOW, SPAWN, actions, acts, ago, cancel_drain, cancel_spawn, codes, decided, drain, drained, percent,
    planned, planned_after, seconds, spawned, worker, workers,
};
use std::collections::BTreeMap;

use DrainKind::{Compaction, MustGo};
use DrainProgress::{Running, Stuck};

fn cold(view: WorkerView) -> WorkerView {
    WorkerView { warm: false, ..view }
}

fn stale(view: WorkerView) -> WorkerView {
    WorkerView { stale: true, ..view }
}

fn with_max(max: usize) -> Policy {
    Policy {
        max: Some(max),
        ..Policy::default()
    }
}

fn with_min(min: usize) -> Policy {
    Policy {
        min,
        ..Policy::default()
    }
}

// E5

#[rstest]
#[case::routable(cold(worker(4, 0)))]
#[case::draining(cold(drained(4, 0, MustGo, Running)))]
#[case::not_announced_yet(cold(spawned(4, 1)))]
fn nobody_goes_until_every_worker_of_an_earlier_term_is_known_again(#[case] unknown: WorkerView) {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..Policy::default()
    };
    let mut group: Group = workers(&[0, 0, 0]).into_iter().chain([unknown]).collect();
    let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![], vec!["room", "warming_up"])
    );
    // Dead, it holds nothing back.
    group.remove(Birth(4));
    let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
    assert_eq!(actions(&plan), [drain(2)]);
}

#[test]
fn a_spawn_of_an_earlier_term_is_not_cancelled_before_it_announced() {
    let idle = || workers(&[0, 0]);
    assert_eq!(acts(idle().into_iter().chain([spawned(3, 1)])), [cancel_spawn(3)]);
    assert_eq!(acts(idle().into_iter().chain([cold(spawned(3, 1))])), []);
}

#[test]
fn a_stale_worker_keeps_all_others_and_stops_no_growth() {
    assert_eq!(acts([worker(1, 0), worker(2, 0), stale(worker(3, 0))]), []);
    assert_eq!(
        acts([worker(1, 0), worker(2, 0), stale(drained(3, 0, MustGo, Running))]),
        []
    );
    assert_eq!(acts([worker(1, 60), worker(2, 90), stale(worker(3, 0))]), [SPAWN]);
}

#[test]
fn a_stale_worker_is_neither_room_nor_full() {
    // Nothing is known of anybody but the idle reception.
    assert_eq!(acts([worker(1, 10), stale(worker(2, 100))]), []);
    assert_eq!(acts([stale(worker(1, 100))]), []);
    let young = WorkerView {
        room_until: Some(seconds(1001)),
        ..worker(3, 100)
    };
    assert_eq!(acts([worker(1, 60), worker(2, 90), young.clone()]), []);
    assert_eq!(acts([worker(1, 60), worker(2, 90), stale(young)]), [SPAWN]);
}

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

// C2

#[test]
fn a_spawn_goes_only_when_nobody_asks_for_it_and_the_margin_is_passed() {
    let at = |loads: &[u32]| acts(workers(loads).into_iter().chain([spawned(9, 1)]));
    assert_eq!(at(&[0, 0]), [cancel_spawn(9)]);
    // H = 1.2 is not above the margin.
    assert_eq!(at(&[0, 10]), []);
    // H = 1.25, and G1 asks for it.
    assert_eq!(at(&[0, 5, 80, 80]), [cancel_spawn(9)]);
    let idle_reception = Policy {
        margin: percent(10),
        ..Policy::default()
    };
    let full = workers(&[0, 90]).into_iter().chain([spawned(9, 1)]);
    assert_eq!(actions(&planned(full, &idle_reception)), []);
}

#[test]
fn nobody_goes_whom_growth_would_bring_back() {
    let plan = planned(workers(&[0, 0, 85]), &Policy::default());
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![], vec!["room", "would_grow_again"])
    );
    assert_eq!(acts(workers(&[0, 0, 79])), [drain(2)]);
    // What it carries is placed first: 0.3 would fill w3 and the reception takes nobody above its own threshold.
    let margin = Policy {
        margin: percent(70),
        ..Policy::default()
    };
    assert_eq!(actions(&planned(workers(&[40, 30, 60]), &margin)), [drain(2)]);
    assert_eq!(actions(&planned(workers(&[50, 30, 51]), &margin)), []);
}

// C4

#[test]
fn a_retirement_on_stale_figures_is_not_followed_by_another() {
    // Of [0.0, 0.2, 0.2, 0.4] w2 goes: its users moved to w3, whose smoothed reading does not show them.
    let before = workers(&[0, 20, 20, 40]);
    assert_eq!(acts(before), [drain(2)]);
    let after = |rows| {
        let moved = Transit {
            target: Birth(3),
            moved: percent(20),
            rows,
        };
        vec![
            worker(1, 0),
            WorkerView {
                transit: moved.remaining(6),
                ..worker(3, 30)
            },
            worker(4, 40),
        ]
    };
    assert_eq!(acts(after(0)), []);
    assert_eq!(acts(after(6)), [drain(3)]);
    // A target that dies takes the debt with it.
    let mut group: Group = after(0).into_iter().collect();
    group.put(worker(5, 40));
    group.remove(Birth(3));
    let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
    assert_eq!(plan.ledger.occupied, percent(80));
}

#[test]
fn load_in_transit_moves_on_with_those_that_carry_it() {
    let laden = WorkerView {
        transit: percent(40),
        users: 4,
        ..worker(2, 20)
    };
    assert_eq!(laden.share_per_user(), percent(15));
    // Without w2 its 0.6 would fill w3 at 0.7 and the reception; by its reading alone it would not.
    let margin = Policy {
        margin: percent(50),
        ..Policy::default()
    };
    let group = |laden: WorkerView| [worker(1, 30), laden, worker(3, 70)];
    assert_eq!(actions(&planned(group(laden.clone()), &margin)), []);
    let measured = WorkerView {
        transit: percent(0),
        ..laden
    };
    assert_eq!(actions(&planned(group(measured), &margin)), [drain(2)]);
}

#[test]
fn an_empty_worker_leaves_no_debt() {
    let empty = WorkerView {
        users: 0,
        ..worker(2, 0)
    };
    assert_eq!(empty.share_per_user(), percent(0));
    // One empty worker after the other goes while the figures hold.
    let mut group: Group = workers(&[0, 0, 0, 0]).into_iter().collect();
    for gone in [2, 3] {
        let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
        assert_eq!(actions(&plan), [drain(gone)]);
        group.remove(Birth(gone));
    }
}

// C6

#[test]
fn every_user_goes_to_the_lowest_projection_below_its_own_threshold() {
    let group: Group = workers(&[40, 60, 70, 30]).into_iter().collect();
    let mut survivors = Survivors::without(&group, &Policy::default(), Birth(4), &BTreeMap::new());
    let mut take = || survivors.take(percent(5)).unwrap().0;
    // The reception twice, up to 0.5; w2 from 0.6 to 0.7, where it is as full as w3 and older; both up to 0.8; then the reception again,
    // the lowest of those that are full.
    let targets: Vec<u64> = (0..9).map(|_| take()).collect();
    assert_eq!(targets, [1, 1, 2, 2, 2, 3, 2, 3, 1]);
}

// C7

#[test]
fn a_worker_that_cannot_be_emptied_is_passed_over_for_longer_each_time() {
    let minutes = |n| Backoff::MOVE.pause(n).as_secs() / 60;
    assert_eq!(
        [1, 2, 3, 4, 5, 6, u32::MAX].map(minutes),
        [1, 2, 4, 8, 15, 15, 15]
    );
    let passed = |until| WorkerView {
        passed_over_until: Some(until),
        ..worker(2, 0)
    };
    let plan = |until| acts([worker(1, 0), passed(until), worker(3, 5)]);
    assert_eq!(plan(NOW + seconds(1)), [drain(3)]);
    assert_eq!(plan(NOW), [drain(2)]);
    let mut group: Group = [worker(1, 0), passed(NOW), worker(3, 5)].into_iter().collect();
    group.expire(NOW);
    assert_eq!(group.get(Birth(2)).unwrap().passed_over_until, None);
    let all = [worker(1, 0), passed(NOW + seconds(1))];
    assert_eq!(codes(&planned(all, &Policy::default())), ["room", "no_victim"]);
}

#[test]
fn a_stuck_drain_goes_back_where_users_move_and_waits_where_they_leave() {
    let stuck = || [worker(1, 10), worker(2, 10), drained(3, 10, Compaction, Stuck)];
    assert_eq!(acts(stuck()), [cancel_drain(3)]);
    let waits = Policy {
        moves: MoveMode::Drain,
        margin: percent(200),
        ..Policy::default()
    };
    assert_eq!(actions(&planned(stuck(), &waits)), []);
}

// C8

#[test]
fn above_max_one_goes_at_a_time_whatever_the_headroom() {
    let max = |moves| Policy { moves, ..with_max(2) };
    let many = || workers(&[40, 60, 50, 55]);
    for moves in [MoveMode::Live, MoveMode::Drain] {
        let plan = planned(many(), &max(moves));
        assert_eq!(actions(&plan), [drain(3)]);
        assert_eq!(plan.conditions, [Condition::AboveMax]);
        let running = many().into_iter().chain([drained(9, 10, Compaction, Running)]);
        let plan = planned(running, &max(moves));
        assert_eq!(
            (actions(&plan), codes(&plan)),
            (vec![], vec!["room", "drain_running"])
        );
    }
}

#[rstest]
#[case::just_full(&[90, 90, 20], &[drain(3)])]
#[case::a_point_over(&[90, 91, 20], &[])]
fn no_survivor_is_projected_beyond_one(#[case] loads: &[u32], #[case] expected: &[Action]) {
    let plan = planned(workers(loads), &with_max(2));
    assert_eq!(actions(&plan), expected);
    assert_eq!(plan.conditions, [Condition::AboveMax]);
}

#[test]
fn above_max_spawns_go_first() {
    let many = workers(&[0, 70])
        .into_iter()
        .chain([spawned(3, 1), spawned(4, 1)]);
    assert_eq!(actions(&planned(many, &with_max(2))), [cancel_spawn(4)]);
}

// Changes while running

#[test]
fn changed_thresholds_and_bounds_hold_from_the_next_plan_on() {
    let group: Group = workers(&[20, 30, 60]).into_iter().collect();
    let now = |policy: &Policy| actions(&decided(&group, policy, &SpawnHistory::default(), NOW));
    let defaults = Policy::default;
    assert_eq!(now(&defaults()), []);
    assert_eq!(now(&with_min(5)), [Action::Spawn { count: 2 }]);
    assert_eq!(now(&with_max(2)), [drain(2)]);
    let admission = percent(30);
    assert_eq!(
        now(&Policy {
            admission,
            ..defaults()
        }),
        [SPAWN]
    );
    let margin = percent(50);
    assert_eq!(now(&Policy { margin, ..defaults() }), [drain(2)]);
    let (margin, min) = (percent(50), 3);
    assert_eq!(
        now(&Policy {
            margin,
            min,
            ..defaults()
        }),
        []
    );
}

#[test]
fn a_lowered_spawn_timeout_and_drain_timeout_hold_for_what_is_under_way() {
    let late = Policy {
        spawn_timeout: seconds(30),
        drain_timeout: seconds(0),
        ..Policy::default()
    };
    let under_way = || [worker(1, 60), spawned(2, 31), drained(3, 0, MustGo, Running)];
    assert_eq!(actions(&planned(under_way(), &Policy::default())), []);
    let expected = [
        Action::AbandonSpawn { birth: Birth(2) },
        Action::Retire { birth: Birth(3) },
    ];
    assert_eq!(actions(&planned(under_way(), &late)), expected);
}

#[test]
fn groups_do_not_see_each_other() {
    let full: Group = workers(&[60, 90]).into_iter().collect();
    let idle: Group = workers(&[0, 0]).into_iter().collect();
    let now = |group| actions(&decided(group, &Policy::default(), &SpawnHistory::default(), NOW));
    assert_eq!(
        (now(&full), now(&idle), now(&full)),
        (vec![SPAWN], vec![drain(2)], vec![SPAWN])
    );
    assert!(matches!(full.get(Birth(1)).unwrap().state, WorkerState::Routable));
}
