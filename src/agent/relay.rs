//! The body of an answer on its way to the gateway; it keeps the request open until its end and gives the connection back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::shared::Shared;
use super::upstream::Connection;

/// An entry of the dictionary of open requests; dropped, it is closed.
#[derive(Debug)]
pub(crate) struct OpenGuard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: u64,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let now = self.shared.now();
        {
            let mut inner = self.shared.lock();
            let Some(open) = inner.open.remove(self.id) else {
                return;
            };
            let user = open.user.or_else(|| {
                open.client
                    .and_then(|client| inner.fence.user_of(&client).cloned())
            });
            if let Some(record) = user.and_then(|user| inner.fence.get_mut(&user)) {
                record.touch(now);
            }
        }
        self.shared.changed.notify_waiters();
    }
}

/// An answer's body.
#[derive(Debug)]
pub(crate) enum RelayBody {
    /// Of the agent itself.
    Own(Option<Bytes>),
    /// Of the app.
    App(Box<AppBody>),
}

/// The app's body, its connection, and the open request.
#[derive(Debug)]
pub(crate) struct AppBody {
    body: Option<Incoming>,
    connection: Option<Connection>,
    /// Set for SSE: cancelled when the stream is to end.
    cancel: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    guard: OpenGuard,
    finished: bool,
}

impl AppBody {
    pub(crate) fn new(
        body: Incoming,
        connection: Connection,
        cancel: Option<CancellationToken>,
        guard: OpenGuard,
    ) -> Self {
        let cancel = cancel.map(|token| Box::pin(token.cancelled_owned()));
        Self {
            body: Some(body),
            connection: Some(connection),
            cancel,
            guard,
            finished: false,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(cancel) = &mut self.cancel
            && cancel.as_mut().poll(cx).is_ready()
        {
            // Dropping both closes the connection to the app.
            (self.body, self.connection, self.cancel) = (None, None, None);
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
        self.finished |= frame.is_none();
        Poll::Ready(frame)
    }
}

impl Drop for AppBody {
    fn drop(&mut self) {
        let ended = self.finished || self.body.as_ref().is_some_and(Body::is_end_stream);
        if let (true, Some(connection)) = (ended, self.connection.take()) {
            let shared = &self.guard.shared;
            shared.upstream.give_back(connection, shared.now());
        }
    }
}

impl RelayBody {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Own(Some(text.into()))
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Own(bytes) => {
                Poll::Ready(bytes.take().filter(|b| !b.is_empty()).map(|b| Ok(Frame::data(b))))
            }
            Self::App(app) => app.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::App(app) => app.body.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::App(app) => app
                .body
                .as_ref()
                .map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
        }
    }
}
