//! TLS from clients: the certificate of a mounted Secret, read again when it changes, and the handshake; it speaks no HTTP.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use ring::digest;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, crypto};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::net::TcpStream;

/// As a Secret of type kubernetes.io/tls names its parts.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// What a client may choose from, the best first.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];

/// TLS on the port that clients connect to, which then speaks nothing else.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// Folder with tls.crt (the chain, its own certificate first) and tls.key, both PEM.
    pub folder: PathBuf,
    /// How often that folder is looked at.
    pub reread: Duration,
    /// For a client to finish its handshake.
    pub handshake_timeout: Duration,
}

impl TlsConfig {
    /// The certificate in `folder`, with the defaults.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            reread: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

/// A certificate cannot be used, or no TLS be spoken with it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("tls-dir: {path}: read it")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no PEM of what it should be.
    #[error("tls-dir: {path}: it holds no {wanted} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing.
        wanted: &'static str,
    },
    /// Certificate and key are no pair, or of a kind that is not known.
    #[error("tls-dir: {folder}: tls.crt and tls.key cannot be used together")]
    Pair {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The versions, or the key of session tickets.
    #[error("set TLS up")]
    SetUp(#[from] rustls::Error),
}

/// The certificate in force; none until a usable one was read.
#[derive(Debug)]
struct Certificates {
    folder: PathBuf,
    current: ArcSwapOption<CertifiedKey>,
    /// What the last look found: a digest of both files, or why there is none.
    last: Mutex<String>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

impl Certificates {
    /// Reads the folder; what cannot be used changes nothing and is told once.
    fn refresh(&self) {
        let found = self.read();
        let said = match &found {
            Ok((digest, _)) => digest.clone(),
            Err(error) => with_sources(error),
        };
        let mut last = self.last.lock();
        if *last == said {
            return;
        }
        match found {
            Ok((_, key)) => {
                self.current.store(Some(Arc::new(key)));
                tracing::info!(folder = %self.folder.display(), "a new certificate is in force");
            }
            Err(error) => {
                let (error, kept) = (&error as &dyn std::error::Error, self.current.load().is_some());
                tracing::error!(
                    error,
                    kept,
                    "no usable certificate; the one before stays where there is one"
                );
            }
        }
        *last = said;
    }

    fn read(&self) -> Result<(String, CertifiedKey), TlsError> {
        let (chain, key) = (self.file(CERTIFICATE)?, self.file(KEY)?);
        let mut both = digest::Context::new(&digest::SHA256);
        both.update(&chain);
        both.update(&key);
        let digest = crate::credentials::hex_encode(both.finish().as_ref());
        let no_pem = |name: &str, wanted| TlsError::Pem {
            path: self.folder.join(name),
            wanted,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| no_pem(CERTIFICATE, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| no_pem(KEY, "private key"))?;
        let pair = CertifiedKey::from_der(chain, key, &crypto::ring::default_provider());
        let pair = pair.map_err(|source| TlsError::Pair {
            folder: self.folder.clone(),
            source,
        })?;
        Ok((digest, pair))
    }

    fn file(&self, name: &str) -> Result<Vec<u8>, TlsError> {
        let path: &Path = &self.folder.join(name);
        std::fs::read(path).map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

/// A handshake did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the handshake took too long")]
    Late,
    #[error("the handshake failed")]
    Failed(#[source] io::Error),
}

/// The serving side of TLS.
#[derive(Clone)]
pub(crate) struct Tls {
    certificates: Arc<Certificates>,
    acceptor: TlsAcceptor,
    reread: Duration,
    handshake_timeout: Duration,
}

impl Tls {
    /// Reads the certificate for the first time. Without a usable one every handshake fails, until there is one.
    pub(crate) fn new(config: &TlsConfig) -> Result<Self, TlsError> {
        let certificates = Arc::new(Certificates {
            folder: config.folder.clone(),
            current: ArcSwapOption::empty(),
            last: Mutex::default(),
        });
        certificates.refresh();
        let provider = Arc::new(crypto::ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificates) as _);
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // Sessions go on without state of ours, and one ticket a handshake is enough for that.
        server.ticketer = crypto::ring::Ticketer::new()?;
        server.send_tls13_tickets = 1;
        Ok(Self {
            certificates,
            acceptor: TlsAcceptor::from(Arc::new(server)),
            reread: config.reread,
            handshake_timeout: config.handshake_timeout,
        })
    }

    /// Why nobody can connect, while there is no certificate.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_there = self.certificates.current.load().is_some();
        (!is_there).then(|| self.certificates.last.lock().clone())
    }

    /// Takes renewed certificates until `stop`; open connections keep theirs.
    pub(crate) async fn keep_fresh(self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(self.reread);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let certificates = Arc::clone(&self.certificates);
            // A panic was logged; the next look is a new one.
            let _ = tokio::task::spawn_blocking(move || certificates.refresh()).await;
        }
    }

    /// What the client says from here on, once it has agreed.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, HandshakeError> {
        tokio::time::timeout(self.handshake_timeout, self.acceptor.accept(stream))
            .await
            .map_err(|_| HandshakeError::Late)?
            .map_err(HandshakeError::Failed)
    }
}
