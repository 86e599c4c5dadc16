//! What is not known holds shrinking back, and no growth (E5).

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{DrainKind, DrainProgress};
use elastic_pool_engine::{Birth, Group, MoveMode, Policy, WorkerView};
use rstest::rstest;

use crate::scene::{
    NOW, SPAWN, actions, acts, cancel_spawn, codes, decided, drain, drained, seconds, spawned, worker,
    workers,
};

use DrainKind::MustGo;
use DrainProgress::Running;

fn cold(view: WorkerView) -> WorkerView {
    WorkerView { warm: false, ..view }
}

fn stale(view: WorkerView) -> WorkerView {
    WorkerView { stale: true, ..view }
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
