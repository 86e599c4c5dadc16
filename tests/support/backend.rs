//! A worker's agent as a gateway sees it: a small HTTP server that records what arrives and answers what a test says.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) type Body = BoxBody<Bytes, Infallible>;
type Reply = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Script = Arc<dyn Fn(Recorded) -> Reply + Send + Sync>;

/// One request as it arrived, its body read to the end.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<Recorded>>>,
    arrived: watch::Sender<usize>,
    connections: Arc<AtomicUsize>,
}

pub(crate) fn text(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).boxed())
}

impl Backend {
    /// Answers with what `script` makes of each request.
    pub(crate) async fn start<F>(script: impl Fn(Recorded) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let script: Script = Arc::new(move |request| Box::pin(script(request)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap().to_string(),
            requests: Arc::default(),
            arrived: watch::Sender::new(0),
            connections: Arc::default(),
        };
        let own = backend.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                own.connections.fetch_add(1, Ordering::Relaxed);
                let (backend, script) = (own.clone(), Arc::clone(&script));
                let service =
                    service_fn(move |request| handle(backend.clone(), Arc::clone(&script), request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                tokio::spawn(connection);
            }
        });
        backend
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().clone()
    }

    pub(crate) fn last(&self) -> Recorded {
        self.requests.lock().last().cloned().expect("nothing arrived")
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn arrived(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        tokio::time::timeout(Duration::from_secs(20), arrived.wait_for(|now| *now >= count))
            .await
            .expect("requests did not arrive in time")
            .unwrap();
    }
}

async fn handle(
    backend: Backend,
    script: Script,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    let upgrade = request
        .headers()
        .contains_key("upgrade")
        .then(|| hyper::upgrade::on(&mut request));
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let recorded = Recorded {
        path: head.uri.to_string(),
        headers: head.headers,
        body,
    };
    backend.requests.lock().push(recorded.clone());
    backend.arrived.send_modify(|count| *count += 1);
    if recorded.path == "/break" {
        return Err(std::io::Error::other("breaks off"));
    }
    if let Some(upgrade) = upgrade {
        let key = recorded.headers["sec-websocket-key"].as_bytes();
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key);
        tokio::spawn(echo(upgrade));
        let response = Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", accept);
        return Ok(response.body(Full::default().boxed()).unwrap());
    }
    Ok(script(recorded).await)
}

async fn echo(upgrade: hyper::upgrade::OnUpgrade) {
    use futures::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    let Ok(upgraded) = upgrade.await else { return };
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() || socket.send(message).await.is_err() {
            return;
        }
    }
}
