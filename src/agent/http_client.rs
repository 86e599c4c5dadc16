//! HTTP calls to the app and to other agents over connections that are kept a little while, with bounds on time and size.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::net::{TcpStream, ToSocketAddrs};

/// Longest wait for a connection; all peers are in the pod or in the cluster.
const CONNECT: Duration = Duration::from_secs(1);
/// An unused connection is kept this long: over the calls of one move, and well below what servers allow.
const KEPT: Duration = Duration::from_secs(1);
/// Unused connections of one peer.
const MOST_KEPT: usize = 16;

/// What failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("connect")]
    Connect(#[source] std::io::Error),
    #[error("exchange")]
    Exchange(#[source] hyper::Error),
    #[error("the answer is longer than {0} bytes")]
    TooLarge(u64),
    #[error("no answer in time")]
    Timeout,
}

type Unsendable = Box<dyn std::error::Error + Send + Sync>;
type Sender = SendRequest<UnsyncBoxBody<Bytes, Unsendable>>;

/// The body of a call.
pub(crate) enum Payload {
    /// Here as a whole, often empty: it can be sent once more.
    Whole(Bytes),
    /// Arriving; it goes out over a new connection, so that no peer that just closed an old one loses it.
    Stream(UnsyncBoxBody<Bytes, Unsendable>),
}

impl Payload {
    /// A body that arrives while it is sent.
    pub(crate) fn stream<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Unsendable>,
    {
        Self::Stream(body.map_err(Into::into).boxed_unsync())
    }
}

/// Connects to a peer, within [`CONNECT`].
pub(crate) async fn connect(address: impl ToSocketAddrs) -> Result<TcpStream, CallError> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let stream = stream
        .map_err(|_| CallError::Timeout)?
        .map_err(CallError::Connect)?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Connections by peer, each with the time of its last call.
#[derive(Debug)]
pub(crate) struct Connections {
    clock: Clock,
    kept: Mutex<HashMap<String, Vec<(Sender, Duration)>>>,
}

impl Connections {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            kept: Mutex::default(),
        }
    }

    /// Sends one request to `host:port`; the answer's head within `limit`. Every call says by its path which move or
    /// message it is about, so one that a closing connection swallowed is sent once more.
    pub(crate) async fn send(
        &self,
        address: &str,
        request: Request<()>,
        payload: Payload,
        limit: Duration,
    ) -> Result<Response<Incoming>, CallError> {
        tokio::time::timeout(limit, self.exchange(address, request, payload))
            .await
            .map_err(|_| CallError::Timeout)?
    }

    async fn exchange(
        &self,
        address: &str,
        request: Request<()>,
        payload: Payload,
    ) -> Result<Response<Incoming>, CallError> {
        let (head, ()) = request.into_parts();
        let body = match payload {
            Payload::Stream(body) => body,
            Payload::Whole(bytes) => {
                if let Some(sender) = self.take(address) {
                    let again = Request::from_parts(head.clone(), whole(bytes.clone()));
                    if let Ok(response) = self.exchange_over(sender, address, again).await {
                        return Ok(response);
                    }
                }
                whole(bytes)
            }
        };
        let io = TokioIo::new(connect(address).await?);
        let (sender, connection) = http1::handshake(io).await.map_err(CallError::Exchange)?;
        tokio::spawn(connection);
        self.exchange_over(sender, address, Request::from_parts(head, body))
            .await
    }

    /// The connection is ready for another call once this answer's body is read, or dropped whole.
    async fn exchange_over(
        &self,
        mut sender: Sender,
        address: &str,
        request: Request<UnsyncBoxBody<Bytes, Unsendable>>,
    ) -> Result<Response<Incoming>, CallError> {
        let response = sender.send_request(request).await.map_err(CallError::Exchange)?;
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        let of_peer = kept.entry(address.to_owned()).or_default();
        if of_peer.len() < MOST_KEPT {
            of_peer.push((sender, now));
        }
        Ok(response)
    }

    /// A connection to this peer that can take a request now; what is too old or closed goes.
    fn take(&self, address: &str) -> Option<Sender> {
        let now = self.clock.now();
        let mut kept = self.kept.lock();
        kept.retain(|_, of_peer| {
            of_peer.retain(|(sender, used)| !sender.is_closed() && now.saturating_sub(*used) < KEPT);
            !of_peer.is_empty()
        });
        let of_peer = kept.get_mut(address)?;
        let ready = of_peer.iter().rposition(|(sender, _)| sender.is_ready())?;
        Some(of_peer.swap_remove(ready).0)
    }
}

fn whole(bytes: Bytes) -> UnsyncBoxBody<Bytes, Unsendable> {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Reads a body of at most `max` bytes within `limit`.
pub(crate) async fn read<B>(body: B, max: u64, limit: Duration) -> Result<Bytes, CallError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    read_with(body, max, limit, |_| {}).await
}

/// As [`read`]; `look` sees each piece as it comes.
pub(crate) async fn read_with<B>(
    mut body: B,
    max: u64,
    limit: Duration,
    mut look: impl FnMut(&[u8]),
) -> Result<Bytes, CallError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let announced = body.size_hint().lower();
    if announced > max {
        return Err(CallError::TooLarge(max));
    }
    let reading = async {
        let mut first = Bytes::new();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(CallError::Exchange)?.into_data() else {
                continue;
            };
            if (first.len() + bytes.len() + data.len()) as u64 > max {
                return Err(CallError::TooLarge(max));
            }
            look(&data);
            if bytes.is_empty() && first.is_empty() {
                // Most answers are one piece, which is then not copied.
                first = data;
                continue;
            }
            if bytes.is_empty() {
                // Grown once: the announced length is at most `max`.
                bytes.reserve(usize::try_from(announced).unwrap_or_default());
                bytes.extend_from_slice(&std::mem::take(&mut first));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(if first.is_empty() { bytes.freeze() } else { first })
    };
    tokio::time::timeout(limit, reading)
        .await
        .map_err(|_| CallError::Timeout)?
}
