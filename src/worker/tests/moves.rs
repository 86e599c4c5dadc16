//! Moves and joins as an agent drives them through the contract.

use axum::http::{Method, StatusCode};
use rstest::rstest;
use serde_json::Value;

use super::{Worker, worker};

async fn carry(from: &Worker, to: &Worker, user: &str, id: u64) {
    let package = from
        .pool(Method::POST, &format!("users/{user}/snapshot/{id}"), b"")
        .await;
    assert_eq!(
        (package.status, &package.headers["pool-format"]),
        (StatusCode::OK, &"reference/1".parse().unwrap())
    );
    let path = format!("users/{user}/package/{id}");
    assert_eq!(
        to.pool(Method::PUT, &path, &package.body).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        to.pool(Method::POST, &path, b"").await.status,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn a_move_carries_counter_notes_and_session_to_the_new_worker() {
    let (a, b) = (worker(&[]), worker(&[]));
    let cookie = a.resident("alice", 3).await;
    a.send(Method::POST, "/notes", &[("cookie", &cookie)], b"milk")
        .await;
    carry(&a, &b, "alice", 7).await;
    assert_eq!(
        a.pool(Method::DELETE, "users/alice", b"").await.status,
        StatusCode::NO_CONTENT
    );
    let answer = b.work(&cookie).await.json();
    assert_eq!(
        (&answer["user"], &answer["counter"]),
        (&"alice".into(), &4.into())
    );
    let notes = b
        .send(Method::GET, "/notes", &[("cookie", &cookie)], b"")
        .await
        .json();
    assert_eq!(notes["notes"], serde_json::json!(["milk"]));
    assert_eq!(a.users().await, serde_json::json!([]));
    assert_eq!(a.work(&cookie).await.json()["user"], Value::Null);
}

#[tokio::test]
async fn a_frozen_user_is_served_by_nothing_until_thawed() {
    let a = worker(&[]);
    let cookie = a.resident("alice", 2).await;
    let frozen = a.pool(Method::POST, "users/alice/snapshot/7", b"").await;
    for (method, path) in [
        (Method::GET, "/work"),
        (Method::GET, "/"),
        (Method::GET, "/notes"),
        (Method::POST, "/logout"),
        (Method::GET, "/events"),
    ] {
        let refused = a.send(method, path, &[("cookie", &cookie)], b"").await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{path}");
    }
    assert_eq!(a.login("alice", "").await.status, StatusCode::CONFLICT);
    assert_eq!(
        a.pool(Method::POST, "users/alice/deposits", b"hi").await.status,
        StatusCode::CONFLICT
    );
    let again = a.pool(Method::POST, "users/alice/snapshot/7", b"").await;
    assert_eq!(again.body, frozen.body);
    assert_eq!(
        a.users().await,
        serde_json::json!([{"id": "alice", "state": "frozen", "move": "7"}])
    );
    assert_eq!(
        a.pool(Method::DELETE, "users/alice/snapshot/8", b"").await.status,
        StatusCode::CONFLICT
    );
    for _ in 0..2 {
        let thawed = a.pool(Method::DELETE, "users/alice/snapshot/7", b"").await;
        assert_eq!(thawed.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(a.work(&cookie).await.json()["counter"], 3);
}

#[tokio::test]
async fn a_staged_user_is_invisible_and_can_be_discarded() {
    let (a, b) = (worker(&[]), worker(&[]));
    let cookie = a.resident("alice", 2).await;
    let package = a.pool(Method::POST, "users/alice/snapshot/7", b"").await;
    b.pool(Method::PUT, "users/alice/package/7", &package.body).await;
    assert_eq!(
        b.users().await,
        serde_json::json!([{"id": "alice", "state": "staged", "move": "7"}])
    );
    assert_eq!(b.work(&cookie).await.json()["user"], Value::Null);
    assert_eq!(
        b.pool(Method::POST, "users/alice/package/8", b"").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        b.pool(Method::POST, "users/alice/snapshot/9", b"").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        b.pool(Method::DELETE, "users/alice/package/7", b"").await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        b.pool(Method::DELETE, "users/alice/package/7", b"").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(b.users().await, serde_json::json!([]));
}

#[tokio::test]
async fn an_activation_that_was_not_routed_is_undone_and_a_served_one_is_not() {
    let (a, b) = (worker(&[]), worker(&[]));
    let cookie = a.resident("alice", 2).await;
    carry(&a, &b, "alice", 7).await;
    let path = "users/alice/package/7";
    assert_eq!(
        b.pool(Method::POST, path, b"").await.status,
        StatusCode::NO_CONTENT,
        "activate is idempotent"
    );
    assert_eq!(
        b.pool(Method::DELETE, path, b"").await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(b.users().await, serde_json::json!([]));
    a.pool(Method::DELETE, "users/alice/snapshot/7", b"").await;
    carry(&a, &b, "alice", 8).await;
    assert_eq!(b.work(&cookie).await.json()["counter"], 3);
    assert_eq!(
        b.pool(Method::DELETE, "users/alice/package/8", b"").await.status,
        StatusCode::CONFLICT
    );
    assert_eq!(b.work(&cookie).await.json()["counter"], 4);
}

#[tokio::test]
async fn a_join_keeps_the_residents_values_and_lets_both_browsers_in() {
    let (a, b) = (worker(&[]), worker(&[]));
    let first = b.resident("alice", 5).await;
    b.send(Method::POST, "/notes", &[("cookie", &first)], b"home")
        .await;
    let second = a.resident("alice", 1).await;
    a.send(Method::POST, "/notes", &[("cookie", &second)], b"visit")
        .await;
    let package = a.pool(Method::POST, "users/alice/snapshot/7", b"").await;
    b.pool(Method::PUT, "users/alice/package/7", &package.body).await;
    assert_eq!(
        b.work(&first).await.json()["counter"],
        6,
        "the resident is served while the join is staged"
    );
    for _ in 0..2 {
        b.pool(Method::POST, "users/alice/package/7", b"").await;
    }
    assert_eq!(b.work(&first).await.json()["counter"], 7);
    assert_eq!(b.work(&second).await.json()["counter"], 8);
    let notes = b
        .send(Method::GET, "/notes", &[("cookie", &second)], b"")
        .await
        .json();
    assert_eq!(notes["notes"].as_array().unwrap().len(), 2);
    b.pool(Method::DELETE, "users/alice/package/7", b"").await;
    assert_eq!(
        b.work(&second).await.json()["user"],
        Value::Null,
        "an undone join takes its browser out again"
    );
    assert_eq!(b.work(&first).await.json()["counter"], 9);
}

#[tokio::test]
async fn a_package_that_is_too_large_is_refused_and_its_user_lives_on() {
    let a = worker(&["--max-package", "10000"]);
    let cookie = a.resident("alice", 1).await;
    let grown = a
        .send(Method::POST, "/ballast?bytes=9990", &[("cookie", &cookie)], b"")
        .await;
    assert_eq!(grown.status, StatusCode::OK);
    let refused = a.pool(Method::POST, "users/alice/snapshot/1", b"").await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(a.work(&cookie).await.json()["counter"], 2);
    let flood = a
        .pool(Method::PUT, "users/bob/package/1", &vec![b'x'; 10_001])
        .await;
    assert_eq!(flood.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[rstest]
#[case::no_json(b"{", StatusCode::UNPROCESSABLE_ENTITY)]
#[case::another_users(
    br#"{"format":"reference/1","user":"bob","slice":{"counter":1}}"#,
    StatusCode::UNPROCESSABLE_ENTITY
)]
#[case::negative(
    br#"{"format":"reference/1","user":"alice","slice":{"counter":-1}}"#,
    StatusCode::UNPROCESSABLE_ENTITY
)]
#[case::format(
    br#"{"format":"other/1","user":"alice","slice":{"counter":1}}"#,
    StatusCode::UNSUPPORTED_MEDIA_TYPE
)]
#[case::fits(
    br#"{"format":"reference/1","user":"alice","slice":{"counter":1}}"#,
    StatusCode::NO_CONTENT
)]
#[tokio::test]
async fn only_a_whole_package_of_this_user_is_staged(#[case] body: &[u8], #[case] expected: StatusCode) {
    let a = worker(&[]);
    assert_eq!(
        a.pool(Method::PUT, "users/alice/package/1", body).await.status,
        expected
    );
    let staged = a.users().await.as_array().unwrap().len();
    assert_eq!(staged, usize::from(expected == StatusCode::NO_CONTENT));
}

#[test]
fn a_deposit_that_comes_again_is_taken_once_also_after_a_move() {
    // What `Slice` remembers travels with the user; the numbers of one sender only grow.
    let mut slice = crate::worker::slice::Slice::default();
    assert!(slice.is_new("s", 1) && slice.is_new("s", 2));
    assert!(!slice.is_new("s", 2) && !slice.is_new("s", 1));
    assert!(slice.is_new("other", 1));
    let text = serde_json::to_string(&slice).unwrap();
    let mut moved: crate::worker::slice::Slice = serde_json::from_str(&text).unwrap();
    assert!(!moved.is_new("s", 2) && moved.is_new("s", 3));
}

#[tokio::test]
async fn deposits_travel_with_the_user_and_are_read_once_in_order() {
    let (a, b) = (worker(&[]), worker(&[]));
    let cookie = a.resident("alice", 1).await;
    a.pool(Method::POST, "users/alice/deposits", b"one").await;
    a.pool(Method::POST, "users/alice/deposits", b"two").await;
    carry(&a, &b, "alice", 1).await;
    let read = async || {
        b.send(Method::GET, "/deposits", &[("cookie", &cookie)], b"")
            .await
            .json()
    };
    assert_eq!(read().await["deposits"], serde_json::json!(["one", "two"]));
    assert_eq!(read().await["deposits"], serde_json::json!([]));
}
