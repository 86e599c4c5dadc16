//! Workers and clients that fail in every way: each request ends in exactly one outcome, and what waits is bounded.

#![expect(
    clippy::float_cmp,
    reason = "counters are whole numbers, which floats carry exactly"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use elastic_pool::channel::proto::Table;
use elastic_pool::channel::proto::gateway_command::Command;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::{Backend, Recorded, text};
use crate::commander::{Commander, full, welcome, worker};
use crate::raw::RawClient;
use crate::stage::{Front, Keys, Stage, app, eventually};

const OUTCOMES: [&str; 14] = [
    "answered",
    "broken",
    "unavailable",
    "closed",
    "held_too_long",
    "overflow",
    "not_replayable",
    "forbidden",
    "malformed",
    "not_allowed",
    "expectation",
    "too_large",
    "stalled",
    "abandoned",
];

async fn outcome(front: &Front, name: &str) -> f64 {
    front
        .metric(&format!("elastic_pool_forwards_total{{outcome=\"{name}\"}}"))
        .await
}

/// Requests that began, and all outcomes together.
async fn sums(front: &Front) -> (f64, f64) {
    let mut ended = 0.0;
    for name in OUTCOMES {
        ended += outcome(front, name).await;
    }
    (front.metric("elastic_pool_gateway_requests_total").await, ended)
}

async fn balanced(front: &Front) {
    eventually("as many outcomes as requests", async || {
        let (began, ended) = sums(front).await;
        assert!(ended <= began, "{ended} outcomes of {began} requests");
        (began - ended).abs() < 0.5
    })
    .await;
}

/// A worker that takes connections and whatever comes on them, and never answers.
async fn silent() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, open) = (
        listener.local_addr().unwrap().to_string(),
        Arc::new(AtomicUsize::new(0)),
    );
    let own = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let open = Arc::clone(&own);
            tokio::spawn(async move {
                open.fetch_add(1, Relaxed);
                let mut sink = tokio::io::sink();
                let _ = tokio::io::copy(&mut stream, &mut sink).await;
                open.fetch_sub(1, Relaxed);
            });
        }
    });
    (address, open)
}

#[tokio::test]
async fn a_client_that_hangs_up_on_a_silent_worker_frees_everything() {
    let (address, open) = silent().await;
    let commander = Commander::start(vec![
        welcome(500, 20_000),
        full(10, 1, vec![worker(1, &address)], vec![]),
    ])
    .await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = RawClient::connect(front.gateway.address).await;
        client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
        clients.push(client);
    }
    eventually("five are open", async || open.load(Relaxed) == 5).await;
    drop(clients);
    eventually("none is open", async || open.load(Relaxed) == 0).await;
    balanced(&front).await;
    assert_eq!(outcome(&front, "abandoned").await, 5.0);
}

#[tokio::test]
async fn every_request_ends_in_one_outcome_however_it_ends() {
    let one = Backend::start(|request: Recorded| async move {
        match request.path.as_str() {
            "/switch" => Response::builder()
                .status(101)
                .body(Full::default().boxed())
                .unwrap(),
            "/login" => crate::stage::login_answer("alice"),
            _ => text("one"),
        }
    })
    .await;
    let stage = Stage::with(one, app("two").await, |config| config.limits.max_body = Some(100)).await;
    let front = &stage.front;
    let mut browser = front.browser();
    let statuses = [
        ("/", StatusCode::OK),
        ("/missing", StatusCode::OK),
        ("/break", StatusCode::BAD_GATEWAY),
        ("/_pool/x", StatusCode::NOT_FOUND),
        ("/switch", StatusCode::BAD_GATEWAY),
    ];
    for (path, status) in statuses {
        assert_eq!(browser.get(path).await.status, status, "{path}");
    }
    assert_eq!(
        browser.post("/", vec![b'x'; 101]).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(browser.post("/", vec![b'x'; 100]).await.status, StatusCode::OK);
    for half in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nx",
    ] {
        let mut client = RawClient::connect(front.gateway.address).await;
        client.send(half.as_bytes()).await;
    }
    let mut client = RawClient::connect(front.gateway.address).await;
    client.send(b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer(false).await.unwrap().status, 405);
    let mut client = RawClient::connect(front.gateway.address).await;
    client
        .send(b"GET / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n")
        .await;
    assert_eq!(client.answer(false).await.unwrap().status, 417);
    balanced(front).await;
    let (began, _) = sums(front).await;
    assert!((began - 11.0).abs() < 0.5, "{began}");
    for (name, count) in [
        ("answered", 3.0),
        ("broken", 2.0),
        ("forbidden", 1.0),
        ("too_large", 1.0),
        ("not_allowed", 1.0),
        ("expectation", 1.0),
    ] {
        assert_eq!(outcome(front, name).await, count, "{name}");
    }
}

async fn http2_connection(front: &Front) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(front.gateway.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

fn get(number: usize) -> Request<Empty<Bytes>> {
    Request::get(format!("http://shop.test/{number}"))
        .body(Empty::new())
        .unwrap()
}

#[tokio::test]
async fn of_ten_thousand_that_come_to_an_empty_group_a_thousand_wait_and_the_rest_is_told_at_once() {
    const CONNECTIONS: usize = 100;
    const EACH: usize = 100;
    let one = Backend::start(|_| async { text("one") }).await;
    let mut sleeping = worker(1, &one.address);
    sleeping.routable = false;
    let greeting = vec![welcome(500, 60_000), full(10, 0, vec![sleeping], vec![])];
    let commander = Commander::start(greeting).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut senders = Vec::new();
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        let sender = http2_connection(&front).await;
        for number in 0..EACH {
            let mut sender = sender.clone();
            asked.spawn(async move {
                sender.ready().await.unwrap();
                sender.send_request(get(number)).await.unwrap().status()
            });
        }
        senders.push(sender);
    }
    let mut refused = 0;
    while refused < CONNECTIONS * EACH - 1000 {
        let status = asked.join_next().await.unwrap().unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        refused += 1;
    }
    front.waiting(1000.0).await;
    // A hundred hang up, and their places are free again.
    drop(senders);
    let ready = Table {
        version: 11,
        live: true,
        groups: vec![crate::commander::group(1)],
        workers: vec![worker(1, &one.address)],
        ..Table::default()
    };
    commander.send(Command::Table(ready)).await;
    let mut served = 0;
    while let Some(status) = asked.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::OK);
        served += 1;
    }
    assert_eq!(served, 1000);
    front.waiting(0.0).await;
    balanced(&front).await;
    assert_eq!(outcome(&front, "overflow").await, 9000.0);
}

#[tokio::test]
async fn who_hangs_up_while_he_waits_leaves_no_place_taken() {
    let commander = Commander::start(vec![welcome(500, 60_000), full(10, 0, vec![], vec![])]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = RawClient::connect(front.gateway.address).await;
        client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
        clients.push(client);
    }
    front.waiting(20.0).await;
    drop(clients);
    front.waiting(0.0).await;
    balanced(&front).await;
    assert_eq!(outcome(&front, "abandoned").await, 20.0);
}

#[tokio::test]
async fn a_reader_that_reads_nothing_stops_the_worker_s_body() {
    const PIECE: usize = 64 * 1024;
    const PIECES: usize = 4096;
    let made = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&made);
    let one = Backend::start(move |_| {
        let made = Arc::clone(&own);
        async move {
            let pieces = futures::stream::iter(0..PIECES).map(move |_| {
                made.fetch_add(1, Relaxed);
                Ok(Frame::data(Bytes::from(vec![b'x'; PIECE])))
            });
            Response::new(BodyExt::boxed(StreamBody::new(pieces)))
        }
    })
    .await;
    let stage = Stage::set(one, app("two").await).await;
    let mut client = RawClient::connect(stage.front.gateway.address).await;
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n").await;
    eventually("the body has begun", async || made.load(Relaxed) > 0).await;
    // Other clients are served all the while; by then the sockets between are full and nothing more is made.
    for _ in 0..200 {
        assert_eq!(stage.front.admin("/livez").await.status, StatusCode::OK);
    }
    drop(client);
    balanced(&stage.front).await;
    let made = made.load(Relaxed);
    assert!(
        made < PIECES / 2,
        "{made} of {PIECES} pieces were made for nobody"
    );
}

#[tokio::test]
async fn one_held_stream_blocks_no_other_of_its_http2_connection() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    let mut sender = http2_connection(&stage.front).await;
    stage.commander.send(crate::stage::hold(20, "alice")).await;
    stage.commander.receive(crate::stage::held).await;
    let mut held = get(1);
    let cookie = browser.cookie.clone().unwrap();
    held.headers_mut().insert("cookie", cookie.parse().unwrap());
    let waiting = tokio::spawn(sender.send_request(held));
    stage.front.waiting(1.0).await;
    for number in 2..40 {
        sender.ready().await.unwrap();
        let answer = sender.send_request(get(number)).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "one");
    }
    let owner = crate::commander::owned("alice", 2, 20, &[&client]);
    stage.commander.send(crate::stage::route(20, owner)).await;
    let body = waiting
        .await
        .unwrap()
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(body, "two");
}

#[tokio::test]
async fn what_is_open_can_be_read_until_it_has_ended() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let own = Arc::clone(&gate);
    let one = Backend::start(move |request: Recorded| {
        let gate = Arc::clone(&own);
        async move {
            if request.path == "/login" {
                return crate::stage::login_answer("alice");
            }
            gate.acquire().await.unwrap().forget();
            text("at last")
        }
    })
    .await;
    let stage = Stage::set(one, app("two").await).await;
    let (browser, client) = stage.alice().await;
    let monitor = stage.front.gateway.monitor_address.unwrap();
    let list = async || -> serde_json::Value {
        serde_json::from_slice(&crate::stage::get(monitor, "/_commander/open").await.body).unwrap()
    };
    let hers = Stage::spawn(&browser, "/slow");
    stage.one.arrived(2).await;
    let guests = Stage::spawn(&stage.front.browser(), "/slow");
    stage.one.arrived(3).await;
    let all = list().await;
    assert_eq!(
        (&all["open"], all["requests"].as_array().unwrap().len()),
        (&serde_json::json!(2), 2)
    );
    let (first, second) = (&all["requests"][0], &all["requests"][1]);
    assert_eq!(
        (first["user"].as_str(), first["client"].as_str()),
        (Some("alice"), Some(client.as_str()))
    );
    assert_eq!(
        (first["worker"].as_str(), second["user"].as_str()),
        (Some("blue-1"), None)
    );
    gate.add_permits(2);
    assert_eq!(hers.await.unwrap().text(), "at last");
    assert_eq!(guests.await.unwrap().text(), "at last");
    eventually("nothing is open", async || list().await["open"] == 0).await;
}
