//! What a worker is told of the client's connection: X-Forwarded-*; only trusted proxies are believed, and nothing is routed by it.

use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::hygiene::{Network, is_trusted, says_https};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST_SAID: HeaderName = HeaderName::from_static("x-forwarded-host");
static HTTP: HeaderValue = HeaderValue::from_static("http");
static HTTPS: HeaderValue = HeaderValue::from_static("https");

/// The other end of one client connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// A proxy whose word is taken.
    pub(crate) is_trusted: bool,
    text: HeaderValue,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, trusted: &[Network]) -> Self {
        let address = address.to_canonical();
        Self {
            is_trusted: is_trusted(trusted, address),
            text: HeaderValue::from_str(&address.to_string())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        }
    }
}

/// The lines of one request.
#[derive(Debug)]
pub(crate) struct Forwarded {
    chain: HeaderValue,
    proto: &'static HeaderValue,
    host: Option<HeaderValue>,
}

/// The lines that this module writes, and so leaves out of what a client sent.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("x-forwarded-") && matches!(&name[12..], "for" | "proto" | "host")
}

impl Forwarded {
    /// `headers` hold the right Host; a stranger's Forwarded is taken out of them.
    pub(crate) fn of(headers: &mut HeaderMap, peer: &Peer) -> Self {
        if !peer.is_trusted {
            if headers.contains_key(FORWARDED) {
                headers.remove(FORWARDED);
            }
            return Self {
                chain: peer.text.clone(),
                proto: &HTTP,
                host: headers.get(HOST).cloned(),
            };
        }
        let before = headers.get(FOR).map(HeaderValue::as_bytes);
        let chain = before
            .map(|before| [before, b", ", peer.text.as_bytes()].concat())
            .and_then(|chain| HeaderValue::from_maybe_shared(bytes::Bytes::from(chain)).ok());
        let host = headers.get(HOST_SAID).or_else(|| headers.get(HOST));
        Self {
            chain: chain.unwrap_or_else(|| peer.text.clone()),
            proto: if says_https(headers) { &HTTPS } else { &HTTP },
            host: host.cloned(),
        }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, &HeaderValue)> {
        let always = [
            ("x-forwarded-for", &self.chain),
            ("x-forwarded-proto", self.proto),
        ];
        always
            .into_iter()
            .chain(self.host.iter().map(|host| ("x-forwarded-host", host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_s_words_are_replaced_and_a_proxy_s_are_extended() {
        let lines = |network: &str| {
            let request = http::Request::get("/")
                .header("host", "shop.test")
                .header("forwarded", "for=9.9.9.9")
                .header("x-forwarded-for", "9.9.9.9")
                .header("x-forwarded-proto", "https")
                .header("x-forwarded-host", "evil.test");
            let mut headers = request.body(()).unwrap().into_parts().0.headers;
            let peer = Peer::new("::ffff:10.0.0.1".parse().unwrap(), &[network.parse().unwrap()]);
            let forwarded = Forwarded::of(&mut headers, &peer);
            let values: Vec<_> = forwarded
                .lines()
                .map(|(name, value)| (name, value.to_str().unwrap().to_owned()))
                .collect();
            assert!(values.iter().all(|(name, _)| is_ours(name)));
            (
                values.into_iter().map(|(_, value)| value).collect::<Vec<_>>(),
                headers.contains_key(FORWARDED),
            )
        };
        let own = ["10.0.0.1", "http", "shop.test"].map(str::to_owned).to_vec();
        assert_eq!(lines("192.168.0.0/16"), (own, false));
        let extended = ["9.9.9.9, 10.0.0.1", "https", "evil.test"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(lines("10.0.0.0/8"), (extended, true));
    }

    #[test]
    fn other_lines_of_that_kind_pass() {
        assert!(!is_ours("x-forwarded-port") && !is_ours("x-forwarded-") && !is_ours("forwarded"));
    }
}
