//! What passes: bodies, streams, headers, and what is counted.

use crate::backend::{Backend, Recorded, text};
use crate::commander::{Commander, PATIENCE, full, welcome, worker};
use crate::stage::{Front, Keys, Stage, app, eventually, get, hold, login_answer};
use bytes::Bytes;
use elastic_pool::channel::proto::gateway_message::Message;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::{Full, StreamBody};
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn an_app_s_own_421_and_403_pass() {
    let own = |request: Recorded| async move {
        let status: u16 = request.path[1..].parse().unwrap();
        Response::builder()
            .status(status)
            .body(Full::from("mine").boxed())
            .unwrap()
    };
    let stage = Stage::set(Backend::start(own).await, app("two").await).await;
    for path in ["/421", "/403", "/502"] {
        let answer = stage.front.browser().get(path).await;
        assert_eq!(
            (format!("/{}", answer.status.as_u16()).as_str(), answer.text()),
            (path, "mine")
        );
    }
    assert_eq!(stage.one.requests().len(), 3);
}

#[tokio::test]
async fn what_only_the_gateway_may_say_is_not_taken_from_a_client() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    let request = browser
        .request("/")
        .header("pool-user", "alice")
        .header("pool_epoch", "99")
        .header("pool-hop", "x")
        .header("connection", "x-secret, cookie")
        .header("x-secret", "1")
        .header("x-forwarded-proto", "https");
    let answer = browser.send(request.body(Full::default()).unwrap()).await;
    assert_eq!((answer.text(), answer.cookies().len()), ("one", 1));
    let seen = stage.one.last();
    for name in ["pool-user", "pool_epoch", "pool-epoch", "x-secret", "connection"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(browser.get("/_pool/v1/users").await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        browser.get("/%5Fpool/v1/users").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(stage.one.requests().len(), 1);
    let heavy = browser
        .request("/")
        .header("x", "y".repeat(40_000))
        .body(Full::default())
        .unwrap();
    assert_eq!(
        browser.send(heavy).await.status,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
}

#[tokio::test]
async fn a_websocket_passes_and_is_closed_with_1012_when_its_user_is_moved() {
    use futures::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message as Frame;

    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let stream = tokio::net::TcpStream::connect(browser.address).await.unwrap();
    let request = browser
        .request("ws://shop.test/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header(
            "sec-websocket-key",
            tokio_tungstenite::tungstenite::handshake::client::generate_key(),
        )
        .body(())
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    for size in [0, 5, 200, 70_000] {
        let sent = Frame::binary(vec![7; size]);
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    assert_eq!(stage.one.last().header("pool-user"), Some("alice"));
    stage.commander.send(hold(20, "alice")).await;
    let end = tokio::time::timeout(PATIENCE, socket.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let Frame::Close(Some(close)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(u16::from(close.code), 1012);
    eventually("tunnel gone", async || {
        stage.front.metric("elastic_pool_gateway_open_streams").await < 0.5
    })
    .await;
}

#[tokio::test]
async fn an_event_stream_ends_cleanly_when_its_user_is_moved() {
    let script = |request: Recorded| async move {
        if request.path == "/login" {
            return login_answer("alice");
        }
        let first = futures::stream::iter([Ok(hyper::body::Frame::data(Bytes::from_static(b"data: 1\n\n")))]);
        let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(body.boxed())
            .unwrap()
    };
    // `boxed` needs Sync; the stream above is.
    let stage = Stage::set(Backend::start(script).await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let events = Stage::spawn(&browser, "/events");
    eventually("open", async || {
        stage.front.metric("elastic_pool_gateway_open_streams").await > 0.5
    })
    .await;
    stage.commander.send(hold(20, "alice")).await;
    assert_eq!(events.await.unwrap().text(), "data: 1\n\n");
}

#[tokio::test]
async fn a_long_body_streams_both_ways() {
    let echo = |request: Recorded| async move { text(request.body) };
    let stage = Stage::set(Backend::start(echo).await, app("two").await).await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let answer = stage.front.browser().post("/", body.clone()).await;
    assert_eq!(answer.body, body);
}

#[tokio::test]
async fn a_worker_that_breaks_off_is_a_502_and_nothing_is_repeated() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let answer = browser.get("/break").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("broke off"), "{}", answer.text());
    assert_eq!(
        stage
            .one
            .requests()
            .iter()
            .filter(|request| request.path == "/break")
            .count(),
        1
    );
    assert_eq!(browser.get("/").await.text(), "one");
}

#[tokio::test]
async fn totals_tell_each_second_what_was_forwarded() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, _) = stage.alice().await;
    browser.get("/").await;
    let totals = stage.commander.receive(|message| match message {
        Message::Totals(totals) if totals.workers.iter().any(|worker| worker.requests == 2) => {
            Some(totals.clone())
        }
        _ => None,
    });
    let totals = totals.await;
    assert_eq!((totals.workers[0].birth, totals.workers[0].errors), (1, 0));
    assert!(totals.workers[0].seconds > 0.0);
    let alice = totals
        .users
        .iter()
        .find(|user| user.user == "alice")
        .expect("alice");
    assert_eq!(alice.requests, 1);
}

#[tokio::test]
async fn a_gateway_told_to_stop_is_unready_finishes_what_is_open_and_ends() {
    let release = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&release);
    let slow = Backend::start(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            text("done")
        }
    })
    .await;
    let commander = Commander::start(vec![
        welcome(500, 20_000),
        full(10, 1, vec![worker(1, &slow.address)], vec![]),
    ])
    .await;
    let front = Front::start_with(&commander, &Keys::new(), |config| {
        config.drain_delay = Duration::from_millis(300);
    })
    .await;
    eventually("ready", async || {
        front.admin("/readyz").await.status == StatusCode::OK
    })
    .await;
    let open = Stage::spawn(&front.browser(), "/");
    slow.arrived(1).await;
    let (gateway, stop) = (front.gateway, front.stop);
    let admin = gateway.admin_address;
    drop(stop);
    eventually("unready", async || {
        get(admin, "/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    release.notify_one();
    assert_eq!(open.await.unwrap().text(), "done");
    tokio::time::timeout(PATIENCE, gateway.ended())
        .await
        .expect("it ends");
}

#[tokio::test]
async fn http2_without_tls_is_understood() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let stream = tokio::net::TcpStream::connect(stage.front.gateway.address)
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://shop.test/h2?q=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = stage.one.last();
    assert_eq!(
        (seen.path.as_str(), seen.header("host")),
        ("/h2?q=1", Some("shop.test"))
    );
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
}

#[tokio::test]
async fn connections_to_a_worker_are_used_again() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    for _ in 0..20 {
        assert_eq!(browser.get("/").await.text(), "one");
    }
    assert_eq!(stage.one.connections(), 1);
}
