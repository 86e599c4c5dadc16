//! What no request may be, whoever sends it: ambiguous, without a right Host, meant for the contract or for a proxy; it changes and routes nothing.

use http::header::{EXPECT, HOST};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Uri, Version};
use hyper::body::Body;

use super::hygiene;
use super::metrics::Outcome;
use crate::wire::Framing;

/// Why `request` goes no further, if so. `most` bytes of body are taken, any number when absent.
pub(crate) fn refuse<B: Body>(request: &Request<B>, framing: Framing, most: Option<u64>) -> Option<Outcome> {
    // TRACE would show the client what gateway and agent added for the app alone.
    if [Method::CONNECT, Method::TRACE].contains(request.method()) && !is_h2_websocket(request) {
        return Some(Outcome::NotAllowed);
    }
    if framing == Framing::Ambiguous || !is_target(request) || !is_host_right(request) {
        return Some(Outcome::Malformed);
    }
    if hygiene::is_reserved(request.uri().path()) {
        return Some(Outcome::Forbidden);
    }
    if !is_expectation_known(request.headers()) {
        return Some(Outcome::Expectation);
    }
    most.is_some_and(|most| request.body().size_hint().lower() > most)
        .then_some(Outcome::TooLarge)
}

/// True for the extended CONNECT that begins a WebSocket on a stream of HTTP/2 (RFC 8441).
pub(crate) fn is_h2_websocket<B>(request: &Request<B>) -> bool {
    request.method() == Method::CONNECT
        && request
            .extensions()
            .get::<hyper::ext::Protocol>()
            .is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}

/// Origin form, absolute form of http or https, or `*` of OPTIONS.
fn is_target<B>(request: &Request<B>) -> bool {
    let uri = request.uri();
    let scheme = uri
        .scheme_str()
        .is_none_or(|scheme| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"));
    let path = uri.path();
    scheme && (path.starts_with('/') || (path == "*" && request.method() == Method::OPTIONS))
}

/// One Host, or none where the target or HTTP/1.0 makes it needless, and in either place nothing but a host and a port.
fn is_host_right<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    let target = request.uri().authority();
    if more.is_some() || target.is_some_and(|target| !is_authority(target)) {
        return false;
    }
    match host {
        None => target.is_some() || request.version() < Version::HTTP_11,
        // Empty where the target has no authority (RFC 9110, 7.2).
        Some(host) => host.is_empty() || host.to_str().is_ok_and(is_host),
    }
}

/// True for `host`, `host:port`, `[v6]`, `[v6]:port`.
fn is_host(text: &str) -> bool {
    text.parse()
        .is_ok_and(|authority: Authority| is_authority(&authority))
}

fn is_authority(authority: &Authority) -> bool {
    let (text, host) = (authority.as_str(), authority.host());
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_name = literal.map_or_else(
        || !host.is_empty() && host.bytes().all(is_name_byte),
        |literal| literal.parse::<std::net::Ipv6Addr>().is_ok(),
    );
    let is_port = match text.strip_prefix(host) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix(':')
            .is_some_and(|port| port.is_empty() || is_port_number(port)),
        // Somebody's name and password stand before the host.
        None => false,
    };
    is_name && is_port
}

/// Digits alone: Rust's own reader takes a plus sign too.
fn is_port_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Of a registered name: no delimiter that could end the host for one reader and not for the next.
fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte) || byte >= 0x80
}

fn is_expectation_known(headers: &HeaderMap) -> bool {
    headers
        .get_all(EXPECT)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The host that the client means: the target's where it has one, whatever Host says (RFC 9112, 3.2.2).
pub(crate) fn host(uri: &Uri) -> Option<http::HeaderValue> {
    uri.authority()
        .and_then(|authority| http::HeaderValue::from_str(authority.as_str()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for host in [
            "a",
            "shop.test",
            "shop.test:8080",
            "shop.test:",
            "127.0.0.1:1",
            "[::1]",
            "[2001:db8::1]:443",
            "a_b",
        ] {
            assert!(is_host(host), "{host}");
        }
        for host in [
            "a b", "a,b", "user@a", "u:p@a", "a:x", "a:99999", "a:+80", "[::1", "[::g]", "::1", "a/b", "a?b",
            "a#b", ":80", "a;b",
        ] {
            assert!(!is_host(host), "{host}");
        }
    }
}
