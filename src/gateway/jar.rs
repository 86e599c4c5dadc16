//! The Cookie header: finds our cookie in it, takes it out byte for byte, and remembers opened ones; it judges none.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use super::cookie::{Cookie, Seal};
use super::spread::{Spread, shard_of};

/// Browsers keep these names for Secure cookies; the first for those of one host.
const HOST_PREFIX: &str = "__Host-";
const SECURE_PREFIX: &str = "__Secure-";
const SHARDS: usize = 16;
/// Opened cookies kept per shard and generation: at most 2 x 16 x this many.
const PER_SHARD: usize = 1024;

/// The two names under which our cookie may stand.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    plain: String,
    secure: String,
}

impl Names {
    /// `has_domain`: the cookie is shared by several hosts.
    pub(crate) fn new(name: &str, has_domain: bool) -> Self {
        let prefix = if has_domain { SECURE_PREFIX } else { HOST_PREFIX };
        Self {
            plain: name.to_owned(),
            secure: format!("{prefix}{name}"),
        }
    }

    /// The name to read and write on a connection that is or is not `secure`.
    pub(crate) fn of(&self, secure: bool) -> &str {
        if secure { &self.secure } else { &self.plain }
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name == self.plain.as_bytes() || name == self.secure.as_bytes()
    }

    /// Name and value of a pair of ours; almost all others are told by their first bytes.
    fn ours<'a>(&self, piece: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let piece = piece.trim_ascii_start();
        let begins = piece.starts_with(self.plain.as_bytes()) || piece.starts_with(self.secure.as_bytes());
        begins.then(|| pair(piece)).filter(|(name, _)| self.is_ours(name))
    }
}

/// The pairs of a Cookie header, as they stand.
fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let end = memchr::memchr(b';', line);
        rest = end.map(|end| &line[end + 1..]);
        Some(&line[..end.unwrap_or(line.len())])
    })
}

/// Name and value of one pair of a Cookie header.
fn pair(piece: &[u8]) -> (&[u8], &[u8]) {
    let piece = piece.trim_ascii();
    match piece.iter().position(|byte| *byte == b'=') {
        Some(at) => (piece[..at].trim_ascii_end(), piece[at + 1..].trim_ascii_start()),
        None => (piece, b""),
    }
}

/// Takes our cookie, under either name, out of `headers`; other cookies keep every byte. The first value under the
/// name of a `secure` or plain connection that `open` accepts is returned. `join` makes one header of several, as
/// HTTP/2 requires of who passes them on.
pub(crate) fn take<T>(
    headers: &mut HeaderMap,
    names: &Names,
    secure: bool,
    join: bool,
    mut open: impl FnMut(&[u8]) -> Option<T>,
) -> Option<T> {
    let wanted = names.of(secure).as_bytes();
    let (mut found, mut ours, mut lines) = (None, 0, 0);
    let mut without = Vec::new();
    for value in headers.get_all(COOKIE) {
        lines += 1;
        let line = value.as_bytes();
        for piece in pieces(line) {
            let Some((name, value)) = names.ours(piece) else {
                continue;
            };
            ours += 1;
            if found.is_none() && name == wanted {
                found = open(value);
            }
            if ours == 1 {
                without = cut(line, piece);
            }
        }
    }
    if ours == 1 && lines == 1 {
        // As almost always: what is left is known already.
        set(headers, vec![without]);
    } else if ours > 0 || (join && lines > 1) {
        rebuild(headers, names, join);
    }
    found
}

/// `line` without `piece` of it.
fn cut(line: &[u8], piece: &[u8]) -> Vec<u8> {
    let from = piece.as_ptr() as usize - line.as_ptr() as usize;
    let (before, behind) = (&line[..from], &line[from + piece.len()..]);
    let before = before.strip_suffix(b";").unwrap_or(before);
    let begins = |part: &[u8]| {
        let blank = part
            .iter()
            .take_while(|byte| **byte == b';' || byte.is_ascii_whitespace());
        blank.count()
    };
    let mut kept = Vec::with_capacity(line.len());
    kept.extend_from_slice(&before[begins(before)..]);
    let behind = if kept.is_empty() {
        &behind[begins(behind)..]
    } else {
        behind
    };
    kept.extend_from_slice(behind);
    kept
}

fn rebuild(headers: &mut HeaderMap, names: &Names, join: bool) {
    let mut kept: Vec<Vec<u8>> = headers
        .get_all(COOKIE)
        .iter()
        .map(|value| without_ours(value.as_bytes(), names))
        .filter(|line| !line.is_empty())
        .collect();
    if join && kept.len() > 1 {
        kept = vec![kept.join(&b"; "[..])];
    }
    set(headers, kept);
}

fn set(headers: &mut HeaderMap, lines: Vec<Vec<u8>>) {
    let mut is_first = true;
    for line in lines.into_iter().filter(|line| !line.is_empty()) {
        // What was taken out of a value is one.
        let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(line)) else {
            continue;
        };
        if std::mem::take(&mut is_first) {
            headers.insert(COOKIE, value);
        } else {
            headers.append(COOKIE, value);
        }
    }
    if is_first {
        headers.remove(COOKIE);
    }
}

/// A Cookie header without our pair; the others keep every byte.
fn without_ours(line: &[u8], names: &Names) -> Vec<u8> {
    let mut kept = Vec::with_capacity(line.len());
    for piece in pieces(line).filter(|piece| names.ours(piece).is_none()) {
        if kept.is_empty() {
            kept.extend_from_slice(piece.trim_ascii_start());
        } else {
            kept.push(b';');
            kept.extend_from_slice(piece);
        }
    }
    kept
}

/// An opened cookie with what each request needs of it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) cookie: Cookie,
    /// The client id as `pool-client` carries it.
    pub(crate) client: HeaderValue,
}

impl Known {
    pub(crate) fn new(cookie: Cookie) -> Self {
        let client = client_header(&cookie.client.to_string());
        Self { cookie, client }
    }
}

fn client_header(client: &str) -> HeaderValue {
    HeaderValue::from_str(client).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[derive(Default)]
struct Generations {
    young: HashMap<Box<[u8]>, Arc<Known>, Spread>,
    old: HashMap<Box<[u8]>, Arc<Known>, Spread>,
}

/// Opened cookies by their value, so that a browser's cookie is unsealed once and not at each request.
/// Only valid ones get in, and the number is bounded.
#[derive(Default)]
pub(crate) struct Opened {
    shards: [Mutex<Generations>; SHARDS],
}

impl Opened {
    /// The cookie of this value, if it is ours.
    pub(crate) fn open(&self, seal: &Seal, value: &[u8]) -> Option<Arc<Known>> {
        // The last characters are those of an authentication tag, which nobody chooses.
        let shard = &self.shards[shard_of(Spread::default().hash_one(value), SHARDS)];
        {
            let mut shard = shard.lock();
            if let Some(known) = shard.young.get(value) {
                return Some(Arc::clone(known));
            }
            if let Some((value, known)) = shard.old.remove_entry(value) {
                shard.keep(value, &known);
                return Some(known);
            }
        }
        let known = Arc::new(Known::new(seal.open(value)?));
        shard.lock().keep(value.into(), &known);
        Some(known)
    }
}

impl Generations {
    fn keep(&mut self, value: Box<[u8]>, known: &Arc<Known>) {
        if self.young.len() >= PER_SHARD {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(value, Arc::clone(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lines: &[&'static str], secure: bool, join: bool) -> (Option<Vec<u8>>, Vec<String>) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_static(line));
        }
        let found = take(
            &mut headers,
            &Names::new("pool-affinity", false),
            secure,
            join,
            |value| (value != b"bad").then(|| value.to_vec()),
        );
        let left = headers
            .get_all(COOKIE)
            .iter()
            .map(|v| v.to_str().unwrap().to_owned())
            .collect();
        (found, left)
    }

    #[test]
    fn only_our_cookie_is_taken_out_and_the_rest_keeps_its_bytes() {
        assert_eq!(
            run(&["pool-affinity=x"], false, false),
            (Some(b"x".to_vec()), vec![])
        );
        assert_eq!(
            run(
                &["a=1;  b=\"2 ; pool-affinity=x;c ;pool-affinityx=3"],
                false,
                false
            ),
            (
                Some(b"x".to_vec()),
                vec!["a=1;  b=\"2 ;c ;pool-affinityx=3".to_owned()]
            )
        );
        assert_eq!(
            run(&["pool-affinity=bad; z=9", "pool-affinity=y"], false, false),
            (Some(b"y".to_vec()), vec!["z=9".to_owned()])
        );
        assert_eq!(run(&["a=1;;b"], false, false), (None, vec!["a=1;;b".to_owned()]));
    }

    #[test]
    fn one_pair_is_cut_out_as_several_are() {
        let names = Names::new("pool-affinity", false);
        for line in [
            "pool-affinity=x",
            "pool-affinity=x;;b",
            "; pool-affinity=x; ;b=1",
            ";a;pool-affinity=x",
            "a=1;pool-affinity=x;",
            "a=1; pool-affinity=x;  b=2",
            " ; pool-affinity=x",
        ] {
            let line = line.as_bytes();
            let piece = pieces(line).find(|piece| names.ours(piece).is_some()).unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            assert_eq!(text(cut(line, piece)), text(without_ours(line, &names)));
        }
    }

    #[test]
    fn a_secure_connection_reads_the_host_name_only_and_both_are_taken_out() {
        let (found, left) = run(&["pool-affinity=x; __Host-pool-affinity=y; a=1"], true, false);
        assert_eq!((found, left), (Some(b"y".to_vec()), vec!["a=1".to_owned()]));
    }

    #[test]
    fn several_lines_of_http2_become_one() {
        assert_eq!(
            run(&["a=1", "b=2"], false, true),
            (None, vec!["a=1; b=2".to_owned()])
        );
    }

    #[test]
    fn the_memory_of_opened_cookies_is_bounded_and_keeps_no_false_one() {
        let seal = Seal::new(&crate::credentials::Key::random().unwrap(), None).unwrap();
        let opened = Opened::default();
        let cookie = Cookie {
            client: elastic_pool_engine::ids::ClientId([1; 16]),
            group: Arc::from("g"),
            user: None,
            epoch: elastic_pool_engine::ids::Epoch(0),
            reception: None,
        };
        for _ in 0..3 * SHARDS * PER_SHARD {
            let text = seal.seal(&cookie).unwrap();
            assert!(opened.open(&seal, text.as_bytes()).is_some());
        }
        assert!(opened.open(&seal, b"nonsense").is_none());
        let kept = |shard: &Mutex<Generations>| {
            let shard = shard.lock();
            shard.young.len() + shard.old.len()
        };
        let kept: usize = opened.shards.iter().map(kept).sum();
        assert!(kept <= 2 * SHARDS * PER_SHARD, "{kept}");
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_stands_beside_our_cookie_keeps_every_byte(
            before in proptest::collection::vec("[!#-+\\--:<-~]{1,12}(=[ -:<-~]{0,20})?", 0..6),
            after in proptest::collection::vec("[!#-+\\--:<-~]{1,12}(=[ -:<-~]{0,20})?", 0..6),
        ) {
            let names = Names::new("pool-affinity", false);
            let others: Vec<&str> = before.iter().chain(&after).map(String::as_str).collect();
            prop_assume!(others.iter().all(|piece| !names.is_ours(pair(piece.as_bytes()).0)));
            let mut pieces: Vec<&str> = before.iter().map(String::as_str).collect();
            pieces.push("pool-affinity=v");
            pieces.extend(after.iter().map(String::as_str));
            let mut headers = HeaderMap::new();
            headers.insert(COOKIE, HeaderValue::from_str(&pieces.join("; ")).unwrap());
            let found = take(&mut headers, &names, false, false, |value| Some(value.to_vec()));
            prop_assert_eq!(found, Some(b"v".to_vec()));
            let left = headers.get(COOKIE).map(|value| value.as_bytes().to_vec()).unwrap_or_default();
            // White space around the first piece belongs to the field, not to the cookie.
            let trim = |text: &[u8]| text.trim_ascii().to_vec();
            prop_assert_eq!(trim(&left), trim(others.join("; ").as_bytes()));
        }

        #[test]
        fn no_bytes_open_as_a_cookie(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let seal = Seal::new(&crate::credentials::Key::from_hex(&"31".repeat(32)).unwrap(), None).unwrap();
            prop_assert_eq!(seal.open(&bytes), None);
        }
    }
}
