//! Clients that send what no browser does; what must become of it stands in `tests/corpus/hostile.txt`.

#![expect(
    clippy::float_cmp,
    reason = "counters are whole numbers, which floats carry exactly"
)]

use std::time::Duration;

use crate::commander::{Commander, full, welcome, worker};
use crate::corpus::{self, Part};
use crate::raw::{RawBackend, RawClient};
use crate::stage::{Front, Keys, eventually};
use elastic_pool::gateway::GatewayConfig;
use http::StatusCode;

/// A gateway before one raw worker.
async fn front(backend: &RawBackend, change: impl FnOnce(&mut GatewayConfig)) -> (Commander, Front) {
    let workers = vec![worker(1, &backend.address.to_string())];
    let commander = Commander::start(vec![welcome(500, 20_000), full(10, 1, workers, vec![])]).await;
    let front = Front::start_with(&commander, &Keys::new(), change).await;
    eventually("ready", async || {
        front.admin("/readyz").await.status == StatusCode::OK
    })
    .await;
    (commander, front)
}

#[tokio::test]
async fn the_gateway_treats_hostile_clients_as_the_corpus_says() {
    let backend = RawBackend::start().await;
    let (_commander, front) = front(&backend, |config| config.limits.max_body = Some(1_000_000)).await;
    let corpus = corpus::read("hostile.txt");
    let faults = corpus::run(&corpus, Part::Gateway, front.gateway.address, "", &backend).await;
    assert!(faults.is_empty(), "{faults}");
}

#[tokio::test]
async fn half_a_head_is_answered_with_408_and_silence_with_an_end() {
    let backend = RawBackend::start().await;
    let short = |config: &mut GatewayConfig| config.limits.head_timeout = Duration::from_millis(100);
    let (_commander, front) = front(&backend, short).await;
    for half in [
        "G",
        "P",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: shop",
        "PRI * HTTP/2.0\r\n",
    ] {
        let mut client = RawClient::connect(front.gateway.address).await;
        client.send(half.as_bytes()).await;
        assert_eq!(
            client.answer(false).await.map(|answer| answer.status),
            Some(408),
            "{half}"
        );
        client.end().await;
    }
    let mut silent = RawClient::connect(front.gateway.address).await;
    assert_eq!(silent.end().await, b"");
    // Nor is a connection kept that has nothing more to ask.
    let mut idle = RawClient::connect(front.gateway.address).await;
    idle.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
    assert_eq!(idle.answer(false).await.unwrap().status, 200);
    assert_eq!(idle.end().await, b"");
    let failed = front
        .metric("elastic_pool_gateway_connections_failed_total")
        .await;
    // One for each half; who has nothing to ask has not failed.
    assert_eq!(failed.to_string(), "5");
}

#[tokio::test]
async fn a_body_that_stops_coming_is_answered_with_408_and_reaches_the_app_never_whole() {
    let backend = RawBackend::start().await;
    let short = |config: &mut GatewayConfig| config.limits.body_timeout = Duration::from_millis(100);
    let (_commander, front) = front(&backend, short).await;
    let mut client = RawClient::connect(front.gateway.address).await;
    client
        .send(b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 10\r\n\r\nhalf")
        .await;
    assert_eq!(client.answer(false).await.map(|answer| answer.status), Some(408));
    client.end().await;
    assert!(backend.arrivals().iter().all(|arrival| !arrival.whole));
    assert_eq!(
        front
            .metric("elastic_pool_forwards_total{outcome=\"stalled\"}")
            .await,
        1.0
    );
}

#[tokio::test]
async fn the_answer_to_head_keeps_its_length_and_has_no_body() {
    let backend = RawBackend::answering("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n").await;
    let (_commander, front) = front(&backend, |_| {}).await;
    let mut client = RawClient::connect(front.gateway.address).await;
    for _ in 0..2 {
        client.send(b"HEAD / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
        let answer = client.answer(true).await.unwrap();
        assert_eq!((answer.status, answer.all("content-length")), (200, vec!["1234"]));
    }
}

#[tokio::test]
async fn trailers_of_an_answer_pass_to_whom_they_are_welcome_and_never_ours() {
    let backend = RawBackend::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, pool-user\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\npool-user: eve\r\n\r\n",
    )
    .await;
    let (_commander, front) = front(&backend, |_| {}).await;
    let mut client = RawClient::connect(front.gateway.address).await;
    client
        .send(b"GET / HTTP/1.1\r\nHost: shop.test\r\nTE: trailers\r\n\r\n")
        .await;
    let with = String::from_utf8(client.answer(false).await.unwrap().body).unwrap();
    assert!(with.contains("x-sum: 7") && !with.contains("eve"), "{with}");
    assert!(
        backend.arrivals()[0]
            .head
            .to_ascii_lowercase()
            .contains("te: trailers")
    );
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
    let without = String::from_utf8(client.answer(false).await.unwrap().body).unwrap();
    assert!(!without.contains("x-sum"), "{without}");
}

/// A user at a worker whose agent refuses him, and another worker that owns him by now (V8).
async fn moved_meanwhile() -> (Commander, Front, RawBackend, RawBackend, RawClient, String) {
    let old = RawBackend::refusing(
        "HTTP/1.1 421 Misdirected Request\r\npool-fence: refused\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let new = RawBackend::start().await;
    let client = "11".repeat(16);
    let workers = vec![
        worker(1, &old.address.to_string()),
        worker(2, &new.address.to_string()),
    ];
    let commander = Commander::start(vec![welcome(500, 20_000), full(10, 1, workers, vec![])]).await;
    let front = Front::start_with(&commander, &Keys::new(), |config| {
        config.identity = elastic_pool::gateway::IdentityConfig::Header("x-api-user".parse().unwrap());
    })
    .await;
    eventually("ready", async || {
        front.admin("/readyz").await.status == StatusCode::OK
    })
    .await;
    let sender = RawClient::connect(front.gateway.address).await;
    (commander, front, old, new, sender, client)
}

#[tokio::test]
async fn a_long_body_waits_for_the_fence_and_goes_whole_to_who_owns_the_user() {
    let (commander, _front, old, new, mut client, _) = moved_meanwhile().await;
    let body = "x".repeat(1_000_000);
    let head = |length: usize| {
        format!(
            "POST /a HTTP/1.1\r\nHost: shop.test\r\nX-Api-User: alice\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    client.send(head(body.len()).as_bytes()).await;
    client.send(body.as_bytes()).await;
    // A guest that is refused tries again; meanwhile the surface learns where his client lives.
    eventually("refused", async || !old.arrivals().is_empty()).await;
    let refused = old.arrivals();
    let named = refused[0]
        .head
        .lines()
        .find_map(|line| line.strip_prefix("pool-client: "))
        .unwrap()
        .to_owned();
    let owner = crate::commander::owned("alice", 2, 20, &[&named]);
    commander.send(crate::commander::delta(20, vec![owner])).await;
    assert_eq!(client.answer(false).await.unwrap().status, 200);
    let arrived = new.arrivals();
    assert_eq!(
        (arrived.len(), arrived[0].body.len(), arrived[0].whole),
        (1, body.len(), true)
    );
    for refused in old.arrivals() {
        assert!(refused.head.contains("expect: 100-continue"), "{}", refused.head);
        assert!(
            refused.body.is_empty(),
            "{} bytes went to who had not asked",
            refused.body.len()
        );
    }
}

#[tokio::test]
async fn only_a_long_or_endless_body_is_announced_and_a_client_s_own_expectation_is_told_apart() {
    let backend = RawBackend::start().await;
    let (_commander, front) = front(&backend, |_| {}).await;
    let mut client = RawClient::connect(front.gateway.address).await;
    for (size, more, expects, own) in [
        (0_usize, "", false, false),
        (65_536, "", false, false),
        (65_537, "", true, false),
        (5, "Expect: 100-continue\r\n", true, true),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{more}Content-Length: {size}\r\n\r\n");
        client.send(head.as_bytes()).await;
        client.send(&vec![b'x'; size]).await;
        if own {
            assert_eq!(client.answer(false).await.unwrap().status, 100);
        }
        assert_eq!(client.answer(false).await.unwrap().status, 200);
        let seen = backend.arrivals().pop().unwrap().head.to_ascii_lowercase();
        assert_eq!(
            (seen.contains("expect: "), seen.contains("pool-expects: ")),
            (expects, own),
            "{size}: {seen}"
        );
    }
    client
        .send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        .await;
    assert_eq!(client.answer(false).await.unwrap().status, 200);
    assert!(
        backend
            .arrivals()
            .pop()
            .unwrap()
            .head
            .contains("expect: 100-continue")
    );
}
