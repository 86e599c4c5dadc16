use std::time::Duration;

use proptest::prelude::*;

use super::{Pool, drive};
use crate::group::{WorkerState, WorkerView};
use crate::share::Share;
use crate::simulate::crowd::crowd;
use crate::simulate::{Settings, Trace};
use crate::thresholds::{MoveMode, Policy};

/// Two hours: up to six workers and down again.
const DAY: &str = "time,logins,mean_stay_seconds,cost_percent
00:00,10,600,4
00:20,300,900,4
00:40,300,600,4
01:00,20,300,4
01:20,0,300,4
01:40,5,300,4
";

/// Every present user lives on exactly one worker, and what the meters hold is what these users need.
fn nobody_is_lost(pool: &Pool<'_>) {
    let present = pool.residents.iter().filter(|resident| resident.here).count();
    let mut listed = 0;
    for (birth, worker) in &pool.workers {
        listed += worker.users.len();
        let load: Share = worker.users.iter().map(|user| pool.residents[*user].load).sum();
        assert_eq!(worker.meter.load(), (worker.users.len(), load));
        assert!(
            worker
                .users
                .iter()
                .all(|user| pool.residents[*user].home == Some(*birth))
        );
    }
    assert_eq!(listed, present);
}

fn run(policy: &Policy, look: impl FnMut(&Pool<'_>)) -> super::Served {
    let (trace, settings) = (Trace::parse(DAY.as_bytes()).unwrap(), Settings::default());
    drive(&crowd(&trace, &settings), policy, &settings, trace.span(), look)
}

#[test]
fn nobody_is_lost_or_lives_twice_while_the_pool_grows_and_shrinks() {
    let mut most = 0;
    let served = run(&Policy::default(), |pool| {
        nobody_is_lost(pool);
        most = most.max(pool.workers.len());
    });
    assert!(
        most >= 5 && served.moves > 0,
        "{most} workers, {} moves",
        served.moves
    );
    assert!(
        served
            .workers
            .minutes
            .last()
            .is_some_and(|workers| *workers <= 2.0)
    );
}

#[test]
fn without_moves_a_closed_worker_waits_for_its_users_to_leave() {
    let policy = Policy {
        moves: MoveMode::Drain,
        ..Policy::default()
    };
    let served = run(&policy, nobody_is_lost);
    assert_eq!(served.moves, 0);
    assert!(
        served
            .workers
            .minutes
            .last()
            .is_some_and(|workers| *workers <= 3.0)
    );
}

#[test]
fn max_bounds_the_pool_and_min_is_there_from_the_start() {
    let policy = Policy {
        min: 2,
        max: Some(3),
        ..Policy::default()
    };
    let served = run(&policy, |pool| {
        nobody_is_lost(pool);
        assert!((2..=3).contains(&pool.group.living()));
    });
    assert!(served.placed_above > 0);
}

#[test]
fn a_spawn_that_takes_too_long_is_given_up_and_tried_again_later() {
    let trace = Trace::parse(DAY.as_bytes()).unwrap();
    let settings = Settings {
        spawn: Duration::from_mins(5),
        ..Settings::default()
    };
    let mut spawns = 0;
    drive(
        &crowd(&trace, &settings),
        &Policy::default(),
        &settings,
        trace.span(),
        |pool| {
            nobody_is_lost(pool);
            spawns = pool.births;
            assert_eq!(pool.workers.len(), 1);
        },
    );
    assert!((3..30).contains(&spawns), "{spawns}");
}

#[test]
fn the_engine_sees_what_the_workers_hold() {
    run(&Policy::default(), |pool| {
        let routable = |view: &&WorkerView| !matches!(view.state, WorkerState::Nascent { .. });
        for view in pool.group.workers().filter(routable) {
            let worker = &pool.workers[&view.birth];
            assert_eq!(view.users, worker.users.len());
            assert_eq!(view.occupancy, worker.meter.reading.occupancy);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn nobody_is_lost_whatever_the_day(
        rows in prop::collection::vec((0u32..150, 30u32..1200, 0u32..20), 2..8),
        seed: u64,
        spawn in 0u64..200,
        min in 1usize..4,
        smoothing_rows in 1usize..8,
    ) {
        let line = |(index, (logins, stay, cost)): (usize, &(u32, u32, u32))| {
            format!("00:{:02},{logins},{stay},{cost}\n", index * 5)
        };
        let lines: String = rows.iter().enumerate().map(line).collect();
        let trace = Trace::parse(format!("{}\n{lines}", crate::simulate::HEADER).as_bytes()).unwrap();
        let settings = Settings { seed, spawn: Duration::from_secs(spawn), ..Settings::default() };
        let policy = Policy { smoothing_rows, min, ..Policy::default() };
        let users = crowd(&trace, &settings);
        let served = drive(&users, &policy, &settings, trace.span(), |pool| {
            nobody_is_lost(pool);
            assert!(pool.group.reception().is_some());
        });
        prop_assert_eq!(served.logins, users.len());
    }
}
