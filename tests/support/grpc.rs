//! An HTTP/2 server that echoes what it gets, piece by piece, and ends with trailers, as a gRPC service does; and a call of one.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Heads of the calls that came.
#[derive(Clone)]
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    pub(crate) calls: Arc<Mutex<Vec<(Version, String, HeaderMap)>>>,
}

fn status(code: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    trailers.insert("pool-user", HeaderValue::from_static("eve"));
    trailers
}

impl Echo {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let echo = Self {
            address: listener.local_addr().unwrap(),
            calls: Arc::default(),
        };
        let own = echo.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let echo = own.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let (head, body) = request.into_parts();
                    echo.calls
                        .lock()
                        .push((head.version, head.uri.to_string(), head.headers));
                    let pieces = BodyStream::new(body).filter_map(|frame| async move {
                        let data = frame.ok()?.into_data().ok()?;
                        Some(Ok::<_, Infallible>(Frame::data(data)))
                    });
                    let end = futures::stream::once(async { Ok(Frame::trailers(status("0"))) });
                    let body = StreamBody::new(Box::pin(pieces.chain(end)));
                    async move {
                        let response = Response::builder().header("content-type", "application/grpc");
                        Ok::<_, Infallible>(response.body(body).unwrap())
                    }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        echo
    }
}

type Piece = Result<Frame<Bytes>, Infallible>;

/// A call that is open both ways.
pub(crate) struct Call {
    pieces: Option<mpsc::Sender<Piece>>,
    answer: Response<Incoming>,
}

impl Call {
    /// Begins a call at `address`; the service's head has come when this returns.
    pub(crate) async fn begin(address: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let (pieces, body) = mpsc::channel::<Piece>(4);
        let mut request = Request::post("http://shop.test/shop.Service/Call")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(StreamBody::new(ReceiverStream::new(body))).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        Self {
            pieces: Some(pieces),
            answer,
        }
    }

    pub(crate) fn head(&self) -> &Response<Incoming> {
        &self.answer
    }

    /// Sends a piece and waits until it has come back.
    pub(crate) async fn echo(&mut self, text: &'static str) {
        let piece = Frame::data(Bytes::from_static(text.as_bytes()));
        self.pieces.as_ref().unwrap().send(Ok(piece)).await.unwrap();
        let frame = self.answer.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), text);
    }

    /// Ends the call; the trailers.
    pub(crate) async fn end(mut self) -> HeaderMap {
        self.pieces = None;
        loop {
            let frame = self
                .answer
                .body_mut()
                .frame()
                .await
                .expect("trailers come")
                .unwrap();
            if let Ok(trailers) = frame.into_trailers() {
                return trailers;
            }
        }
    }
}
