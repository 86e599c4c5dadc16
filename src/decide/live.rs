//! Asks a running commander for snapshots of a group; one GET on loopback, which changes nothing.

use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::snapshot::{self, Saved, SnapshotError};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;

/// Where the operator and the local vehicle serve the monitor unless told otherwise.
pub(super) const COMMANDER: &str = "http://127.0.0.1:7070";

/// Connecting, asking and reading together.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The group as it stands now.
    Now,
    /// The last decisions about it, oldest first, each with the answer that it stood for.
    Past,
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a live group could not be asked.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The address is none.
    #[error("--commander is {0:?}, must be http://HOST:PORT, such as {COMMANDER}")]
    Address(String),
    /// The name is none.
    #[error("{flag} is {value:?}, must be a name of lower-case letters, digits, - and .")]
    Name {
        /// Which flag.
        flag: &'static str,
        /// What it was.
        value: String,
    },
    /// Nothing listens there, or it does not answer.
    #[error(
        "nobody answers at {address}: {cause}\n\
         In a cluster, open a way to the operator's pod that leads (its UID starts the lease's holder):\n  \
         kubectl -n elastic-pool-system get lease elastic-pool -o jsonpath='{{.spec.holderIdentity}}{{\"\\n\"}}'\n  \
         kubectl -n elastic-pool-system port-forward pod/POD {port}:7070\n\
         With `elastic-pool local`, give the monitor's address that it prints: --commander http://127.0.0.1:7070"
    )]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// Its port.
        port: u16,
        /// What went wrong.
        cause: Cause,
    },
    /// It answered, and not with a snapshot: no such group, or it does not lead.
    #[error("{address} answers {status}: {text}")]
    Refused {
        /// Who answered.
        address: String,
        /// What.
        status: StatusCode,
        /// Why.
        text: String,
    },
    /// It answered with nothing.
    #[error("{0} sends nothing instead of a snapshot; is it the commander's monitor port?")]
    Empty(String),
    /// What came is no snapshot that this build knows.
    #[error("{address} sends no snapshot: {source}; are both of the same version?")]
    Snapshot {
        /// Who sent it.
        address: String,
        /// What is wrong with it.
        source: SnapshotError,
    },
}

/// One snapshot, or those of the last decisions.
pub(super) fn fetch(
    commander: &str,
    group: &str,
    namespace: Option<&str>,
    wanted: Wanted,
) -> Result<Vec<Saved>, LiveError> {
    let (host, port) = address(commander)?;
    let what = match wanted {
        Wanted::Now => "snapshot",
        Wanted::Past => "decisions",
    };
    let path = format!("/_commander/{what}?group={}", key(group, namespace)?);
    let unreachable = |cause: Cause| LiveError::Unreachable {
        address: commander.to_owned(),
        port,
        cause,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unreachable(error.into()))?;
    let asked = runtime.block_on(async { tokio::time::timeout(PATIENCE, get(&host, port, &path)).await });
    let late = |_| unreachable(format!("no answer in {} s", PATIENCE.as_secs()).into());
    let (status, body) = asked.map_err(late)?.map_err(unreachable)?;
    let text = String::from_utf8_lossy(&body);
    if status != StatusCode::OK {
        let printable = |c: &char| !c.is_control() || *c == '\n';
        let text: String = text.trim().chars().filter(printable).take(2000).collect();
        return Err(LiveError::Refused {
            address: commander.to_owned(),
            status,
            text,
        });
    }
    if wanted == Wanted::Now && text.trim().is_empty() {
        return Err(LiveError::Empty(commander.to_owned()));
    }
    let no_snapshot = |source| LiveError::Snapshot {
        address: commander.to_owned(),
        source,
    };
    text.lines()
        .map(|line| Saved::parse(line).map_err(no_snapshot))
        .collect()
}

fn address(commander: &str) -> Result<(String, u16), LiveError> {
    let wrong = || LiveError::Address(commander.to_owned());
    let uri: Uri = commander.parse().map_err(|_| wrong())?;
    let plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    match (uri.host(), uri.port_u16()) {
        (Some(host), port) if plain && port != Some(0) => {
            // A port that is no port is none to the parser.
            let alone = authority == host;
            let port = port.or(alone.then_some(80)).ok_or_else(wrong)?;
            Ok((host.trim_matches(['[', ']']).to_owned(), port))
        }
        _ => Err(wrong()),
    }
}

/// `namespace/name`, or the name alone.
fn key(group: &str, namespace: Option<&str>) -> Result<String, LiveError> {
    let (before, name) = group
        .split_once('/')
        .map_or((None, group), |(before, name)| (Some(before), name));
    let name = label("--group", name)?;
    match namespace.or(before) {
        Some(namespace) => Ok(format!("{}/{name}", label("--namespace", namespace)?)),
        None => Ok(name.to_owned()),
    }
}

fn label<'a>(flag: &'static str, value: &'a str) -> Result<&'a str, LiveError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if !value.is_empty() && value.len() <= 253 && value.bytes().all(plain) {
        return Ok(value);
    }
    Err(LiveError::Name {
        flag,
        value: value.to_owned(),
    })
}

async fn get(host: &str, port: u16, path: &str) -> Result<(StatusCode, Bytes), Cause> {
    let stream = TcpStream::connect((host, port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header(http::header::HOST, format!("{host}:{port}"))
        .body(Empty::<Bytes>::new())?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, snapshot::MAX_BYTES).collect().await?;
    connection.abort();
    Ok((head.status, body.to_bytes()))
}
