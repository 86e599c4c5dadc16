//! One HTTP/1.1 request and its answer at a time on a connection of ours, as gateway and agent send them on; it routes, retries and keeps nothing.
//!
//! Everything happens in the task that asks: no task, channel or lock stands between a request and its socket. What arrives is read strictly;
//! an answer whose end is not certain closes the connection.

mod answer;
mod framing;
mod head;
mod multiplexed;

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, Uri, response};
use http_body::Body;
use tokio_util::io::poll_read_buf;

pub(crate) use self::answer::Answer;
use self::framing::Framing;
use self::head::Head;
pub(crate) use self::multiplexed::Multiplexed;
use crate::heads::Places;
use crate::net::TcpStream;
use crate::outgoing::{Outgoing, SendError};
use crate::prefixed::Prefixed;

/// A connection after 101: bytes both ways, those first that came with the answer's head.
pub(crate) type Upgraded = Prefixed<TcpStream>;

/// Longest head of an answer in bytes.
const HEAD_MAX: usize = 64 * 1024;
/// Room of a first read, and of one on a connection whose answers are long.
const READ: usize = 8 * 1024;
const READ_MAX: usize = 32 * 1024;
/// A connection at rest keeps no larger buffer than this.
const REST: usize = 64 * 1024;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The connection.
    #[error("read or write")]
    Io(#[from] std::io::Error),
    /// The other end closed before its answer was whole.
    #[error("the connection was closed early")]
    Closed,
    /// The answer is not HTTP/1.1 as it must be.
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    /// The shared connection, or this request's stream on it.
    #[error("HTTP/2")]
    Http2(#[source] hyper::Error),
    /// The request's body broke off.
    #[error("the request's body broke off")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<SendError> for ExchangeError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Io(error) => Self::Io(error),
            SendError::Body(error) => Self::Body(error),
        }
    }
}

/// What became of a request that was not answered.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Not one byte of it was sent.
    Unsent(ExchangeError),
    /// It may have been executed.
    Broken(ExchangeError),
}

/// What is sent: the head as it stands in `headers` but for framing, and lines beyond it. Nothing has to be copied or changed for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a Method,
    /// Only path and query are sent, or `*`.
    pub(crate) target: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Of `headers` these lines are left out, by their lower-case names.
    pub(crate) leaves_out: fn(&str) -> bool,
    /// Sent behind `headers`; names in lower case, values that are legal in a header.
    pub(crate) more: &'a [(&'static str, &'a [u8])],
    /// The body is kept back until the other end asks for it with 100 (Continue).
    pub(crate) waits: bool,
}

/// An answer whose head is whole.
pub(crate) enum Reply<B> {
    /// The body is here too, and the connection is free again unless the other end wants it closed.
    Whole(Bytes, Option<Connection>),
    /// The body follows.
    Streamed(Box<Answer<B>>),
    /// 101: from here on bytes.
    Switched(Upgraded),
}

/// A connection on which nothing is under way.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    /// Room of the next read; grows with what arrives.
    room: usize,
    /// Heads are written here; kept for its room.
    outgoing: Vec<u8>,
    places: Places,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        // A refusal is only a lost optimisation.
        let _ = stream.set_nodelay(true);
        Ok(Self {
            stream,
            received: BytesMut::new(),
            room: READ,
            outgoing: Vec::new(),
            places: Places::default(),
        })
    }

    /// True while the other end has neither closed nor said anything unasked. Costs no system call unless something arrived.
    pub(crate) fn is_usable(&self) -> bool {
        let mut byte = [0];
        self.received.is_empty()
            && matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a request and returns as soon as the answer's head is here, whatever is left of the request's body by then.
    pub(crate) async fn exchange<B>(
        mut self,
        request: Request<'_>,
        body: Option<B>,
    ) -> Result<(response::Parts, Reply<B>), Failed>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !self.is_usable() {
            return Err(Failed::Unsent(ExchangeError::Closed));
        }
        let mut upload = head::begin(std::mem::take(&mut self.outgoing), &request, body);
        let is_head = *request.method == Method::HEAD;
        let found = std::future::poll_fn(|cx| self.poll_head(cx, &mut upload, is_head)).await;
        match found {
            Ok((head, framing)) => Ok((head.parts, self.reply(framing, head.keep, upload))),
            Err(error) if upload.nothing_sent() => Err(Failed::Unsent(error)),
            Err(error) => Err(Failed::Broken(error)),
        }
    }

    fn poll_head<B>(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Outgoing<B>,
        is_head: bool,
    ) -> Poll<Result<(Head, Framing), ExchangeError>>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        // Who closes its reading side may have answered before; that answer counts.
        let sent = upload.poll(&mut self.stream, cx).map_err(ExchangeError::from);
        if let Poll::Ready(Err(error @ ExchangeError::Body(_))) = sent {
            return Poll::Ready(Err(error));
        }
        if upload.nothing_sent() {
            if let Poll::Ready(Err(error)) = sent {
                return Poll::Ready(Err(error));
            }
            return Poll::Pending;
        }
        loop {
            if let Some(head) = head::read(&mut self.received, &mut self.places)? {
                let status = head.parts.status;
                if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                    if status == StatusCode::CONTINUE {
                        upload.go_on();
                        if let Poll::Ready(Err(error @ ExchangeError::Body(_))) =
                            upload.poll(&mut self.stream, cx).map_err(ExchangeError::from)
                        {
                            return Poll::Ready(Err(error));
                        }
                    }
                    continue;
                }
                let framing = Framing::of(&head.parts, is_head)?;
                return Poll::Ready(Ok((head, framing)));
            }
            if self.received.len() >= HEAD_MAX {
                return Poll::Ready(Err(ExchangeError::Malformed("its head is too long")));
            }
            ready!(self.poll_receive(cx))?;
        }
    }

    /// Reads once; at least one byte.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        self.received.reserve(self.room);
        let room = self.received.capacity() - self.received.len();
        match ready!(poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.received)) {
            Ok(0) => Poll::Ready(Err(ExchangeError::Closed)),
            Ok(count) => {
                if count == room && self.room < READ_MAX {
                    self.room *= 2;
                }
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    fn reply<B>(mut self, framing: Framing, keep: bool, upload: Outgoing<B>) -> Reply<B> {
        if framing == Framing::Switched {
            return Reply::Switched(Upgraded::new(self.received.freeze(), self.stream));
        }
        if let Framing::Length(length) = framing
            && let Ok(length) = usize::try_from(length)
            && self.received.len() >= length
            && upload.is_ended()
        {
            let body = self.received.split_to(length).freeze();
            self.outgoing = upload.into_buffer();
            let connection = keep.then_some(self).and_then(Self::at_rest);
            return Reply::Whole(body, connection);
        }
        Reply::Streamed(Box::new(Answer::new(self, framing, keep, upload)))
    }

    /// Free for the next request; `None` when the other end said more than it was asked.
    fn at_rest(mut self) -> Option<Self> {
        if !self.received.is_empty() {
            return None;
        }
        if self.received.capacity() > REST {
            self.received = BytesMut::new();
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests;
