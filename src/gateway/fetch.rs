//! Fetches one small document by https: bounded in time and size, no redirects; it knows nothing of what it fetches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri, uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, crypto};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For all of it: names, connection, handshake, answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of the document.
const SIZE_MAX: usize = 256 * 1024;

/// Nothing usable came.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It took more than 10 s.
    #[error("it took longer than 10 s")]
    Late,
    /// Nobody listens there, or not by TLS that is believed.
    #[error("connect")]
    Connect(#[source] std::io::Error),
    /// The authorities cannot be read.
    #[error("{path}: it holds no authority's certificate in PEM")]
    Authorities {
        /// The file.
        path: PathBuf,
    },
    /// No TLS.
    #[error("set TLS up")]
    Tls(#[from] rustls::Error),
    /// It is no HTTP.
    #[error("ask")]
    Http(#[from] hyper::Error),
    /// Another answer than 200; redirects are not followed.
    #[error("it answered {0}, and only 200 is an answer")]
    Status(StatusCode),
    /// It broke off, or is longer than 256 KiB.
    #[error("read the answer, of at most 256 KiB")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// One document's address.
pub(crate) struct Fetcher {
    host: String,
    port: u16,
    authority: uri::Authority,
    path: uri::PathAndQuery,
    /// Absent: cleartext.
    name: Option<ServerName<'static>>,
    /// Absent: the public ones.
    authorities: Option<PathBuf>,
}

impl Fetcher {
    /// Errors: what would be right.
    pub(crate) fn new(
        url: &Uri,
        allow_http: bool,
        authorities: Option<PathBuf>,
    ) -> Result<Self, &'static str> {
        let parts = url.clone().into_parts();
        let authority = parts
            .authority
            .ok_or("write a URL such as https://idp.example/keys")?;
        if authority.as_str().contains('@') {
            return Err("take the user and password out: keys are public");
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let is_tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") if allow_http => false,
            _ => return Err("write https://, or allow http where nobody else can answer"),
        };
        let name = ServerName::try_from(host.clone()).map_err(|_| "name a host or an address")?;
        Ok(Self {
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            name: is_tls.then_some(name),
            host,
            authority,
            path: parts
                .path_and_query
                .unwrap_or_else(|| uri::PathAndQuery::from_static("/")),
            authorities,
        })
    }

    pub(crate) async fn fetch(&self) -> Result<Bytes, FetchError> {
        tokio::time::timeout(LIMIT, self.get())
            .await
            .map_err(|_| FetchError::Late)?
    }

    async fn get(&self) -> Result<Bytes, FetchError> {
        // Before anything is sent: who is to be believed.
        let connector = self.name.as_ref().map(|_| self.connector()).transpose()?;
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(FetchError::Connect)?;
        match (connector, &self.name) {
            (Some(connector), Some(name)) => {
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(FetchError::Connect)?;
                self.ask(stream).await
            }
            _ => self.ask(stream).await,
        }
    }

    fn connector(&self) -> Result<TlsConnector, FetchError> {
        let roots = match &self.authorities {
            None => webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(),
            Some(path) => named(path).ok_or_else(|| FetchError::Authorities { path: path.clone() })?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Bytes, FetchError> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let ask = async {
            let mut request = Request::new(Empty::<Bytes>::new());
            *request.uri_mut() = Uri::from(self.path.clone());
            let headers = request.headers_mut();
            if let Ok(host) = self.authority.as_str().parse() {
                headers.insert(HOST, host);
            }
            headers.insert(
                ACCEPT,
                http::HeaderValue::from_static("application/jwk-set+json, application/json"),
            );
            headers.insert(USER_AGENT, http::HeaderValue::from_static("elastic-pool"));
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), SIZE_MAX).collect().await;
            Ok(body.map_err(FetchError::Body)?.to_bytes())
        };
        // The connection goes with the question: nothing of it is left behind.
        let mut connection = std::pin::pin!(connection);
        let mut ask = std::pin::pin!(ask);
        tokio::select! {
            biased;
            answer = &mut ask => answer,
            _ = &mut connection => ask.await,
        }
    }
}

fn named(path: &Path) -> Option<RootCertStore> {
    let text = std::fs::read(path).ok()?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.ok()?).ok()?;
    }
    (!roots.is_empty()).then_some(roots)
}
