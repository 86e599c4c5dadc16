//! The load on two reference apps behind a stand-in for the gateway that moves everybody all the time, rightly and wrongly.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use clap::{Args as _, FromArgMatches as _};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tower::ServiceExt;

use super::load;
use crate::worker::{self, WorkerArgs};

const TOKEN: &str = "token";

#[derive(Clone, Copy, PartialEq)]
enum Care {
    /// Holds a user's requests in a move and forgets him at the source.
    Right,
    /// Never takes him to the new worker for good: sends his requests to both copies in turn.
    Forks,
    /// Forgets the package on the way.
    Loses,
}

struct Relay {
    workers: [Router; 2],
    care: Care,
    /// Client id to user.
    clients: Mutex<HashMap<String, String>>,
    /// Where each user lives; the lock is held for as long as a request or a move of his runs.
    homes: Mutex<HashMap<String, Arc<tokio::sync::Mutex<usize>>>>,
    ids: AtomicU64,
    moves: AtomicUsize,
}

impl Relay {
    fn new(care: Care, token_file: &str) -> Self {
        let worker = |name: &str| {
            let line = ["worker", "--name", name, "--token-file", token_file];
            let matches = WorkerArgs::augment_args(clap::Command::new("worker")).get_matches_from(line);
            worker::testing(&WorkerArgs::from_arg_matches(&matches).unwrap())
        };
        Self {
            workers: [worker("a"), worker("b")],
            care,
            clients: Mutex::default(),
            homes: Mutex::default(),
            ids: AtomicU64::new(1),
            moves: AtomicUsize::new(0),
        }
    }

    async fn contract(&self, at: usize, method: Method, path: &str, body: Bytes) -> (StatusCode, Bytes) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/_pool/v1/users/{path}"));
        let request = request
            .header("pool-token", TOKEN)
            .body(Body::from(body))
            .unwrap();
        let response = self.workers[at].clone().oneshot(request).await.unwrap();
        let status = response.status();
        (status, to_bytes(response.into_body(), 1 << 20).await.unwrap())
    }

    async fn carry(&self, user: &str, from: usize, to: usize) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (_, package) = self
            .contract(from, Method::POST, &format!("{user}/snapshot/{id}"), Bytes::new())
            .await;
        if self.care != Care::Loses {
            let path = format!("{user}/package/{id}");
            assert!(
                self.contract(to, Method::PUT, &path, package)
                    .await
                    .0
                    .is_success()
            );
            assert!(
                self.contract(to, Method::POST, &path, Bytes::new())
                    .await
                    .0
                    .is_success()
            );
        }
        let thaw = format!("{user}/snapshot/{id}");
        let last = if self.care == Care::Forks {
            thaw.as_str()
        } else {
            user
        };
        let (status, _) = self.contract(from, Method::DELETE, last, Bytes::new()).await;
        // Whom this relay has lost before is not there to be moved.
        assert!(status.is_success() || self.care == Care::Loses);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn client(&self, headers: &HeaderMap) -> (String, bool) {
        let held = headers
            .get(header::COOKIE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        match held.split("; ").find_map(|pair| pair.strip_prefix("relay=")) {
            Some(id) => (id.to_owned(), false),
            None => (self.ids.fetch_add(1, Ordering::Relaxed).to_string(), true),
        }
    }
}

async fn relay(State(relay): State<Arc<Relay>>, request: Request) -> Response {
    let (client, new) = relay.client(request.headers());
    let user = relay.clients.lock().get(&client).cloned();
    let mut response = match &user {
        None => relay.workers[0].clone().oneshot(request).await.unwrap(),
        Some(user) => {
            let home = relay.homes.lock().entry(user.clone()).or_default().clone();
            let mut home = home.lock().await;
            let response = relay.workers[*home].clone().oneshot(request).await.unwrap();
            // Who has logged in or out just now is not moved at once.
            if !response.headers().contains_key("pool-user") {
                let to = 1 - *home;
                if relay.care != Care::Forks || relay.moves.load(Ordering::Relaxed) < 3 {
                    relay.carry(user, *home, to).await;
                }
                *home = to;
            }
            response
        }
    };
    if let Some(told) = response
        .headers()
        .get("pool-user")
        .and_then(|value| value.to_str().ok())
    {
        let mut clients = relay.clients.lock();
        if told.is_empty() {
            clients.remove(&client);
        } else {
            clients.insert(client.clone(), told.to_owned());
        }
    }
    if new {
        let cookie = HeaderValue::from_str(&format!("relay={client}; Path=/")).unwrap();
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

async fn run(care: Care) -> super::Summary {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let router = Router::new()
        .fallback(relay)
        .with_state(Arc::new(Relay::new(care, token.to_str().unwrap())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let users = if care == Care::Forks { "3x1s" } else { "10x1s" };
    load(
        &url,
        &[
            "--users-profile",
            users,
            "--websocket-share",
            "0",
            "--second-browser-share",
            "0",
        ],
    )
    .await
}

#[tokio::test]
async fn users_who_are_moved_at_every_request_keep_their_counters() {
    let summary = run(Care::Right).await;
    assert!(summary.held, "{summary:?}");
    assert!(summary.counts.live_moves > 100, "{summary:?}");
}

#[tokio::test]
async fn a_source_that_is_not_forgotten_is_seen_as_a_fork() {
    let summary = run(Care::Forks).await;
    assert!(!summary.held && summary.counts.forked > 0, "{summary:?}");
}

#[tokio::test]
async fn a_package_that_is_dropped_is_seen_as_a_lost_user() {
    let summary = run(Care::Loses).await;
    assert!(!summary.held && summary.counts.users_lost == 10, "{summary:?}");
}
