//! The reference app through its routes: what the contract promises an agent, and what the app promises its users.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use clap::{Args as _, FromArgMatches as _};
use rstest::rstest;
use serde_json::Value;
use tower::ServiceExt;

use super::WorkerArgs;

mod live;
mod moves;
mod standing;

const TOKEN: &str = "right-token";

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn cookie(&self) -> String {
        let line = self.headers["set-cookie"].to_str().unwrap();
        line.split(';').next().unwrap().to_owned()
    }
}

struct Worker {
    router: Router,
    dir: tempfile::TempDir,
}

fn args(flags: &[&str]) -> WorkerArgs {
    let mut line = vec!["worker", "--name", "w1"];
    line.extend(flags);
    let matches = WorkerArgs::augment_args(clap::Command::new("worker")).get_matches_from(line);
    WorkerArgs::from_arg_matches(&matches).unwrap()
}

fn worker(flags: &[&str]) -> Worker {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let mut flags = flags.to_vec();
    flags.extend(["--token-file", path.to_str().unwrap()]);
    Worker {
        router: super::testing(&args(&flags)),
        dir,
    }
}

impl Worker {
    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_vec())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 64 << 20).await.unwrap().to_vec();
        Reply {
            status,
            headers,
            body,
        }
    }

    async fn pool(&self, method: Method, path: &str, body: &[u8]) -> Reply {
        self.send(
            method,
            &format!("/_pool/v1/{path}"),
            &[("pool-token", TOKEN)],
            body,
        )
        .await
    }

    async fn login(&self, user: &str, cookie: &str) -> Reply {
        let body = serde_json::json!({ "user": user }).to_string();
        let headers = [("content-type", "application/json"), ("cookie", cookie)];
        self.send(Method::POST, "/login", &headers, body.as_bytes()).await
    }

    async fn work(&self, cookie: &str) -> Reply {
        self.send(Method::GET, "/work", &[("cookie", cookie)], b"").await
    }

    async fn users(&self) -> Value {
        self.pool(Method::GET, "users", b"").await.json()["users"].take()
    }

    /// Logs in and works until the counter stands at `counter`; the cookie.
    async fn resident(&self, user: &str, counter: u64) -> String {
        let cookie = self.login(user, "").await.cookie();
        for expected in 1..=counter {
            assert_eq!(self.work(&cookie).await.json()["counter"], expected);
        }
        cookie
    }
}

#[rstest]
#[case::none(&[], StatusCode::FORBIDDEN)]
#[case::wrong(&[("pool-token", "wrong-token")], StatusCode::FORBIDDEN)]
#[case::prefix(&[("pool-token", "right")], StatusCode::FORBIDDEN)]
#[case::right(&[("pool-token", TOKEN)], StatusCode::OK)]
#[tokio::test]
async fn only_the_token_opens_the_contract(#[case] headers: &[(&str, &str)], #[case] expected: StatusCode) {
    let a = worker(&[]);
    for path in ["report", "users", "state"] {
        let reply = a
            .send(Method::GET, &format!("/_pool/v1/{path}"), headers, b"")
            .await;
        assert_eq!(reply.status, expected, "{path}");
    }
}

#[tokio::test]
async fn a_new_token_is_taken_up_and_without_one_there_is_no_contract() {
    let a = worker(&[]);
    let path = a.dir.path().join("token");
    std::fs::write(&path, "second").unwrap();
    let second = a
        .send(Method::GET, "/_pool/v1/report", &[("pool-token", "second")], b"")
        .await;
    assert_eq!(second.status, StatusCode::OK);
    assert_eq!(
        a.pool(Method::GET, "report", b"").await.status,
        StatusCode::FORBIDDEN
    );
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        a.pool(Method::GET, "report", b"").await.status,
        StatusCode::NOT_FOUND
    );
}

#[rstest]
#[case::plain(&["--plain"])]
#[case::no_contract(&["--no-contract"])]
#[case::own_port(&["--contract-port", "1"])]
#[tokio::test]
async fn without_the_contract_on_this_port_its_paths_do_not_exist(#[case] flags: &[&str]) {
    let a = worker(flags);
    assert_eq!(
        a.pool(Method::GET, "report", b"").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        a.pool(Method::POST, "users/alice/snapshot/1", b"").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_guests_slice_becomes_the_users_at_login() {
    let a = worker(&[]);
    let guest = a.work("").await;
    assert_eq!(
        (&guest.json()["user"], &guest.json()["counter"]),
        (&Value::Null, &1.into())
    );
    let login = a.login("älice b", &guest.cookie()).await;
    assert_eq!(login.headers["pool-user"], "%C3%A4lice%20b");
    assert_eq!(login.json()["counter"], 1);
    assert_eq!(a.work(&login.cookie()).await.json()["counter"], 2);
    let package = a.pool(Method::POST, "users/%C3%A4lice%20b/snapshot/1", b"").await;
    assert_eq!(package.json()["user"], "älice b");
}

#[tokio::test]
async fn routing_headers_count_only_with_the_token() {
    let a = worker(&[]);
    let cookie = a.resident("alice", 1).await;
    let forged = [("cookie", cookie.as_str()), ("pool-guest", "c1")];
    assert_eq!(
        a.send(Method::GET, "/work", &forged, b"").await.json()["user"],
        "alice"
    );
    let stranger = [("pool-user", "alice"), ("pool-token", TOKEN)];
    let seen = a.send(Method::GET, "/work", &stranger, b"").await.json();
    assert_eq!(seen["user"], Value::Null, "the proxy's word alone logs nobody in");
    let routed = [
        ("cookie", cookie.as_str()),
        ("pool-guest", "c1"),
        ("pool-token", TOKEN),
    ];
    assert_eq!(
        a.send(Method::GET, "/work", &routed, b"").await.json()["user"],
        Value::Null
    );
}

#[tokio::test]
async fn a_cookie_with_a_changed_byte_is_a_new_guests() {
    let a = worker(&[]);
    let cookie = a.resident("alice", 3).await;
    let at = cookie.len() - 10;
    let other = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
    let changed = format!("{}{other}{}", &cookie[..at], &cookie[at + 1..]);
    assert_eq!(a.work(&changed).await.json()["user"], Value::Null);
    assert_eq!(a.work(&cookie).await.json()["counter"], 4);
}

#[tokio::test]
async fn the_last_browsers_logout_makes_the_user_gone() {
    let a = worker(&[]);
    let first = a.resident("alice", 1).await;
    let second = a.login("alice", "").await.cookie();
    let out = a.send(Method::POST, "/logout", &[("cookie", &first)], b"").await;
    assert_eq!(
        (out.status, &out.headers["pool-user"]),
        (StatusCode::OK, &"".parse().unwrap())
    );
    assert_eq!(
        a.work(&first).await.json()["user"],
        Value::Null,
        "a logged-out cookie is worth nothing"
    );
    assert_eq!(a.work(&second).await.json()["user"], "alice");
    a.send(Method::POST, "/logout", &[("cookie", &second)], b"").await;
    let report = a.pool(Method::GET, "report", b"").await.json();
    assert_eq!(
        (&report["gone"], &report["users"]),
        (&serde_json::json!(["alice"]), &0.into())
    );
}

#[rstest]
#[case("users/alice/snapshot/x", StatusCode::BAD_REQUEST)]
#[case("users/a%00b/snapshot/1", StatusCode::BAD_REQUEST)]
#[case("users/alice/snapshot/99999999999999999999999", StatusCode::BAD_REQUEST)]
#[case("users/nobody/snapshot/1", StatusCode::NOT_FOUND)]
#[tokio::test]
async fn a_name_that_is_none_and_an_unknown_user_are_told_apart(
    #[case] path: &str,
    #[case] expected: StatusCode,
) {
    assert_eq!(worker(&[]).pool(Method::POST, path, b"").await.status, expected);
}

#[tokio::test]
async fn a_plain_app_counts_per_browser_and_knows_no_login() {
    let a = worker(&["--plain"]);
    let first = a.work("").await;
    let cookie = first.cookie();
    assert_eq!(a.work(&cookie).await.json()["counter"], 2);
    assert_eq!(a.work("").await.json()["counter"], 1);
    assert_eq!(a.login("alice", &cookie).await.status, StatusCode::NOT_FOUND);
    assert!(!first.headers.contains_key("pool-user"));
}

#[tokio::test]
async fn the_page_shows_user_counter_and_worker_and_escapes_them() {
    let a = worker(&[]);
    let cookie = a.resident("<script>x", 2).await;
    let page = a
        .send(
            Method::GET,
            "/",
            &[("cookie", &cookie), ("pool-worker", "shop-1")],
            b"",
        )
        .await;
    let text = String::from_utf8(page.body).unwrap();
    assert!(
        text.contains("&lt;script&gt;x") && !text.contains("<script>x"),
        "{text}"
    );
    assert!(
        text.contains(r#"<dd id="counter">2</dd>"#) && text.contains("shop-1"),
        "{text}"
    );
}
