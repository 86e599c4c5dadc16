//! Where an answer's body ends (RFC 9112, 6.3), and its chunks.

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, Version, response};

use super::ExchangeError;
use super::head::read_trailers;

/// Longest line of a chunk's size, with what a server may add to it.
const SIZE_LINE_MAX: usize = 256;
/// Longest trailers.
const TRAILERS_MAX: usize = 16 * 1024;

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes more.
    Length(u64),
    Chunked(Chunk),
    /// With the connection.
    Close,
    /// It is none: 101.
    Switched,
}

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Size,
    /// So many bytes of the present one.
    Data(u64),
    /// The line break behind a chunk.
    Break,
    Trailers,
    End,
}

/// A piece of a body.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// More must be read first.
    Wanting,
    /// There is no more.
    End,
}

impl Framing {
    /// `is_head` when the request was a HEAD.
    pub(super) fn of(head: &response::Parts, is_head: bool) -> Result<Self, ExchangeError> {
        let (status, headers) = (head.status, &head.headers);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Self::Switched);
        }
        let length = length(headers)?;
        if is_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            return Ok(Self::Length(0));
        }
        if headers.contains_key(TRANSFER_ENCODING) {
            return coding(headers, head.version, length);
        }
        Ok(length.map_or(Self::Close, Self::Length))
    }

    /// The next piece out of `received`.
    pub(super) fn take(&mut self, received: &mut BytesMut) -> Result<Piece, ExchangeError> {
        match self {
            Self::Length(0) | Self::Switched | Self::Chunked(Chunk::End) => Ok(Piece::End),
            Self::Length(left) => Ok(data(received, left)),
            Self::Close if received.is_empty() => Ok(Piece::Wanting),
            Self::Close => Ok(Piece::Data(received.split().freeze())),
            Self::Chunked(chunk) => chunk.take(received),
        }
    }

    /// True when nothing more is to come.
    pub(super) fn is_ended(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::End) | Self::Switched)
    }
}

/// Chunked as the last and only coding, in HTTP/1.1, and without a length beside it.
fn coding(headers: &HeaderMap, version: Version, length: Option<u64>) -> Result<Framing, ExchangeError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = codings
        .next()
        .is_some_and(|coding| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() || version != Version::HTTP_11 {
        return Err(ExchangeError::Malformed("its transfer coding"));
    }
    if length.is_some() {
        return Err(ExchangeError::Malformed("a length beside chunks"));
    }
    Ok(Framing::Chunked(Chunk::Size))
}

/// Content-Length; several are one when they agree.
fn length(headers: &HeaderMap) -> Result<Option<u64>, ExchangeError> {
    let wrong = ExchangeError::Malformed("its length");
    let mut found = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(wrong);
        }
        let Some(length) = std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse().ok())
        else {
            return Err(wrong);
        };
        if found.is_some_and(|found| found != length) {
            return Err(wrong);
        }
        found = Some(length);
    }
    Ok(found)
}

fn data(received: &mut BytesMut, left: &mut u64) -> Piece {
    if received.is_empty() {
        return Piece::Wanting;
    }
    let count = received.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= count as u64;
    Piece::Data(received.split_to(count).freeze())
}

impl Chunk {
    fn take(&mut self, received: &mut BytesMut) -> Result<Piece, ExchangeError> {
        loop {
            match self {
                Self::Size => match size(received)? {
                    None => return Ok(Piece::Wanting),
                    Some(0) => *self = Self::Trailers,
                    Some(size) => *self = Self::Data(size),
                },
                Self::Data(left) => {
                    let piece = data(received, left);
                    if *left == 0 {
                        *self = Self::Break;
                    }
                    return Ok(piece);
                }
                Self::Break => match received.get(..2) {
                    None => return Ok(Piece::Wanting),
                    Some(b"\r\n") => {
                        received.advance(2);
                        *self = Self::Size;
                    }
                    Some(_) => return Err(ExchangeError::Malformed("the end of a chunk")),
                },
                Self::Trailers => {
                    if received.starts_with(b"\r\n") {
                        received.advance(2);
                        *self = Self::End;
                        return Ok(Piece::End);
                    }
                    return match read_trailers(received)? {
                        Some(trailers) => {
                            *self = Self::End;
                            Ok(Piece::Trailers(trailers))
                        }
                        None if received.len() > TRAILERS_MAX => {
                            Err(ExchangeError::Malformed("its trailers are too long"))
                        }
                        None => Ok(Piece::Wanting),
                    };
                }
                Self::End => return Ok(Piece::End),
            }
        }
    }
}

/// A chunk's size; what stands behind a semicolon is passed over.
fn size(received: &mut BytesMut) -> Result<Option<u64>, ExchangeError> {
    let wrong = ExchangeError::Malformed("the size of a chunk");
    let line = &received[..received.len().min(SIZE_LINE_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return if line.len() < SIZE_LINE_MAX {
            Ok(None)
        } else {
            Err(wrong)
        };
    };
    let Some(text) = line[..end].strip_suffix(b"\r") else {
        return Err(wrong);
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let behind = text[digits..].trim_ascii_start();
    if digits == 0 || digits > 16 || !(behind.is_empty() || behind[0] == b';') {
        return Err(wrong);
    }
    let size = text[..digits]
        .iter()
        .filter_map(|byte| char::from(*byte).to_digit(16))
        .fold(0, |size, digit| size << 4 | u64::from(digit));
    received.advance(end + 1);
    Ok(Some(size))
}
