//! What a worker is told of the client's connection: X-Forwarded-*; only trusted proxies are believed, and nothing is routed by it.

use std::net::IpAddr;

use http::header::{HOST, HeaderName};
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
    /// It spoke TLS with this gateway.
    pub(crate) is_tls: bool,
    /// Its address.
    pub(crate) text: HeaderValue,
}

impl Peer {
    pub(crate) fn new(address: IpAddr, trusted: &[Network], is_tls: bool) -> Self {
        let address = address.to_canonical();
        Self {
            is_trusted: is_trusted(trusted, address),
            is_tls,
            text: HeaderValue::from_str(&address.to_string())
                .unwrap_or_else(|_| HeaderValue::from_static("")),
        }
    }

    /// True when the client spoke https: a trusted proxy's word, else what this connection is.
    pub(crate) fn is_https(&self, headers: &HeaderMap) -> bool {
        let said = if self.is_trusted {
            says_https(headers)
        } else {
            None
        };
        said.unwrap_or(self.is_tls)
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

/// Takes out what says where a request came from: what a stranger sent of it, and always what some servers take for the
/// same because they read underscores as hyphens. The lines that this module writes stay: they are left out at the sending.
pub(crate) fn strip(headers: &mut HeaderMap, trusted: bool) {
    let says_origin = |name: &HeaderName| {
        let text = name.as_str();
        if !text.starts_with(['x', 'f']) {
            return false;
        }
        let look_alike =
            text.starts_with("x_forwarded") || text.starts_with("x-forwarded_") || text == "x_real_ip";
        let of_strangers =
            !trusted && (text.starts_with("x-forwarded-") || text == "forwarded" || text == "x-real-ip");
        look_alike || of_strangers
    };
    if !headers.keys().any(says_origin) {
        return;
    }
    let names: Vec<HeaderName> = headers.keys().filter(|name| says_origin(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

impl Forwarded {
    /// `headers` hold the right Host; what a stranger says of where he comes from is taken out of them.
    pub(crate) fn of(headers: &mut HeaderMap, peer: &Peer) -> Self {
        strip(headers, peer.is_trusted);
        if !peer.is_trusted {
            return Self {
                chain: peer.text.clone(),
                proto: if peer.is_tls { &HTTPS } else { &HTTP },
                host: headers.get(HOST).cloned(),
            };
        }
        // One line or several are one chain.
        let mut chain = Vec::new();
        for before in headers.get_all(FOR) {
            chain.extend_from_slice(before.as_bytes());
            chain.extend_from_slice(b", ");
        }
        chain.extend_from_slice(peer.text.as_bytes());
        let chain = HeaderValue::from_maybe_shared(bytes::Bytes::from(chain));
        let host = headers.get(HOST_SAID).or_else(|| headers.get(HOST));
        Self {
            chain: chain.unwrap_or_else(|_| peer.text.clone()),
            proto: if peer.is_https(headers) { &HTTPS } else { &HTTP },
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
            let peer = Peer::new(
                "::ffff:10.0.0.1".parse().unwrap(),
                &[network.parse().unwrap()],
                false,
            );
            let forwarded = Forwarded::of(&mut headers, &peer);
            let values: Vec<_> = forwarded
                .lines()
                .map(|(name, value)| (name, value.to_str().unwrap().to_owned()))
                .collect();
            assert!(values.iter().all(|(name, _)| is_ours(name)));
            (
                values.into_iter().map(|(_, value)| value).collect::<Vec<_>>(),
                headers.contains_key("forwarded"),
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

    use super::super::hygiene;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_only_gateways_say_passes_and_the_peer_is_always_told(
            lines in proptest::collection::vec(("(pool[-_][a-z]{0,8}|x[-_]forwarded[-_](for|proto|host)|forwarded|connection|te|keep-alive|x-[a-z]{1,6}|host|cookie)", "[ -~]{0,24}"), 0..24),
            trusted in any::<bool>(),
            tls in any::<bool>(),
        ) {
            let mut head = http::Request::get("/a?b").body(()).unwrap().into_parts().0;
            for (name, value) in &lines {
                let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) else {
                    continue;
                };
                head.headers.append(name, value);
            }
            hygiene::strip_pool(&mut head.headers);
            hygiene::strip_hop_by_hop(&mut head.headers);
            let network = if trusted { "10.0.0.0/8" } else { "192.168.0.0/16" };
            let peer = Peer::new("10.0.0.1".parse().unwrap(), &[network.parse().unwrap()], tls);
            let forwarded = Forwarded::of(&mut head.headers, &peer);
            for name in head.headers.keys().map(HeaderName::as_str) {
                prop_assert!(!name.starts_with("pool-") && !name.starts_with("pool_"), "{}", name);
                prop_assert!(!["connection", "te", "keep-alive"].contains(&name), "{}", name);
                prop_assert!(!name.starts_with("x_forwarded"), "{}", name);
                prop_assert!(trusted || name != "forwarded");
            }
            let written: Vec<_> = forwarded.lines().collect();
            let of = |name: &str| written.iter().find(|(written, _)| *written == name).map(|(_, value)| value.as_bytes());
            let chain = of("x-forwarded-for").unwrap();
            prop_assert!(chain.ends_with(b"10.0.0.1"));
            if !trusted {
                prop_assert_eq!(chain, b"10.0.0.1");
                prop_assert_eq!(of("x-forwarded-proto"), Some(if tls { &b"https"[..] } else { b"http" }));
            }
        }
    }
}
