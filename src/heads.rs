//! The lines of a head that httparse has read: as ranges over the bytes they came in, and as a header map that shares these; it judges nothing.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// Lines of a head; more are refused.
pub(crate) const LINES_MAX: usize = 100;

/// Writes one line; what stands in it is legal in a header.
pub(crate) fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// A number as a header writes it, without an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal {
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    pub(crate) fn of(mut number: u64) -> Self {
        let (mut digits, mut from) = ([b'0'; 20], 20);
        loop {
            from -= 1;
            digits[from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { digits, from };
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

/// Where a line's name and value lie in its head.
#[derive(Debug, Clone, Copy)]
struct Place {
    name: (usize, usize),
    value: (usize, usize),
}

/// All lines of one head; kept for its room.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Place>);

/// A name or a value that no header map takes.
#[derive(Debug, thiserror::Error)]
#[error("a header's name or value")]
pub(crate) struct NoHeader;

impl Places {
    /// Notes `lines`, which were read out of `raw`.
    pub(crate) fn note(&mut self, raw: &[u8], lines: &[httparse::Header<'_>]) {
        let base = raw.as_ptr() as usize;
        let place = |part: &[u8]| {
            let from = part.as_ptr() as usize - base;
            (from, from + part.len())
        };
        self.0.clear();
        self.0.extend(lines.iter().map(|line| Place {
            name: place(line.name.as_bytes()),
            value: place(line.value),
        }));
    }

    /// The lines as a map; `head` holds the bytes that they were noted of.
    pub(crate) fn headers(&self, head: &Bytes) -> Result<HeaderMap, NoHeader> {
        let mut headers = spare(self.0.len());
        for Place { name, value } in &self.0 {
            let name = name_of(&head[name.0..name.1])?;
            let value = HeaderValue::from_maybe_shared(head.slice(value.0..value.1)).map_err(|_| NoHeader)?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// Maps kept for their room, per thread, and lines for which they may have room.
const SPARE_MAX: usize = 64;
const ROOM_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty map.
fn spare(lines: usize) -> HeaderMap {
    let known = SPARE.with_borrow_mut(Vec::pop);
    known.unwrap_or_else(|| HeaderMap::with_capacity(lines))
}

/// Takes a map back that nobody needs any more: making one for each head costs more than filling it.
pub(crate) fn recycle(mut headers: HeaderMap) {
    if headers.capacity() == 0 || headers.capacity() > ROOM_MAX {
        return;
    }
    headers.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < SPARE_MAX {
            spare.push(headers);
        }
    });
}

/// A name; those that gateway and agent say to each other are not copied.
fn name_of(bytes: &[u8]) -> Result<HeaderName, NoHeader> {
    const HOP: HeaderName = HeaderName::from_static("pool-hop");
    const USER: HeaderName = HeaderName::from_static("pool-user");
    const EPOCH: HeaderName = HeaderName::from_static("pool-epoch");
    const CLIENT: HeaderName = HeaderName::from_static("pool-client");
    const TICKET: HeaderName = HeaderName::from_static("pool-ticket");
    const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
    const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
    Ok(match bytes {
        b"pool-hop" => HOP,
        b"pool-user" => USER,
        b"pool-epoch" => EPOCH,
        b"pool-client" => CLIENT,
        b"pool-ticket" => TICKET,
        b"x-forwarded-for" => FOR,
        b"x-forwarded-host" => HOST,
        b"x-forwarded-proto" => PROTO,
        other => return HeaderName::from_bytes(other).map_err(|_| NoHeader),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_everybody_writes_it() {
        for number in [0, 1, 9, 10, 128, 16384, 99_999, u64::MAX / 10, u64::MAX] {
            assert_eq!(Decimal::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }
}
