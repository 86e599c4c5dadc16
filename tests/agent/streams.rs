//! WebSockets and event streams: relayed, counted, and ended at a snapshot.

use bytes::Bytes;
use elastic_pool::channel::proto::nack::Reason;
use futures::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Empty};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, handshake::client::generate_key};

use crate::app::{self, Held};
use crate::world::{Commander, Sidecar, Who, send, soon, until};

async fn open_socket(sidecar: &Sidecar, who: Who<'_>) -> WebSocketStream<TcpStream> {
    let mut request = who.request("ws://shop.example/ws").map(|_: Empty<Bytes>| ());
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
        .headers_mut()
        .insert("sec-websocket-key", generate_key().parse().unwrap());
    let stream = TcpStream::connect(sidecar.agent.traffic).await.unwrap();
    soon("the upgrade", tokio_tungstenite::client_async(request, stream))
        .await
        .unwrap()
        .0
}

async fn echo(socket: &mut WebSocketStream<TcpStream>, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
    assert_eq!(
        soon("the echo", socket.next()).await.unwrap().unwrap(),
        Message::text(text)
    );
}

#[tokio::test]
async fn a_websocket_is_ended_politely_at_its_users_snapshot_and_no_other() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    for user in ["alice", "bob"] {
        app.knobs.lock().users.insert(user.into(), Held::Live(1));
    }
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    session.assign("bob", 6).await;
    let mut alice = open_socket(&sidecar, Who::User("alice", 5)).await;
    let mut bob = open_socket(&sidecar, Who::User("bob", 6)).await;
    echo(&mut alice, "one").await;
    echo(&mut bob, &"x".repeat(100_000)).await;
    let report = session.report(|report| report.open_streams == 2).await;
    assert_eq!(
        (report.open_requests, report.connections),
        (0, Some(2.0)),
        "a stream is no open request"
    );
    session.snapshot("alice", 9).await.unwrap();
    assert_eq!(
        app.knobs.lock().closed,
        [1012],
        "the app saw a Close before it was asked for the snapshot"
    );
    assert!(
        soon("alice's end", alice.next())
            .await
            .is_none_or(|message| message.is_err())
    );
    echo(&mut bob, "two").await;
    session.report(|report| report.open_streams == 1).await;
}

#[tokio::test]
async fn a_stream_that_the_app_does_not_end_aborts_the_move() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    app.knobs.lock().stubborn = true;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let mut alice = open_socket(&sidecar, Who::User("alice", 5)).await;
    echo(&mut alice, "one").await;
    assert_eq!(session.snapshot("alice", 9).await, Err(Reason::Stream));
    assert_eq!(
        sidecar.get("/count", Who::User("alice", 5)).await.body,
        "2",
        "served as before"
    );
}

#[tokio::test]
async fn a_pinned_stream_keeps_its_user() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|welcome| welcome.close_streams = false).await;
    session.assign("alice", 5).await;
    let mut alice = open_socket(&sidecar, Who::User("alice", 5)).await;
    echo(&mut alice, "one").await;
    assert_eq!(session.snapshot("alice", 9).await, Err(Reason::Stream));
    echo(&mut alice, "two").await;
    alice.close(None).await.unwrap();
    session.report(|report| report.open_streams == 0).await;
    session.snapshot("alice", 10).await.unwrap();
}

#[tokio::test]
async fn an_event_stream_is_relayed_as_it_comes_and_ended_at_the_snapshot() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    app.knobs.lock().users.insert("alice".into(), Held::Live(1));
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    session.assign("alice", 5).await;
    let mut events = send(sidecar.agent.traffic, Who::User("alice", 5).request("/events"))
        .await
        .into_body();
    let first = soon("the first event", events.frame())
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap();
    assert_eq!(first, "data: first\n\n");
    session
        .report(|report| (report.open_requests, report.open_streams) == (0, 1))
        .await;
    session.snapshot("alice", 9).await.unwrap();
    assert!(
        soon("the end", events.frame()).await.is_none(),
        "a proper end, no break"
    );
}

#[tokio::test]
async fn a_socket_of_a_guest_who_logs_in_is_his_from_then_on() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    let mut socket = open_socket(&sidecar, Who::Guest).await;
    echo(&mut socket, "one").await;
    sidecar.get("/login/alice", Who::Guest).await;
    session.assign("alice", 5).await;
    session.snapshot("alice", 9).await.unwrap();
    until("the app's socket ended", || app.knobs.lock().closed == [1012]).await;
}
