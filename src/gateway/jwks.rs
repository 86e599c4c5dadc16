//! The keys that bearer tokens are signed with: a JSON Web Key Set out of a file or from a URL, kept and renewed; it reads no token.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use super::fetch::{FetchError, Fetcher};

/// How often a file of keys is looked at.
const REREAD: Duration = Duration::from_secs(10);
/// Keys of one set that are kept; publishers have a handful.
const KEYS_MAX: usize = 32;

/// The keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The file cannot be read.
    #[error("identity-jwks: {from}: read it")]
    Read {
        /// The file.
        from: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing came from the URL.
    #[error("identity-jwks-url: {from}: fetch it")]
    Fetch {
        /// The URL.
        from: String,
        /// Why.
        source: FetchError,
    },
    /// A URL that keys are not fetched from.
    #[error("identity-jwks-url: {from}: {remedy}")]
    Url {
        /// The URL.
        from: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// It is no key set.
    #[error("identity-jwks: {from}: it is no JSON Web Key Set")]
    Parse {
        /// The file or URL.
        from: String,
        /// Why.
        source: serde_json::Error,
    },
    /// No key of it can be used.
    #[error("identity-jwks: {from}: it holds no key for RS256, ES256 or EdDSA")]
    Empty {
        /// The file or URL.
        from: String,
    },
}

/// Where the keys are had.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// A file, looked at every 10 s.
    File(PathBuf),
    /// A URL.
    Url(JwksUrl),
}

/// A URL that publishes keys.
#[derive(Debug, Clone)]
pub struct JwksUrl {
    /// https; http only where that is allowed.
    pub url: http::Uri,
    /// Whoever is between here and there may then say who anybody is.
    pub allow_http: bool,
    /// File with the authorities that are believed, PEM, instead of the public ones; read at each fetch.
    pub authorities: Option<PathBuf>,
    /// Between two fetches.
    pub refresh: Duration,
    /// The least between two fetches, whoever wants one.
    pub at_least: Duration,
}

impl JwksUrl {
    /// The keys at `url`, with the defaults.
    pub fn new(url: http::Uri) -> Self {
        Self {
            url,
            allow_http: false,
            authorities: None,
            refresh: Duration::from_mins(5),
            at_least: Duration::from_secs(30),
        }
    }
}

enum Origin {
    File(PathBuf),
    Url(Box<(Fetcher, JwksUrl)>),
}

/// The keys in force, and where they come from.
pub(crate) struct KeyRing {
    origin: Origin,
    keys: ArcSwap<Vec<PublicKey>>,
    settled: AtomicBool,
    /// A token named a key that is not there.
    wanted: Notify,
}

impl KeyRing {
    /// Reads the keys of a file for the first time; a URL's ring is empty until it is renewed.
    pub(crate) fn open(source: &KeySource) -> Result<Self, JwksError> {
        let (origin, keys) = match source {
            KeySource::File(path) => (Origin::File(path.clone()), read(path)?),
            KeySource::Url(url) => {
                let fetcher = Fetcher::new(&url.url, url.allow_http, url.authorities.clone());
                let fetcher = fetcher.map_err(|remedy| JwksError::Url {
                    from: url.url.to_string(),
                    remedy,
                })?;
                (Origin::Url(Box::new((fetcher, url.clone()))), Vec::new())
            }
        };
        Ok(Self {
            settled: AtomicBool::new(matches!(origin, Origin::File(_))),
            origin,
            keys: ArcSwap::from_pointee(keys),
            wanted: Notify::new(),
        })
    }

    pub(crate) fn keys(&self) -> Arc<Vec<PublicKey>> {
        self.keys.load_full()
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Has the keys fetched sooner than they would be: at most once in the least time, however often it is said.
    pub(crate) fn want(&self) {
        if matches!(self.origin, Origin::Url(..)) {
            self.wanted.notify_one();
        }
    }

    /// True when the keys are others now. What cannot be had or used changes nothing.
    pub(crate) async fn renew(&self) -> Result<bool, JwksError> {
        let got = self.load().await;
        let keys = got.inspect_err(|_| self.settled.store(true, Ordering::Relaxed))?;
        let changed = **self.keys.load() != keys;
        if changed {
            self.keys.store(Arc::new(keys));
        }
        self.settled.store(true, Ordering::Relaxed);
        Ok(changed)
    }

    async fn load(&self) -> Result<Vec<PublicKey>, JwksError> {
        match &self.origin {
            // A few KiB of a memory volume.
            Origin::File(path) => read(path),
            Origin::Url(at) => {
                let (fetcher, url) = &**at;
                let from = url.url.to_string();
                match fetcher.fetch().await {
                    Ok(text) => parse(from, &text),
                    Err(source) => Err(JwksError::Fetch { from, source }),
                }
            }
        }
    }

    /// Resolves when the keys are to be renewed after so many failures in a row.
    pub(crate) async fn due(&self, failures: u32) {
        let Origin::Url(at) = &self.origin else {
            return tokio::time::sleep(REREAD).await;
        };
        let url = &at.1;
        let pause = match failures {
            0 => url.refresh,
            _ => (url.at_least * 2_u32.saturating_pow(failures.min(10) - 1)).min(url.refresh),
        };
        let least = tokio::time::sleep(url.at_least);
        let early = async {
            self.wanted.notified().await;
            least.await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = early => {}
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key that tokens may be signed with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PublicKey {
    pub(crate) id: Option<String>,
    material: Material,
}

/// One key as RFC 7517 writes it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
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
    // A key for another algorithm is no key for ours, whatever its numbers are.
    if jwk.alg.as_deref().is_some_and(|alg| alg != material.alg()) {
        return None;
    }
    Some(PublicKey {
        id: jwk.kid.clone(),
        material,
    })
}

impl Material {
    /// The one algorithm that this project uses it with.
    fn alg(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }
}

impl PublicKey {
    /// The algorithm is the key's, and the token has to say the same: a token chooses nothing.
    pub(crate) fn verify(&self, alg: &str, message: &[u8], signature: &[u8]) -> bool {
        alg == self.material.alg()
            && match &self.material {
                Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }
                    .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                    .is_ok(),
                Material::P256(point) => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .is_ok(),
                Material::Ed25519(point) => UnparsedPublicKey::new(&signature::ED25519, point)
                    .verify(message, signature)
                    .is_ok(),
            }
    }
}

fn read(path: &std::path::Path) -> Result<Vec<PublicKey>, JwksError> {
    let from = path.display().to_string();
    match std::fs::read(path) {
        Ok(text) => parse(from, &text),
        Err(source) => Err(JwksError::Read { from, source }),
    }
}

/// The keys of a set that can be used; others are no fault of it.
fn parse(from: String, text: &[u8]) -> Result<Vec<PublicKey>, JwksError> {
    let set: Jwks = match serde_json::from_slice(text) {
        Ok(set) => set,
        Err(source) => return Err(JwksError::Parse { from, source }),
    };
    let keys: Vec<PublicKey> = set
        .keys
        .into_iter()
        .filter_map(|key| serde_json::from_value(key).ok())
        .filter_map(|key| public_key(&key))
        .take(KEYS_MAX)
        .collect();
    if keys.is_empty() {
        return Err(JwksError::Empty { from });
    }
    Ok(keys)
}
