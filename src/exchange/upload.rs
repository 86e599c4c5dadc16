//! A request on its way out: head and body in as few writes as they come in; it looks at no answer.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body;

use super::head::{self, line};
use super::{ExchangeError, Request};
use crate::net::TcpStream;

/// A piece up to this size is copied behind what waits, a larger one goes out from where it is.
const COPIED: usize = 4 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// So many bytes are still owed.
    Length(u64),
    Chunked,
}

/// What is still to be sent of one request.
#[derive(Debug)]
pub(super) struct Upload<B> {
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
}

impl<B> Upload<B> {
    /// True when all of the request is out.
    pub(super) fn is_ended(&self) -> bool {
        self.body.is_none() && self.sent == self.waiting.len() && self.piece.is_empty() && !self.breaks
    }

    /// True while not one byte is out.
    pub(super) fn nothing_sent(&self) -> bool {
        !self.any_sent
    }

    /// The buffer, for the next head.
    pub(super) fn into_outgoing(mut self) -> Vec<u8> {
        self.waiting.clear();
        self.waiting
    }
}

impl<B> Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Writes the head into `out`; nothing is sent yet.
    pub(super) fn begin(mut out: Vec<u8>, request: &Request<'_>, body: Option<B>) -> Self {
        out.clear();
        head::write(&mut out, request);
        let framing = match &body {
            None => Framing::Length(0),
            Some(body) => body.size_hint().exact().map_or(Framing::Chunked, Framing::Length),
        };
        match framing {
            // A length of zero is said only where the client said it.
            Framing::Length(0) => {
                if let Some(length) = request.headers.get(http::header::CONTENT_LENGTH)
                    && length == "0"
                {
                    out.extend_from_slice(b"content-length: 0\r\n");
                }
            }
            Framing::Length(length) => line(&mut out, "content-length", length.to_string().as_bytes()),
            Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
        Self {
            waiting: out,
            sent: 0,
            piece: Bytes::new(),
            breaks: false,
            body,
            framing,
            any_sent: false,
            waits: request.waits,
        }
    }

    /// The other end wants the body.
    pub(super) fn go_on(&mut self) {
        self.waits = false;
    }

    /// Sends as much as there is and as the connection takes.
    pub(super) fn poll(
        &mut self,
        stream: &TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            // Whatever of the body is here already goes out in the same write.
            while self.piece.is_empty() && self.waiting.len() - self.sent < COPIED {
                let Some(body) = self.body.as_mut().filter(|_| !self.waits) else {
                    break;
                };
                match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.take(frame)?,
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Err(ExchangeError::Body(error.into())));
                    }
                    Poll::Ready(None) => self.end(None)?,
                    Poll::Pending => break,
                }
            }
            if self.sent == self.waiting.len() && self.piece.is_empty() {
                return if self.body.is_none() {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            }
            ready!(self.poll_write(stream, cx))?;
        }
    }

    fn poll_write(&mut self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<Result<(), ExchangeError>> {
        let count = loop {
            let wrote = if self.piece.is_empty() {
                stream.try_write(&self.waiting[self.sent..])
            } else {
                let slices = [
                    IoSlice::new(&self.waiting[self.sent..]),
                    IoSlice::new(&self.piece),
                ];
                stream.try_write_vectored(&slices)
            };
            match wrote {
                Ok(count) => break count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    ready!(stream.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
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

    fn take(&mut self, frame: http_body::Frame<Bytes>) -> Result<(), ExchangeError> {
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

    fn end(&mut self, trailers: Option<&http::HeaderMap>) -> Result<(), ExchangeError> {
        self.body = None;
        match self.framing {
            Framing::Length(0) => {}
            Framing::Length(_) => return Err(wrong_length("shorter")),
            Framing::Chunked => {
                self.waiting.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    line(&mut self.waiting, name.as_str(), value.as_bytes());
                }
                self.waiting.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }
}

fn wrong_length(how: &str) -> ExchangeError {
    ExchangeError::Body(format!("it is {how} than was said").into())
}
