//! A browser: all cookies of one site, one connection per request.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The affinity cookie's name where no TLS is used.
pub(crate) const AFFINITY: &str = "pool-affinity";

/// Why there was no answer.
pub(crate) type NoAnswer = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// How many affinity cookies this answer sets.
    pub(crate) fn affinities(&self) -> usize {
        let set = self.headers.get_all("set-cookie").iter();
        set.filter(|value| value.as_bytes().starts_with(AFFINITY.as_bytes()))
            .count()
    }
}

pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Answer, NoAnswer> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
    })
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Result<Answer, NoAnswer> {
    let request = Request::builder().uri(path).header("host", address.to_string());
    send(address, request.body(Full::default())?).await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> Result<Answer, NoAnswer> {
    let request = Request::post(path)
        .header("host", address.to_string())
        .header("content-type", "application/json");
    send(address, request.body(Full::from(body.to_owned()))?).await
}

#[derive(Debug, Clone)]
pub(crate) struct Browser {
    pub(crate) address: SocketAddr,
    pub(crate) jar: BTreeMap<String, String>,
    /// Sent with every request, as a client that makes them up would.
    pub(crate) extra: Vec<(&'static str, String)>,
}

impl Browser {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            jar: BTreeMap::new(),
            extra: Vec::new(),
        }
    }

    /// A browser in which this user has logged in.
    pub(crate) async fn logged_in(address: SocketAddr, user: &str) -> Self {
        let mut browser = Self::new(address);
        let answer = browser.login(user).await;
        assert_eq!((answer.status, &answer.json()["user"]), (200, &Value::from(user)));
        browser
    }

    pub(crate) async fn login(&mut self, user: &str) -> Answer {
        let body = serde_json::json!({ "user": user }).to_string();
        self.exchange("POST", "/login", body).await
    }

    /// Counts once more; what the app says.
    pub(crate) async fn count(&mut self) -> Value {
        let answer = self.exchange("POST", "/work?counter=1", String::new()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Looks at the counter without changing it.
    pub(crate) async fn look(&mut self) -> Answer {
        self.exchange("GET", "/work?counter=0", String::new()).await
    }

    pub(crate) async fn exchange(&mut self, method: &str, path: &str, body: String) -> Answer {
        self.try_exchange(method, path, body).await.unwrap()
    }

    pub(crate) async fn try_exchange(
        &mut self,
        method: &str,
        path: &str,
        body: String,
    ) -> Result<Answer, NoAnswer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json");
        if !self.jar.is_empty() {
            let pairs: Vec<String> = self
                .jar
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            request = request.header("cookie", pairs.join("; "));
        }
        for (name, value) in &self.extra {
            request = request.header(*name, value);
        }
        let answer = send(self.address, request.body(Full::from(body))?).await?;
        for line in answer.headers.get_all("set-cookie") {
            let pair = line.to_str()?.split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                self.jar.insert(name.to_owned(), value.to_owned());
            }
        }
        Ok(answer)
    }
}
