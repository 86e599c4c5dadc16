//! Who goes, when, and what becomes of his load (C2-C8).

use std::collections::BTreeMap;

use elastic_pool_engine::backoff::Backoff;
use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::Survivors;
use elastic_pool_engine::group::{DrainKind, DrainProgress};
use elastic_pool_engine::ledger::Transit;
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Action, Birth, Group, MoveMode, Policy, WorkerView};
use rstest::rstest;

use crate::scene::{
    NOW, actions, acts, cancel_drain, cancel_spawn, codes, decided, drain, drained, percent, planned,
    seconds, spawned, with_max, worker, workers,
};

use DrainKind::Compaction;
use DrainProgress::{Running, Stuck};

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

#[test]
fn who_goes_above_max_is_not_called_back_to_be_sent_again() {
    let two = with_max(2);
    assert_eq!(actions(&planned(workers(&[60, 85, 30]), &two)), [drain(3)]);
    let running = || [worker(1, 60), worker(2, 85), drained(3, 30, Compaction, Running)];
    let plan = planned(running(), &two);
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![], vec!["max_workers", "within_margin"])
    );
    assert_eq!(plan.conditions, [Condition::ScalingLimited]);
    // Where max allows it, growth takes it back.
    assert_eq!(actions(&planned(running(), &with_max(3))), [cancel_drain(3)]);
}

#[test]
fn a_drain_is_not_called_back_while_nothing_changes() {
    const LOADS: [u32; 7] = [0, 20, 45, 60, 79, 80, 95];
    let mut drains = 0;
    for number in 0..LOADS.len().pow(4) {
        let load = |place| LOADS[number / LOADS.len().pow(place) % LOADS.len()];
        for (max, margin, moves) in [
            (None, 120, MoveMode::Live),
            (None, 60, MoveMode::Drain),
            (Some(2), 120, MoveMode::Live),
            (Some(3), 60, MoveMode::Drain),
        ] {
            let policy = Policy {
                max,
                moves,
                margin: percent(margin),
                ..Policy::default()
            };
            let mut group: Group = workers(&[0, 1, 2, 3].map(load)).into_iter().collect();
            let first = decided(&group, &policy, &SpawnHistory::default(), NOW);
            let Some(Action::Drain { birth }) = first.actions().next() else {
                continue;
            };
            drains += 1;
            let load = group.remove(birth).unwrap();
            group.put(WorkerView {
                state: drained(birth.0, 0, Compaction, Running).state,
                ..load
            });
            let then = decided(&group, &policy, &SpawnHistory::default(), NOW);
            let another = |action| matches!(action, Action::Drain { .. }) && moves == MoveMode::Drain;
            assert!(then.actions().all(another), "{group:?}: {:?}", actions(&then));
        }
    }
    assert!(drains > 1_000, "{drains}");
}
