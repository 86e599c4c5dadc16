//! One HTTP call over a connection of its own, with bounds on time and size; it retries nothing.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::net::{TcpStream, ToSocketAddrs};

/// Longest wait for a connection; all peers are in the pod or in the cluster.
const CONNECT: Duration = Duration::from_secs(1);

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

/// Connects to a peer, within [`CONNECT`].
pub(crate) async fn connect(address: impl ToSocketAddrs) -> Result<TcpStream, CallError> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    let stream = stream
        .map_err(|_| CallError::Timeout)?
        .map_err(CallError::Connect)?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Sends one request; the answer's head within `limit`.
pub(crate) async fn send<B>(
    address: impl ToSocketAddrs,
    request: Request<B>,
    limit: Duration,
) -> Result<Response<Incoming>, CallError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let exchange = async {
        let io = TokioIo::new(connect(address).await?);
        let (mut sender, connection) = http1::handshake(io).await.map_err(CallError::Exchange)?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(CallError::Exchange)
    };
    tokio::time::timeout(limit, exchange)
        .await
        .map_err(|_| CallError::Timeout)?
}

/// Reads a body of at most `max` bytes within `limit`.
pub(crate) async fn read<B>(mut body: B, max: u64, limit: Duration) -> Result<Bytes, CallError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    if body.size_hint().lower() > max {
        return Err(CallError::TooLarge(max));
    }
    let reading = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(CallError::Exchange)?.into_data() else {
                continue;
            };
            if (bytes.len() + data.len()) as u64 > max {
                return Err(CallError::TooLarge(max));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(limit, reading)
        .await
        .map_err(|_| CallError::Timeout)?
}
