//! Tokens and whoever publishes the keys that they are signed with.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::authority::Authority;

pub(crate) struct Signer {
    key: Ed25519KeyPair,
    id: &'static str,
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(crate) fn new(id: &'static str, seed: u8) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Self { key, id }
    }

    pub(crate) fn jwk(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": encoded(self.key.public_key())})
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let message = self.message("EdDSA", claims);
        let signature = self.key.sign(message.as_bytes());
        format!("{message}.{}", encoded(signature))
    }

    /// Not signed at all, and says so.
    pub(crate) fn unsigned(&self, claims: &Value) -> String {
        format!("{}.", self.message("none", claims))
    }

    /// Signed with what everybody knows: the public key as the secret of a symmetric algorithm.
    pub(crate) fn confused(&self, claims: &Value) -> String {
        let message = self.message("HS256", claims);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.public_key().as_ref());
        format!("{message}.{}", encoded(hmac::sign(&key, message.as_bytes())))
    }

    fn message(&self, alg: &str, claims: &Value) -> String {
        let header = json!({"alg": alg, "kid": self.id, "typ": "JWT"});
        format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
    }
}

/// What a publisher answers.
#[derive(Clone)]
pub(crate) enum Publishes {
    Keys(Vec<Value>),
    Text(StatusCode, Bytes),
    /// Without end.
    Endless,
    /// Breaks off.
    Nothing,
}

/// Publishes keys by https under an address of loopback.
pub(crate) struct Publisher {
    pub(crate) url: http::Uri,
    pub(crate) says: Arc<Mutex<Publishes>>,
    asked: Arc<AtomicUsize>,
}

fn answer(says: Publishes) -> Result<Response<BoxBody<Bytes, Infallible>>, std::io::Error> {
    let whole = |status, text: Bytes| {
        Response::builder()
            .status(status)
            .body(Full::new(text).boxed())
            .unwrap()
    };
    match says {
        Publishes::Keys(keys) => Ok(whole(StatusCode::OK, json!({"keys": keys}).to_string().into())),
        Publishes::Text(status, text) => Ok(whole(status, text)),
        Publishes::Endless => {
            let pieces = futures::stream::repeat(Bytes::from_static(&[b' '; 8192]));
            let body = StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))));
            Ok(Response::new(http_body_util::BodyExt::boxed(body)))
        }
        Publishes::Nothing => Err(std::io::Error::other("breaks off")),
    }
}

impl Publisher {
    pub(crate) async fn start(authority: &Authority, says: Publishes) -> Self {
        let acceptor = authority.acceptor("127.0.0.1");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/keys", listener.local_addr().unwrap());
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(AtomicUsize::new(0)));
        let (own_says, own_asked) = (Arc::clone(&says), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (says, asked, acceptor) =
                    (Arc::clone(&own_says), Arc::clone(&own_asked), acceptor.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |_: Request<Incoming>| {
                        asked.fetch_add(1, Ordering::Relaxed);
                        let says = says.lock().clone();
                        async move { answer(says) }
                    });
                    let connection = hyper::server::conn::http1::Builder::new();
                    // Breaking off is what some of them are for.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            url: url.parse().unwrap(),
            says,
            asked,
        }
    }

    pub(crate) fn says(&self, says: Publishes) {
        *self.says.lock() = says;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}
