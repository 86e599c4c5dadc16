//! The agent's listening side towards gateways: accepts, and runs HTTP on their connections; it knows no users.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;

use super::forward::serve;
use super::shared::Shared;
use crate::aside::Aside;
use crate::net::{TcpListener, TcpStream};
use crate::patience::{Patience, patrol};
use crate::prefixed::Prefixed;
use crate::serving::{self, End, Inbound};
use crate::wire::{Framing, Wire};

/// How long a request may take to send its head.
const HEAD: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 64 << 10;
/// Bytes of a body that an HTTP/2 stream may send unasked.
const FIRST_WINDOW: u32 = 64 << 10;
/// After a failed accept (no more files): the clients that hold them get time to leave.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts gateways until stopped.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop.clone(), move |stream| {
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move { connection(shared, stream, stop).await });
    })
    .await;
}

/// Hands accepted connections on until stopped.
pub(crate) async fn accept(listener: TcpListener, stop: CancellationToken, serve: impl Fn(TcpStream)) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                serve(stream);
            }
            Err(error) => {
                tracing::debug!(%error, "accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, stop: CancellationToken) {
    let limits = serving::Limits {
        head_bytes: HEAD_BYTES,
        head_timeout: HEAD,
        // The gateway says it where the app does not.
        dates: false,
    };
    // Whatever is under way is cut when the agent stops.
    let serving = serving::serve(stream, limits, CancellationToken::new(), |request| {
        serve(Arc::clone(&shared), Framing::Plain, request)
    });
    let mut serving = pin!(serving);
    let mut stopped = Box::pin(stop.clone().cancelled_owned());
    let mut stopped = Aside::new(move |cx| stopped.as_mut().poll(cx));
    let ended = poll_fn(|cx| match serving.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => stopped.poll(cx).map(|()| None),
    });
    if let Some(End::Unusual(stream)) = ended.await {
        // Few connections come here; the others are spared the room.
        Box::pin(unusual(Arc::clone(&shared), stream, stop)).await;
    }
}

/// Leaves a connection to hyper.
async fn unusual(shared: Arc<Shared>, stream: Prefixed<TcpStream>, stop: CancellationToken) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(Patience)
        .auto_date_header(false)
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        // V8: what comes before the fence has decided fits into the first window; it opens as the app reads.
        .initial_stream_window_size(FIRST_WINDOW)
        .max_concurrent_streams(1024);
    let (stream, watch) = Wire::new(stream);
    let seen = Arc::clone(&watch);
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, framing) = (Arc::clone(&shared), seen.framing(&request));
        if request.headers().contains_key(UPGRADE) {
            seen.becomes_tunnel();
        }
        async move { Ok::<_, Infallible>(serve(shared, framing, request.map(Inbound::from)).await) }
    });
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let mut patrol = patrol(HEAD);
    let silent = watch.silent(HEAD);
    tokio::pin!(silent);
    loop {
        tokio::select! {
            biased;
            // A broken connection is the gateway's to notice.
            _ = &mut serving => return,
            _ = patrol.tick() => {}
            () = &mut silent => return,
            () = stop.cancelled() => return,
        }
    }
}
