//! A group that is to be empty (spec.mode Evacuate): who goes, who waits, who takes its users.

use std::collections::BTreeMap;

use elastic_pool_engine::evacuation::outlet;
use elastic_pool_engine::group::{DrainKind, DrainProgress};
use elastic_pool_engine::{Action, Birth, Group, Mode, MoveMode, Policy, WorkerView};
use rstest::rstest;

use super::scene::{
    NOW, SPAWN, actions, cancel_drain, cancel_spawn, codes, drain, drained, percent, planned, seconds,
    spawned, worker, workers,
};

fn evacuating(outlet: bool) -> Policy {
    Policy {
        mode: Mode::Evacuate,
        min: 3,
        outlet,
        ..Policy::default()
    }
}

fn empty(birth: u64) -> WorkerView {
    WorkerView {
        users: 0,
        ..worker(birth, 0)
    }
}

fn with_guests(birth: u64, for_seconds: u64) -> WorkerView {
    WorkerView {
        guests_until: Some(NOW + seconds(for_seconds)),
        ..empty(birth)
    }
}

#[test]
fn with_an_outlet_everybody_but_the_reception_goes_at_once() {
    let plan = planned(workers(&[90, 90, 10]), &evacuating(true));
    assert_eq!(actions(&plan), [drain(2), drain(3)]);
}

#[test]
fn without_an_outlet_a_busy_worker_stays() {
    let plan = planned(workers(&[40, 70, 60]), &evacuating(false));
    assert_eq!(actions(&plan), []);
    assert!(codes(&plan).contains(&"users_left"));
}

#[test]
fn without_an_outlet_those_who_stay_are_brought_together_below_min() {
    let plan = planned(workers(&[10, 10, 5]), &evacuating(false));
    assert_eq!(actions(&plan), [drain(3)]);
}

#[test]
fn whom_nobody_lives_on_goes_whatever_the_ledger_says() {
    let plan = planned([worker(1, 40), worker(2, 79), empty(3)], &evacuating(false));
    assert_eq!(actions(&plan), [drain(3)]);
}

#[rstest]
#[case::its_users_first(vec![worker(1, 0)], &[])]
#[case::the_others_first(vec![empty(1), drained(2, 0, DrainKind::Compaction, DrainProgress::Running)], &[])]
#[case::its_guests_first(vec![with_guests(1, 1)], &[])]
#[case::then_it_goes(vec![with_guests(1, 0)], &[drain(1)])]
#[case::without_any_guest_at_once(vec![empty(1)], &[drain(1)])]
fn the_reception_goes_last(#[case] workers: Vec<WorkerView>, #[case] expected: &[Action]) {
    assert_eq!(actions(&planned(workers, &evacuating(true))), expected);
}

#[test]
fn the_plan_wakes_when_the_guests_have_stayed_away_long_enough() {
    let plan = planned([with_guests(1, 7)], &evacuating(true));
    assert_eq!(plan.wake_at, Some(NOW + seconds(7)));
}

#[rstest]
#[case::while_it_is_emptied(DrainProgress::Running)]
#[case::when_it_is_empty(DrainProgress::Empty)]
fn a_guest_who_comes_back_before_the_end_finds_the_reception_open(#[case] progress: DrainProgress) {
    let mut closed = with_guests(1, 600);
    closed.state = drained(1, 0, DrainKind::Compaction, progress).state;
    assert_eq!(actions(&planned([closed], &evacuating(true))), [cancel_drain(1)]);
}

#[test]
fn an_empty_group_stays_empty() {
    let plan = planned([], &evacuating(false));
    assert_eq!(actions(&plan), []);
    assert!(codes(&plan).contains(&"nobody_left"));
}

#[rstest]
#[case::a_drained_worker_comes_back_instead(
    vec![drained(2, 0, DrainKind::Compaction, DrainProgress::Running)], &[cancel_drain(2)])]
#[case::nobody_else_could(vec![drained(2, 0, DrainKind::MustGo, DrainProgress::Running)], &[SPAWN])]
#[case::one_is_on_its_way(vec![drained(2, 0, DrainKind::MustGo, DrainProgress::Running), spawned(3, 1)], &[])]
fn the_dead_are_replaced_while_users_live_there(#[case] left: Vec<WorkerView>, #[case] expected: &[Action]) {
    assert_eq!(actions(&planned(left, &evacuating(false))), expected);
}

#[test]
fn a_spawn_that_nobody_needs_is_cancelled() {
    let plan = planned([worker(1, 40), spawned(2, 1)], &evacuating(false));
    assert_eq!(actions(&plan), [cancel_spawn(2)]);
}

#[test]
fn load_alone_spawns_nobody() {
    let plan = planned(workers(&[95, 95]), &evacuating(false));
    assert_eq!(actions(&plan), []);
}

#[test]
fn a_worker_that_cannot_be_emptied_now_stays_closed_and_blocks_nobody() {
    let stuck = || drained(3, 0, DrainKind::Compaction, DrainProgress::Stuck);
    assert_eq!(actions(&planned([worker(1, 0), stuck()], &evacuating(true))), []);
    let plan = planned([worker(1, 0), worker(2, 0), stuck()], &evacuating(false));
    assert_eq!(actions(&plan), [drain(2)]);
}

#[test]
fn an_app_without_snapshots_is_evacuated_by_waiting() {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..evacuating(false)
    };
    assert_eq!(actions(&planned(workers(&[0, 0, 0]), &policy)), [drain(2)]);
}

#[test]
fn active_again_the_group_is_as_ever() {
    let policy = Policy {
        mode: Mode::Active,
        ..evacuating(true)
    };
    let plan = planned([worker(1, 10)], &policy);
    assert_eq!(actions(&plan), [Action::Spawn { count: 2 }]);
}

fn group(loads: &[u32]) -> Group {
    workers(loads).into_iter().collect()
}

#[rstest]
#[case::the_least_loaded(&[30, 20, 60], Some(2))]
#[case::the_reception_counts_against_its_own_threshold(&[50, 70], Some(2))]
#[case::nobody_with_room(&[50, 80], None)]
#[case::nobody(&[], None)]
fn a_user_goes_where_there_is_room(#[case] loads: &[u32], #[case] expected: Option<u64>) {
    let (group, policy) = (group(loads), Policy::default());
    let chosen = outlet([(&group, &policy)], &BTreeMap::new(), false);
    assert_eq!(chosen, expected.map(Birth));
}

#[test]
fn what_is_on_its_way_counts_and_a_deadline_takes_anybody() {
    let (group, policy) = (group(&[50, 70]), Policy::default());
    let coming = BTreeMap::from([(Birth(2), percent(10))]);
    assert_eq!(outlet([(&group, &policy)], &coming, false), None);
    assert_eq!(outlet([(&group, &policy)], &coming, true), Some(Birth(1)));
}
