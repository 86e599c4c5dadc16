//! Heads on the wire: writes a request's, reads an answer's.

use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, response};

use super::{ExchangeError, Request};

/// Headers of an answer; more are refused.
const HEADERS_MAX: usize = 100;

/// Request line and headers; framing headers are left to who knows the body, and so is the empty line.
pub(super) fn write(out: &mut Vec<u8>, request: &Request<'_>) {
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    match request.target.path_and_query() {
        Some(target) => out.extend_from_slice(target.as_str().as_bytes()),
        None => out.push(b'/'),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in request.headers {
        let text = name.as_str();
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING && !(request.leaves_out)(text) {
            line(out, text, value.as_bytes());
        }
    }
    for (name, value) in request.more {
        line(out, name, value);
    }
}

/// One header.
pub(super) fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Where a header's name and value lie in the head.
#[derive(Clone, Copy, Default)]
struct Place {
    name: (usize, usize),
    value: (usize, usize),
}

/// The head of an answer.
pub(super) struct Head {
    pub(super) parts: response::Parts,
    /// Another request may follow on this connection.
    pub(super) keep: bool,
}

/// Takes a whole head out of `received`; `None` when more must come.
pub(super) fn read(received: &mut BytesMut) -> Result<Option<Head>, ExchangeError> {
    if received.is_empty() {
        return Ok(None);
    }
    let mut places = [Place::default(); HEADERS_MAX];
    let (length, status, minor, count) = {
        let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let result = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut parsed,
            received,
            &mut lines,
        );
        let length = match result {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(ExchangeError::Malformed("its head does not parse")),
        };
        let base = received.as_ptr() as usize;
        let place = |part: &[u8]| {
            let from = part.as_ptr() as usize - base;
            (from, from + part.len())
        };
        for (slot, header) in places.iter_mut().zip(parsed.headers.iter()) {
            *slot = Place {
                name: place(header.name.as_bytes()),
                value: place(header.value),
            };
        }
        let (code, minor) = (parsed.code.unwrap_or(0), parsed.version.unwrap_or(0));
        (length, code, minor, parsed.headers.len())
    };
    let head = received.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(count);
    for Place { name, value } in &places[..count] {
        let name = HeaderName::from_bytes(&head[name.0..name.1])
            .map_err(|_| ExchangeError::Malformed("a header's name"))?;
        let value = HeaderValue::from_maybe_shared(head.slice(value.0..value.1))
            .map_err(|_| ExchangeError::Malformed("a header's value"))?;
        headers.append(name, value);
    }
    let keep = keeps(&headers, minor);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = StatusCode::from_u16(status).map_err(|_| ExchangeError::Malformed("its status"))?;
    parts.version = if minor == 0 {
        Version::HTTP_10
    } else {
        Version::HTTP_11
    };
    parts.headers = headers;
    Ok(Some(Head { parts, keep }))
}

/// May another request follow on this connection?
fn keeps(headers: &HeaderMap, minor: u8) -> bool {
    let says = |wanted: &str| {
        headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|option| option.trim().eq_ignore_ascii_case(wanted))
    };
    if minor == 0 {
        says("keep-alive") && !says("close")
    } else {
        !headers.contains_key(CONNECTION) || !says("close")
    }
}

/// Takes the lines behind the last chunk out of `received`; `None` when more must come.
pub(super) fn read_trailers(received: &mut BytesMut) -> Result<Option<HeaderMap>, ExchangeError> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let (length, trailers) = match httparse::parse_headers(received, &mut lines) {
        Ok(httparse::Status::Complete((length, lines))) => {
            let mut trailers = HeaderMap::with_capacity(lines.len());
            for line in lines {
                let name = HeaderName::from_bytes(line.name.as_bytes())
                    .map_err(|_| ExchangeError::Malformed("a trailer's name"))?;
                let value = HeaderValue::from_bytes(line.value)
                    .map_err(|_| ExchangeError::Malformed("a trailer's value"))?;
                trailers.append(name, value);
            }
            (length, trailers)
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ExchangeError::Malformed("its trailers")),
    };
    received.advance(length);
    Ok(Some(trailers))
}
