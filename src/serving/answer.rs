//! Heads of answers on the wire (RFC 9110, 6.4 and 8.6; RFC 9112, 6); it changes no header.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode, response};
use http_body::Body;

use crate::clock::unix_seconds;
use crate::heads::{Decimal, recycle, write_line};
use crate::outgoing::{Framing, Outgoing};

/// True when the headers say that the connection ends with their answer.
pub(super) fn is_last(headers: &HeaderMap) -> bool {
    headers.contains_key(CONNECTION)
}

/// Writes the head into `out`, and has the body ready; nothing is sent yet.
pub(super) fn begin<B: Body<Data = Bytes>>(
    mut out: Vec<u8>,
    response: Response<B>,
    is_last: bool,
    dates: bool,
) -> Outgoing<B> {
    let (head, body) = response.into_parts();
    out.clear();
    write(&mut out, &head, dates);
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    let has_body = !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = if has_body {
        body.size_hint().exact().map_or(Framing::Chunked, Framing::Length)
    } else {
        Framing::Length(0)
    };
    match framing {
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Length(length) if has_body => {
            write_line(&mut out, "content-length", Decimal::of(length).as_bytes());
        }
        // The length that 304 says is of what it does not carry.
        Framing::Length(_) => {
            if let Some(length) = head
                .headers
                .get(CONTENT_LENGTH)
                .filter(|_| head.status == StatusCode::NOT_MODIFIED)
            {
                write_line(&mut out, "content-length", length.as_bytes());
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    recycle(head.headers);
    let body = (framing != Framing::Length(0)).then_some(body);
    // Only who asked with TE takes trailers, and such a request is not for here.
    Outgoing::new(out, framing, body).without_trailers()
}

/// Status line and headers, but for what frames the body or is said of the connection.
fn write(out: &mut Vec<u8>, head: &response::Parts, dates: bool) {
    if head.status == StatusCode::OK {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(head.status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(head.status.canonical_reason().unwrap_or("<none>").as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in &head.headers {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING && *name != CONNECTION {
            write_line(out, name.as_str(), value.as_bytes());
        }
    }
    if dates && !head.headers.contains_key(DATE) {
        date(out);
    }
}

fn date(out: &mut Vec<u8>) {
    use std::cell::RefCell;
    thread_local! {
        /// The present second and its text.
        static NOW: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let second = unix_seconds();
    NOW.with_borrow_mut(|(known, text)| {
        if *known != second || text.is_empty() {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            (*known, *text) = (second, httpdate::fmt_http_date(time));
        }
        write_line(out, "date", text.as_bytes());
    });
}
