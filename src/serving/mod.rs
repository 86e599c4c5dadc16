//! The server's side of HTTP/1.1 on an accepted connection, one request at a time in the connection's own task; it routes nothing.
//!
//! It takes the requests that almost all are: HTTP/1.1, a path for a target, head and body here as a whole. What is not of that kind (another
//! protocol, an upgrade, a body still on its way, what does not parse) is left to hyper, untouched, with the connection: see [`End::Unusual`].
//! So whatever is judged of a request is judged in one place, whichever of the two has read it.

mod answer;
mod head;
mod inbound;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::CancellationToken;

use self::head::Read;
pub(crate) use self::inbound::Inbound;
use crate::aside::Aside;
use crate::heads::Places;
use crate::outgoing::SendError;
use crate::patience::{beats, patrol};
use crate::prefixed::Prefixed;
use crate::wire::LATE;

/// Room of a read; a head is seldom longer.
const READ: usize = 4 * 1024;

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of a head.
    pub(crate) head_bytes: usize,
    /// For a head to arrive, and for an idle connection.
    pub(crate) head_timeout: Duration,
    /// An answer without Date gets one.
    pub(crate) dates: bool,
}

/// How the serving ended.
pub(crate) enum End<S> {
    /// The connection is over.
    Over,
    /// Half a head came, and not the rest of it in time; 408 was said.
    Late,
    /// What comes next on the connection is not for here. Nothing of it was taken.
    Unusual(Prefixed<S>),
}

/// What else happens to a connection.
enum Beside {
    /// A part of the head's timeout went by.
    Beat,
    /// No more requests after the present one.
    Finish,
}

type PollBeside = Box<dyn FnMut(&mut Context<'_>) -> Poll<Beside> + Send>;

/// One connection.
struct Line<S> {
    stream: S,
    received: BytesMut,
    /// Heads are written here; kept for its room.
    outgoing: Vec<u8>,
    places: Places,
    limits: Limits,
    beside: Aside<PollBeside>,
    /// Beats since the last request.
    quiet: u32,
    finishes: bool,
}

/// Serves `stream` by `handler` until one of its ends, or until nothing is under way once `finish` is cancelled.
pub(crate) async fn serve<S, F, B>(
    stream: S,
    limits: Limits,
    finish: CancellationToken,
    handler: impl Fn(Request<Inbound>) -> F,
) -> End<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut line = Line::new(stream, limits, finish);
    loop {
        let request = match poll_fn(|cx| line.poll_request(cx)).await {
            Next::Request(request) => request,
            Next::Over => return End::Over,
            Next::Late => {
                // What a socket does not take at once is not worth waiting for.
                let mut now = Context::from_waker(std::task::Waker::noop());
                let _ = Pin::new(&mut line.stream).poll_write(&mut now, LATE);
                return End::Late;
            }
            Next::Unusual => return End::Unusual(Prefixed::new(line.received.freeze(), line.stream)),
        };
        let answered = {
            // Pinned where it is made: it is large, and not to be moved.
            let mut handling = pin!(handler(request));
            poll_fn(|cx| match handling.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => line.poll_hang_up(cx).map(|()| None),
            })
            .await
        };
        // A client that hung up is not answered, and its request is dropped.
        let Some(response) = answered else {
            return End::Over;
        };
        match line.answer(response).await {
            Ok(true) => {}
            Ok(false) => {
                let _ = line.stream.shutdown().await;
                return End::Over;
            }
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "an answer broke off");
                return End::Over;
            }
        }
    }
}

/// What comes of waiting for a request.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Next {
    Request(Request<Inbound>),
    Over,
    Late,
    Unusual,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    fn new(stream: S, limits: Limits, finish: CancellationToken) -> Self {
        let mut patrol = patrol(limits.head_timeout);
        let mut finish = Some(Box::pin(finish.cancelled_owned()));
        let beside = move |cx: &mut Context<'_>| {
            if let Some(finishes) = &mut finish
                && finishes.as_mut().poll(cx).is_ready()
            {
                finish = None;
                return Poll::Ready(Beside::Finish);
            }
            patrol.poll_tick(cx).map(|_| Beside::Beat)
        };
        Self {
            stream,
            received: BytesMut::new(),
            outgoing: Vec::new(),
            places: Places::default(),
            limits,
            beside: Aside::new(Box::new(beside)),
            quiet: 0,
            finishes: false,
        }
    }

    fn look_beside(&mut self, cx: &Context<'_>) {
        while let Poll::Ready(event) = self.beside.poll(cx) {
            match event {
                Beside::Finish => self.finishes = true,
                Beside::Beat => {
                    self.quiet += 1;
                    if self.received.is_empty() {
                        // An idle connection holds no buffer.
                        self.received = BytesMut::new();
                    }
                }
            }
        }
    }

    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        loop {
            match head::read(&mut self.received, &mut self.places, self.limits.head_bytes) {
                Read::Request(request) => {
                    self.quiet = 0;
                    return Poll::Ready(Next::Request(request));
                }
                Read::Unusual => return Poll::Ready(Next::Unusual),
                Read::More => {}
            }
            self.look_beside(cx);
            let is_late = self.quiet > beats(self.limits.head_timeout);
            if self.received.is_empty() {
                if self.finishes || is_late {
                    return Poll::Ready(Next::Over);
                }
            } else if is_late {
                return Poll::Ready(Next::Late);
            }
            self.received.reserve(READ);
            let begins = self.received.is_empty();
            match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.received)) {
                Ok(0) | Err(_) => return Poll::Ready(Next::Over),
                // A head has its time from its first byte on, however long the connection was idle before.
                Ok(_) if begins => self.quiet = 0,
                Ok(_) => {}
            }
        }
    }

    /// Ready when the client closed, unless it has sent its next request already: that one is read first.
    fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.received.is_empty() {
            return Poll::Pending;
        }
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.received)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }

    /// Sends an answer; true when another may follow.
    async fn answer<B>(&mut self, response: Response<B>) -> Result<bool, SendError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let outgoing = std::mem::take(&mut self.outgoing);
        let is_last = self.finishes || answer::is_last(response.headers());
        let mut outgoing = answer::begin(outgoing, response, is_last, self.limits.dates);
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = outgoing.poll(&mut self.stream, cx) {
                return Poll::Ready(Some(sent));
            }
            self.poll_hang_up(cx).map(|()| None)
        });
        let Some(sent) = sent.await else { return Ok(false) };
        sent?;
        self.outgoing = outgoing.into_buffer();
        Ok(!is_last)
    }
}

#[cfg(test)]
mod tests;
