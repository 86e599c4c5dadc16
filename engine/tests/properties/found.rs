//! Cases on which a property once failed, and one that no property saw.

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

#[test]
fn a_product_is_rounded_to_the_nearest_unit() {
    let half_of = |units| Share::from_picos(units).times(Share::from_percent(50));
    assert_eq!([5, -5, 4].map(half_of), [3, -3, 2].map(Share::from_picos));
}
