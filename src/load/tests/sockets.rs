//! How WebSockets end, and what a connection that breaks before an answer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::browser::Browser;
use super::{Summary, load};
use crate::clock::Clock;

#[derive(Clone)]
struct Ends {
    code: Option<u16>,
    opened: Arc<AtomicUsize>,
    counter: Arc<AtomicUsize>,
}

/// The first three sockets end at once, as the case says; later ones stay open.
async fn socket(State(ends): State<Ends>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |mut socket| {
        if ends.opened.fetch_add(1, Ordering::SeqCst) >= 3 {
            while let Some(Ok(Message::Text(_))) = socket.recv().await {
                let counter = ends.counter.fetch_add(1, Ordering::SeqCst);
                let echo = json!({ "type": "echo", "user": "user-1", "counter": counter, "worker": "a" });
                let _ = socket.send(Message::text(echo.to_string())).await;
            }
        } else if let Some(code) = ends.code {
            let frame = CloseFrame {
                code,
                reason: "moved".into(),
            };
            let _ = socket.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = socket.recv().await {}
        }
    })
}

async fn work(State(counter): State<Arc<AtomicUsize>>) -> Json<Value> {
    let counter = counter.fetch_add(1, Ordering::SeqCst);
    Json(json!({ "user": "user-1", "counter": counter, "worker": "a" }))
}

#[rstest]
#[case::restart(Some(1012), |s: &Summary| (s.counts.ws_reconnects, s.counts.ws_closed, s.counts.ws_unclean) == (3, 0, 0))]
#[case::going_away(Some(1001), |s: &Summary| (s.counts.ws_reconnects, s.counts.ws_closed, s.counts.ws_unclean) == (0, 3, 0))]
#[case::cut(None, |s: &Summary| (s.counts.ws_reconnects, s.counts.ws_closed, s.counts.ws_unclean) == (0, 0, 3))]
#[tokio::test]
async fn each_way_a_websocket_ends_is_counted_apart(
    #[case] code: Option<u16>,
    #[case] seen: fn(&Summary) -> bool,
) {
    let counter = Arc::new(AtomicUsize::new(0));
    let router = Router::new()
        .route("/work", get(work).post(work))
        .route("/login", post(work))
        .route("/logout", post(work))
        .with_state(counter.clone())
        .route(
            "/ws",
            get(socket).with_state(Ends {
                code,
                opened: Arc::default(),
                counter,
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let flags = [
        "--users-profile",
        "1x2s",
        "--websocket-share",
        "1",
        "--second-browser-share",
        "0",
    ];
    let summary = load(&url, &flags).await;
    assert!(seen(&summary) && summary.counts.ws_opened == 4, "{summary:?}");
}

/// Answers on the connections whose turn is true; breaks the others off once a request is there.
async fn moody_server(turns: &'static [bool]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for answers in turns {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            if *answers {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await
                    .unwrap();
            }
        }
    });
    url
}

#[rstest]
#[case::first_breaks(&[false, true], true)]
#[case::both_break(&[false, false], false)]
#[tokio::test]
async fn a_reset_before_any_answer_is_retried_once(#[case] turns: &'static [bool], #[case] answered: bool) {
    let url = moody_server(turns).await;
    let mut browser = Browser::new(url.parse().unwrap(), Clock::start());
    let exchange = browser.send(http::Method::GET, "/", None).await;
    assert!(exchange.retried && exchange.unsure, "{exchange:?}");
    assert_eq!(exchange.result.is_ok(), answered, "{exchange:?}");
}

#[tokio::test]
async fn an_idle_connection_that_was_closed_is_opened_again_without_a_retry() {
    let url = moody_server(&[true, true]).await;
    let mut browser = Browser::new(url.parse().unwrap(), Clock::start());
    for _ in 0..2 {
        let exchange = browser.send(http::Method::GET, "/", None).await;
        assert!(exchange.result.is_ok(), "{exchange:?}");
        browser.until_closed().await;
    }
}
