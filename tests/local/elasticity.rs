//! Growth on measured occupancy, compaction and drains by moves, under users who must not notice.

use std::time::Duration;

use serde_json::json;

use crate::load::{Load, count};
use crate::run::{PATIENCE, Run, group, row, rows, shop, until};

/// Growth and shrinking follow a few smoothing windows after the load.
const SOON: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_group_grows_under_load_and_shrinks_without_losing_a_user() {
    let mut shop = shop();
    shop["spec"]["thresholds"] =
        json!({ "smoothingRows": 2, "cpu": "200m", "memory": "8Gi", "compactionMarginPercent": 100 });
    let run = Run::ready(shop, 1).await;
    let flags = [
        "--think-ms=300",
        "--cpu-ms=3",
        "--arrivals=3",
        "--second-browser-share=0.1",
    ];
    let mut load = Load::start(run.gateway(0), "24x16s,4x90s", &flags);
    run.within(SOON, "a second worker serves users", |state| {
        rows(state).len() >= 2 && rows(state)[1]["users"].as_u64() > Some(0)
    })
    .await;
    run.within(SOON, "the few users who stay are on one worker again", |state| {
        let view = &state["groups"][0]["view"];
        view["workers"] == 1 && view["users"] == 4
    })
    .await;
    assert!(load.runs(), "nobody was moved while users worked");
    load.leave();
    let summary = load.held().await;
    assert!(count(&summary, "live_moves") > 0, "{summary:#}");
    assert!(run.metric("elastic_pool_moves_total{result=\"moved\"}").await > 0.0);
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}

#[tokio::test]
async fn a_drained_worker_hands_over_every_user_and_its_series_go() {
    let mut shop = shop();
    shop["spec"]["workers"] = json!({ "min": 2, "max": 4 });
    let run = Run::ready(shop, 2).await;
    let flags = ["--think-ms=200", "--cpu-ms=1", "--websocket-share=1"];
    let load = Load::start(run.gateway(0), "20x120s", &flags);
    for round in 0..3 {
        run.until("all users are there, on two workers", |state| {
            state["groups"][0]["view"]["users"].as_u64() >= Some(20)
                && state["groups"][0]["view"]["ready_workers"] == 2
        })
        .await;
        let state = run.state().await;
        let fullest = rows(&state)
            .iter()
            .max_by_key(|row| row["users"].as_u64())
            .unwrap();
        let name = fullest["name"].as_str().unwrap();
        assert!(fullest["users"].as_u64() > Some(0), "{state:#}");
        let series = format!("worker=\"{name}\"");
        assert!(run.metrics().await.contains(&series));
        run.drain(name).await;
        run.within(
            SOON,
            "the drained worker is gone, another in its place",
            |state| row(state, name).is_null() && state["groups"][0]["view"]["ready_workers"] == 2,
        )
        .await;
        let users = run.state().await["groups"][0]["view"]["users"].as_u64();
        assert!(users >= Some(20), "round {round}: {users:?}");
        until("its series are gone", PATIENCE, async || {
            !run.metrics().await.contains(&series)
        })
        .await;
        assert!(run.workers().iter().all(|worker| worker.name != name));
    }
    load.leave();
    let summary = load.held().await;
    assert!(count(&summary, "live_moves") >= 20, "{summary:#}");
    assert!(count(&summary, "ws_reconnects") > 0, "{summary:#}");
    assert_eq!(count(&summary, "ws_unclean"), 0, "{summary:#}");
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}

#[tokio::test]
async fn the_metrics_say_per_worker_and_per_group_what_the_monitor_says() {
    let run = Run::ready(shop(), 1).await;
    let mut browser = crate::browser::Browser::logged_in(run.gateway(0), "alice").await;
    browser.count().await;
    let name = run.workers()[0].name.clone();
    let worker = format!("{{group=\"shop\",namespace=\"shop\",worker=\"{name}\"}}");
    let component = format!("{{component=\"executor\",group=\"shop\",namespace=\"shop\",worker=\"{name}\"}}");
    until("the user and a report are counted", PATIENCE, async || {
        let users = run.metric(&format!("elastic_pool_worker_users{worker}")).await;
        users >= 1.0 && run.metrics().await.contains(&component)
    })
    .await;
    let text = run.metrics().await;
    for series in [
        "worker_occupancy_ratio",
        "worker_users",
        "worker_open_requests",
        "worker_report_age_seconds",
    ] {
        assert!(
            text.contains(&format!("elastic_pool_{series}{worker} ")),
            "{series}: {text}"
        );
    }
    let group = "{group=\"shop\",namespace=\"shop\"}";
    let figure = async |name: &str| run.metric(&format!("elastic_pool_{name}{group} ")).await;
    // One worker: C1 says 0.5.
    assert!((figure("group_capacity").await - 0.5).abs() < 1e-9);
    assert!((figure("group_users").await - 1.0).abs() < 1e-9);
    let ledger = figure("group_occupied").await + figure("group_headroom").await;
    assert!((ledger - 0.5).abs() < 0.05, "{ledger}");
    let routable = "elastic_pool_group_workers{group=\"shop\",namespace=\"shop\",state=\"routable\"}";
    assert!((run.metric(routable).await - 1.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_group_of_sessions_grows_and_shrinks_as_its_users_leave() {
    let mut legacy = group("legacy", &["elastic-pool", "worker", "--plain"]);
    let spec = &mut legacy["spec"];
    spec["app"] = json!({ "contract": "None" });
    spec["users"] = json!("Session");
    spec["sessionTimeout"] = json!("4s");
    spec["moves"] = json!({ "mode": "Drain" });
    spec["thresholds"] =
        json!({ "smoothingRows": 2, "cpu": "200m", "memory": "8Gi", "compactionMarginPercent": 100 });
    let run = Run::ready(legacy, 1).await;
    let flags = ["--think-ms=300", "--cpu-ms=3", "--arrivals=3", "--mode=session"];
    let load = Load::start(run.gateway(0), "24x16s,0x1s", &flags);
    run.within(SOON, "a second worker serves users", |state| {
        rows(state).len() >= 2 && rows(state)[1]["users"].as_u64() > Some(0)
    })
    .await;
    let summary = load.held().await;
    assert_eq!(count(&summary, "live_moves"), 0, "{summary:#}");
    assert!(count(&summary, "workers_max") >= 2, "{summary:#}");
    run.within(SOON, "nobody is left, on one worker", |state| {
        let view = &state["groups"][0]["view"];
        view["workers"] == 1 && view["users"] == 0
    })
    .await;
}
