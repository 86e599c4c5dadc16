//! The request path: hop, fence, headers, login, reports.

use elastic_pool::channel::proto::agent_message::Message;
use serde_json::json;

use crate::app;
use crate::world::{CLIENT, Commander, Sidecar, Who, until};

#[tokio::test]
async fn only_a_gateway_with_its_hop_gets_in() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    assert_eq!(
        sidecar.get("/", Who::Guest).await.refusal(),
        (403, Some("hop")),
        "before any Welcome"
    );
    let _session = commander.welcomed(|_| {}).await;
    assert_eq!(
        sidecar.get("/", Who::Stranger).await.refusal(),
        (403, Some("hop"))
    );
    assert!(app.knobs.lock().seen.is_empty());
    assert_eq!(sidecar.get("/", Who::Guest).await.body, "hello");
}

#[tokio::test]
async fn the_contract_is_closed_to_the_traffic_port() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let _session = commander.welcomed(|_| {}).await;
    let before = app.knobs.lock().seen.len();
    for path in [
        "/_pool/v1/users",
        "//_pool/v1/users",
        "/%5Fpool/v1/users",
        "/x/../_pool/v1/users",
    ] {
        assert_eq!(sidecar.get(path, Who::Guest).await.status, 404, "{path}");
    }
    assert_eq!(app.knobs.lock().seen.len(), before);
}

#[tokio::test]
async fn the_app_sees_whose_request_it_is_and_nothing_of_the_gateways_proofs() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    sidecar.get("/", Who::Guest).await;
    let pool = |knobs: &app::Knobs| {
        let mut pool: Vec<_> = knobs
            .last_headers
            .iter()
            .filter(|(name, _)| name.starts_with("pool-") && *name != "pool-token")
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        pool.sort();
        pool
    };
    assert_eq!(
        pool(&app.knobs.lock()),
        [format!("pool-guest={CLIENT}"), "pool-worker=w1".into()]
    );
    session.assign("alice", 5).await;
    sidecar.get("/", Who::User("alice", 5)).await;
    assert_eq!(pool(&app.knobs.lock()), ["pool-user=alice", "pool-worker=w1"]);
    assert_eq!(app.knobs.lock().last_headers["host"], "shop.example");
    let token = std::fs::read_to_string(folder.path().join("token")).unwrap();
    assert_eq!(app.knobs.lock().last_headers["pool-token"], token.trim());
}

#[tokio::test]
async fn an_apps_own_421_passes_without_our_mark() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let _session = commander.welcomed(|_| {}).await;
    let answer = sidecar.get("/teapot", Who::Guest).await;
    assert_eq!((answer.refusal(), answer.body.as_str()), ((421, None), "mine"));
}

#[tokio::test]
async fn the_fence_serves_one_epoch_and_tells_it() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), app::Held::Live(0));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    assert_eq!(sidecar.get("/count", Who::User("alice", 5)).await.body, "1");
    let stale = sidecar.get("/count", Who::User("alice", 4)).await;
    assert_eq!(
        (stale.refusal(), stale.header("pool-epoch")),
        ((421, Some("refused")), Some("5"))
    );
    let forged = sidecar
        .get("/count", Who::Forged("alice", 6, &"00".repeat(32)))
        .await;
    assert_eq!(forged.refusal(), (421, Some("refused")));
    let unknown = sidecar.get("/count", Who::User("bob", 0)).await;
    assert_eq!(unknown.refusal(), (421, Some("refused")));
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 6)).await.body,
        "2",
        "a valid ticket raises"
    );
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 5)).await.refusal(),
        (421, Some("refused"))
    );
}

#[tokio::test]
async fn a_login_binds_the_client_and_is_told() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    let answer = sidecar.get("/login/alice", Who::Guest).await;
    assert_eq!(answer.header("pool-user"), Some("alice"));
    assert_eq!(answer.header("pool-secret"), None);
    let born = session
        .message(|m| {
            if let Message::UserBorn(born) = m {
                Some(born.clone())
            } else {
                None
            }
        })
        .await;
    assert_eq!((born.user.as_str(), born.client.as_str()), ("alice", CLIENT));
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 0)).await.body,
        "1",
        "provisional until granted (P6)"
    );
    session.assign("alice", 7).await;
    assert_eq!(sidecar.get("/count", Who::User("alice", 7)).await.body, "2");
    let answer = sidecar.get("/logout", Who::User("alice", 7)).await;
    assert_eq!(answer.header("pool-user"), Some(""));
    let left = session
        .message(|m| {
            if let Message::ClientLeft(left) = m {
                Some(left.clone())
            } else {
                None
            }
        })
        .await;
    assert_eq!((left.user.as_str(), left.client.as_str()), ("alice", CLIENT));
}

#[tokio::test]
async fn an_app_that_takes_no_connection_is_said_to_have_executed_nothing() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let _session = commander.welcomed(|_| {}).await;
    drop(app);
    let gone = async {
        loop {
            let answer = sidecar.get("/", Who::Guest).await;
            if answer.refusal() == (502, Some("upstream-unsent")) {
                return;
            }
            // A request may have met the last breath of the app's server.
            assert!(
                answer.status == 200 || answer.refusal() == (502, Some("upstream")),
                "{answer:?}"
            );
        }
    };
    crate::world::soon("a refusal", gone).await;
}

#[tokio::test]
async fn impossible_readings_of_the_app_are_told_as_no_number() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().report = json!({
        "users": 3, "pages": -1, "connections": "NaN", "active_users": 1e300, "cpu": -0.5, "rss": 1000,
        "executor": { "busy": 2, "total": 4, "queue_depth": null }, "backlog": { "pending": [] },
    });
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    let report = session.report(|report| report.executor_total.is_some()).await;
    let no_number = |reading: Option<f64>| reading.is_some_and(f64::is_nan);
    assert_eq!(
        (report.users, report.rss, report.executor_busy),
        (Some(3.0), Some(1000.0), Some(2.0))
    );
    assert_eq!(report.executor_queue_depth, None);
    for (name, reading) in [
        ("pages", report.pages),
        ("connections", report.connections),
        ("active_users", report.active_users),
        ("cpu", report.cpu),
        ("backlog.pending", report.backlog_pending),
    ] {
        assert!(no_number(reading), "{name}: {reading:?}");
    }
    let next = session.report(|_| true).await;
    assert!(next.sequence > report.sequence);
    let metrics = sidecar.peer("/metrics", &[]).await.body;
    assert!(!metrics.contains("readings_rejected_total 0\n"), "{metrics}");
}

#[tokio::test]
async fn a_request_is_open_until_its_answer_is_read() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    let slow = sidecar.get("/slow", Who::Guest);
    tokio::pin!(slow);
    tokio::select! {
        _ = &mut slow => panic!("the gate is closed"),
        report = session.report(|report| report.open_requests == 1) => assert_eq!(report.open_streams, 0),
    }
    app.gate.add_permits(1);
    assert_eq!(slow.await.body, "at last");
    session.report(|report| report.open_requests == 0).await;
}

#[tokio::test]
async fn the_loopback_port_believes_the_token_only() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let _session = commander.welcomed(|_| {}).await;
    let token = std::fs::read_to_string(folder.path().join("token")).unwrap();
    let call = |method: &'static str, path: &'static str, token: String| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("pool-token", token);
        let request = request.body(http_body_util::Empty::new()).unwrap();
        let loopback = sidecar.agent.loopback;
        async move { crate::world::send(loopback, request).await.status().as_u16() }
    };
    assert_eq!(call("DELETE", "/v1/users/alice", "no".into()).await, 403);
    assert_eq!(call("DELETE", "/v1/users/alice", token.clone()).await, 202);
    assert_eq!(call("POST", "/v1/deposits/alice", "no".into()).await, 403);
    assert_eq!(call("POST", "/v1/deposits/", token.clone()).await, 400);
    assert_eq!(call("GET", "/v1/users/alice", token).await, 404);
}

#[tokio::test]
async fn a_guest_who_is_bound_waits_out_his_move() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    sidecar.get("/login/alice", Who::Guest).await;
    until("the login", || app.knobs.lock().users.contains_key("alice")).await;
    session.snapshot("alice", 9).await.unwrap();
    assert_eq!(
        sidecar.get("/", Who::Guest).await.refusal(),
        (421, Some("refused"))
    );
    session.forget("alice", 9).await.unwrap();
    assert_eq!(sidecar.get("/", Who::Guest).await.status, 200);
}
