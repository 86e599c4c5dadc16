//! Verifies bearer tokens (JWT: RS256, ES256, EdDSA) with the keys of a file and reads one claim of them; it issues and fetches nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Longest token that is looked at.
const MAX_TOKEN: usize = 8 * 1024;
/// How far clocks may be apart, in seconds.
const LEEWAY: u64 = 30;
/// Verified tokens that are remembered.
const REMEMBERED: usize = 4096;
/// How often the file of keys is looked at.
const REREAD: Duration = Duration::from_secs(10);

/// The file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// It cannot be read.
    #[error("identity-jwks: {path}: read it")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no key set.
    #[error("identity-jwks: {path}: it is no JSON Web Key Set")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// No key of it can be used.
    #[error("identity-jwks: {path}: it holds no key for RS256, ES256 or EdDSA")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What is wanted of a token besides a right signature and its times.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    /// The claim that is read.
    pub(crate) claim: String,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
struct PublicKey {
    id: Option<String>,
    material: Material,
}

/// One key as RFC 7517 writes it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
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
    path: PathBuf,
    keys: ArcSwap<Vec<PublicKey>>,
    remembered: Mutex<HashMap<Box<str>, Remembered>>,
}

fn decoded(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}

fn public_key(jwk: &Jwk) -> Option<PublicKey> {
    if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return None;
    }
    let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => Material::Rsa {
            n: decoded(jwk.n.as_ref())?,
            e: decoded(jwk.e.as_ref())?,
        },
        ("EC", Some("P-256")) => {
            let (x, y) = (decoded(jwk.x.as_ref())?, decoded(jwk.y.as_ref())?);
            Material::P256([&[4], x.as_slice(), y.as_slice()].concat())
        }
        ("OKP", Some("Ed25519")) => Material::Ed25519(decoded(jwk.x.as_ref())?),
        _ => return None,
    };
    Some(PublicKey {
        id: jwk.kid.clone(),
        material,
    })
}

impl PublicKey {
    /// The algorithm is the key's, and the token has to say the same: a token chooses nothing.
    fn verify(&self, alg: &str, message: &[u8], signature: &[u8]) -> bool {
        match (&self.material, alg) {
            (Material::Rsa { n, e }, "RS256") => RsaPublicKeyComponents { n, e }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            (Material::P256(point), "ES256") => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .is_ok()
            }
            (Material::Ed25519(point), "EdDSA") => UnparsedPublicKey::new(&signature::ED25519, point)
                .verify(message, signature)
                .is_ok(),
            _ => false,
        }
    }
}

impl Verifier {
    /// Reads the keys for the first time.
    pub(crate) fn open(checks: Checks, path: PathBuf) -> Result<Self, JwksError> {
        let keys = read(&path)?;
        Ok(Self {
            checks,
            path,
            keys: ArcSwap::from_pointee(keys),
            remembered: Mutex::default(),
        })
    }

    /// Reads the keys again. Tokens of keys that are gone are believed no longer; what is no key set changes nothing.
    pub(crate) fn refresh(&self) -> Result<(), JwksError> {
        let keys = read(&self.path)?;
        if **self.keys.load() != keys {
            self.keys.store(Arc::new(keys));
            self.remembered.lock().clear();
        }
        Ok(())
    }

    /// Keeps the keys fresh until `stop`.
    pub(crate) async fn keep_fresh(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(REREAD);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let own = Arc::clone(&self);
            let read = tokio::task::spawn_blocking(move || own.refresh()).await;
            if let Ok(Err(error)) = read {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the keys of bearer tokens stay as they were");
            }
        }
    }

    /// The claim of a token that is right now; `None` for any other.
    pub(crate) fn claim(&self, token: &str, now: u64) -> Option<Arc<str>> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        if let Some(known) = self.remembered.lock().get(token) {
            return (known.from <= now && now < known.until).then(|| Arc::clone(&known.claim));
        }
        let keys = self.keys.load();
        let right = self.check(&keys, token)?;
        let claim = (right.from <= now && now < right.until).then(|| Arc::clone(&right.claim));
        let mut remembered = self.remembered.lock();
        // A refresh in between has dropped what its keys do not vouch for.
        if Arc::ptr_eq(&keys, &self.keys.load()) {
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

fn read(path: &std::path::Path) -> Result<Vec<PublicKey>, JwksError> {
    let text = std::fs::read(path).map_err(|source| JwksError::Read {
        path: path.to_owned(),
        source,
    })?;
    let set: Jwks = serde_json::from_slice(&text).map_err(|source| JwksError::Parse {
        path: path.to_owned(),
        source,
    })?;
    let keys: Vec<PublicKey> = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .filter_map(|key| public_key(&key))
        .collect();
    if keys.is_empty() {
        return Err(JwksError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(keys)
}

#[cfg(test)]
#[path = "bearer_tests.rs"]
mod tests;
