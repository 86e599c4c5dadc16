//! The load program against the reference app, and against apps that do what it must find.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Args as _, FromArgMatches as _, Parser as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{LoadArgs, Summary, drive};
use crate::worker::{self, WorkerArgs};

mod moves;
mod sockets;

async fn load(url: &str, flags: &[&str]) -> Summary {
    let mut line = vec![
        "pool-load",
        "--url",
        url,
        "--cpu-ms",
        "0",
        "--think-ms",
        "10",
        "--arrivals",
        "200",
    ];
    line.extend(flags);
    drive(&LoadArgs::parse_from(line), CancellationToken::new(), |_| {})
        .await
        .unwrap()
}

async fn reference_app(flags: &[&str]) -> (String, CancellationToken) {
    let mut line = vec!["worker", "--token-file", "/nonexistent"];
    line.extend(flags);
    let matches = WorkerArgs::augment_args(clap::Command::new("worker")).get_matches_from(line);
    let args = WorkerArgs::from_arg_matches(&matches).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let until = stop.clone();
    tokio::spawn(async move { worker::serve(&args, listener, None, until).await });
    (url, stop)
}

#[tokio::test]
async fn a_load_on_the_reference_app_holds_and_sees_everything() {
    let (url, stop) = reference_app(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("summary.json");
    let flags = [
        "--users-profile",
        "20x2s",
        "--second-browser-share",
        "0.5",
        "--json",
        file.to_str().unwrap(),
    ];
    let summary = load(&url, &flags).await;
    stop.cancel();
    let c = &summary.counts;
    assert!(summary.held, "{summary:?}");
    assert_eq!(
        (c.users, c.failed, c.lost, c.forked, c.back, c.ws_unclean),
        (20, 0, 0, 0, 0, 0)
    );
    assert!(
        c.second_browsers > 0 && c.ws_opened > 0 && c.ws_messages > 0 && c.requests > 200,
        "{c:?}"
    );
    let written: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(
        (&written["requests"], &written["held"]),
        (&c.requests.into(), &true.into())
    );
}

#[tokio::test]
async fn a_load_on_the_plain_app_holds_per_browser() {
    let (url, stop) = reference_app(&["--plain"]).await;
    let summary = load(&url, &["--users-profile", "10x1s", "--mode", "session"]).await;
    stop.cancel();
    assert!(summary.held && summary.counts.requests > 50, "{summary:?}");
    assert_eq!(summary.counts.logins, 0);
}

/// An app whose answers are right until the tenth work of a user, and then as `fault` says.
#[derive(Clone)]
struct Faulty {
    fault: &'static str,
    works: Arc<Mutex<HashMap<String, u64>>>,
}

const FAULT_AT: u64 = 10;

fn user_of(headers: &HeaderMap) -> Option<String> {
    headers
        .get(header::COOKIE)?
        .to_str()
        .ok()?
        .strip_prefix("name=")
        .map(str::to_owned)
}

async fn login(State(_): State<Faulty>, Json(body): Json<Value>) -> Response {
    let name = body["user"].as_str().unwrap_or_default();
    let answer = json!({ "user": name, "counter": 0, "worker": "a" });
    ([(header::SET_COOKIE, format!("name={name}"))], Json(answer)).into_response()
}

async fn work(State(app): State<Faulty>, headers: HeaderMap) -> Response {
    let Some(user) = user_of(&headers) else {
        return Json(json!({ "user": null, "counter": 1, "worker": "a" })).into_response();
    };
    let mut works = app.works.lock();
    let count = works.entry(user.clone()).or_default();
    *count += 1;
    let count = *count;
    let answer = |user: Option<&str>, counter: u64, worker: &str| {
        Json(json!({ "user": user, "counter": counter, "worker": worker })).into_response()
    };
    match app.fault {
        // A request that was turned away has not counted.
        "busy" if count > FAULT_AT => answer(Some(&user), count - 1, "a"),
        _ if count != FAULT_AT => answer(Some(&user), count, "a"),
        "fork" => answer(Some(&user), count - 3, "b"),
        "ahead" => answer(Some(&user), count + 1, "a"),
        "back" => answer(Some(&user), count - 3, "a"),
        "restart" => answer(Some(&user), 1, "b"),
        "guest" => answer(None, 1, "a"),
        "foreign" => answer(Some("somebody-else"), count, "a"),
        "error" => StatusCode::BAD_GATEWAY.into_response(),
        "busy" => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "0")]).into_response(),
        _ => answer(Some(&user), count, "a"),
    }
}

async fn faulty_app(fault: &'static str) -> String {
    let app = Faulty {
        fault,
        works: Arc::default(),
    };
    let router = Router::new()
        .route("/login", post(login))
        .route(
            "/logout",
            post(async || Json(json!({ "user": null, "counter": 0, "worker": "a" }))),
        )
        .route("/work", get(work).post(work))
        .with_state(app);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[rstest::rstest]
#[case::none("none", |_: &Summary| true)]
#[case::fork("fork", |s: &Summary| s.counts.forked >= 3 && s.counts.users_back_or_forked == 3)]
#[case::ahead("ahead", |s: &Summary| s.counts.forked >= 3)]
#[case::back("back", |s: &Summary| s.counts.back >= 3 && s.counts.users_back_or_forked == 3)]
#[case::restart("restart", |s: &Summary| s.counts.lost == 3 && s.counts.users_lost == 3)]
#[case::guest("guest", |s: &Summary| s.counts.lost == 3 && s.counts.users_lost == 3)]
#[case::foreign("foreign", |s: &Summary| s.counts.foreign == 3)]
#[case::error("error", |s: &Summary| s.counts.failed == 3)]
#[case::busy("busy", |s: &Summary| s.counts.failed == 3 && s.counts.unavailable == 3)]
#[tokio::test]
async fn what_an_app_does_wrong_is_found(#[case] fault: &'static str, #[case] seen: fn(&Summary) -> bool) {
    let url = faulty_app(fault).await;
    let flags = [
        "--users-profile",
        "3x1s",
        "--websocket-share",
        "0",
        "--second-browser-share",
        "0",
    ];
    let summary = load(&url, &flags).await;
    assert_eq!(summary.held, fault == "none", "{summary:?}");
    assert!(seen(&summary), "{summary:?}");
}

#[tokio::test]
async fn a_busy_gateway_is_counted_apart_and_not_as_failed_where_tolerated() {
    let url = faulty_app("busy").await;
    let flags = [
        "--users-profile",
        "3x1s",
        "--websocket-share",
        "0",
        "--second-browser-share",
        "0",
        "--tolerate",
    ];
    let summary = load(&url, &flags).await;
    assert!(summary.held && summary.counts.unavailable == 3, "{summary:?}");
}
