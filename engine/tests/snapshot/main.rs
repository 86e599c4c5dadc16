//! A saved snapshot is exact: it reads back as it was, answers the same, and what it answers is told to people and programs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answer;
mod form;

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::ids::UserId;
use elastic_pool_engine::snapshot::{Saved, SavedUser, Stays};
use elastic_pool_engine::{Birth, Group, Policy, Share, Snapshot, WorkerView};
use serde_json::Value;

/// Written by an earlier build: files that people kept must go on being read, or the version must change.
const KEPT: &str = r#"{"snapshot":1,"group":"shop/shop-blue","taken_at_s":"812.004000001","policy":{"reception":"0.5","admission":"0.8","margin":"1.2","smoothing_rows":6,"window_rows":60,"interval_s":"5","min":1,"max":8,"max_surge":1,"spawn_timeout_s":"120","drain_timeout_s":"120","memory_bytes":536870912,"cpu_cores":"0.2","moves":"Live","mode":"Active"},"spawns":{"failures":2,"last_failure_s":"800.5","fault":"no_capacity"},"workers":[{"birth":"1099511627777","name":"shop-blue-a","state":"routable","occupancy":"0.333333333333","stale":false,"stale_from_s":"825","warm":true,"users":2,"transit":"0","residents":[{"user":"ann","open_requests":1},{"user":"bob","open_requests":0,"stays":"backing_off","until_s":"860"}]},{"birth":"1099511627778","name":"shop-blue-b","state":"draining","since_s":"790","drain":"must_go","progress":"running","occupancy":"0.1","stale":false,"warm":true,"users":1,"transit":"0.05","residents":[{"user":"cid","open_requests":0,"stays":"pinned_stream"}]},{"birth":"1099511627779","name":"shop-blue-c","state":"retiring","must_go":false,"occupancy":"0","stale":false,"warm":true,"users":0,"transit":"0"},{"birth":"1099511627780","name":"spawn-1099511627780","state":"nascent","since_s":"811","occupancy":"0","stale":false,"warm":true,"users":0,"transit":"0","hindered":"spawn_mistake"}]}"#;

fn four_workers() -> Saved {
    let worker = |birth, percent, users| WorkerView {
        occupancy: Share::from_percent(percent),
        users,
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    };
    let group: Group = [
        worker(1, 40, 4),
        worker(2, 50, 5),
        worker(3, 40, 4),
        worker(4, 20, 3),
    ]
    .into_iter()
    .collect();
    let (policy, spawns) = (Policy::default(), SpawnHistory::default());
    let snapshot = Snapshot {
        group: &group,
        policy: &policy,
        spawns: &spawns,
    };
    let user = |user, open_requests, stays| SavedUser {
        worker: Birth(4),
        user: UserId::new(user).unwrap(),
        open_requests,
        stays,
    };
    let backing_off = Stays::BackingOff {
        until: Duration::from_millis(130_500),
    };
    let users = [
        user("ann", 1, None),
        user("bob", 0, None),
        user("cid", 0, Some(backing_off)),
    ];
    Saved::of("shop/blue", &snapshot, Duration::from_secs(100), users)
}

fn changed(from: &str, change: impl FnOnce(&mut Value)) -> Saved {
    let mut value: Value = serde_json::from_str(from).unwrap();
    change(&mut value);
    Saved::parse(&value.to_string()).unwrap()
}

fn json_of(saved: &Saved) -> Value {
    serde_json::from_str(&saved.answer().to_json()).unwrap()
}
