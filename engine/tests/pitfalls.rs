//! Faults of other projects that this one must not repeat, as far as they are decisions: how many workers, and which one goes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod scene;

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::occupancy::{Limits, Reading, stale_from};
use elastic_pool_engine::report::{Executor, Report};
use elastic_pool_engine::window::{Row, Window};
use elastic_pool_engine::{Action, Birth, Group, MoveMode, Policy, Share, WorkerState, WorkerView};
use rstest::rstest;
use scene::{
    NOW, SPAWN, actions, acts, cancel_spawn, codes, decided, drain, drained, percent, planned, seconds,
    spawned, worker, workers,
};

/// Carries a plan out at once: spawns are routable and idle, drained workers are gone and their load is spread over the others.
fn carry_out(group: &mut Group, action: Action, born: &mut u64) {
    match action {
        Action::Spawn { count } => {
            for _ in 0..count {
                *born += 1;
                group.put(worker(*born, 0));
            }
        }
        Action::Drain { birth } => {
            let load = group.remove(birth).unwrap().occupancy;
            let stay: Vec<Birth> = group.placeable().map(|worker| worker.birth).collect();
            for birth in &stay {
                group.update(*birth, |worker| worker.occupancy += load.divided(stay.len()));
            }
        }
        other => panic!("{other:?} without a spawn or a drain under way"),
    }
}

#[rstest]
fn a1_steady_demand_settles_in_one_direction_from_every_size(
    #[values(0, 10, 30, 45, 60, 78)] load: u32,
    #[values(1, 3)] min: usize,
) {
    let policy = Policy {
        min,
        ..Policy::default()
    };
    for size in 0..=20 {
        let mut group: Group = (1..=size).map(|birth| worker(birth, load)).collect();
        let (mut born, mut grew, mut shrank) = (1_000, 0, 0);
        for _ in 0..1_000 {
            let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
            for action in actions(&plan) {
                match action {
                    Action::Spawn { .. } => grew += 1,
                    _ => shrank += 1,
                }
                carry_out(&mut group, action, &mut born);
            }
        }
        assert!(
            grew == 0 || shrank == 0,
            "from {size}: {grew} up and {shrank} down"
        );
        assert!(grew + shrank <= 20, "from {size}: {} changes", grew + shrank);
    }
}

#[test]
fn a2_one_unknown_reading_blocks_shrinking_and_not_growing() {
    let with_unknown = |load| {
        let mut workers = workers(&[load, load, load]);
        workers[1].stale = true;
        workers
    };
    let idle = planned(with_unknown(0), &Policy::default());
    assert_eq!((actions(&idle), codes(&idle)), (vec![], vec!["room", "stale"]));
    assert_eq!(acts(with_unknown(100)), [SPAWN]);
}

/// What a worker with users is taken for after six reports.
fn read(report: Report) -> WorkerView {
    let mut window = Window::new(Window::ROWS, "a");
    for second in 0..6 {
        let row = Row {
            at: seconds(second),
            report: report.sanitised().0,
            forward: Forwards::default(),
        };
        window.accept("a", second, row).unwrap();
    }
    let limits = Limits {
        memory_bytes: Some(1 << 29),
        cpu_cores: 1.0,
    };
    let reading = Reading::of(&window, 6, &limits);
    WorkerView {
        occupancy: reading.occupancy,
        stale: reading.is_unmeasured(true),
        ..worker(3, 0)
    }
}

#[rstest]
fn a3_what_is_no_reading_is_unknown_and_never_a_number(
    #[values(-1.0, -2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300)] value: f64,
) {
    let executor = |busy, total| Executor {
        busy: Some(busy),
        total: Some(total),
        queue_depth: Some(value),
    };
    let report = |executor| Report {
        users: Some(value),
        cpu: Some(value),
        rss: Some(value),
        executor,
        ..Report::default()
    };
    for broken in [executor(value, 10.0), executor(3.0, value)] {
        let view = read(report(broken));
        assert!(view.stale && view.occupancy == Share::ZERO);
        assert_eq!(acts([worker(1, 0), worker(2, 0), view.clone()]), []);
        assert_eq!(acts([worker(1, 60), worker(2, 90), view]), [SPAWN]);
    }
    // More busy than there are is a full worker.
    let full = read(report(executor(50.0, 10.0)));
    assert!(!full.stale && full.occupancy == Share::ONE);
}

#[test]
fn a4_the_worst_load_grows_to_max_and_never_turns_round() {
    let policy = Policy {
        max: Some(5_001),
        ..Policy::default()
    };
    let most = Share::from_f64(1e6).unwrap();
    let view = |birth| WorkerView {
        occupancy: most,
        transit: most,
        users: usize::MAX,
        ..worker(birth, 0)
    };
    let mut group: Group = (1..=5_000).map(view).collect();
    assert_eq!(
        actions(&decided(&group, &policy, &SpawnHistory::default(), NOW)),
        [SPAWN]
    );
    group.put(view(5_001));
    let at_max = decided(&group, &policy, &SpawnHistory::default(), NOW);
    assert_eq!(
        (actions(&at_max), codes(&at_max)),
        (vec![], vec!["max_workers", "within_margin"])
    );
}

#[test]
fn a5_an_occupied_worker_of_an_older_template_keeps_no_idle_one() {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..Policy::default()
    };
    let old = drained(1, 30, DrainKind::MustGo, DrainProgress::Running);
    let mut group: Group = [old, worker(2, 0), worker(3, 0), worker(4, 0)]
        .into_iter()
        .collect();
    for gone in [3, 4] {
        let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
        assert_eq!(actions(&plan), [drain(gone)]);
        group.remove(Birth(gone));
    }
    let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
    assert_eq!((actions(&plan), codes(&plan)[1]), (vec![], "within_margin"));
}

#[test]
fn a6_workers_that_never_started_go_first_and_are_not_tried_for_ever() {
    // Load fell: those on their way go before anybody who serves, one plan after the other.
    let mut group: Group = workers(&[0, 0])
        .into_iter()
        .chain((3..7).map(|birth| spawned(birth, 60)))
        .collect();
    for birth in [6, 5, 4, 3] {
        let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
        assert_eq!(actions(&plan), [cancel_spawn(birth)]);
        group.remove(Birth(birth));
    }
    // Load stays: an image that does not exist is tried a dozen times in the first hour, with a reason.
    let mut group: Group = [worker(1, 60)].into_iter().collect();
    let (mut spawns, mut now, mut tried) = (SpawnHistory::default(), Duration::ZERO, 0_u64);
    while now < seconds(3_600) {
        let plan = decided(&group, &Policy::default(), &spawns, now);
        for action in actions(&plan) {
            match action {
                Action::Spawn { .. } => {
                    tried += 1;
                    group.put(WorkerView {
                        state: WorkerState::Nascent { since: now },
                        hindered: Some(SpawnFault::Mistake),
                        ..worker(1 + tried, 0)
                    });
                }
                Action::AbandonSpawn { birth } => {
                    group.remove(birth);
                    spawns.fail(now, SpawnFault::Mistake);
                }
                other => panic!("{other:?}"),
            }
        }
        let next = decided(&group, &Policy::default(), &spawns, now).wake_at.unwrap();
        assert!(next > now, "a plan that calls for itself at once");
        now = next;
    }
    assert!((8..=13).contains(&tried), "{tried} spawns in an hour");
    let now = spawns.last_failure.unwrap();
    assert_eq!(
        codes(&decided(&group, &Policy::default(), &spawns, now))[0],
        "spawn_mistake"
    );
    // Another template: at once.
    spawns.clear();
    assert_eq!(
        actions(&decided(&group, &Policy::default(), &spawns, now)),
        [SPAWN]
    );
}

#[test]
fn a7_a_new_commander_deletes_nobody_before_it_knows_everybody() {
    let mut group: Group = (1..=10)
        .map(|birth| WorkerView {
            warm: false,
            ..worker(birth, 0)
        })
        .collect();
    for known in 1..=10 {
        let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
        assert_eq!(
            (actions(&plan), codes(&plan)),
            (vec![], vec!["room", "warming_up"])
        );
        group.update(Birth(known), |worker| worker.warm = true);
    }
    let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
    assert_eq!(actions(&plan), [drain(2)]);
}

#[test]
fn a7_growth_does_not_wait_for_a_new_commander_to_know_everybody() {
    let cold = |view| WorkerView { warm: false, ..view };
    assert_eq!(acts([cold(worker(1, 60)), cold(worker(2, 90))]), [SPAWN]);
}

#[test]
fn b8_the_emptiest_goes_first_and_its_users_before_it() {
    let mut group: Group = workers(&[0, 10, 0, 20]).into_iter().collect();
    assert_eq!(
        actions(&decided(
            &group,
            &Policy::default(),
            &SpawnHistory::default(),
            NOW
        )),
        [drain(3)]
    );
    // It is not deleted while somebody lives there.
    let progress = |progress| drained(3, 0, DrainKind::Compaction, progress);
    group.put(progress(DrainProgress::Running));
    assert_eq!(
        actions(&decided(
            &group,
            &Policy::default(),
            &SpawnHistory::default(),
            NOW
        )),
        []
    );
    group.put(progress(DrainProgress::Empty));
    let retire = Action::Retire { birth: Birth(3) };
    assert_eq!(
        actions(&decided(
            &group,
            &Policy::default(),
            &SpawnHistory::default(),
            NOW
        )),
        [retire]
    );
    group.remove(Birth(3));
    let next = Policy {
        margin: percent(100),
        ..Policy::default()
    };
    assert_eq!(
        actions(&decided(&group, &next, &SpawnHistory::default(), NOW)),
        [drain(2)]
    );
}

#[test]
fn b10_a_worker_that_is_not_ready_goes_before_one_that_is() {
    assert_eq!(
        acts([worker(1, 0), worker(2, 0), spawned(3, 5)]),
        [cancel_spawn(3)]
    );
}

#[test]
fn b11_a_long_drain_keeps_no_idle_worker() {
    let policy = Policy {
        moves: MoveMode::Drain,
        drain_timeout: seconds(3_600),
        ..Policy::default()
    };
    let waits = [
        drained(9, 30, DrainKind::Compaction, DrainProgress::Stuck),
        drained(8, 30, DrainKind::MustGo, DrainProgress::Running),
    ];
    let mut group: Group = workers(&[0, 0, 0, 0, 0, 0]).into_iter().chain(waits).collect();
    for gone in 2..=5 {
        let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
        assert_eq!(actions(&plan), [drain(gone)]);
        group.put(drained(gone, 0, DrainKind::Compaction, DrainProgress::Empty));
        let plan = decided(&group, &policy, &SpawnHistory::default(), NOW);
        assert_eq!(actions(&plan)[0], Action::Retire { birth: Birth(gone) });
        group.remove(Birth(gone));
    }
}

#[test]
fn a_report_after_silence_is_known_again() {
    let interval = Policy::default().interval;
    let mut group: Group = workers(&[0, 0, 0]).into_iter().collect();
    for birth in 1..=3 {
        group.update(Birth(birth), |worker| {
            worker.stale_from = stale_from(Some(NOW), interval);
        });
    }
    let now =
        |group: &Group, now| actions(&decided(group, &Policy::default(), &SpawnHistory::default(), now));
    let silent = NOW + seconds(15);
    assert_eq!(now(&group, silent), [drain(2)]);
    assert_eq!(group.expire(silent), [Birth(1), Birth(2), Birth(3)]);
    assert_eq!(now(&group, silent), []);
    for birth in 1..=3 {
        group.update(Birth(birth), |worker| worker.stale = false);
    }
    assert_eq!(now(&group, silent), [drain(2)]);
}
