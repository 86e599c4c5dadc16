//! The gateway's listening side: accepts clients, runs HTTP on their connections, and lets them finish at the end; it knows no users.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::forwarded::Peer;
use super::front::Front;
use super::serve::serve;
use crate::net::{TcpListener, TcpStream};
use crate::patience::{Patience, patrol};
use crate::prefixed::Prefixed;
use crate::serving::{self, End, Inbound};
use crate::wire::{Framing, Wire};

/// Bytes of a request's head; more is answered with 431.
const HEAD_BYTES: usize = 32 * 1024;
/// Headers of a request; more are answered with 431.
const HEADERS_MAX: usize = 100;
const H2_STREAMS: u32 = 128;
const H2_KEEPALIVE: Duration = Duration::from_secs(20);
/// After a failed accept, such as when file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until `closed`, each connection a task of `connections` that ends after its open requests once `finish`
/// is cancelled.
pub(crate) async fn accept(
    front: Arc<Front>,
    listener: TcpListener,
    most: usize,
    connections: TaskTracker,
    closed: CancellationToken,
) {
    let builder = Arc::new(builder(front.limits.head_timeout));
    loop {
        let accepted = tokio::select! {
            () = closed.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if connections.len() >= most {
            front.metrics.connections_refused.inc();
            continue;
        }
        let (front, builder, closed) = (Arc::clone(&front), Arc::clone(&builder), closed.clone());
        // A refusal is only a lost optimisation.
        let _ = stream.set_nodelay(true);
        let peer = Peer::new(peer.ip(), &front.trusted, front.tls.is_some());
        if front.tls.is_some() {
            connections.spawn(secured(front, builder, stream, peer, closed));
        } else {
            connections.spawn(connection(front, builder, stream, peer, closed));
        }
    }
}

fn builder(head_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(Patience)
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS)
        // WebSocket over HTTP/2 (RFC 8441).
        .enable_connect_protocol()
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(H2_KEEPALIVE);
    builder
}

/// A connection whose client has yet to agree on TLS.
async fn secured(
    front: Arc<Front>,
    builder: Arc<auto::Builder<TokioExecutor>>,
    stream: TcpStream,
    peer: Peer,
    finish: CancellationToken,
) {
    let Some(tls) = &front.tls else { return };
    match finish.run_until_cancelled(tls.handshake(stream)).await {
        Some(Ok(stream)) => connection(Arc::clone(&front), builder, stream, peer, finish).await,
        Some(Err(error)) => {
            front.metrics.handshakes_failed.inc();
            tracing::debug!(error = &error as &dyn std::error::Error, "client connection");
        }
        None => {}
    }
}

async fn connection(
    front: Arc<Front>,
    builder: Arc<auto::Builder<TokioExecutor>>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    finish: CancellationToken,
) {
    let peer = Arc::new(peer);
    front.metrics.connections.inc();
    let limits = serving::Limits {
        head_bytes: HEAD_BYTES,
        head_timeout: front.limits.head_timeout,
        dates: true,
    };
    let handler = |request| serve(Arc::clone(&front), &peer, Framing::Plain, request);
    match serving::serve(stream, limits, finish.clone(), handler).await {
        End::Over => {}
        End::Late => front.metrics.connections_failed.inc(),
        End::Unusual(stream) => {
            // Few connections come here; the others are spared the room.
            Box::pin(unusual(&front, &builder, stream, &peer, finish)).await;
        }
    }
    front.metrics.connections.dec();
}

/// Leaves a connection to hyper.
async fn unusual(
    front: &Arc<Front>,
    builder: &auto::Builder<TokioExecutor>,
    stream: Prefixed<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
    peer: &Arc<Peer>,
    finish: CancellationToken,
) {
    let (stream, watch) = Wire::new(stream);
    let (seen, shared, peer) = (Arc::clone(&watch), Arc::clone(front), Arc::clone(peer));
    let service = service_fn(move |request: Request<Incoming>| {
        let (front, peer, framing) = (Arc::clone(&shared), Arc::clone(&peer), seen.framing(&request));
        if request.headers().contains_key(http::header::UPGRADE) {
            seen.becomes_tunnel();
        }
        async move { Ok::<_, Infallible>(serve(front, &peer, framing, request.map(Inbound::from)).await) }
    });
    let mut connection =
        std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let head_timeout = front.limits.head_timeout;
    let (mut patrol, mut finishes) = (patrol(head_timeout), false);
    let mut silent = std::pin::pin!(watch.silent(head_timeout));
    let ended = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            _ = patrol.tick() => {}
            () = silent.as_mut(), if !finishes => {
                watch.gave_up();
                front.metrics.connections_failed.inc();
                break Ok(());
            }
            () = finish.cancelled(), if !finishes => {
                connection.as_mut().graceful_shutdown();
                finishes = true;
            }
        }
    };
    if let Err(error) = ended {
        let error = error.as_ref();
        match error.downcast_ref::<hyper::Error>() {
            Some(error) if error.is_timeout() => {
                watch.gave_up();
                front.metrics.connections_failed.inc();
            }
            Some(error) if error.is_parse() => front.metrics.connections_failed.inc(),
            _ => {}
        }
        tracing::debug!(error, "client connection");
    }
}
