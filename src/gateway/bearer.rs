//! Verifies bearer tokens (JWT: RS256, ES256, EdDSA) and reads one claim of them; it issues none, and where their keys come from is not its business.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use prometheus::IntCounter;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::jwks::{JwksError, KeyRing, KeySource, PublicKey};

/// Longest token that is looked at.
const MAX_TOKEN: usize = 8 * 1024;
/// How far clocks may be apart, in seconds.
const LEEWAY: u64 = 30;
/// Verified tokens that are remembered.
const REMEMBERED: usize = 4096;

/// What is wanted of a token besides a right signature and its times.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    /// The claim that is read.
    pub(crate) claim: String,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood: none is.
    crit: Option<Value>,
}

struct Remembered {
    claim: Arc<str>,
    from: u64,
    until: u64,
}

/// The keys, and the tokens that were right.
pub(crate) struct Verifier {
    checks: Checks,
    ring: KeyRing,
    remembered: Mutex<HashMap<Box<str>, Remembered>>,
}

/// How often the keys were renewed, and how often not.
#[derive(Debug, Clone)]
pub(crate) struct RenewalCounters {
    pub(crate) renewed: IntCounter,
    pub(crate) failed: IntCounter,
}

impl Verifier {
    /// Reads the keys of a file for the first time; a URL's come later.
    pub(crate) fn open(checks: Checks, source: &KeySource) -> Result<Self, JwksError> {
        Ok(Self {
            checks,
            ring: KeyRing::open(source)?,
            remembered: Mutex::default(),
        })
    }

    /// Fetches the keys again. Tokens of keys that are gone are believed no longer; what is no key set changes nothing.
    pub(crate) async fn renew(&self) -> Result<(), JwksError> {
        if self.ring.renew().await? {
            self.remembered.lock().clear();
        }
        Ok(())
    }

    /// Keeps the keys fresh until `stop`.
    pub(crate) async fn keep_fresh(self: Arc<Self>, stop: CancellationToken, counters: RenewalCounters) {
        let mut failures = 0;
        loop {
            match stop.run_until_cancelled(self.renew()).await {
                None => return,
                Some(Ok(())) => {
                    failures = 0;
                    counters.renewed.inc();
                }
                Some(Err(error)) => {
                    failures += 1;
                    counters.failed.inc();
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, failures, "the keys of bearer tokens stay as they were");
                }
            }
            if stop.run_until_cancelled(self.ring.due(failures)).await.is_none() {
                return;
            }
        }
    }

    /// False until the keys were there once or could not be had: so long tokens say nothing.
    pub(crate) fn is_settled(&self) -> bool {
        self.ring.is_settled()
    }

    /// The claim of a token that is right now; `None` for any other.
    pub(crate) fn claim(&self, token: &str, now: u64) -> Option<Arc<str>> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        if let Some(known) = self.remembered.lock().get(token) {
            return (known.from <= now && now < known.until).then(|| Arc::clone(&known.claim));
        }
        let keys = self.ring.keys();
        let right = self.check(&keys, token)?;
        let claim = (right.from <= now && now < right.until).then(|| Arc::clone(&right.claim));
        let mut remembered = self.remembered.lock();
        // A refresh in between has dropped what its keys do not vouch for.
        if Arc::ptr_eq(&keys, &self.ring.keys()) {
            if remembered.len() >= REMEMBERED {
                remembered.clear();
            }
            remembered.insert(token.into(), right);
        }
        claim
    }

    fn check(&self, keys: &[PublicKey], token: &str) -> Option<Remembered> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if header.kid.is_some() && !keys.iter().any(|key| key.id == header.kid) {
            // Perhaps one of tomorrow's; nobody waits for it.
            self.ring.want();
        }
        let fits = |key: &&PublicKey| header.kid.is_none() || key.id.is_none() || key.id == header.kid;
        keys.iter()
            .filter(fits)
            .find(|key| key.verify(&header.alg, message.as_bytes(), &signature))?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        self.read_claims(&claims)
    }

    fn read_claims(&self, claims: &Value) -> Option<Remembered> {
        let is = |wanted: &Option<String>, name: &str| {
            wanted.as_deref().is_none_or(|wanted| match &claims[name] {
                Value::String(said) => said == wanted,
                Value::Array(all) => all.iter().any(|said| said == wanted),
                _ => false,
            })
        };
        if !is(&self.checks.issuer, "iss") || !is(&self.checks.audience, "aud") {
            return None;
        }
        // A time that is no number is no time: such a token is right at no time.
        let time = |name: &str, absent: u64| match claims.get(name) {
            None => Some(absent),
            Some(time) => whole_seconds(time),
        };
        Some(Remembered {
            claim: Arc::from(claims[&self.checks.claim].as_str()?),
            from: time("nbf", 0)?.saturating_sub(LEEWAY),
            until: time("exp", u64::MAX)?.saturating_add(LEEWAY),
        })
    }
}

/// A NumericDate (RFC 7519), which may have a fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive; what is beyond is saturated"
)]
fn whole_seconds(time: &Value) -> Option<u64> {
    time.as_u64()
        .or_else(|| time.as_f64().filter(|time| *time >= 0.0).map(|time| time as u64))
}

#[cfg(test)]
#[path = "bearer_tests.rs"]
mod tests;
