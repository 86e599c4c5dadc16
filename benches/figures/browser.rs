//! A user's browser, as thin as it can be: one keep-alive connection, his cookies, one request at a time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elastic_pool::clock::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer later than this is a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// One user's connection.
pub(crate) struct Browser {
    stream: TcpStream,
    host: String,
    cookies: BTreeMap<String, String>,
    clock: Clock,
    received: Vec<u8>,
}

/// An answer with status 2xx.
pub(crate) struct Answer {
    /// The whole body.
    pub(crate) body: String,
    /// From the send to the answer's first byte.
    pub(crate) first_byte: Duration,
    /// The gateway says that the request was held.
    pub(crate) held: bool,
}

impl Browser {
    /// A new guest.
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("connect")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            host: address.to_string(),
            cookies: BTreeMap::new(),
            clock: Clock::start(),
            received: Vec::with_capacity(4096),
        })
    }

    /// A new connection with the cookies of the old one.
    pub(crate) async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.stream = TcpStream::connect(self.host.as_str()).await.context("connect")?;
        Ok(self.stream.set_nodelay(true)?)
    }

    /// Comes as a guest and logs in.
    pub(crate) async fn log_in(address: SocketAddr, user: &str) -> anyhow::Result<Self> {
        let mut browser = Self::connect(address).await?;
        browser.get("/work?counter=0").await?;
        let body = serde_json::json!({ "user": user }).to_string();
        browser
            .exchange(&browser.request("POST", "/login", &body))
            .await?;
        Ok(browser)
    }

    /// Sends a GET and takes the answer.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        self.exchange(&self.request("GET", path, "")).await
    }

    /// Sends a POST without a body and takes the answer.
    pub(crate) async fn post(&mut self, path: &str) -> anyhow::Result<Answer> {
        self.exchange(&self.request("POST", path, "")).await
    }

    /// A request as it goes over the wire, with the cookies of now.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut lines = vec![
            format!("{method} {path} HTTP/1.1"),
            format!("host: {}", self.host),
        ];
        if !cookies.is_empty() {
            lines.push(format!("cookie: {}", cookies.join("; ")));
        }
        if method == "POST" {
            lines.push("content-type: application/json".to_owned());
            lines.push(format!("content-length: {}", body.len()));
        }
        (lines.join("\r\n") + "\r\n\r\n" + body).into_bytes()
    }

    /// Sends a request and takes its answer; anything but 2xx is an error.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        tokio::time::timeout(LIMIT, self.sent_and_answered(request))
            .await
            .context("no answer in time")?
    }

    async fn sent_and_answered(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        let began = self.clock.now();
        self.stream.write_all(request).await.context("send")?;
        self.received.clear();
        let mut first_byte = Duration::ZERO;
        let head_end = loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("the connection ended before an answer");
            }
            if first_byte.is_zero() {
                first_byte = self.clock.now().saturating_sub(began);
            }
            if let Some(at) = self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(&self.received[..head_end])?;
        if !head.starts_with("HTTP/1.1 2") {
            bail!("answered with {}", head.lines().next().unwrap_or_default());
        }
        let (mut length, mut waited) = (None, false);
        for line in head.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<usize>().ok();
            } else if name.eq_ignore_ascii_case("server-timing") {
                waited |= value.trim_start().starts_with("hold;");
            } else if name.eq_ignore_ascii_case("set-cookie")
                && let Some((name, value)) = value
                    .split(';')
                    .next()
                    .and_then(|pair| pair.trim().split_once('='))
            {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let whole = head_end + length.context("an answer without its length")?;
        while self.received.len() < whole {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("the connection ended within an answer");
            }
        }
        Ok(Answer {
            body: String::from_utf8_lossy(&self.received[head_end..whole]).into_owned(),
            first_byte,
            held: waited,
        })
    }
}
