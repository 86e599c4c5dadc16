//! Request bodies on their way to a worker: streamed, and kept up to a bound in case the worker refuses; it sends nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

use super::front::Limits;
use super::hygiene;
use super::metrics::Outcome;
use crate::serving::Inbound;

/// Bytes of a body that are kept for a second attempt; a longer body is sent once only.
pub(crate) const REPLAY_MAX: usize = 64 * 1024;

struct State {
    rest: Inbound,
    kept: Vec<Bytes>,
    bytes: usize,
    lost: bool,
    /// Attempt that may read; an older one's reader gets an error.
    attempt: u32,
    /// Bytes that may still come.
    allowed: u64,
    /// Until when the next piece must come, while one is waited for.
    patience: Option<Pin<Box<Sleep>>>,
    /// What the client did wrong, if it did.
    fault: Option<Outcome>,
}

/// A client's request body, read by one attempt at a time.
pub(crate) struct Replay {
    state: Mutex<State>,
    ended: AtomicBool,
    size: SizeHint,
    timeout: Duration,
}

/// The body of one attempt: the client's from its beginning.
pub(crate) struct ForwardBody {
    /// Shared with later attempts.
    source: Arc<Replay>,
    /// This attempt's number.
    attempt: u32,
    /// Kept pieces already passed on.
    position: usize,
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the client broke off")]
    Client(#[source] hyper::Error),
    #[error("a later attempt took the body over")]
    TakenOver,
    #[error("the client sent more than is taken")]
    TooLarge,
    #[error("the client sent nothing for too long")]
    Stalled,
}

impl Replay {
    pub(crate) fn new(body: Inbound, limits: &Limits) -> Arc<Self> {
        let size = body.size_hint();
        let state = State {
            rest: body,
            kept: Vec::new(),
            bytes: 0,
            lost: false,
            attempt: 0,
            allowed: limits.max_body.unwrap_or(u64::MAX),
            patience: None,
            fault: None,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            ended: AtomicBool::new(false),
            size,
            timeout: limits.body_timeout,
        })
    }

    /// Bytes of the whole body, where that was said.
    pub(crate) fn length(&self) -> Option<u64> {
        self.size.exact()
    }

    /// What the client did wrong with its body, if it did.
    pub(crate) fn fault(&self) -> Option<Outcome> {
        self.state.lock().fault
    }

    /// The body for the next attempt, from its beginning; `None` when that was not kept.
    pub(crate) fn attempt(source: &Arc<Self>) -> Option<ForwardBody> {
        let mut state = source.state.lock();
        if state.lost {
            return None;
        }
        state.attempt += 1;
        Some(ForwardBody {
            source: Arc::clone(source),
            attempt: state.attempt,
            position: 0,
        })
    }

    /// True when everything was read from the client.
    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        attempt: u32,
        position: &mut usize,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.lock();
        if state.attempt != attempt {
            return Poll::Ready(Some(Err(BodyError::TakenOver)));
        }
        if let Some(piece) = state.kept.get(*position) {
            *position += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        let polled = self.next(&mut state, cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                match frame.data_ref() {
                    Some(data) if !state.lost && state.bytes + data.len() <= REPLAY_MAX => {
                        state.bytes += data.len();
                        state.kept.push(data.clone());
                        *position += 1;
                    }
                    _ => {
                        state.lost = true;
                        state.kept = Vec::new();
                    }
                }
                if state.rest.is_end_stream() {
                    self.ended.store(true, Ordering::Release);
                }
            }
            Poll::Ready(None) => self.ended.store(true, Ordering::Release),
            Poll::Ready(Some(Err(_))) => state.lost = true,
            Poll::Pending => {}
        }
        polled
    }

    /// The client's next frame, within the bounds on size and time.
    fn next(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let failed = |state: &mut State, fault, error| {
            state.fault = Some(fault);
            Poll::Ready(Some(Err(error)))
        };
        match Pin::new(&mut state.rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                state.patience = None;
                if let Some(trailers) = frame.trailers_mut() {
                    hygiene::strip_trailers(trailers);
                }
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                match state.allowed.checked_sub(bytes) {
                    Some(allowed) => state.allowed = allowed,
                    None => return failed(state, Outcome::TooLarge, BodyError::TooLarge),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => failed(state, Outcome::Malformed, BodyError::Client(error)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let patience = state
                    .patience
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(self.timeout)));
                std::task::ready!(patience.as_mut().poll(cx));
                failed(state, Outcome::Stalled, BodyError::Stalled)
            }
        }
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self {
            source,
            attempt,
            position,
        } = self.get_mut();
        source.poll(cx, *attempt, position)
    }

    fn is_end_stream(&self) -> bool {
        let state = self.source.state.lock();
        self.source.is_ended() && state.attempt == self.attempt && self.position >= state.kept.len()
    }

    fn size_hint(&self) -> SizeHint {
        // The framing is decided before the first read: the whole body's size.
        self.source.size
    }
}
