//! One browser: a cookie jar and one keep-alive connection; retries at most once, and only where no byte of an answer came.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::clock::Clock;

const MAX_BODY: usize = 1024 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A gateway that refuses connections is tried again for this long.
pub(super) const CONNECT_FOR: Duration = Duration::from_secs(5);
const CONNECT_PAUSE: Duration = Duration::from_millis(100);
const MAX_COOKIES: usize = 32;

/// The address under test: plain HTTP only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: String,
    port: u16,
}

/// Why a URL is no target.
#[derive(Debug, Error)]
#[error("url {0:?}: expected http://HOST or http://HOST:PORT")]
pub(super) struct BadUrl(String);

impl std::str::FromStr for Target {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if uri.path() == "/" => Ok(Self {
                host: host.to_owned(),
                port: uri.port_u16().unwrap_or(80),
            }),
            _ => Err(bad()),
        }
    }
}

impl Target {
    /// The value of the Host header.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// One connection.
    pub(super) async fn connect(&self) -> std::io::Result<TcpStream> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Cookies as a browser keeps them for one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Jar(Arc<Mutex<BTreeMap<String, String>>>);

impl Jar {
    /// Keeps what an answer sets, and drops what it takes back.
    pub(super) fn keep(&self, headers: &HeaderMap) {
        let mut held = self.0.lock();
        for line in headers
            .get_all(header::SET_COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
        {
            let mut parts = line.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            let over = parts.any(|part| part.to_ascii_lowercase().replace(' ', "") == "max-age=0");
            if over || value.is_empty() {
                held.remove(name);
            } else if held.contains_key(name) || held.len() < MAX_COOKIES {
                held.insert(name.to_owned(), value.to_owned());
            }
        }
    }

    /// The Cookie header, if there is any cookie.
    pub(super) fn header(&self) -> Option<String> {
        let held = self.0.lock();
        let line: Vec<String> = held
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        (!line.is_empty()).then(|| line.join("; "))
    }
}

/// A finished exchange.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// From sending to the first byte of the answer, a retry included.
    pub(super) first_byte: Duration,
}

/// How a request went.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) result: Result<Reply, ExchangeError>,
    /// It was sent once more after a refusal or a reset.
    pub(super) retried: bool,
    /// It may have been executed more often than it was answered.
    pub(super) unsure: bool,
}

/// Why there is no whole answer.
#[derive(Debug, Error)]
pub(super) enum ExchangeError {
    #[error("connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error("broken off before an answer: {0}")]
    Reset(#[source] hyper::Error),
    #[error("broken off within the answer")]
    Body,
    #[error("no answer in time")]
    Timeout,
    #[error("request could not be built: {0}")]
    Request(#[source] http::Error),
}

/// A browser of one user.
pub(super) struct Browser {
    target: Target,
    clock: Clock,
    pub(super) jar: Jar,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Browser {
    pub(super) fn new(target: Target, clock: Clock) -> Self {
        Self {
            target,
            clock,
            jar: Jar::default(),
            sender: None,
        }
    }

    /// Sends one request, with JSON if `body` is some.
    pub(super) async fn send(&mut self, method: Method, path: &str, body: Option<String>) -> Exchange {
        let started = self.clock.now();
        let mut exchange = Exchange {
            result: Err(ExchangeError::Timeout),
            retried: false,
            unsure: false,
        };
        if let Ok(result) = timeout(REQUEST_TIMEOUT, self.attempts(&method, path, body, &mut exchange)).await
        {
            exchange.result = result.map(|(head, body, at)| Reply {
                status: head.status,
                headers: head.headers,
                body,
                first_byte: at.saturating_sub(started),
            });
        } else {
            self.sender = None;
            exchange.unsure = true;
        }
        exchange
    }

    /// Waits until the other side has closed the idle connection.
    #[cfg(test)]
    pub(super) async fn until_closed(&self) {
        while self.sender.as_ref().is_some_and(|sender| !sender.is_closed()) {
            tokio::task::yield_now().await;
        }
    }

    async fn attempts(
        &mut self,
        method: &Method,
        path: &str,
        body: Option<String>,
        notes: &mut Exchange,
    ) -> Result<(http::response::Parts, Bytes, Duration), ExchangeError> {
        let mut resent = false;
        let response = loop {
            let (mut sender, fresh) = match self.idle().await {
                Some(sender) => (sender, false),
                None => (self.open(&mut notes.retried).await?, true),
            };
            let request = self.request(method, path, body.clone())?;
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.sender = Some(sender);
                    break response;
                }
                // An idle connection that the other side had closed: nothing was sent, any browser opens a new one.
                Err(error) if error.message().is_some() && !fresh => {}
                Err(error) => {
                    notes.unsure |= error.message().is_none();
                    if std::mem::replace(&mut resent, true) {
                        return Err(ExchangeError::Reset(error.into_error()));
                    }
                    notes.retried = true;
                }
            }
        };
        let at = self.clock.now();
        self.jar.keep(response.headers());
        let (head, body) = response.into_parts();
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            self.sender = None;
            return Err(ExchangeError::Body);
        };
        Ok((head, body.to_bytes(), at))
    }

    async fn idle(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = self.sender.take()?;
        sender.ready().await.is_ok().then_some(sender)
    }

    async fn open(&self, retried: &mut bool) -> Result<SendRequest<Full<Bytes>>, ExchangeError> {
        let began = self.clock.now();
        let stream = loop {
            match self.target.connect().await {
                Ok(stream) => break stream,
                Err(error) if self.clock.now().saturating_sub(began) >= CONNECT_FOR => {
                    return Err(ExchangeError::Connect(error));
                }
                Err(_) => {
                    *retried = true;
                    tokio::time::sleep(CONNECT_PAUSE).await;
                }
            }
        };
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(ExchangeError::Reset)?;
        tokio::spawn(async move {
            // Its errors reach whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Request<Full<Bytes>>, ExchangeError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.target.authority());
        if let Some(cookies) = self.jar.header() {
            request = request.header(header::COOKIE, cookies);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::from(body.unwrap_or_default()))
            .map_err(ExchangeError::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_jar_keeps_the_newest_value_and_drops_what_is_taken_back() {
        let jar = Jar::default();
        let set = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::SET_COOKIE, HeaderValue::from_static(line));
            }
            jar.keep(&headers);
            jar.header()
        };
        assert_eq!(
            set(&["a=1; Path=/; HttpOnly", "b=x=y; Secure"]).as_deref(),
            Some("a=1; b=x=y")
        );
        assert_eq!(set(&["a=2"]).as_deref(), Some("a=2; b=x=y"));
        assert_eq!(set(&["a=; Path=/; Max-Age=0", "b=gone; max-age=0"]), None);
    }

    #[test]
    fn only_a_plain_http_address_is_a_target() {
        assert_eq!("http://h:81".parse::<Target>().unwrap().authority(), "h:81");
        assert_eq!("http://h/".parse::<Target>().unwrap().authority(), "h:80");
        for bad in ["https://h", "h:81", "http://h/path", ""] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
