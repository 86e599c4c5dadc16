//! Requests and answers of HTTP/2 on one shared connection, for apps that speak it and for calls whose trailers and pace HTTP/1.1 does not carry (gRPC).

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Uri, Version, response};
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;

use super::answer::Answer;
use super::{ExchangeError, Failed, Reply, Request};
use crate::net::TcpStream;

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// A peer that answers no ping is gone, and with it what waits on the connection.
const KEEPALIVE: Duration = Duration::from_secs(20);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is sent behind a head, if anything.
#[derive(Debug)]
struct Sent<B>(Option<B>);

impl<B> Body for Sent<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// One connection that all requests share; it is made with the first and again when it is gone.
#[derive(Debug)]
pub(crate) struct Multiplexed<B> {
    address: SocketAddr,
    sender: Mutex<Option<SendRequest<Sent<B>>>>,
}

impl<B> Multiplexed<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            sender: Mutex::new(None),
        }
    }

    /// Sends a request and returns as soon as the answer's head is here; bodies go both ways at their own pace.
    pub(crate) async fn exchange(
        &self,
        request: Request<'_>,
        body: Option<B>,
    ) -> Result<(response::Parts, Reply<B>), Failed> {
        let mut sender = self.sender().await.map_err(Failed::Unsent)?;
        let mut sent = http::Request::new(Sent(body));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = self.target(&request);
        *sent.version_mut() = Version::HTTP_2;
        *sent.headers_mut() = headers(&request);
        match sender.try_send_request(sent).await {
            Ok(response) => {
                let (mut head, body) = response.into_parts();
                head.version = Version::HTTP_11;
                Ok((head, Reply::Streamed(Box::new(Answer::multiplexed(body)))))
            }
            Err(mut error) => {
                let is_unsent = error.take_message().is_some();
                let error = ExchangeError::Http2(error.into_error());
                Err(if is_unsent {
                    Failed::Unsent(error)
                } else {
                    Failed::Broken(error)
                })
            }
        }
    }

    /// The whole address that HTTP/2 wants, with the host that the client meant.
    fn target(&self, request: &Request<'_>) -> Uri {
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
        let authority = host
            .and_then(|host| host.parse::<Authority>().ok())
            .or_else(|| self.address.to_string().parse().ok());
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        parts.authority = authority;
        let path = request.target.path_and_query().cloned();
        parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        Uri::from_parts(parts).unwrap_or_default()
    }

    async fn sender(&self) -> Result<SendRequest<Sent<B>>, ExchangeError> {
        let known = self.sender.lock().clone().filter(|sender| !sender.is_closed());
        if let Some(mut sender) = known
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        let stream = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(self.address))
            .await
            .map_err(std::io::Error::from)
            .and_then(|connected| connected)?;
        // A refusal is only a lost optimisation.
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ExchangeError::Http2)?;
        // How it ended is seen by whoever waits for an answer.
        tokio::spawn(connection);
        sender.ready().await.map_err(ExchangeError::Http2)?;
        *self.sender.lock() = Some(sender.clone());
        Ok(sender)
    }
}

/// All that HTTP/2 may carry: nothing of one connection, and no Host beside the authority.
fn headers(request: &Request<'_>) -> HeaderMap {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
    let mut headers = HeaderMap::with_capacity(request.headers.len() + request.more.len());
    for (name, value) in request.headers {
        if !(request.leaves_out)(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    for (name, value) in request.more {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    for name in [
        HOST,
        CONNECTION,
        UPGRADE,
        TRANSFER_ENCODING,
        TE,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        // The first window does what an expectation would.
        EXPECT,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    headers
}
