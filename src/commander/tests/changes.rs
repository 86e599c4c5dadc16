//! Manifests that change while their group runs: everything that follows from them follows at once.

use std::time::Duration;

use elastic_pool_engine::Share;

use super::manifest::{group, spec};
use super::world::World;
use crate::channel::proto::Report;
use crate::vehicle::{GroupSpec, Mode};

#[test]
fn a_raised_min_spawns_at_once() {
    let mut world = World::serving();
    world.change(|spec| spec.min = 3);
    assert_eq!(world.wanted(&group()).len(), 2, "G5");
}

#[test]
fn a_lowered_min_lets_an_idle_worker_go() {
    let mut world = World::with_workers(GroupSpec { min: 3, ..spec() }, &[0.1, 0.1, 0.1]);
    assert!(world.drained().is_empty());
    world.change(|spec| spec.min = 1);
    let second = world.births()[1];
    assert_eq!(world.drained(), [second], "C2: the oldest of equals");
}

#[test]
fn a_lowered_max_drains_one_worker_whatever_the_headroom_is() {
    let mut world = World::with_workers(spec(), &[0.3, 0.6, 0.6]);
    assert!(world.drained().is_empty(), "C2: H is within the margin");
    world.change(|spec| spec.max = Some(2));
    let second = world.births()[1];
    assert_eq!(world.drained(), [second], "C8");
    world.reports(&[0.3, 0.6, 0.6]);
    assert_eq!(world.retired(), [second], "nobody lives there");
    assert_eq!(world.drained(), [], "one at a time, and two are not above max");
}

#[test]
fn a_lowered_max_drains_nobody_whom_the_others_cannot_hold() {
    let mut world = World::with_workers(spec(), &[0.6, 0.7, 0.75]);
    world.change(|spec| spec.max = Some(2));
    assert!(
        world.drained().is_empty(),
        "C8: 0.6 + 0.7 is above a whole worker"
    );
    assert_eq!(world.condition("AboveMax").0, Some(true));
}

#[test]
fn a_raised_max_lets_a_limited_group_grow() {
    let mut world = World::serving_with(GroupSpec {
        max: Some(1),
        ..spec()
    });
    world.saturate();
    assert!(world.wanted(&group()).is_empty());
    assert_eq!(world.condition("ScalingLimited").0, Some(true));
    world.change(|spec| spec.max = Some(2));
    assert_eq!(world.wanted(&group()).len(), 1);
    assert_eq!(world.condition("ScalingLimited").0, Some(false));
}

#[test]
fn lowered_thresholds_count_at_once() {
    let mut world = World::with_workers(spec(), &[0.4]);
    assert!(world.wanted(&group()).is_empty());
    world.change(|spec| spec.reception_threshold = 0.3);
    assert_eq!(world.wanted(&group()).len(), 1, "G1");
}

#[test]
fn changed_limits_read_the_windows_anew() {
    let mut world = World::serving();
    let reception = world.births()[0];
    for _ in 0..2 {
        world.pass(Duration::from_secs(5));
        let report = Report {
            rss: Some(90.0),
            ..Report::default()
        };
        world.report(reception, report);
    }
    assert_eq!(
        world.view(reception).occupancy,
        Share::from_percent(0),
        "no limit, no component"
    );
    world.change(|spec| spec.memory_limit = Some(100));
    assert_eq!(world.view(reception).occupancy, Share::from_percent(90));
    assert_eq!(world.wanted(&group()).len(), 1, "G1 on the same rows");
}

#[test]
fn changed_smoothing_rows_read_the_windows_anew() {
    let mut world = World::serving();
    let reception = world.births()[0];
    for cpu in [0.0, 0.9] {
        world.reports(&[cpu]);
    }
    assert_eq!(world.view(reception).occupancy, Share::from_percent(45));
    assert!(world.wanted(&group()).is_empty());
    world.change(|spec| spec.smoothing_rows = 1);
    assert_eq!(world.view(reception).occupancy, Share::from_percent(90));
    assert_eq!(world.wanted(&group()).len(), 1);
}

#[test]
fn a_mode_that_compacts_nobody_puts_a_drained_worker_back() {
    for mode in [Mode::Frozen, Mode::Recommend] {
        let mut world = World::with_workers(GroupSpec { min: 3, ..spec() }, &[0.1, 0.1, 0.1]);
        world.change(|spec| spec.min = 1);
        assert_eq!(world.drained().len(), 1);
        world.change(|spec| spec.mode = mode);
        assert!(world.drained().is_empty(), "{mode:?}");
        let second = world.births()[1];
        assert!(
            !world.agents[&second].closed,
            "{mode:?}: it takes newcomers again"
        );
        world.change(|spec| spec.mode = Mode::Active);
        assert_eq!(world.drained(), [second], "{mode:?}: it was not passed over");
    }
}
