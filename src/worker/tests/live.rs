//! Streams of the app over real connections, and the contract on a port of its own.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;

use super::{Worker, worker};

const DEADLINE: Duration = Duration::from_secs(20);

async fn websocket(a: &Worker, cookie: &str) -> WebSocketStream<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = a.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut request = format!("ws://{address}/ws").into_client_request().unwrap();
    request.headers_mut().insert("cookie", cookie.parse().unwrap());
    client_async(request, TcpStream::connect(address).await.unwrap())
        .await
        .unwrap()
        .0
}

/// The next message of this kind.
async fn told(socket: &mut WebSocketStream<TcpStream>, kind: &str) -> Value {
    let wanted = async {
        loop {
            let message = socket.next().await.unwrap().unwrap();
            let value: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
            if value["type"] == kind {
                return value;
            }
        }
    };
    timeout(DEADLINE, wanted).await.unwrap()
}

#[tokio::test]
async fn a_websocket_counts_its_messages_and_tells_who_serves() {
    let a = worker(&[]);
    let cookie = a.resident("alice", 2).await;
    let mut socket = websocket(&a, &cookie).await;
    let tick = told(&mut socket, "tick").await;
    assert_eq!(
        (&tick["user"], &tick["counter"], &tick["worker"]),
        (&"alice".into(), &2.into(), &"w1".into())
    );
    socket.send(Message::text("hello")).await.unwrap();
    let echo = told(&mut socket, "echo").await;
    assert_eq!((&echo["text"], &echo["counter"]), (&"hello".into(), &3.into()));
    assert_eq!(a.work(&cookie).await.json()["counter"], 4);
    assert_eq!(a.pool(Method::GET, "report", b"").await.json()["connections"], 1);
}

#[tokio::test]
async fn a_websocket_of_a_frozen_user_is_closed_and_counts_nothing() {
    let a = worker(&[]);
    let cookie = a.resident("alice", 2).await;
    let mut socket = websocket(&a, &cookie).await;
    told(&mut socket, "tick").await;
    a.pool(Method::POST, "users/alice/snapshot/1", b"").await;
    socket.send(Message::text("too late")).await.unwrap();
    let ended = async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Close(frame))) => return frame.unwrap().code,
                Some(Ok(Message::Text(text))) => assert!(!text.contains("echo"), "{text}"),
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(DEADLINE, ended).await.unwrap(), CloseCode::Restart);
    a.pool(Method::DELETE, "users/alice/snapshot/1", b"").await;
    assert_eq!(a.work(&cookie).await.json()["counter"], 3);
}

#[tokio::test]
async fn the_contract_on_its_own_port_is_not_on_the_apps() {
    let a = worker(&[]);
    let args = super::args(&["--token-file", a.dir.path().join("token").to_str().unwrap()]);
    let (main, side) = (
        TcpListener::bind("127.0.0.1:0").await,
        TcpListener::bind("127.0.0.1:0").await,
    );
    let (main, side) = (main.unwrap(), side.unwrap());
    let ports = [main.local_addr().unwrap(), side.local_addr().unwrap()];
    let stop = CancellationToken::new();
    let until = stop.clone();
    let served = tokio::spawn(async move { crate::worker::serve(&args, main, Some(side), until).await });
    let mut seen = Vec::new();
    for address in ports {
        seen.push(status(address, "/_pool/v1/report").await);
        seen.push(status(address, "/healthz").await);
    }
    let (ok, none) = (StatusCode::OK, StatusCode::NOT_FOUND);
    assert_eq!(seen, [none, ok, ok, none]);
    stop.cancel();
    timeout(DEADLINE, served).await.unwrap().unwrap().unwrap();
}

async fn status(address: std::net::SocketAddr, path: &str) -> StatusCode {
    let stream = TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(path)
        .header("host", "app")
        .header("pool-token", super::TOKEN);
    sender
        .send_request(request.body(String::new()).unwrap())
        .await
        .unwrap()
        .status()
}
