use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;

use super::*;

const LIMITS: Limits = Limits {
    head_bytes: 1024,
    head_timeout: Duration::from_mins(1),
    dates: false,
};

/// Says what it was asked.
async fn echo(request: Request<Inbound>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let lines: Vec<String> = head
        .headers
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let text = format!(
        "{} {} [{}] {}",
        head.method,
        head.uri,
        lines.join(" "),
        String::from_utf8_lossy(&body)
    );
    Response::new(Full::from(text))
}

/// Sends `pieces` one after the other, then ends; returns what was answered, how it ended, and what was left over.
async fn told(pieces: &[&str]) -> (String, &'static str, String) {
    let (mut client, server) = duplex(1 << 16);
    let serving = tokio::spawn(serve(server, LIMITS, CancellationToken::new(), echo));
    for piece in pieces {
        client.write_all(piece.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    let end = tokio::spawn(async move {
        match serving.await.unwrap() {
            End::Over => ("over", String::new()),
            End::Late => ("late", String::new()),
            End::Unusual(mut stream) => {
                let mut left = vec![0; 4096];
                let count = stream.read(&mut left).await.unwrap();
                left.truncate(count);
                ("unusual", String::from_utf8(left).unwrap())
            }
        }
    });
    // Its own end is not seen before all was answered.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    let (end, left) = end.await.unwrap();
    (text, end, left)
}

fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn requests_are_answered_in_order_however_their_bytes_are_cut() {
    let both = answer("GET /a?b [host=x cookie=1; 2] ") + &answer("POST /c [content-length=3 host=x] abc");
    let text = "GET /a?b HTTP/1.1\r\nHost: x\r\nCookie: 1; 2\r\n\r\n";
    let more = "POST /c HTTP/1.1\r\nContent-Length: 3\r\nHost: x\r\n\r\nabc";
    let whole = format!("{text}{more}");
    assert_eq!(told(&[&whole]).await, (both.clone(), "over", String::new()));
    assert_eq!(told(&[text, more]).await, (both.clone(), "over", String::new()));
    for at in 1..text.len() {
        let (text, rest) = text.split_at(at);
        assert_eq!(told(&[text, rest, more]).await.0, both, "{at}");
    }
}

#[rstest]
#[case("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")]
#[case("GET / HTTP/1.0\r\nHost: x\r\n\r\n")]
#[case("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")]
#[case("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")]
#[case("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n")]
#[case("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")]
#[case("GET / HTTP/1.1\r\nHost : x\r\n\r\n")]
#[case("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")]
#[case("GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")]
#[case("GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\na")]
#[case("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")]
#[tokio::test]
async fn what_is_unusual_is_left_as_it_came(#[case] raw: &str) {
    let before = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let (text, end, left) = told(&[before, raw]).await;
    assert_eq!((text, end), (answer("GET / [host=x] "), "unusual"));
    assert_eq!(left, raw);
}

#[tokio::test]
async fn a_head_that_grows_beyond_its_bound_is_left() {
    let raw = format!("GET / HTTP/1.1\r\nHost: {}", "x".repeat(1100));
    assert_eq!(told(&[&raw]).await.1, "unusual");
}

#[tokio::test]
async fn half_a_head_is_answered_with_408_and_silence_with_nothing() {
    let limits = Limits {
        head_timeout: Duration::from_millis(20),
        ..LIMITS
    };
    for (sent, said) in [("GET / HT", "HTTP/1.1 408 "), ("", "")] {
        let (mut client, server) = duplex(4096);
        let serving = tokio::spawn(serve(server, limits, CancellationToken::new(), echo));
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(
            text.starts_with(said) && text.is_empty() == said.is_empty(),
            "{text}"
        );
        let end = serving.await.unwrap();
        assert_eq!(matches!(end, End::Late), !sent.is_empty());
    }
}

#[tokio::test]
async fn the_last_request_of_a_connection_that_finishes_is_still_answered() {
    let (mut client, server) = duplex(4096);
    let (finish, asked) = (CancellationToken::new(), Arc::new(Notify::new()));
    let (token, told) = (finish.clone(), Arc::clone(&asked));
    let serving = tokio::spawn(serve(server, LIMITS, finish, move |request| {
        let (token, told) = (token.clone(), Arc::clone(&told));
        async move {
            token.cancel();
            told.notify_one();
            echo(request).await
        }
    }));
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    asked.notified().await;
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("GET / [] "), "{text}");
    assert!(matches!(serving.await.unwrap(), End::Over));
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut client, server) = duplex(4096);
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ended);
    let serving = tokio::spawn(serve(server, LIMITS, CancellationToken::new(), move |_| {
        let guard = Counted(Arc::clone(&counted));
        async move {
            std::future::pending::<()>().await;
            drop(guard);
            Response::new(Full::<Bytes>::default())
        }
    }));
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(ended.load(Ordering::Relaxed), 0);
    drop(client);
    assert!(matches!(serving.await.unwrap(), End::Over));
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

async fn only<B>(response: impl Fn() -> Response<B> + Send + Sync + 'static) -> String
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut client, server): (DuplexStream, DuplexStream) = duplex(1 << 17);
    let serving = tokio::spawn(serve(server, LIMITS, CancellationToken::new(), move |_| {
        let response = response();
        async move { response }
    }));
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    serving.await.unwrap();
    text
}

#[tokio::test]
async fn an_answer_is_framed_by_what_is_known_of_its_body_and_status() {
    type Piece = Result<http_body::Frame<Bytes>, std::convert::Infallible>;
    let streamed = only(|| {
        let frames: [Piece; 3] = [
            Ok(http_body::Frame::data(Bytes::from_static(b"abc"))),
            Ok(http_body::Frame::data(Bytes::from(vec![b'x'; 5000]))),
            Ok(http_body::Frame::trailers(HeaderMap::new())),
        ];
        Response::new(StreamBody::new(futures::stream::iter(frames)))
    });
    let long = "x".repeat(5000);
    let chunks = format!("3\r\nabc\r\n1388\r\n{long}\r\n0\r\n\r\n");
    assert_eq!(
        streamed.await,
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")
    );
    let with = |status: StatusCode, length: &'static str| {
        only(move || {
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert("content-length", HeaderValue::from_static(length));
            response
        })
    };
    assert_eq!(
        with(StatusCode::NOT_MODIFIED, "7").await,
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n"
    );
    assert_eq!(
        with(StatusCode::NO_CONTENT, "0").await,
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    assert_eq!(
        with(StatusCode::OK, "0").await,
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    );
    let closing = only(|| {
        let mut response = Response::new(Full::from("a"));
        response
            .headers_mut()
            .insert("connection", HeaderValue::from_static("close"));
        response
    });
    assert_eq!(
        closing.await,
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na"
    );
}
