//! A browser, as far as a gateway can tell: one connection per request, and one affinity cookie.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The affinity cookies that this answer sets.
    pub(crate) fn cookies(&self) -> Vec<String> {
        let lines = self
            .headers
            .get_all("set-cookie")
            .iter()
            .map(|value| value.to_str().unwrap());
        lines
            .filter(|line| line.contains("pool-affinity="))
            .map(|line| line.split(';').next().unwrap().to_owned())
            .collect()
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Answer, hyper::Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Browser {
    pub(crate) address: SocketAddr,
    pub(crate) cookie: Option<String>,
}

impl Browser {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            cookie: None,
        }
    }

    pub(crate) fn request(&self, path: &str) -> http::request::Builder {
        let request = Request::builder().uri(path).header("host", "shop.test");
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        let request = self.request(path).body(Full::default()).unwrap();
        self.send(request).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Vec<u8>) -> Answer {
        let request = self.request(path).method("POST").body(Full::from(body)).unwrap();
        self.send(request).await
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let answer = send(self.address, request).await.unwrap();
        let cookies = answer.cookies();
        assert!(cookies.len() <= 1, "more than one cookie: {cookies:?}");
        if let Some(cookie) = cookies.into_iter().next() {
            self.cookie = Some(cookie);
        }
        answer
    }
}
