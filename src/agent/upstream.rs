//! Connections to the app: an own pool of HTTP/1.1 senders, latest used first; it knows no users.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::http_client::{self, CallError};

/// An idle connection is not used after this time: below the keep-alive timeouts of the usual app servers (5 s).
const IDLE: Duration = Duration::from_secs(3);
const MAX_IDLE: usize = 64;

/// One connection to the app.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Incoming>,
    /// Cancelled when the connection is gone.
    pub(crate) closed: CancellationToken,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Duration,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Upstream {
    app: SocketAddr,
    idle: Mutex<VecDeque<Idle>>,
}

/// The app did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// Nothing was sent.
    #[error("connect to the app")]
    Unsent(#[source] CallError),
    /// The app broke off; it may have executed the request.
    #[error("the app broke off")]
    Broken(#[source] hyper::Error),
}

impl Upstream {
    pub(crate) fn new(app: SocketAddr) -> Self {
        Self {
            app,
            idle: Mutex::new(VecDeque::new()),
        }
    }

    pub(crate) fn app(&self) -> SocketAddr {
        self.app
    }

    /// The latest used connection that is ready; older ones stay for their time.
    fn take(&self, now: Duration) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            let entry = &idle[at];
            if entry.connection.sender.is_closed() || now.saturating_sub(entry.since) >= IDLE {
                idle.remove(at);
            } else if entry.connection.sender.is_ready() {
                return idle.remove(at).map(|entry| entry.connection);
            }
        }
        None
    }

    /// A connection whose answer was read to its end.
    pub(crate) fn give_back(&self, connection: Connection, now: Duration) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_IDLE {
            idle.pop_front();
        }
        idle.push_back(Idle {
            connection,
            since: now,
        });
    }

    /// Closes what has been idle for long.
    pub(crate) fn sweep(&self, now: Duration) {
        self.idle
            .lock()
            .retain(|idle| !idle.connection.sender.is_closed() && now.saturating_sub(idle.since) < IDLE);
    }

    async fn open(&self) -> Result<Connection, UpstreamError> {
        let stream = http_client::connect(self.app)
            .await
            .map_err(UpstreamError::Unsent)?;
        let (sender, connection) = Builder::new()
            .max_buf_size(64 << 10)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(UpstreamError::Broken)?;
        let closed = CancellationToken::new();
        let gone = closed.clone().drop_guard();
        tokio::spawn(async move {
            // How it ended is seen by whoever waits for an answer.
            let _ = connection.with_upgrades().await;
            drop(gone);
        });
        Ok(Connection { sender, closed })
    }

    /// Sends a request; on a kept connection that turned out closed before anything was sent, once more on a new one.
    pub(crate) async fn send(
        &self,
        request: Request<Incoming>,
        now: Duration,
    ) -> Result<(Response<Incoming>, Connection), UpstreamError> {
        let mut request = request;
        if let Some(mut connection) = self.take(now) {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(UpstreamError::Broken(error.into_error())),
                },
            }
        }
        let mut connection = self.open().await?;
        match connection.sender.try_send_request(request).await {
            Ok(response) => Ok((response, connection)),
            Err(error) => Err(UpstreamError::Broken(error.into_error())),
        }
    }
}
