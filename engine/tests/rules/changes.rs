//! Changes while running, and several groups at once.

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::group::{DrainKind, DrainProgress};
use elastic_pool_engine::occupancy::{Limits, Reading};
use elastic_pool_engine::report::Report;
use elastic_pool_engine::window::{Row, Window};
use elastic_pool_engine::{Action, Birth, Group, Policy, WorkerState};

use crate::scene::{
    NOW, SPAWN, actions, decided, drain, drained, percent, planned, seconds, spawned, with_max, with_min,
    worker, workers,
};

use DrainKind::MustGo;
use DrainProgress::Running;

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
fn another_limit_holds_for_the_rows_that_are_there() {
    let mut window = Window::new(Window::ROWS, "a");
    for (second, cpu) in [(1, 0.1), (2, 0.3)] {
        let report = Report {
            cpu: Some(cpu),
            rss: Some(f64::from(1 << 28)),
            ..Report::default()
        };
        window.push(Row {
            at: seconds(second),
            report,
            forward: Forwards::default(),
        });
    }
    let occupancy = |rows, memory_bytes, cpu_cores| {
        let limits = Limits {
            memory_bytes,
            cpu_cores,
        };
        Reading::of(&window, rows, &limits).occupancy
    };
    assert_eq!(occupancy(6, Some(1 << 29), 1.0), percent(50));
    assert_eq!(occupancy(6, Some(1 << 30), 1.0), percent(25));
    assert_eq!(occupancy(6, None, 1.0), percent(20));
    assert_eq!(occupancy(6, None, 0.5), percent(40));
    assert_eq!(occupancy(1, None, 1.0), percent(30));
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
