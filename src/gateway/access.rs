//! The access log: one line of JSON per request, written by a thread of its own; it slows no request down and names no user.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, request};
use prometheus::IntCounter;
use serde_json::json;

use super::forwarded::Peer;
use super::metrics::Outcome;
use crate::clock::unix_seconds;
use crate::credentials::{NoRandomness, hex_encode, random_bytes};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Lines that may wait for the disk or the pipe; more are dropped and counted.
const QUEUE: usize = 8192;
/// Longest request id that a trusted proxy may give.
const ID_MAX: usize = 128;

/// Where lines go.
pub(crate) struct AccessLog {
    lines: SyncSender<String>,
    dropped: IntCounter,
    /// Of this process; with a number it makes ids that no other process makes.
    prefix: String,
    next: AtomicU64,
}

/// The log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AccessLogError {
    /// The file.
    #[error("access-log: {path}: open it to append")]
    Open {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The thread that writes.
    #[error("access-log: start its thread")]
    Thread(#[source] std::io::Error),
    /// No prefix of ids.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
}

impl AccessLog {
    /// Opens the log at `path`; `-` is standard output. `dropped` counts lines that found no room.
    pub(crate) fn open(path: &Path, dropped: IntCounter) -> Result<Arc<Self>, AccessLogError> {
        let sink: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(std::io::stdout())
        } else {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Box::new(file.map_err(|source| AccessLogError::Open {
                path: path.display().to_string(),
                source,
            })?)
        };
        let (lines, queue) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&queue, BufWriter::new(sink)))
            .map_err(AccessLogError::Thread)?;
        Ok(Arc::new(Self {
            lines,
            dropped,
            prefix: hex_encode(&random_bytes::<8>()?),
            next: AtomicU64::new(1),
        }))
    }

    /// Begins the entry of a request and gives the request its id: a trusted proxy's, else a new one.
    pub(crate) fn begin(self: &Arc<Self>, head: &mut request::Parts, peer: &Peer) -> Box<Line> {
        let given = head
            .headers
            .get(X_REQUEST_ID)
            .filter(|_| peer.is_trusted)
            .and_then(usable_id);
        let id = given.unwrap_or_else(|| {
            let number = self.next.fetch_add(1, Relaxed);
            let text = format!("{}{number:016x}", self.prefix);
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("-"))
        });
        head.headers.insert(X_REQUEST_ID, id.clone());
        let text = |name: HeaderName| text_of(&head.headers, &name);
        Box::new(Line {
            log: Arc::clone(self),
            method: head.method.to_string(),
            target: head
                .uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), ToString::to_string),
            version: version(head.version),
            host: text(http::header::HOST),
            trace: trace_id(&head.headers),
            agent: text(http::header::USER_AGENT),
            peer: String::from_utf8_lossy(peer.text.as_bytes()).into_owned(),
            id,
            outcome: Outcome::Abandoned.as_str(),
            status: 0,
            worker: String::new(),
            bytes: 0,
            seconds: 0.0,
        })
    }
}

fn write(queue: &Receiver<String>, mut sink: BufWriter<Box<dyn Write + Send>>) {
    while let Ok(line) = queue.recv() {
        let mut next = Some(line);
        // What has gathered meanwhile is written in one go.
        while let Some(line) = next {
            if writeln!(sink, "{line}").is_err() {
                break;
            }
            next = queue.try_recv().ok();
        }
        // A log that cannot be written is no reason to serve nobody.
        let _ = sink.flush();
    }
}

fn usable_id(id: &HeaderValue) -> Option<HeaderValue> {
    let visible = id.as_bytes().iter().all(u8::is_ascii_graphic);
    (visible && (1..=ID_MAX).contains(&id.len())).then(|| id.clone())
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> String {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}

/// The trace id of a W3C `traceparent`, which goes on to the app as it came.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let is_hex = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_right = version.len() == 2 && trace.len() == 32 && is_hex(version) && is_hex(trace);
    (is_right && trace.bytes().any(|b| b != b'0')).then(|| trace.to_owned())
}

/// One line, written when it is dropped: at the end of the answer, whichever way it comes.
pub(crate) struct Line {
    log: Arc<AccessLog>,
    id: HeaderValue,
    method: String,
    target: String,
    version: &'static str,
    host: String,
    agent: String,
    trace: Option<String>,
    peer: String,
    outcome: &'static str,
    /// 0: none was sent.
    status: u16,
    /// Empty: no worker answered.
    pub(crate) worker: String,
    /// Of the answer's body.
    pub(crate) bytes: u64,
    seconds: f64,
}

impl Line {
    /// The request's id, for its answer.
    pub(crate) fn id(&self) -> HeaderValue {
        self.id.clone()
    }

    /// How the request ended.
    pub(crate) fn ends(&mut self, outcome: Outcome, status: StatusCode) {
        self.outcome = outcome.as_str();
        self.status = status.as_u16();
    }

    /// The request has taken this long by now.
    pub(crate) fn took(&mut self, took: Duration) {
        self.seconds = took.as_secs_f64();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = json!({
            "time": unix_seconds(),
            "id": String::from_utf8_lossy(self.id.as_bytes()),
            "peer": self.peer,
            "method": self.method,
            "host": self.host,
            "target": self.target,
            "version": self.version,
            "agent": self.agent,
            "trace": self.trace,
            "status": (self.status != 0).then_some(self.status),
            "outcome": self.outcome,
            "worker": (!self.worker.is_empty()).then_some(&self.worker),
            "bytes": self.bytes,
            "seconds": self.seconds,
        });
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.log.lines.try_send(line.to_string())
        {
            self.log.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_id_is_read_from_a_right_traceparent_only() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(TRACEPARENT, HeaderValue::from_static(text));
            trace_id(&headers)
        };
        let right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(right).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        for wrong in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-1-01",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_id_of_a_stranger_is_replaced_and_a_proxy_s_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let dropped = IntCounter::new("dropped", "x").unwrap();
        let log = AccessLog::open(&folder.path().join("log"), dropped).unwrap();
        let id = |given: &str, trusted: bool| {
            let request = http::Request::get("/").header("x-request-id", given);
            let mut head = request.body(()).unwrap().into_parts().0;
            let proxies: &[_] = if trusted { &["::1".parse().unwrap()] } else { &[] };
            let peer = Peer::new("::1".parse().unwrap(), proxies, false);
            let entry = log.begin(&mut head, &peer);
            assert_eq!(head.headers[X_REQUEST_ID], entry.id());
            entry.id().to_str().unwrap().to_owned()
        };
        assert_eq!(id("abc", true), "abc");
        assert_ne!(id("abc", false), "abc");
        assert_ne!(id("a b", true), "a b");
        assert_ne!(id("abc", false), id("abc", false));
    }
}
