//! Whole plans of growth, drains, failed spawns and modes (G2, G4, G5, C2, C7, D2), and the edges of placement.

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::placement::{Verdict, place};
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{
    Action, Birth, Group, Mode, MoveMode, Plan, Policy, Share, Snapshot, WorkerState, WorkerView, plan,
};
use rstest::rstest;

const NOW: Duration = Duration::from_secs(1000);

fn worker(birth: u64, percent: u32) -> WorkerView {
    let occupancy = Share::from_percent(percent);
    WorkerView {
        occupancy,
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    }
}

fn nascent(birth: u64, age: u64) -> WorkerView {
    let since = NOW.saturating_sub(Duration::from_secs(age));
    WorkerView {
        state: WorkerState::Nascent { since },
        ..worker(birth, 0)
    }
}

fn draining(birth: u64, kind: DrainKind, progress: DrainProgress, age: u64) -> WorkerView {
    let since = NOW.saturating_sub(Duration::from_secs(age));
    WorkerView {
        state: WorkerState::Draining(Drain {
            kind,
            since,
            progress,
        }),
        ..worker(birth, 10)
    }
}

fn planned(workers: impl IntoIterator<Item = WorkerView>, policy: &Policy) -> Plan {
    after(workers, policy, &SpawnHistory::default())
}

fn after(workers: impl IntoIterator<Item = WorkerView>, policy: &Policy, spawns: &SpawnHistory) -> Plan {
    let group: Group = workers.into_iter().collect();
    plan(
        &Snapshot {
            group: &group,
            policy,
            spawns,
        },
        NOW,
    )
}

fn actions(plan: &Plan) -> Vec<Action> {
    plan.actions().collect()
}

fn codes(plan: &Plan) -> Vec<&'static str> {
    plan.reasons().map(|because| because.code).collect()
}

use DrainKind::{Compaction, MustGo};
use DrainProgress::{Empty, Running, Stuck};

const SPAWN: Action = Action::Spawn { count: 1 };
const CANCEL_3: Action = Action::CancelDrain { birth: Birth(3) };
const RETIRE_3: Action = Action::Retire { birth: Birth(3) };

#[rstest]
#[case::an_empty_drained_worker_is_retired([worker(1, 10), worker(2, 10), draining(3, Compaction, Empty, 1)], &[RETIRE_3])]
#[case::a_running_drain_goes_on([worker(1, 10), worker(2, 10), draining(3, Compaction, Running, 999)], &[])]
#[case::a_worker_that_cannot_be_emptied_goes_back([worker(1, 10), worker(2, 10), draining(3, Compaction, Stuck, 1)], &[CANCEL_3])]
#[case::growth_takes_a_drained_worker_back_even_when_empty([worker(1, 60), worker(2, 90), draining(3, Compaction, Empty, 1)], &[CANCEL_3])]
#[case::who_must_go_is_given_its_time([worker(1, 10), worker(2, 10), draining(3, MustGo, Running, 119)], &[])]
#[case::who_must_go_goes_when_its_time_is_up([worker(1, 10), worker(2, 10), draining(3, MustGo, Stuck, 120)], &[RETIRE_3])]
#[case::nothing_takes_back_who_must_go([worker(1, 60), worker(2, 90), draining(3, MustGo, Running, 1)], &[SPAWN])]
fn drains_end_as_their_kind_says(#[case] workers: [WorkerView; 3], #[case] expected: &[Action]) {
    assert_eq!(actions(&planned(workers, &Policy::default())), expected);
}

#[test]
fn waiting_for_users_to_leave_blocks_no_other_drain() {
    let workers = || {
        [
            worker(1, 0),
            worker(2, 0),
            worker(3, 0),
            draining(4, Compaction, Stuck, 1),
        ]
    };
    assert_eq!(
        actions(&planned(workers(), &Policy::default())),
        [Action::CancelDrain { birth: Birth(4) }]
    );
    let drain = Policy {
        moves: MoveMode::Drain,
        ..Policy::default()
    };
    assert_eq!(
        actions(&planned(workers(), &drain)),
        [Action::Drain { birth: Birth(2) }]
    );
}

#[test]
fn a_spawn_that_takes_too_long_is_abandoned_and_replaced_after_a_pause() {
    let workers = |age| [worker(1, 60), nascent(2, age)];
    let policy = Policy {
        max: Some(2),
        ..Policy::default()
    };
    let waiting = planned(workers(120), &policy);
    assert_eq!(actions(&waiting), []);
    assert_eq!(waiting.wake_at, Some(NOW + Duration::from_millis(1)));
    let late = planned(workers(121), &policy);
    assert_eq!(actions(&late), [Action::AbandonSpawn { birth: Birth(2) }]);
    assert_eq!(late.conditions, [Condition::SpawnsFailing(SpawnFault::TimedOut)]);
}

#[test]
fn failed_spawns_wait_longer_each_time() {
    let mut spawns = SpawnHistory::default();
    for age in [200, 100, 39] {
        spawns.fail(NOW.saturating_sub(Duration::from_secs(age)), SpawnFault::TimedOut);
    }
    let blocked = after([worker(1, 60)], &Policy::default(), &spawns);
    assert_eq!(
        (actions(&blocked), blocked.wake_at),
        (vec![], Some(NOW + Duration::from_secs(1)))
    );
    assert_eq!(codes(&blocked), ["backing_off", "within_margin"]);
    spawns.last_failure = Some(NOW.saturating_sub(Duration::from_secs(40)));
    assert_eq!(
        actions(&after([worker(1, 60)], &Policy::default(), &spawns)),
        [SPAWN]
    );
    spawns.clear();
    assert_eq!(
        actions(&after([worker(1, 60)], &Policy::default(), &spawns)),
        [SPAWN]
    );
}

#[test]
fn a_spawn_for_the_floor_is_not_cancelled() {
    let workers = || [worker(1, 0), worker(2, 0), nascent(3, 1)];
    let floor = Policy {
        min: 3,
        ..Policy::default()
    };
    assert_eq!(actions(&planned(workers(), &floor)), []);
    let plan = planned(workers(), &Policy::default());
    assert_eq!(actions(&plan), [Action::CancelSpawn { birth: Birth(3) }]);
}

#[test]
fn nothing_is_compacted_in_the_plan_that_grows() {
    // Below the floor and above max at once cannot be asked for; a drain under way and a missing worker can.
    let policy = Policy {
        min: 2,
        ..Policy::default()
    };
    let plan = planned([worker(1, 0)], &policy);
    assert_eq!((actions(&plan), codes(&plan)), (vec![SPAWN], vec!["below_min"]));
    let plan = planned([worker(1, 0), draining(3, Compaction, Running, 1)], &policy);
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![CANCEL_3], vec!["below_min", "below_min"])
    );
}

#[test]
fn max_stops_growth_with_a_condition_and_a_lowered_max_compacts() {
    let policy = Policy {
        max: Some(2),
        ..Policy::default()
    };
    let limited = planned([worker(1, 60), worker(2, 90)], &policy);
    assert_eq!(
        (actions(&limited), limited.conditions),
        (vec![], vec![Condition::ScalingLimited])
    );
    let above = planned([worker(1, 10), worker(2, 60), worker(3, 50)], &policy);
    assert_eq!(actions(&above), [Action::Drain { birth: Birth(3) }]);
    assert_eq!(above.conditions, [Condition::AboveMax]);
}

#[test]
fn recommend_says_what_it_would_do_and_frozen_does_not() {
    let idle = [worker(1, 0), worker(2, 0)];
    let drain = vec![Action::Drain { birth: Birth(2) }];
    let advice = |mode, workers: &[WorkerView]| {
        let plan = planned(
            workers.to_vec(),
            &Policy {
                mode,
                ..Policy::default()
            },
        );
        let advice: Vec<Action> = plan
            .advice
            .iter()
            .filter_map(|decision| decision.action)
            .collect();
        (actions(&plan), advice)
    };
    assert_eq!(advice(Mode::Active, &idle), (drain.clone(), vec![]));
    assert_eq!(advice(Mode::Recommend, &idle), (vec![], drain));
    assert_eq!(advice(Mode::Frozen, &idle), (vec![], vec![]));
    let full = [worker(1, 60)];
    assert_eq!(advice(Mode::Recommend, &full), (vec![], vec![SPAWN]));
    assert_eq!(advice(Mode::Frozen, &[]), (vec![SPAWN], vec![]));
}

#[test]
fn a_worker_passed_over_is_no_victim_until_its_pause_is_over() {
    let workers = |until| {
        let pause = Some(Duration::from_secs(until));
        [
            worker(1, 0),
            WorkerView {
                passed_over_until: pause,
                ..worker(2, 0)
            },
            worker(3, 5),
        ]
    };
    let plan = planned(workers(1001), &Policy::default());
    assert_eq!(actions(&plan), [Action::Drain { birth: Birth(3) }]);
    assert_eq!(plan.wake_at, Some(Duration::from_secs(1001)));
    assert_eq!(
        actions(&planned(workers(1000), &Policy::default())),
        [Action::Drain { birth: Birth(2) }]
    );
}

#[test]
fn load_in_transit_keeps_a_second_worker() {
    let workers = |transit| {
        let transit = Share::from_percent(transit);
        [
            worker(1, 0),
            WorkerView {
                transit,
                ..worker(2, 40)
            },
            worker(3, 10),
        ]
    };
    assert_eq!(actions(&planned(workers(40), &Policy::default())), []);
    assert_eq!(
        actions(&planned(workers(39), &Policy::default())),
        [Action::Drain { birth: Birth(3) }]
    );
}

#[test]
fn start_up_load_is_room_until_its_window_is_over() {
    let workers = |until| {
        let room_until = Some(Duration::from_secs(until));
        [
            worker(1, 60),
            worker(2, 90),
            WorkerView {
                room_until,
                ..worker(3, 100)
            },
        ]
    };
    let plan = planned(workers(1001), &Policy::default());
    assert_eq!(
        (actions(&plan), plan.wake_at),
        (vec![], Some(Duration::from_secs(1001)))
    );
    assert_eq!(actions(&planned(workers(1000), &Policy::default())), [SPAWN]);
    let alone = |until| {
        [WorkerView {
            room_until: Some(Duration::from_secs(until)),
            ..worker(1, 90)
        }]
    };
    assert_eq!(actions(&planned(alone(1001), &Policy::default())), []);
    assert_eq!(actions(&planned(alone(1000), &Policy::default())), [SPAWN]);
}

#[rstest]
#[case::alone_on_its_threshold_is_full(&[50], &[SPAWN])]
#[case::alone_just_below_has_room(&[49], &[])]
#[case::others_on_admission_are_full(&[0, 80], &[SPAWN])]
#[case::one_just_below_is_room(&[100, 100, 79], &[])]
fn growth_stands_on_the_thresholds(#[case] loads: &[u32], #[case] expected: &[Action]) {
    let workers = loads.iter().zip(1..).map(|(load, birth)| worker(birth, *load));
    assert_eq!(actions(&planned(workers, &Policy::default())), expected);
}

fn placed(workers: impl IntoIterator<Item = WorkerView>, at: u64) -> Option<(Verdict, Birth, bool)> {
    let group: Group = workers.into_iter().collect();
    let placement = place(&group, &Policy::default(), Some(Birth(at))).ok()?;
    Some((placement.verdict, placement.worker, placement.warning))
}

#[test]
fn a_login_elsewhere_never_falls_to_an_idle_reception() {
    let full = [worker(1, 0), worker(2, 85), worker(3, 90)];
    assert_eq!(placed(full.clone(), 2), Some((Verdict::Pass, Birth(3), true)));
    assert_eq!(
        placed(full[..2].to_vec(), 2),
        Some((Verdict::Keep, Birth(2), true))
    );
    let roomy = [worker(1, 0), worker(2, 85), worker(3, 79)];
    assert_eq!(placed(roomy, 2), Some((Verdict::Pass, Birth(3), false)));
}

#[test]
fn a_login_on_a_closed_worker_may_fall_to_the_reception() {
    let closed = draining(2, MustGo, Running, 1);
    assert_eq!(
        placed([worker(1, 49), closed.clone()], 2),
        Some((Verdict::Pass, Birth(1), false))
    );
    assert_eq!(
        placed([worker(1, 90), closed.clone()], 2),
        Some((Verdict::Pass, Birth(1), false))
    );
    let busy = [worker(1, 50), closed.clone(), worker(3, 0)];
    assert_eq!(placed(busy, 2), Some((Verdict::Pass, Birth(3), false)));
    assert_eq!(placed([closed], 2), None);
}

#[test]
fn a_stale_reception_keeps_nobody_while_another_is_known() {
    let stale = |view| WorkerView { stale: true, ..view };
    let known = [stale(worker(1, 0)), worker(2, 30)];
    assert_eq!(placed(known, 1), Some((Verdict::Pass, Birth(2), false)));
    let unknown = [stale(worker(1, 0)), stale(worker(2, 30))];
    assert_eq!(placed(unknown, 1), Some((Verdict::Keep, Birth(1), false)));
}
