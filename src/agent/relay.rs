//! The body of an answer on its way to the gateway; it keeps the request open until its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::{DropGuard, WaitForCancellationFutureOwned};

use super::open::StreamEnd;
use super::shared::Shared;
use crate::exchange::{Answer, ExchangeError};
use crate::serving::Inbound;

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

/// The app's body, and the open request.
#[derive(Debug)]
pub(crate) struct AppBody {
    body: Source,
    /// Set for SSE.
    stream: Option<EventStream>,
    guard: OpenGuard,
}

#[derive(Debug)]
enum Source {
    /// Here as a whole.
    Whole(Bytes),
    /// Still arriving, on its connection.
    Arriving(Box<Answer<Inbound>>),
    /// Passed on, or cut.
    Over,
}

/// How an event stream is told to end, and how it says that it did: dropped.
#[derive(Debug)]
struct EventStream {
    told: Pin<Box<WaitForCancellationFutureOwned>>,
    _ended: DropGuard,
}

impl AppBody {
    pub(crate) fn whole(bytes: Bytes, guard: OpenGuard) -> Self {
        Self {
            body: Source::Whole(bytes),
            stream: None,
            guard,
        }
    }

    /// `end` is set for an event stream.
    pub(crate) fn arriving(body: Box<Answer<Inbound>>, end: Option<StreamEnd>, guard: OpenGuard) -> Self {
        Self {
            body: Source::Arriving(body),
            stream: end.map(|end| EventStream {
                told: Box::pin(end.cancel.cancelled_owned()),
                _ended: end.ended.drop_guard(),
            }),
            guard,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        if let Some(stream) = &mut self.stream
            && stream.told.as_mut().poll(cx).is_ready()
        {
            // Dropping the body closes the connection to the app.
            self.body = Source::Over;
            self.stream = None;
        }
        match std::mem::replace(&mut self.body, Source::Over) {
            Source::Over => Poll::Ready(None),
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Source::Arriving(mut body) => {
                let polled = Pin::new(&mut *body).poll_frame(cx);
                let has_ended = matches!(polled, Poll::Ready(None))
                    // With a known length the end is never asked for.
                    || (matches!(polled, Poll::Ready(Some(Ok(_)))) && body.is_end_stream());
                if !has_ended {
                    self.body = Source::Arriving(body);
                } else if let Some(connection) = body.into_connection() {
                    let shared = &self.guard.shared;
                    shared.upstream.give_back(connection, shared.now());
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Whole(bytes) => bytes.is_empty(),
            Source::Arriving(body) => body.is_end_stream(),
            Source::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Arriving(body) => body.size_hint(),
            Source::Over => SizeHint::with_exact(0),
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
    type Error = ExchangeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
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
            Self::App(app) => app.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::App(app) => app.size_hint(),
        }
    }
}
