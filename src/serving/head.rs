//! Takes a request out of what was received when it is of the usual kind and whole; it refuses none.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Uri};

use super::Inbound;
use crate::heads::{LINES_MAX, Places};

/// A body up to this size may come with its head.
const BODY_MAX: usize = 64 * 1024;

/// What stands at the beginning of what was received.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Read {
    /// A request; it was taken out.
    Request(Request<Inbound>),
    /// Nothing, or half a head.
    More,
    /// Something else, which was left.
    Unusual,
}

/// Parts of a head that are found before anything is taken out.
struct Found {
    head: usize,
    body: usize,
    method: Method,
    target: (usize, usize),
}

pub(super) fn read(received: &mut BytesMut, places: &mut Places, head_bytes: usize) -> Read {
    if received.is_empty() {
        return Read::More;
    }
    let found = match find(received, places) {
        Ok(Some(found)) if found.head <= head_bytes && found.head + found.body <= received.len() => found,
        Ok(None) if received.len() < head_bytes => return Read::More,
        _ => return Read::Unusual,
    };
    let head = received.split_to(found.head).freeze();
    let Some((target, headers)) = build(&head, found.target, places) else {
        // It is put back: whoever judges it sees all of it.
        let behind = received.split();
        received.extend_from_slice(&head);
        received.extend_from_slice(&behind);
        return Read::Unusual;
    };
    let mut request = Request::new(Inbound::Whole(received.split_to(found.body).freeze()));
    *request.method_mut() = found.method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    Read::Request(request)
}

fn build(head: &Bytes, target: (usize, usize), places: &Places) -> Option<(Uri, HeaderMap)> {
    let target = Uri::from_maybe_shared(head.slice(target.0..target.1)).ok()?;
    Some((target, places.headers(head).ok()?))
}

/// `Err` when it is not of the usual kind, `None` when more must come to know.
fn find(received: &[u8], places: &mut Places) -> Result<Option<Found>, Unusual> {
    let mut lines = [const { MaybeUninit::uninit() }; LINES_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let config = httparse::ParserConfig::default();
    let head = match config.parse_request_with_uninit_headers(&mut parsed, received, &mut lines) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Unusual),
    };
    let target = parsed.path.unwrap_or_default();
    if parsed.version != Some(1) || !target.starts_with('/') {
        return Err(Unusual);
    }
    let method = method(parsed.method.unwrap_or_default())?;
    let body = body(parsed.headers)?;
    places.note(received, parsed.headers);
    let from = target.as_ptr() as usize - received.as_ptr() as usize;
    Ok(Some(Found {
        head,
        body,
        method,
        target: (from, from + target.len()),
    }))
}

struct Unusual;

fn method(text: &str) -> Result<Method, Unusual> {
    Ok(match text {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        "OPTIONS" => Method::OPTIONS,
        _ => return Err(Unusual),
    })
}

/// Length of the body, when the lines say it plainly and say nothing else of the connection than that it stays.
fn body(lines: &[httparse::Header<'_>]) -> Result<usize, Unusual> {
    let mut length = None;
    for line in lines {
        let is = |name: &str| line.name.eq_ignore_ascii_case(name);
        match line.name.len() {
            2 if is("te") => return Err(Unusual),
            6 if is("expect") => return Err(Unusual),
            7 if is("upgrade") => return Err(Unusual),
            10 if is("connection") && !line.value.eq_ignore_ascii_case(b"keep-alive") => return Err(Unusual),
            14 if is("content-length") => {
                if length.is_some() {
                    return Err(Unusual);
                }
                length = Some(digits(line.value)?);
            }
            17 if is("transfer-encoding") => return Err(Unusual),
            _ => {}
        }
    }
    Ok(length.unwrap_or(0))
}

fn digits(text: &[u8]) -> Result<usize, Unusual> {
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(Unusual);
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number <= BODY_MAX).ok_or(Unusual)
}
