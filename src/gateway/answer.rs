//! A worker's answer on its way to the client: streamed, clocked at its end, ended early when its stream is moved; it reads no byte.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{ClientId, UserId};
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::access::Line;
use super::body::ForwardBody;
use super::front::Front;
use super::hygiene;
use super::metrics::Outcome;
use super::open::Open;
use super::resident::Resident;
use super::streams::Registered;
use crate::exchange::{Answer, Connection, ExchangeError};

/// What is due when an answer ends, however it ends.
pub(crate) struct Finish {
    pub(crate) front: Arc<Front>,
    pub(crate) open: Open,
    pub(crate) user: Option<Arc<Resident>>,
    /// When the forward began.
    pub(crate) began: Duration,
    /// L3: whom to report as quiet.
    pub(crate) quiet: Option<(UserId, ClientId)>,
    pub(crate) counted: bool,
    /// The line of the access log, written when this is dropped.
    pub(crate) entry: Option<Box<Line>>,
    /// False when the request ends otherwise than with this answer, and its outcome is counted there.
    pub(crate) speaks: bool,
}

impl Finish {
    /// Clocks the forward (U1), once.
    pub(crate) fn count(&mut self, failed: bool) {
        if !self.counted {
            self.count_at(self.front.clock.now(), failed);
        }
    }

    fn count_at(&mut self, now: Duration, failed: bool) {
        if std::mem::replace(&mut self.counted, true) || cfg!(feature = "bare") {
            return;
        }
        let took = now.saturating_sub(self.began);
        self.open.upstream().clock.add(took, failed);
        if let Some(user) = &self.user {
            user.clock.add(took);
        }
        self.front.metrics.forward_seconds.observe(took.as_secs_f64());
        if self.speaks {
            self.front.metrics.ended(if failed {
                Outcome::Broken
            } else {
                Outcome::Answered
            });
        }
    }

    /// The answer ended well: its connection serves again, where there is one that may.
    pub(crate) fn complete(&mut self, connection: Option<Connection>) {
        let now = self.front.clock.now();
        self.count_at(now, false);
        if let Some(connection) = connection {
            self.open.upstream().put_idle(connection, now);
        }
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        // A client that hung up is no failure of the worker.
        self.count(false);
        if let Some(entry) = &mut self.entry {
            entry.took(self.front.clock.now().saturating_sub(self.began));
        }
        if let Some((user, client)) = self.quiet.take() {
            self.front.commander.quiet(&user, client);
        }
    }
}

/// An event stream that may be told to end.
pub(crate) struct Ending {
    told: Pin<Box<WaitForCancellationFutureOwned>>,
    _registered: Registered,
}

impl Ending {
    pub(crate) fn new(registered: Registered) -> Self {
        let told = Box::pin(registered.stream.close.clone().cancelled_owned());
        Self {
            told,
            _registered: registered,
        }
    }
}

/// Body of an answer.
pub(crate) enum AnswerBody {
    /// None.
    Empty,
    /// One that is here as a whole.
    Text(Option<Bytes>),
    /// A worker's.
    Relay(Box<Relay>),
}

/// A worker's body.
pub(crate) struct Relay {
    /// `None` once it ended well.
    pub(crate) body: Option<Box<Answer<ForwardBody>>>,
    pub(crate) finish: Finish,
    pub(crate) ending: Option<Ending>,
}

impl Relay {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        if let Some(ending) = &mut self.ending
            && ending.told.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let mut polled = Pin::new(&mut **body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            hygiene::strip_trailers(trailers);
        }
        if let (Poll::Ready(Some(Ok(frame))), Some(entry)) = (&polled, &mut self.finish.entry) {
            entry.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        match &polled {
            Poll::Ready(None) => self.complete(),
            // With a known length the end is never asked for.
            Poll::Ready(Some(Ok(_))) if body.is_end_stream() => self.complete(),
            Poll::Ready(Some(Err(_))) => self.finish.count(true),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn complete(&mut self) {
        let connection = self.body.take().and_then(|body| body.into_connection());
        self.finish.complete(connection);
    }
}

impl AnswerBody {
    pub(crate) fn whole(body: Bytes) -> Self {
        if body.is_empty() {
            return Self::Empty;
        }
        Self::Text(Some(body))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Relay(relay) => relay.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Text(text) => text.is_none(),
            Self::Relay(relay) => relay.body.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Text(text) => SizeHint::with_exact(
                text.as_ref()
                    .map_or(0, |text| u64::try_from(text.len()).unwrap_or(0)),
            ),
            Self::Relay(relay) => relay
                .body
                .as_ref()
                .map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
        }
    }
}
