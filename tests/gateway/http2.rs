//! HTTP/2 from clients: WebSocket on a stream of it, trailers, and flow control.

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::stage::{Stage, app, hold};

async fn connect(stage: &Stage) -> http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(stage.front.gateway.address).await.unwrap();
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender.ready().await.unwrap();
    // The settings that allow extended CONNECT come with the first answer at the latest.
    let first = Request::get("http://shop.test/").body(Empty::new()).unwrap();
    sender
        .send_request(first)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    sender
}

fn socket_request(cookie: Option<&str>) -> Request<Empty<Bytes>> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://shop.test/socket")
        .extension(Protocol::from_static("websocket"))
        .header("sec-websocket-version", "13");
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn a_websocket_on_an_http2_stream_reaches_an_http1_app_and_is_closed_when_its_user_moves() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let mut sender = connect(&stage).await;
    let answer = sender
        .send_request(socket_request(browser.cookie.as_deref()))
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    for name in ["upgrade", "connection", "sec-websocket-accept"] {
        assert!(answer.headers().get(name).is_none(), "{name}");
    }
    let seen = stage.one.last();
    assert_eq!(
        (
            seen.path.as_str(),
            seen.header("upgrade"),
            seen.header("host"),
            seen.header("pool-user")
        ),
        ("/socket", Some("websocket"), Some("shop.test"), Some("alice"))
    );
    let upgraded = hyper::upgrade::on(answer).await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    // The connection's other streams go on beside it.
    let other = Request::get("http://shop.test/other").body(Empty::new()).unwrap();
    assert_eq!(sender.send_request(other).await.unwrap().status(), StatusCode::OK);
    stage.commander.send(hold(20, "alice")).await;
    let code = match socket.next().await.unwrap().unwrap() {
        Message::Close(Some(frame)) => u16::from(frame.code),
        other => panic!("{other:?}"),
    };
    assert_eq!(code, 1012);
}

#[tokio::test]
async fn a_connect_for_anything_else_is_not_allowed() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut sender = connect(&stage).await;
    let before = stage.one.requests().len();
    let request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://shop.test/")
        .extension(Protocol::from_static("connect-udp"))
        .body(Empty::new())
        .unwrap();
    assert_eq!(
        sender.send_request(request).await.unwrap().status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    assert_eq!(stage.one.requests().len(), before);
}
