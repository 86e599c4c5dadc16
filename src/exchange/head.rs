//! Heads on the wire: writes a request's, reads an answer's.

use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, response};
use http_body::Body;

use super::{ExchangeError, Request};
use crate::heads::{Decimal, LINES_MAX, NoHeader, Places, write_line};
use crate::outgoing::{Framing, Outgoing};

/// Writes a request's head into `out`, and has its body ready; nothing is sent yet.
pub(super) fn begin<B: Body>(mut out: Vec<u8>, request: &Request<'_>, body: Option<B>) -> Outgoing<B> {
    out.clear();
    write(&mut out, request);
    let framing = match &body {
        None => Framing::Length(0),
        Some(body) => body.size_hint().exact().map_or(Framing::Chunked, Framing::Length),
    };
    match framing {
        // A length of zero is said only where the client said it.
        Framing::Length(0) => {
            if let Some(length) = request.headers.get(CONTENT_LENGTH)
                && length == "0"
            {
                out.extend_from_slice(b"content-length: 0\r\n");
            }
        }
        Framing::Length(length) => write_line(&mut out, "content-length", Decimal::of(length).as_bytes()),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
    Outgoing::new(out, framing, body).waiting(request.waits)
}

/// Request line and headers, but for what frames the body and the empty line.
fn write(out: &mut Vec<u8>, request: &Request<'_>) {
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
            write_line(out, text, value.as_bytes());
        }
    }
    for (name, value) in request.more {
        write_line(out, name, value);
    }
}

/// The head of an answer.
pub(super) struct Head {
    pub(super) parts: response::Parts,
    /// Another request may follow on this connection.
    pub(super) keep: bool,
}

/// Takes a whole head out of `received`; `None` when more must come. `places` is room for its lines.
pub(super) fn read(received: &mut BytesMut, places: &mut Places) -> Result<Option<Head>, ExchangeError> {
    if received.is_empty() {
        return Ok(None);
    }
    let (length, status, minor) = {
        let mut lines = [const { MaybeUninit::uninit() }; LINES_MAX];
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
        places.note(received, parsed.headers);
        (length, parsed.code.unwrap_or(0), parsed.version.unwrap_or(0))
    };
    let head = received.split_to(length).freeze();
    let headers = places
        .headers(&head)
        .map_err(|NoHeader| ExchangeError::Malformed("a header's name or value"))?;
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
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
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
