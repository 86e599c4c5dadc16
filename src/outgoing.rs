//! A message of HTTP/1.1 on its way out: head and body in as few writes as they come in; it reads nothing.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;
use tokio::io::AsyncWrite;

use crate::heads::write_line;

/// A piece up to this size is copied behind what waits, a larger one goes out from where it is.
const COPIED: usize = 4 * 1024;

/// Why a message could not be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The connection.
    #[error("write")]
    Io(#[from] std::io::Error),
    /// The body broke off, or is not as long as was said.
    #[error("the body broke off")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// How the other end learns where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes are still owed.
    Length(u64),
    Chunked,
}

/// What is still to be sent of one message.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Outgoing<B> {
    /// Encoded bytes, of which `sent` are out.
    waiting: Vec<u8>,
    sent: usize,
    /// A piece that follows `waiting`, and whether a line break follows it.
    piece: Bytes,
    breaks: bool,
    body: Option<B>,
    framing: Framing,
    any_sent: bool,
    /// The body is not to be touched yet.
    waits: bool,
    /// The other end takes lines behind the last chunk.
    takes_trailers: bool,
}

impl<B> Outgoing<B> {
    /// `head` is whole, with `framing` said in it; nothing is sent yet.
    pub(crate) fn new(head: Vec<u8>, framing: Framing, body: Option<B>) -> Self {
        Self {
            waiting: head,
            sent: 0,
            piece: Bytes::new(),
            breaks: false,
            body,
            framing,
            any_sent: false,
            waits: false,
            takes_trailers: true,
        }
    }

    /// The body is kept back until [`Outgoing::go_on`] when `waits`.
    pub(crate) fn waiting(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Whatever follows the last chunk is left out.
    pub(crate) fn without_trailers(mut self) -> Self {
        self.takes_trailers = false;
        self
    }

    /// True when all of the message is out.
    pub(crate) fn is_ended(&self) -> bool {
        self.body.is_none() && self.sent == self.waiting.len() && self.piece.is_empty() && !self.breaks
    }

    /// True while not one byte is out.
    pub(crate) fn nothing_sent(&self) -> bool {
        !self.any_sent
    }

    /// The buffer, empty, for the next head.
    pub(crate) fn into_buffer(mut self) -> Vec<u8> {
        self.waiting.clear();
        self.waiting
    }
}

impl<B> Outgoing<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The other end wants the body.
    pub(crate) fn go_on(&mut self) {
        self.waits = false;
    }

    /// Sends as much as there is and as the connection takes.
    pub(crate) fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        loop {
            // Whatever of the body is here already goes out in the same write.
            while self.piece.is_empty() && self.waiting.len() - self.sent < COPIED {
                let Some(body) = self.body.as_mut().filter(|_| !self.waits) else {
                    break;
                };
                match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.take(frame)?,
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(SendError::Body(error.into())));
                    }
                    Poll::Ready(None) => self.end(None)?,
                    Poll::Pending => break,
                }
            }
            if self.sent == self.waiting.len() && self.piece.is_empty() {
                ready!(Pin::new(&mut *stream).poll_flush(cx))?;
                return if self.body.is_none() {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
            ready!(self.poll_write(stream, cx))?;
        }
    }

    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let stream = Pin::new(stream);
        let waiting = &self.waiting[self.sent..];
        let count = if self.piece.is_empty() {
            ready!(stream.poll_write(cx, waiting))?
        } else {
            ready!(stream.poll_write_vectored(cx, &[IoSlice::new(waiting), IoSlice::new(&self.piece)]))?
        };
        self.any_sent |= count > 0;
        let of_waiting = count.min(self.waiting.len() - self.sent);
        self.sent += of_waiting;
        bytes::Buf::advance(&mut self.piece, count - of_waiting);
        if self.sent == self.waiting.len() && self.piece.is_empty() {
            self.waiting.clear();
            self.sent = 0;
            if std::mem::take(&mut self.breaks) {
                self.waiting.extend_from_slice(b"\r\n");
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, frame: http_body::Frame<Bytes>) -> Result<(), SendError> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                return self.end(trailers.as_ref());
            }
        };
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            Framing::Length(left) => {
                *left = left
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| wrong_length("longer"))?;
            }
            Framing::Chunked => {
                let size = format!("{:x}\r\n", data.len());
                self.waiting.extend_from_slice(size.as_bytes());
            }
        }
        let is_chunked = self.framing == Framing::Chunked;
        if data.len() <= COPIED {
            self.waiting.extend_from_slice(&data);
            if is_chunked {
                self.waiting.extend_from_slice(b"\r\n");
            }
        } else {
            self.piece = data;
            self.breaks = is_chunked;
        }
        if self.framing == Framing::Length(0) {
            self.body = None;
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&http::HeaderMap>) -> Result<(), SendError> {
        self.body = None;
        match self.framing {
            Framing::Length(0) => {}
            Framing::Length(_) => return Err(wrong_length("shorter")),
            Framing::Chunked => {
                self.waiting.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.filter(|_| self.takes_trailers).into_iter().flatten() {
                    write_line(&mut self.waiting, name.as_str(), value.as_bytes());
                }
                self.waiting.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }
}

fn wrong_length(how: &str) -> SendError {
    SendError::Body(format!("it is {how} than was said").into())
}
