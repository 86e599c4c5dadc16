//! Tells API clients apart by what they send instead of a cookie: a header, or a claim of a verified bearer token; it routes nobody.

use std::sync::Arc;

use elastic_pool_engine::ids::ClientId;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};
use ring::hmac;

use super::bearer::{Checks, Verifier};
use super::jwks::{JwksError, KeySource};
use crate::credentials::Key;

/// Longest identity in bytes, that of a user id.
const MAX_BYTES: usize = 256;

/// What keeps a client at its worker besides the cookie.
#[derive(Debug, Clone, Default)]
pub enum IdentityConfig {
    /// Nothing.
    #[default]
    Cookie,
    /// The value of a header. Who sends it is believed: it routes, and never authenticates.
    Header(HeaderName),
    /// A claim of a bearer token, once its signature and its times are right.
    Jwt {
        /// Name of the claim.
        claim: String,
        /// Where the keys are had, as a JSON Web Key Set; they may change at any time.
        keys: KeySource,
        /// Wanted `iss`.
        issuer: Option<String>,
        /// Wanted `aud`.
        audience: Option<String>,
    },
}

/// A configured identity.
pub(crate) struct Named {
    from: From,
    /// Makes client ids that every replica makes alike and that say nothing of whom they stand for.
    key: hmac::Key,
}

enum From {
    Cookie,
    Header(HeaderName),
    Bearer(Arc<Verifier>),
}

impl Named {
    /// Reads the keys of a token for the first time.
    pub(crate) fn new(config: &IdentityConfig, pool_key: &Key) -> Result<Self, JwksError> {
        let from = match config {
            IdentityConfig::Cookie => From::Cookie,
            IdentityConfig::Header(name) => From::Header(name.clone()),
            IdentityConfig::Jwt {
                claim,
                keys,
                issuer,
                audience,
            } => {
                let checks = Checks {
                    claim: claim.clone(),
                    issuer: issuer.clone(),
                    audience: audience.clone(),
                };
                From::Bearer(Arc::new(Verifier::open(checks, keys)?))
            }
        };
        Ok(Self {
            from,
            key: hmac::Key::new(hmac::HMAC_SHA256, pool_key.bytes()),
        })
    }

    /// The keys of tokens, where there are any, to be kept fresh.
    pub(crate) fn verifier(&self) -> Option<&Arc<Verifier>> {
        match &self.from {
            From::Bearer(verifier) => Some(verifier),
            From::Cookie | From::Header(_) => None,
        }
    }

    /// False until the keys of tokens were fetched once, or could not be.
    pub(crate) fn is_settled(&self) -> bool {
        self.verifier().is_none_or(|verifier| verifier.is_settled())
    }

    /// The client that `headers` name at this time (seconds since 1970); `None`: the cookie decides.
    pub(crate) fn client(&self, headers: &HeaderMap, unix_seconds: impl FnOnce() -> u64) -> Option<ClientId> {
        match &self.from {
            From::Cookie => None,
            From::Header(name) => single(headers, name).and_then(|value| self.of(value)),
            From::Bearer(verifier) => {
                let shown = single(headers, &AUTHORIZATION)?;
                let (scheme, token) = shown.split_once(' ')?;
                if !scheme.eq_ignore_ascii_case("bearer") {
                    return None;
                }
                self.of(&verifier.claim(token.trim(), unix_seconds())?)
            }
        }
    }

    fn of(&self, identity: &str) -> Option<ClientId> {
        if identity.is_empty() || identity.len() > MAX_BYTES || identity.chars().any(char::is_control) {
            return None;
        }
        let mut context = hmac::Context::with_key(&self.key);
        context.update(b"elastic-pool identity\0");
        context.update(identity.as_bytes());
        let tag = context.sign();
        Some(ClientId(tag.as_ref().get(..16)?.try_into().ok()?))
    }
}

/// The only value of a header; of two nobody can say which is meant.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value: &HeaderValue = values.next()?;
    if values.next().is_some() {
        return None;
    }
    std::str::from_utf8(value.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_header(key: &Key) -> Named {
        Named::new(
            &IdentityConfig::Header(HeaderName::from_static("x-api-user")),
            key,
        )
        .unwrap()
    }

    fn client(named: &Named, values: &[&str]) -> Option<ClientId> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-api-user", HeaderValue::from_str(value).unwrap());
        }
        named.client(&headers, || 0)
    }

    #[test]
    fn replicas_with_one_key_agree_and_pools_do_not() {
        let key = Key::random().unwrap();
        let (one, two, other) = (
            by_header(&key),
            by_header(&key),
            by_header(&Key::random().unwrap()),
        );
        assert_eq!(client(&one, &["alice"]), client(&two, &["alice"]));
        assert_ne!(client(&one, &["alice"]), client(&other, &["alice"]));
        assert_ne!(client(&one, &["alice"]), client(&one, &["bob"]));
    }

    #[test]
    fn nobody_is_named_by_nothing_by_two_or_by_too_much() {
        let named = by_header(&Key::random().unwrap());
        assert_eq!(client(&named, &[]), None);
        assert_eq!(client(&named, &[""]), None);
        assert_eq!(client(&named, &["alice", "bob"]), None);
        assert!(client(&named, &[&"a".repeat(256)]).is_some());
        assert_eq!(client(&named, &[&"a".repeat(257)]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_in_the_header_name_somebody_or_nobody(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let named = by_header(&Key::from_hex(&"31".repeat(32)).unwrap());
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let mut headers = HeaderMap::new();
                headers.insert("x-api-user", value);
                let first = named.client(&headers, || 0);
                prop_assert_eq!(first, named.client(&headers, || 9));
            }
        }
    }
}
