//! Bytes on a socket: a backend that records what arrives, byte for byte, and a client that sends whatever a test wants.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::error::Elapsed;

const DEADLINE: Duration = Duration::from_secs(10);

/// One request, or as much of it as came.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// Request line and headers.
    pub(crate) head: String,
    /// The body as framed on the wire.
    pub(crate) body: Vec<u8>,
    /// It came to its end.
    pub(crate) whole: bool,
}

/// Answers every whole request with 200 and what `answer` holds.
#[derive(Clone)]
pub(crate) struct RawBackend {
    pub(crate) address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl RawBackend {
    pub(crate) async fn start() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await
    }

    pub(crate) async fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            arrivals: Arc::default(),
        };
        let own = backend.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let backend = own.clone();
                tokio::spawn(async move { backend.serve(stream, answer).await });
            }
        });
        backend
    }

    /// Answers at the end of each head, asks for no body, and records what comes all the same.
    pub(crate) async fn refusing(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            arrivals: Arc::default(),
        };
        let own = backend.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let backend = own.clone();
                tokio::spawn(async move {
                    let mut body = Vec::new();
                    let Some(head) = fill_until(&mut stream, &mut body, b"\r\n\r\n").await else {
                        return;
                    };
                    let _ = stream.write_all(answer.as_bytes()).await;
                    while stream.read_buf(&mut body).await.unwrap_or(0) > 0 {}
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let whole = false;
                    backend.arrivals.lock().push(Arrival { head, body, whole });
                });
            }
        });
        backend
    }

    async fn serve(&self, mut stream: TcpStream, answer: &str) {
        let mut buffer = Vec::new();
        while let Some(head) = fill_until(&mut stream, &mut buffer, b"\r\n\r\n").await {
            let head = String::from_utf8_lossy(&head).into_owned();
            if head.to_ascii_lowercase().contains("expect: 100-continue") {
                let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            }
            let (body, whole) = read_body(&mut stream, &mut buffer, &head).await;
            self.arrivals.lock().push(Arrival { head, body, whole });
            if !whole || stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// What has arrived, contract calls left out.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let all = self.arrivals.lock().clone();
        all.into_iter()
            .filter(|arrival| !arrival.head.contains(" /_pool/v1/"))
            .collect()
    }
}

/// Takes everything up to and with `end` out of `buffer`, reading more as needed; `None` at the stream's end.
async fn fill_until(stream: &mut TcpStream, buffer: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = buffer.windows(end.len()).position(|window| window == end) {
            let rest = buffer.split_off(at + end.len());
            return Some(std::mem::replace(buffer, rest));
        }
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

async fn read_body(stream: &mut TcpStream, buffer: &mut Vec<u8>, head: &str) -> (Vec<u8>, bool) {
    let value = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    if value("transfer-encoding").is_some() {
        let mut body = Vec::new();
        loop {
            let Some(line) = fill_until(stream, buffer, b"\r\n").await else {
                body.append(buffer);
                return (body, false);
            };
            body.extend_from_slice(&line);
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap();
            if size == 0 {
                // Trailers end with an empty line.
                loop {
                    let Some(line) = fill_until(stream, buffer, b"\r\n").await else {
                        return (body, false);
                    };
                    body.extend_from_slice(&line);
                    if line == b"\r\n" {
                        return (body, true);
                    }
                }
            }
            while buffer.len() < size + 2 {
                if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
                    body.append(buffer);
                    return (body, false);
                }
            }
            let rest = buffer.split_off(size + 2);
            body.append(buffer);
            *buffer = rest;
        }
    }
    let length: usize = value("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < length {
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return (std::mem::take(buffer), false);
        }
    }
    let rest = buffer.split_off(length);
    (std::mem::replace(buffer, rest), true)
}

/// One answer as it came.
#[derive(Debug, Clone)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl RawAnswer {
    /// Values of a header, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }
}

/// A client's connection.
pub(crate) struct RawClient {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl RawClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    /// Sends as much as the other side takes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // Who has been refused already may be cut off in the middle.
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next answer, its body too; `None` when the connection ended first. The answer to a HEAD has no body.
    pub(crate) async fn answer(&mut self, is_head: bool) -> Option<RawAnswer> {
        self.try_answer(is_head)
            .await
            .expect("neither an answer nor an end in time")
    }

    /// As `answer`; an error when neither an answer nor an end comes.
    pub(crate) async fn try_answer(&mut self, is_head: bool) -> Result<Option<RawAnswer>, Elapsed> {
        tokio::time::timeout(DEADLINE, self.read_answer(is_head)).await
    }

    async fn read_answer(&mut self, is_head: bool) -> Option<RawAnswer> {
        let head = fill_until(&mut self.stream, &mut self.buffer, b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&head).into_owned();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = if is_head || status < 200 || status == 204 || status == 304 {
            Vec::new()
        } else {
            read_body(&mut self.stream, &mut self.buffer, &head).await.0
        };
        Some(RawAnswer { status, head, body })
    }

    /// Waits until the other side has ended the connection; what still comes is returned.
    pub(crate) async fn end(&mut self) -> Vec<u8> {
        self.try_end()
            .await
            .expect("the connection was not ended in time")
    }

    /// As `end`; an error when the other side does not end it.
    pub(crate) async fn try_end(&mut self) -> Result<Vec<u8>, Elapsed> {
        let reading = async {
            // A reset is an end too.
            while self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) > 0 {}
        };
        tokio::time::timeout(DEADLINE, reading).await?;
        Ok(std::mem::take(&mut self.buffer))
    }
}
