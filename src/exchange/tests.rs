//! Exchanges with a raw peer that says what each test wants, byte for byte.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Connection, ExchangeError, Failed, Reply, Request};
use crate::net::{TcpListener, TcpStream};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

async fn pair() -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connection = Connection::open(listener.local_addr().unwrap()).await.unwrap();
    (connection, listener.accept().await.unwrap().0)
}

/// Reads until what was read ends like this.
async fn heard(peer: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0; 1];
        soon(peer.read_exact(&mut byte)).await.unwrap();
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

type Outcome<B> = Result<(response::Parts, Reply<B>), Failed>;

async fn ask<B>(connection: Connection, method: Method, headers: &HeaderMap, body: Option<B>) -> Outcome<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let target = Uri::from_static("http://shop.test/a?b=c");
    let request = Request {
        method: &method,
        target: &target,
        headers,
        leaves_out: |name| name == "x-left-out",
        more: &[("pool-user", b"alice")],
        waits: false,
    };
    soon(connection.exchange(request, body)).await
}

async fn get(connection: Connection) -> Outcome<Full<Bytes>> {
    ask(connection, Method::GET, &HeaderMap::new(), None).await
}

/// Body and trailers of an answer, and the connection when it is free again.
async fn finish<B>(
    reply: Reply<B>,
) -> (
    Result<(Bytes, Option<HeaderMap>), ExchangeError>,
    Option<Connection>,
)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match reply {
        Reply::Whole(body, connection) => (Ok((body, None)), connection),
        Reply::Streamed(mut answer) => {
            let (mut body, mut trailers) = (Vec::new(), None);
            while let Some(frame) = soon(answer.frame()).await {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => body.extend_from_slice(&data),
                    Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                    Err(error) => return (Err(error), answer.into_connection()),
                }
            }
            (Ok((body.into(), trailers)), answer.into_connection())
        }
        Reply::Switched(_) => panic!("it switched"),
    }
}

/// A body of unknown length in these pieces, or one that never ends when there are none.
struct Pieces(Vec<&'static str>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.pop() {
            Some("end") => Poll::Ready(None),
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))),
            None => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[tokio::test]
async fn a_request_is_written_once_and_its_connection_serves_again() {
    let (connection, mut peer) = pair().await;
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("shop.test"));
    headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
    headers.insert("content-length", HeaderValue::from_static("7"));
    headers.insert("x-left-out", HeaderValue::from_static("1"));
    let asked =
        tokio::spawn(async move { ask::<Full<Bytes>>(connection, Method::GET, &headers, None).await });
    let said = heard(&mut peer, "\r\n\r\n").await;
    assert_eq!(
        said,
        "GET /a?b=c HTTP/1.1\r\nhost: shop.test\r\npool-user: alice\r\n\r\n"
    );
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a: 1\r\n\r\nhi")
        .await
        .unwrap();
    let (head, reply) = asked.await.unwrap().unwrap();
    assert_eq!(
        (head.status.as_u16(), head.headers["x-a"].as_bytes()),
        (200, &b"1"[..])
    );
    let (body, connection) = finish(reply).await;
    assert_eq!(&body.unwrap().0[..], b"hi");
    let asked = tokio::spawn(get(connection.unwrap()));
    heard(&mut peer, "\r\n\r\n").await;
    peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert!(finish(asked.await.unwrap().unwrap().1).await.1.is_some());
}

#[rstest]
#[case::length("content-length: 5\r\n\r\nhello", Some("hello"), true)]
#[case::same_length_twice("content-length: 5\r\ncontent-length: 5\r\n\r\nhello", Some("hello"), true)]
#[case::chunks(
    "transfer-encoding: chunked\r\n\r\n2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    Some("hello"),
    true
)]
#[case::asked_to_close("connection: close\r\ncontent-length: 5\r\n\r\nhello", Some("hello"), false)]
#[case::until_the_end("\r\nhello", Some("hello"), false)]
#[case::cut("content-length: 6\r\n\r\nhello", None, false)]
#[case::cut_chunks("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", None, false)]
#[case::bad_size("transfer-encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", None, false)]
#[case::bad_end_of_chunk("transfer-encoding: chunked\r\n\r\n5\r\nhelloX0\r\n\r\n", None, false)]
#[case::huge_size("transfer-encoding: chunked\r\n\r\n11111111111111111\r\nx", None, false)]
#[tokio::test]
async fn an_answer_ends_where_its_head_says(
    #[case] answer: &'static str,
    #[case] body: Option<&str>,
    #[case] is_free: bool,
    #[values(false, true)] bytewise: bool,
) {
    let (connection, mut peer) = pair().await;
    let asked = tokio::spawn(get(connection));
    heard(&mut peer, "\r\n\r\n").await;
    let answering = tokio::spawn(async move {
        let answer = format!("HTTP/1.1 200 OK\r\n{answer}");
        for piece in answer.as_bytes().chunks(if bytewise { 1 } else { answer.len() }) {
            if peer.write_all(piece).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = peer.shutdown().await;
        let _ = peer.read(&mut [0]).await;
    });
    let (got, connection) = finish(asked.await.unwrap().unwrap().1).await;
    assert_eq!(
        got.ok().map(|got| got.0),
        body.map(|body| Bytes::from_static(body.to_owned().leak().as_bytes()))
    );
    assert!(is_free || connection.is_none());
    drop(connection);
    answering.await.unwrap();
}

#[tokio::test]
async fn who_says_more_than_he_was_asked_is_not_asked_again() {
    let (connection, mut peer) = pair().await;
    let asked = tokio::spawn(get(connection));
    heard(&mut peer, "\r\n\r\n").await;
    let two = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n";
    peer.write_all(two).await.unwrap();
    let (body, connection) = finish(asked.await.unwrap().unwrap().1).await;
    assert_eq!(&body.unwrap().0[..], b"hi");
    assert!(connection.is_none());
}

#[rstest]
#[case("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello")]
#[case("HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello")]
#[case("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")]
#[case("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nx")]
#[case("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")]
#[case("ICY 200 OK\r\n\r\n")]
#[case("")]
#[tokio::test]
async fn an_answer_of_doubtful_length_is_none(#[case] answer: &'static str) {
    let (connection, mut peer) = pair().await;
    let asked = tokio::spawn(get(connection));
    heard(&mut peer, "\r\n\r\n").await;
    peer.write_all(answer.as_bytes()).await.unwrap();
    drop(peer);
    assert!(matches!(asked.await.unwrap(), Err(Failed::Broken(_))));
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_has_sent_nothing() {
    let (connection, peer) = pair().await;
    drop(peer);
    soon(async {
        while connection.is_usable() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(get(connection).await, Err(Failed::Unsent(_))));
}

#[tokio::test]
async fn words_before_the_answer_are_passed_over_and_a_head_has_no_body() {
    let (connection, mut peer) = pair().await;
    let asked =
        tokio::spawn(
            async move { ask::<Full<Bytes>>(connection, Method::HEAD, &HeaderMap::new(), None).await },
        );
    heard(&mut peer, "\r\n\r\n").await;
    peer.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
        .await
        .unwrap();
    let (head, reply) = asked.await.unwrap().unwrap();
    assert_eq!(head.headers["content-length"], "9");
    assert!(finish(reply).await.1.is_some());
}

#[tokio::test]
async fn a_body_of_unknown_length_goes_in_chunks_and_a_known_one_under_its_length() {
    let (connection, mut peer) = pair().await;
    let pieces = Pieces(vec!["end", "lo", "hel"]);
    let asked =
        tokio::spawn(async move { ask(connection, Method::POST, &HeaderMap::new(), Some(pieces)).await });
    let said = heard(&mut peer, "0\r\n\r\n").await;
    assert!(
        said.ends_with("transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
        "{said}"
    );
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let connection = finish(asked.await.unwrap().unwrap().1).await.1.unwrap();
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    let asked = tokio::spawn(async move {
        ask(
            connection,
            Method::POST,
            &HeaderMap::new(),
            Some(Full::new(large)),
        )
        .await
    });
    let said = heard(&mut peer, "\r\n\r\n").await;
    assert!(said.ends_with("content-length: 1048576\r\n\r\n"), "{said}");
    let mut body = vec![0; 1 << 20];
    soon(peer.read_exact(&mut body)).await.unwrap();
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    assert!(finish(asked.await.unwrap().unwrap().1).await.1.is_some());
}

#[tokio::test]
async fn an_answer_may_come_before_the_body_is_sent_and_then_closes_the_connection() {
    let (connection, mut peer) = pair().await;
    let endless = Pieces(vec!["hel"]);
    let asked =
        tokio::spawn(async move { ask(connection, Method::POST, &HeaderMap::new(), Some(endless)).await });
    heard(&mut peer, "hel\r\n").await;
    peer.write_all(b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 3\r\n\r\nno\n")
        .await
        .unwrap();
    let (head, reply) = asked.await.unwrap().unwrap();
    assert_eq!(head.status.as_u16(), 413);
    let (body, connection) = finish(reply).await;
    assert_eq!(&body.unwrap().0[..], b"no\n");
    assert!(connection.is_none());
    assert_eq!(soon(peer.read(&mut [0])).await.unwrap(), 0);
}

#[tokio::test]
async fn trailers_arrive_behind_the_last_chunk() {
    let (connection, mut peer) = pair().await;
    let asked = tokio::spawn(get(connection));
    heard(&mut peer, "\r\n\r\n").await;
    peer.write_all(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\ngrpc-status: 0\r\n\r\n",
    )
    .await
    .unwrap();
    let (got, connection) = finish(asked.await.unwrap().unwrap().1).await;
    assert_eq!(got.unwrap().1.unwrap()["grpc-status"], "0");
    assert!(connection.is_some());
}

#[tokio::test]
async fn what_follows_101_is_read_first() {
    let (connection, mut peer) = pair().await;
    let asked = tokio::spawn(get(connection));
    heard(&mut peer, "\r\n\r\n").await;
    peer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\nfirst")
        .await
        .unwrap();
    let Reply::Switched(mut raw) = asked.await.unwrap().unwrap().1 else {
        panic!("it did not switch");
    };
    let mut first = [0; 5];
    soon(raw.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"first");
    raw.write_all(b"up\n").await.unwrap();
    assert_eq!(heard(&mut peer, "\n").await, "up\n");
}
