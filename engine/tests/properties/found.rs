//! Cases on which a property once failed.

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::{Action, Birth, Group, Policy, Share, WorkerState, WorkerView};

use crate::world::{NOW, actions, plan_at};

#[test]
fn a_surge_on_top_of_the_largest_max_does_not_overflow() {
    let state = WorkerState::Retiring { must_go: true };
    let mut group = Group::from_iter([WorkerView {
        state,
        ..WorkerView::new(Birth(1), "w1")
    }]);
    let policy = Policy {
        max: Some(usize::MAX),
        ..Policy::default()
    };
    let plan = plan_at(&mut group, &policy, &SpawnHistory::default(), NOW);
    assert_eq!(actions(&plan), [Action::Spawn { count: 1 }]);
}

#[test]
fn the_largest_percentage_saturates() {
    let largest = Share::from_percent(u32::MAX);
    assert_eq!(largest, largest + Share::ONE);
}
