//! Connections to the app: an own pool of HTTP/1.1 senders, latest used first; it knows no users.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use http::{request, response};
use http_body::Body as _;
use parking_lot::Mutex;

use super::headers;
use crate::exchange::{Connection, ExchangeError, Failed, Multiplexed, Reply, Request};
use crate::serving::Inbound;

/// An idle connection is not used after this time: below the keep-alive timeouts of the usual app servers (5 s).
const IDLE: Duration = Duration::from_secs(3);
const MAX_IDLE: usize = 64;
/// The app is in the same pod.
const CONNECT: Duration = Duration::from_secs(1);

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
    /// Set when the app speaks HTTP/2.
    multiplexed: Option<Multiplexed<Inbound>>,
}

/// The app did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The app takes no connection.
    #[error("connect to the app")]
    Connect(#[source] std::io::Error),
    /// Nothing was sent.
    #[error("send to the app")]
    Unsent(#[source] ExchangeError),
    /// The app broke off; it may have executed the request.
    #[error("the app broke off")]
    Broken(#[source] ExchangeError),
}

impl From<Failed> for UpstreamError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Unsent(error) => Self::Unsent(error),
            Failed::Broken(error) => Self::Broken(error),
        }
    }
}

impl Upstream {
    /// `h2c`: the app speaks HTTP/2 without TLS, by prior knowledge.
    pub(crate) fn new(app: SocketAddr, h2c: bool) -> Self {
        Self {
            app,
            idle: Mutex::new(VecDeque::new()),
            multiplexed: h2c.then(|| Multiplexed::new(app)),
        }
    }

    pub(crate) fn app(&self) -> SocketAddr {
        self.app
    }

    /// The latest used connection that is still good; older ones stay for their time.
    fn take(&self, now: Duration) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(Idle { connection, since }) = idle.pop_back() {
            if now.saturating_sub(since) >= IDLE {
                idle.clear();
                return None;
            }
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// A connection whose answer was read to its end.
    pub(crate) fn give_back(&self, connection: Connection, now: Duration) {
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
            .retain(|idle| now.saturating_sub(idle.since) < IDLE && idle.connection.is_usable());
    }

    async fn open(&self) -> Result<Connection, UpstreamError> {
        let opened = tokio::time::timeout(CONNECT, Connection::open(self.app)).await;
        opened
            .map_err(std::io::Error::from)
            .and_then(|opened| opened)
            .map_err(UpstreamError::Connect)
    }

    /// Sends a request; on a kept connection that turned out closed before anything was sent, once more on a new one.
    pub(crate) async fn send(
        &self,
        head: &request::Parts,
        more: &[(&'static str, &[u8])],
        body: Inbound,
        now: Duration,
    ) -> Result<(response::Parts, Reply<Inbound>), UpstreamError> {
        let request = Request {
            method: &head.method,
            target: &head.uri,
            headers: &head.headers,
            leaves_out: if head.headers.contains_key(headers::EXPECTS) {
                headers::is_pool
            } else {
                headers::is_for_us
            },
            more,
            waits: false,
        };
        let body = (!body.is_end_stream()).then_some(body);
        if let Some(shared) = &self.multiplexed {
            return shared.exchange(request, body).await.map_err(UpstreamError::from);
        }
        let is_empty = body.is_none();
        let kept = self.take(now);
        let is_kept = kept.is_some();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let failed = match connection.exchange(request, body).await {
            Ok(answered) => return Ok(answered),
            // A body may have been read in part.
            Err(Failed::Unsent(_)) if is_kept && is_empty => {
                let connection = self.open().await?;
                match connection.exchange(request, None).await {
                    Ok(answered) => return Ok(answered),
                    Err(failed) => failed,
                }
            }
            Err(failed) => failed,
        };
        Err(failed.into())
    }
}
