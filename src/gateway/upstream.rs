//! A worker as the gateway reaches it: its address, its hop proof and its idle connections; it chooses no worker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use http::HeaderValue;
use parking_lot::Mutex;

use super::body::ForwardBody;
use super::clock::WorkerClock;
use crate::channel::proto::Worker;
use crate::credentials::Key;
use crate::exchange::{Connection, Multiplexed};

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// An idle connection older than this is not used again: well below what an agent keeps one open.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Idle connections kept per worker.
const IDLE_MAX: usize = 256;
/// Forwards at once to one worker; beyond it a request is told to come back.
pub(crate) const OPEN_MAX: usize = 8192;

struct Idle {
    connection: Connection,
    since: Duration,
}

/// One worker. Flags change in place; another address, pod or hop makes another `Upstream`.
pub(crate) struct Upstream {
    pub(crate) birth: Birth,
    pub(crate) group: Arc<str>,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) pod_uid: String,
    pub(crate) generation: u32,
    /// `pool-hop` for this pod.
    pub(crate) hop: HeaderValue,
    pub(crate) clock: Arc<WorkerClock>,
    /// Forwards in flight.
    pub(crate) open: AtomicUsize,
    routable: AtomicBool,
    admits: AtomicBool,
    /// Last used at the end, so that the surplus of a burst ages out.
    idle: Mutex<Vec<Idle>>,
    /// For gRPC.
    pub(crate) multiplexed: Multiplexed<ForwardBody>,
}

/// A connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("connect to the agent")]
    Connect(#[source] std::io::Error),
    #[error("the agent did not take the connection in time")]
    Timeout,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upstream({} {})", self.birth, self.name)
    }
}

impl Upstream {
    /// `None` when the address is not host:port with a numeric host.
    pub(crate) fn new(worker: &Worker, pool_key: &Key, clock: Arc<WorkerClock>) -> Option<Self> {
        let hop = pool_key.hop(&worker.pod_uid, worker.generation);
        Some(Self {
            birth: Birth(worker.birth),
            group: Arc::from(worker.group.as_str()),
            name: worker.name.clone(),
            address: worker.address.parse().ok()?,
            pod_uid: worker.pod_uid.clone(),
            generation: worker.generation,
            hop: HeaderValue::from_str(&hop).ok()?,
            clock,
            open: AtomicUsize::new(0),
            routable: AtomicBool::new(worker.routable),
            admits: AtomicBool::new(worker.admits),
            idle: Mutex::default(),
            multiplexed: Multiplexed::new(worker.address.parse().ok()?),
        })
    }

    /// True when `worker` differs in nothing but flags.
    pub(crate) fn is_same_pod(&self, worker: &Worker) -> bool {
        self.pod_uid == worker.pod_uid
            && self.generation == worker.generation
            && *self.group == *worker.group
            && worker.address.parse() == Ok(self.address)
    }

    pub(crate) fn set_flags(&self, worker: &Worker) {
        self.routable.store(worker.routable, Relaxed);
        self.admits.store(worker.admits, Relaxed);
    }

    pub(crate) fn is_routable(&self) -> bool {
        self.routable.load(Relaxed)
    }

    /// The latest idle connection that is still good.
    pub(crate) fn take_idle(&self, now: Duration) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(Idle { connection, since }) = idle.pop() {
            if now.saturating_sub(since) > IDLE_LIMIT {
                idle.clear();
                return None;
            }
            if connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Takes a connection back whose request and answer were finished.
    pub(crate) fn put_idle(&self, connection: Connection, now: Duration) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(Idle {
                connection,
                since: now,
            });
        }
    }

    /// Drops what was idle for too long; called each second.
    pub(crate) fn prune(&self, now: Duration) {
        self.idle
            .lock()
            .retain(|idle| now.saturating_sub(idle.since) <= IDLE_LIMIT && idle.connection.is_usable());
    }

    pub(crate) async fn connect(&self) -> Result<Connection, ConnectError> {
        tokio::time::timeout(CONNECT_LIMIT, Connection::open(self.address))
            .await
            .map_err(|_| ConnectError::Timeout)?
            .map_err(ConnectError::Connect)
    }
}
