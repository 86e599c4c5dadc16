//! Clients that are not what they say: none of them ever gets somebody else's session, a 5xx or past the gateway.

use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::browser::{AFFINITY, Browser, get, send};
use crate::run::{Run, shop};

/// How many bits of the cookie are flipped, one at a time.
const FLIPS: usize = 24;

#[tokio::test]
async fn nobody_passes_the_gateway_by() {
    let run = Run::ready(shop(), 1).await;
    Browser::logged_in(run.gateway(0), "alice").await.count().await;
    let worker = run.workers()[0].clone();
    let hop = "00".repeat(32);
    for hop in [None, Some(hop.as_str()), Some(""), Some("x")] {
        let mut request = Request::post("/work?counter=1").header("pool-user", "alice");
        if let Some(hop) = hop {
            request = request.header("pool-hop", hop);
        }
        let answer = send(worker.agent, request.body(Full::default()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status, 403, "{hop:?}: {answer:?}");
    }
    for token in [None, Some("00".repeat(32)), Some(String::new())] {
        for (method, path) in [
            ("GET", "/_pool/v1/users"),
            ("GET", "/_pool/v1/report"),
            ("POST", "/_pool/v1/users/alice/snapshot/7"),
            ("DELETE", "/_pool/v1/users/alice"),
        ] {
            let mut request = Request::builder().method(method).uri(path);
            if let Some(token) = &token {
                request = request.header("pool-token", token);
            }
            let answer = send(worker.app, request.body(Full::default()).unwrap())
                .await
                .unwrap();
            assert!([403, 404].contains(&answer.status), "{path}: {answer:?}");
        }
    }
    // The contract is not reached through the gateway either, in no spelling.
    for path in [
        "/_pool/v1/users",
        "//_pool/v1/users",
        "/%5fpool/v1/users",
        "/x/../_pool/v1/users",
    ] {
        let answer = get(run.gateway(0), path).await.unwrap();
        assert!([400, 403, 404].contains(&answer.status), "{path}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("alice"));
    }
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(alice.count().await["counter"], 2);
}

#[tokio::test]
async fn headers_that_a_client_makes_up_are_ignored() {
    let run = Run::ready(shop(), 1).await;
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(alice.count().await["counter"], 1);
    let made_up = [
        ("pool-user", "alice".to_owned()),
        ("pool-guest", "alice".to_owned()),
        ("pool-client", "11".repeat(16)),
        ("pool-epoch", u64::MAX.to_string()),
        ("pool-ticket", "22".repeat(32)),
        ("pool-hop", "33".repeat(32)),
        ("pool-token", "44".repeat(32)),
        ("pool-worker", "elsewhere".to_owned()),
    ];
    let mut stranger = Browser::new(run.gateway(0));
    stranger.extra.extend(made_up.clone());
    let answer = stranger.count().await;
    assert_eq!((&answer["user"], &answer["counter"]), (&Value::Null, &json!(1)));
    assert_eq!(answer["worker"], run.workers()[0].name.as_str());
    // Nor do they harm somebody who is logged in.
    let mut bob = Browser::logged_in(run.gateway(0), "bob").await;
    bob.extra.extend(made_up);
    for counter in [1, 2] {
        let answer = bob.count().await;
        assert_eq!(
            (&answer["user"], &answer["counter"]),
            (&json!("bob"), &json!(counter))
        );
    }
    assert_eq!(alice.count().await["counter"], 2);
}

#[tokio::test]
async fn a_cookie_that_was_tampered_with_makes_a_guest_with_one_new_cookie() {
    let run = Run::ready(shop(), 1).await;
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(alice.count().await["counter"], 1);
    let cookie = alice.jar[AFFINITY].clone();
    let mut bad = vec![
        cookie[..cookie.len() - 1].to_owned(),
        cookie[..cookie.len() / 2].to_owned(),
        cookie[1..].to_owned(),
        format!("{cookie}{cookie}"),
        format!("{cookie}A"),
        "A".to_owned(),
        String::new(),
        "=".repeat(64),
        "x".repeat(20_000),
    ];
    for flip in 0..FLIPS {
        let mut bytes = cookie.clone().into_bytes();
        let at = flip * (bytes.len() - 1) / (FLIPS - 1);
        // A bit that keeps it a letter of the alphabet, so that the seal is what refuses it.
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        bad.push(String::from_utf8(bytes).unwrap());
    }
    for bad in &bad {
        // Without the app's own cookie, which goes on proving who she is wherever she is routed.
        let mut stranger = Browser::new(run.gateway(0));
        stranger.jar.insert(AFFINITY.to_owned(), bad.clone());
        let answer = stranger.look().await;
        assert_eq!(answer.status, 200, "{bad}: {answer:?}");
        assert_eq!(answer.affinities(), 1, "{bad}: {answer:?}");
        assert_eq!(answer.json()["user"], Value::Null, "{bad}: {answer:?}");
        assert_eq!(stranger.look().await.affinities(), 0, "the new cookie is good");
    }
    // More than a server takes in its headers is refused there, politely.
    let mut stranger = Browser::new(run.gateway(0));
    stranger.jar.insert(AFFINITY.to_owned(), "x".repeat(100_000));
    // An answer, or a connection that is closed while it is still being written: both are no harm.
    if let Ok(answer) = stranger.try_exchange("GET", "/work", String::new()).await {
        assert!(answer.status < 500, "{answer:?}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("alice"));
    }
    assert_eq!(alice.count().await["counter"], 2);
}

#[tokio::test]
async fn two_affinity_cookies_are_never_two_people() {
    let run = Run::ready(shop(), 1).await;
    let alice = Browser::logged_in(run.gateway(0), "alice").await;
    let bob = Browser::logged_in(run.gateway(0), "bob").await;
    let mut both = Browser::new(run.gateway(0));
    let doubled = format!("{}; {AFFINITY}={}", alice.jar[AFFINITY], bob.jar[AFFINITY]);
    both.jar.insert(AFFINITY.to_owned(), doubled);
    let answer = both.look().await;
    // Affinity is routing, never authentication: without the app's own cookie he is nobody.
    assert_eq!((answer.status, &answer.json()["user"]), (200, &Value::Null));
}
