//! What a request or an answer may carry across the gateway: hop-by-hop and pool-* headers go; it routes nothing.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    COOKIE, EXPECT, HOST, HeaderName, MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, request, response};

use super::{forwarded, screen};
use crate::credentials::{NoRandomness, random_bytes};

pub(crate) const POOL_USER: HeaderName = HeaderName::from_static("pool-user");
pub(crate) const POOL_GROUP: HeaderName = HeaderName::from_static("pool-group");
pub(crate) const POOL_FENCE: HeaderName = HeaderName::from_static("pool-fence");

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// A network of proxies whose X-Forwarded-* headers are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl std::str::FromStr for Network {
    type Err = String;

    /// An address, or an address and a prefix length: `10.0.0.0/8`, `::1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is no IP address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits
            .map_or(Ok(most), str::parse)
            .ok()
            .filter(|bits| *bits <= most);
        let bits = bits.ok_or_else(|| format!("`{text}` has no prefix length of 0 to {most}"))?;
        Ok(Self { address, bits })
    }
}

impl Network {
    fn holds(self, peer: IpAddr) -> bool {
        let same = |left: u128, right: u128, width: u32| {
            let shift = width - u32::from(self.bits);
            left.checked_shr(shift).unwrap_or(0) == right.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => same(own.to_bits().into(), peer.to_bits().into(), 32),
            (IpAddr::V6(own), IpAddr::V6(peer)) => same(own.to_bits(), peer.to_bits(), 128),
            _ => false,
        }
    }
}

/// True when a proxy among `trusted` speaks for the client.
pub(crate) fn is_trusted(trusted: &[Network], peer: IpAddr) -> bool {
    trusted.iter().any(|network| network.holds(peer))
}

/// Whether the client spoke https, as the last proxy says; `None` when it says nothing.
pub(crate) fn says_https(headers: &HeaderMap) -> Option<bool> {
    headers
        .get_all(X_FORWARDED_PROTO)
        .iter()
        .next_back()
        // Of several the last is the believed proxy's own word.
        .and_then(|proto| proto.as_bytes().rsplit(|byte| *byte == b',').next())
        .map(|proto| proto.trim_ascii().eq_ignore_ascii_case(b"https"))
}

/// True for a path that a worker's contract keeps for its agent, however it is written.
pub(crate) fn is_reserved(path: &str) -> bool {
    // Almost all paths hold nothing that could spell it.
    if !path.contains(['%', '\\'])
        && !path
            .as_bytes()
            .windows(5)
            .any(|part| part.eq_ignore_ascii_case(b"_pool"))
    {
        return false;
    }
    let mut decoded = path.to_owned();
    // Twice, for apps behind something that decodes once more.
    for _ in 0..2 {
        decoded = percent_encoding::percent_decode_str(&decoded)
            .decode_utf8_lossy()
            .into_owned();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in decoded.split(['/', '\\']) {
        // A path parameter (`;x`) is no part of the name.
        match part.split(';').next().unwrap_or("") {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts
        .first()
        .is_some_and(|first| first.eq_ignore_ascii_case("_pool"))
}

/// `pool-*`, also with underscores, which some servers take for the same.
fn is_pool_header(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    name.len() > 4 && name.starts_with(b"pool") && (name[4] == b'-' || name[4] == b'_')
}

/// Removes pool-* headers; true when there were any.
pub(crate) fn strip_pool(headers: &mut HeaderMap) -> bool {
    if !headers.keys().any(is_pool_header) {
        return false;
    }
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_pool_header(name))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
    true
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes what is meant for this connection only.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most heads hold nothing of the kind, and a look is cheaper than nine removals.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .collect();
        for name in named {
            // A client must not make the gateway drop what it sets or needs itself.
            if name != HOST && name != COOKIE && !name.as_str().starts_with("x-forwarded-") {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    for name in [
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

/// True when the client takes trailers after an answer.
pub(crate) fn wants_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// Says so to the next hop.
pub(crate) fn set_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// Says to the client, where a browser shows it, how long the request was held for a move; what the app timed stays beside it.
pub(crate) fn set_held(headers: &mut HeaderMap, held: Duration) {
    let text = format!("hold;dur={:.3}", held.as_secs_f64() * 1000.0);
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.append(SERVER_TIMING, value);
    }
}

/// Trailers may say no more than headers may, and nothing of what has been decided by the headers (RFC 9110, 6.5.1).
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    strip_pool(trailers);
    strip_hop_by_hop(trailers);
    forwarded::strip(trailers, false);
    for name in [
        HOST,
        COOKIE,
        SET_COOKIE,
        AUTHORIZATION,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        CONTENT_ENCODING,
        CONTENT_RANGE,
        CACHE_CONTROL,
        EXPECT,
        MAX_FORWARDS,
        TRAILER,
    ] {
        trailers.remove(name);
    }
}

/// True when the client wants a WebSocket on this HTTP/1.1 connection.
pub(crate) fn wants_websocket(head: &request::Parts) -> bool {
    let holds = |name: HeaderName, wanted: &str| {
        head.headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| {
                value
                    .split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case(wanted))
            })
    };
    head.version == Version::HTTP_11
        && head.method == Method::GET
        && head.headers.contains_key(UPGRADE)
        && holds(UPGRADE, "websocket")
        && holds(CONNECTION, "upgrade")
}

/// Puts the headers of a WebSocket's request or answer back, after hop-by-hop headers were removed.
pub(crate) fn set_websocket(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

const SEC_WEBSOCKET_KEY: HeaderName = HeaderName::from_static("sec-websocket-key");
const SEC_WEBSOCKET_ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
const SEC_WEBSOCKET_VERSION: HeaderName = HeaderName::from_static("sec-websocket-version");

/// Makes an HTTP/1.1 handshake of the CONNECT that begins a WebSocket on HTTP/2, which has no key (RFC 8441, 5).
pub(crate) fn to_http1_websocket(head: &mut request::Parts) -> Result<(), NoRandomness> {
    let key = STANDARD.encode(random_bytes::<16>()?);
    head.method = Method::GET;
    if let Ok(key) = HeaderValue::from_str(&key) {
        head.headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    head.headers
        .entry(SEC_WEBSOCKET_VERSION)
        .or_insert(HeaderValue::from_static("13"));
    Ok(())
}

/// Makes of an HTTP/1.1 worker's 101 the answer that HTTP/2 wants.
pub(crate) fn to_h2_websocket(head: &mut response::Parts) {
    head.status = StatusCode::OK;
    head.version = Version::HTTP_2;
    for name in [SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH] {
        head.headers.remove(name);
    }
}

/// Turns a client's head into one for a worker: origin form, Host.
pub(crate) fn to_upstream(head: &mut request::Parts) {
    if let Some(host) = screen::host(&head.uri) {
        head.headers.insert(HOST, host);
    }
    if head.uri.authority().is_some() {
        let origin = head.uri.path_and_query().cloned();
        head.uri = Uri::from(origin.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_s_paths_are_found_however_they_are_written() {
        for path in [
            "/_pool",
            "/_pool/v1/users",
            "//_pool/x",
            "/./_pool/",
            "/a/../_pool/x",
            "/%5fpool/",
            "/%255Fpool/x",
        ] {
            assert!(is_reserved(path), "{path}");
        }
        for path in ["/_POOL/x", "/_pool;a=1/x", "/a/%2e%2e/_pool/x", "/\\_pool/x"] {
            assert!(is_reserved(path), "{path}");
        }
        for path in ["/", "/pool", "/a/_pool/x", "/_poolx", "/_pools/a", "/100%/x"] {
            assert!(!is_reserved(path), "{path}");
        }
    }

    #[test]
    fn pool_headers_go_also_with_underscores_and_others_stay() {
        let mut headers = HeaderMap::new();
        for name in ["pool-user", "pool_user", "pool-x", "poolside", "x-pool-user"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        assert!(strip_pool(&mut headers));
        assert!(!strip_pool(&mut headers));
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["poolside", "x-pool-user"]);
    }

    #[test]
    fn networks_hold_their_addresses_only() {
        let holds =
            |network: &str, peer: &str| network.parse::<Network>().unwrap().holds(peer.parse().unwrap());
        assert!(holds("10.0.0.0/8", "10.9.9.9") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.1.1") && holds("0.0.0.0/0", "1.2.3.4"));
        assert!(holds("::/0", "::1") && holds("fd00::1", "fd00::1") && !holds("fd00::1", "fd00::2"));
        for wrong in ["10.0.0.0/33", "x", "10.0.0.0/", "1.2.3.4/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_worker_gets_the_origin_form_and_the_host_that_was_meant() {
        let request = http::Request::get("http://shop.test/a?b");
        let mut head = request.body(()).unwrap().into_parts().0;
        to_upstream(&mut head);
        assert_eq!(
            (head.uri.to_string().as_str(), head.headers["host"].as_bytes()),
            ("/a?b", &b"shop.test"[..])
        );
    }

    #[test]
    fn what_belongs_to_one_connection_goes() {
        let mut headers = HeaderMap::new();
        strip_hop_by_hop(&mut headers);
        for (name, value) in [
            ("connection", "x-a, host, cookie"),
            ("x-a", "1"),
            ("host", "shop.test"),
            ("cookie", "a=1"),
            ("te", "gzip"),
            ("keep-alive", "timeout=5"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["host", "cookie"]);
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_reserved_path_stays_reserved_in_every_encoding(path in "/{1,2}(\\./)?[_%5fF]{1,3}[pP%70]{1,3}ool(/[a-z]{0,4})?") {
            // However it is decoded, once or twice, what an app would take for the contract is refused.
            let once = percent_encoding::percent_decode_str(&path).decode_utf8_lossy().into_owned();
            let twice = percent_encoding::percent_decode_str(&once).decode_utf8_lossy().into_owned();
            for text in [&path, &once, &twice] {
                if text.trim_start_matches(['/', '.']).to_ascii_lowercase().starts_with("_pool/") {
                    prop_assert!(is_reserved(&path), "{}", path);
                }
            }
        }
    }
}
