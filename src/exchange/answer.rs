//! The body of an answer while it arrives; it sends the rest of the request meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::framing::{Framing, Piece};
use super::upload::Upload;
use super::{Connection, ExchangeError};

/// A body that is read from its connection; dropped before its end, it closes it.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    /// `None` once the body failed, or once it was taken.
    connection: Option<Connection>,
    framing: Framing,
    keep: bool,
    upload: Upload<B>,
}

impl<B> Answer<B> {
    pub(super) fn new(connection: Connection, framing: Framing, keep: bool, upload: Upload<B>) -> Self {
        Self {
            connection: Some(connection),
            framing,
            keep,
            upload,
        }
    }

    /// The connection, free for another request, when request and answer ended well.
    pub(crate) fn into_connection(self) -> Option<Connection> {
        if !self.keep || self.framing == Framing::Close || !self.framing.is_ended() || !self.upload.is_ended()
        {
            return None;
        }
        let mut connection = self.connection?;
        connection.outgoing = self.upload.into_outgoing();
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
        let this = self.get_mut();
        let Some(connection) = &mut this.connection else {
            return Poll::Ready(None);
        };
        // That the rest of the request cannot be sent is no matter while the answer goes on.
        let sent = this.upload.poll(&connection.stream, cx);
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
