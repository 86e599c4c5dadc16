//! The body of an answer while it arrives; it sends the rest of the request meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::framing::{Framing, Piece};
use super::{Connection, ExchangeError};
use crate::outgoing::Outgoing;

/// A body on its way; dropped before its end, it ends what it comes on.
#[derive(Debug)]
pub(crate) struct Answer<B>(Source<B>);

#[derive(Debug)]
enum Source<B> {
    /// A connection of its own.
    Own(Arriving<B>),
    /// A stream of a shared one.
    Stream(Incoming),
}

/// A body that is read from its connection.
#[derive(Debug)]
struct Arriving<B> {
    /// `None` once the body failed, or once it was taken.
    connection: Option<Connection>,
    framing: Framing,
    keep: bool,
    upload: Outgoing<B>,
}

impl<B> Answer<B> {
    pub(super) fn new(connection: Connection, framing: Framing, keep: bool, upload: Outgoing<B>) -> Self {
        Self(Source::Own(Arriving {
            connection: Some(connection),
            framing,
            keep,
            upload,
        }))
    }

    pub(super) fn multiplexed(body: Incoming) -> Self {
        Self(Source::Stream(body))
    }

    /// The connection, free for another request, when request and answer ended well.
    pub(crate) fn into_connection(self) -> Option<Connection> {
        match self.0 {
            Source::Own(arriving) => arriving.into_connection(),
            Source::Stream(_) => None,
        }
    }
}

impl<B> Arriving<B> {
    fn into_connection(self) -> Option<Connection> {
        if !self.keep || self.framing == Framing::Close || !self.framing.is_ended() || !self.upload.is_ended()
        {
            return None;
        }
        let mut connection = self.connection?;
        connection.outgoing = self.upload.into_buffer();
        connection.at_rest()
    }
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match &mut self.get_mut().0 {
            Source::Own(arriving) => arriving.poll_frame(cx),
            Source::Stream(body) => {
                let polled = Pin::new(body).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(ExchangeError::Http2)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Own(arriving) => arriving.is_end_stream(),
            Source::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Own(arriving) => arriving.size_hint(),
            Source::Stream(body) => body.size_hint(),
        }
    }
}

impl<B> Arriving<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let this = self;
        let Some(connection) = &mut this.connection else {
            return Poll::Ready(None);
        };
        // That the rest of the request cannot be sent is no matter while the answer goes on.
        let sent = this
            .upload
            .poll(&mut connection.stream, cx)
            .map_err(ExchangeError::from);
        if let Poll::Ready(Err(error @ ExchangeError::Body(_))) = sent {
            this.connection = None;
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            match this.framing.take(&mut connection.received) {
                Ok(Piece::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Piece::Trailers(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(Piece::End) => return Poll::Ready(None),
                Ok(Piece::Wanting) => {}
                Err(error) => {
                    this.connection = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match ready!(connection.poll_receive(cx)) {
                Ok(()) => {}
                Err(ExchangeError::Closed) if this.framing == Framing::Close => {
                    this.framing = Framing::Length(0);
                    this.keep = false;
                }
                Err(error) => {
                    this.connection = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.framing.is_ended()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::Close | Framing::Switched => SizeHint::default(),
        }
    }
}
