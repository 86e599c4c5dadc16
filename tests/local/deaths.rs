//! A part is killed under users at work: what each death may cost is said in "What a client sees", and nothing more is lost.

use std::time::Duration;

use serde_json::{Value, json};

use crate::browser;
use crate::load::{Load, count};
use crate::run::{PATIENCE, Run, row, rows, shop, signal, until};

/// Users of the load in these tests.
const USERS: u64 = 16;
const FLAGS: [&str; 5] = [
    "--think-ms=200",
    "--cpu-ms=1",
    "--second-browser-share=0",
    "--websocket-share=0.3",
    "--tolerate",
];

fn load(run: &Run) -> Load {
    Load::start(run.gateway(0), &format!("{USERS}x150s"), &FLAGS)
}

fn users(state: &Value) -> u64 {
    state["groups"][0]["view"]["users"].as_u64().unwrap()
}

async fn all_at_work(run: &Run) {
    run.until("all users are there", |state| users(state) >= USERS)
        .await;
    work_goes_on(run).await;
}

/// Until each user has been served some more times, on average.
async fn work_goes_on(run: &Run) {
    let done = |state: &Value| -> u64 {
        let requests = rows(state).iter().map(|row| row["requests"].as_u64().unwrap());
        requests.sum()
    };
    let before = done(&run.state().await);
    run.until("users are served", |state| done(state) >= before + 5 * USERS)
        .await;
}

/// At most what was open at the moment of the death failed; nobody lost anything.
fn only_open_requests_failed(summary: &Value) {
    for field in ["lost", "back", "forked", "foreign"] {
        assert_eq!(count(summary, field), 0, "{field}: {summary:#}");
    }
    // One open request a user, and the handshakes of his WebSocket.
    assert!(count(summary, "failed") <= 2 * USERS, "{summary:#}");
}

#[tokio::test]
async fn a_killed_gateway_costs_its_connections_and_nobodys_session() {
    let run = Run::ready(shop(), 1).await;
    let load = load(&run);
    all_at_work(&run).await;
    let (address, pid) = (run.gateway(0), run.gateway_pid(0));
    signal("-KILL", pid);
    until("another gateway serves", PATIENCE, async || {
        run.gateway_pid(0) != pid
            && browser::get(address, "/healthz")
                .await
                .is_ok_and(|a| a.status == 200)
    })
    .await;
    work_goes_on(&run).await;
    load.leave();
    only_open_requests_failed(&load.end().await);
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}

#[tokio::test]
async fn a_killed_agent_costs_its_open_requests_and_nobodys_session() {
    let run = Run::ready(shop(), 1).await;
    let load = load(&run);
    all_at_work(&run).await;
    let before = run.workers()[0].clone();
    signal("-KILL", before.agent_pid);
    until("another agent stands beside the same app", PATIENCE, async || {
        let now = run.worker(&before.name);
        now.agent_pid != before.agent_pid && now.app_pid == before.app_pid
    })
    .await;
    run.until("it is connected", |state| {
        row(state, &before.name)["connected"] == true
    })
    .await;
    work_goes_on(&run).await;
    let all = users(&run.state().await);
    load.leave();
    only_open_requests_failed(&load.end().await);
    assert!(all >= USERS, "{all}");
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}

#[tokio::test]
async fn a_killed_app_costs_its_own_users_and_no_others() {
    let mut shop = shop();
    // The reception passes everyone on, to whichever of the two others is emptier at that moment.
    shop["spec"]["workers"] = json!({ "min": 3, "max": 3 });
    shop["spec"]["thresholds"] =
        json!({ "smoothingRows": 1, "cpu": "200m", "memory": "256Mi", "receptionPercent": 1 });
    shop["spec"]["reports"] = json!({ "interval": "200ms" });
    let run = Run::ready(shop, 3).await;
    let mut flags = FLAGS.to_vec();
    flags.push("--arrivals=4");
    let load = Load::start(run.gateway(0), &format!("{USERS}x150s"), &flags);
    all_at_work(&run).await;
    let state = run.state().await;
    let victim = rows(&state)
        .iter()
        .max_by_key(|row| row["users"].as_u64())
        .unwrap();
    let (name, his) = (
        victim["name"].as_str().unwrap(),
        victim["users"].as_u64().unwrap(),
    );
    assert!(0 < his && his < USERS, "nobody else could be affected: {state:#}");
    signal("-KILL", run.worker(name).app_pid);
    run.within(
        Duration::from_secs(30),
        "it is replaced and its users are back",
        |state| {
            row(state, name).is_null()
                && state["groups"][0]["view"]["ready_workers"] == 3
                && users(state) >= USERS
        },
    )
    .await;
    work_goes_on(&run).await;
    let lost = run
        .metric("elastic_pool_users_lost_total{cause=\"worker_died\"}")
        .await;
    load.leave();
    let summary = load.end().await;
    assert_eq!(count(&summary, "users_lost"), his, "{summary:#}");
    assert_eq!(count(&summary, "lost"), his, "{summary:#}");
    for field in ["back", "forked", "foreign"] {
        assert_eq!(count(&summary, field), 0, "{field}: {summary:#}");
    }
    assert!(count(&summary, "failed") <= 2 * his, "{summary:#}");
    assert_eq!(format!("{lost}"), format!("{his}"));
}
