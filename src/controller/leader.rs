//! Leader election over a Lease: one operator leads, and each acquisition is a new term; it never compares clocks.
//!
//! A follower takes a lease over when it has not seen it change for the lease's duration on its own monotonic clock.
//! The leader counts its validity from the moment it *sent* the last renewal that was confirmed, and for less than
//! that duration, so that no two operators ever believe that they lead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastic_pool_engine::ids::{SEQUENCE_BITS, Term};
use tokio::sync::watch;

pub use super::elector::Elector;
use crate::channel::LeaderState;

/// Annotation of the Lease: host:port of the leader's channel.
pub const ADDRESS_ANNOTATION: &str = "elasticpool.dev/leader-address";

/// Highest term: a term and a sequence share 64 bits.
pub(super) const MAX_TERM: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;

/// By how much one peer's word may raise the term; a false peer thus needs hundreds of restarts to use the terms up.
const MAX_RAISE: u64 = 1 << 16;

/// How this operator stands for election.
#[derive(Debug, Clone)]
pub struct LeaderConfig {
    /// Namespace of the Lease: the operator's own.
    pub namespace: String,
    /// Name of the Lease, `elastic-pool-<class>`.
    pub name: String,
    /// UID of this pod.
    pub pod_uid: String,
    /// Random per process start, so that a restarted operator is somebody else.
    pub boot_nonce: String,
    /// host:port of this operator's channel, told to those who ask a follower.
    pub address: String,
    /// After this time without a change another may take over; whole seconds, default 15 s.
    pub lease_duration: Duration,
    /// How often the leader renews, default 5 s.
    pub renew_every: Duration,
    /// How often a follower looks, and how soon a failed renewal is tried again, default 1 s.
    pub retry_every: Duration,
}

impl LeaderConfig {
    /// The defaults for the operators of one class.
    pub fn new(namespace: &str, class: &str, pod_uid: &str, boot_nonce: &str, address: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: format!("elastic-pool-{class}"),
            pod_uid: pod_uid.to_owned(),
            boot_nonce: boot_nonce.to_owned(),
            address: address.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_every: Duration::from_secs(5),
            retry_every: Duration::from_secs(1),
        }
    }

    pub(super) fn identity(&self) -> String {
        format!("{}/{}", self.pod_uid, self.boot_nonce)
    }

    /// How long one confirmed renewal lets this operator lead: two thirds of the lease, so that a request which was
    /// sent in time has ended before another can lead.
    pub(super) fn renew_deadline(&self) -> Duration {
        self.lease_duration * 2 / 3
    }
}

/// Why the election ended.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// No renewal was confirmed in time: the process must end, another may lead already.
    #[error("leadership lost: no renewal was confirmed in time")]
    Expired,
    /// Somebody else holds the lease: the process must end.
    #[error("leadership lost: the lease is held by {0}")]
    Taken(String),
    /// The terms are used up, or the Lease holds one that cannot be.
    #[error("term {0} cannot be followed by another")]
    NoMoreTerms(u64),
}

/// What other parts ask about the leadership. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership {
    state: watch::Receiver<LeaderState>,
    raise: Arc<watch::Sender<u64>>,
    /// Milliseconds on the elector's clock until which this operator leads.
    valid_until: Arc<AtomicU64>,
    /// Keeps a permanent leadership's channel open.
    _keep: Option<Arc<watch::Sender<LeaderState>>>,
}

impl Leadership {
    /// The asking end of an elector's channels.
    pub(super) fn over(
        state: watch::Receiver<LeaderState>,
        raise: watch::Sender<u64>,
        valid_until: Arc<AtomicU64>,
    ) -> Self {
        Self {
            state,
            raise: Arc::new(raise),
            valid_until,
            _keep: None,
        }
    }

    /// The state now and its changes. A new term means: start anew.
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.state.clone()
    }

    /// The term while this operator leads.
    pub fn term(&self) -> Option<Term> {
        match *self.state.borrow() {
            LeaderState::Leading { term } => Some(term),
            LeaderState::Following { .. } => None,
        }
    }

    /// True while this operator surely leads; `now` is of the clock that the elector was given. Asked before each
    /// command and each write.
    pub fn valid(&self, now: Duration) -> bool {
        millis(now) < self.valid_until.load(Ordering::Acquire)
    }

    /// A peer knows the term `seen`, which is above this leader's: the elector writes `seen` + 1 and leads anew in
    /// that term. Terms that are absurdly far away are ignored.
    pub fn raise_term(&self, seen: Term) {
        let Some(term) = self.term() else { return };
        if next_term(term.0, seen.0) == term.0 {
            return;
        }
        self.raise.send_if_modified(|highest| {
            let higher = seen.0 > *highest;
            *highest = (*highest).max(seen.0);
            higher
        });
    }

    /// A leadership that never ends, for vehicles and tests without a Lease.
    pub fn permanent(term: Term) -> Self {
        let (state, receiver) = watch::channel(LeaderState::Leading { term });
        Self {
            state: receiver,
            raise: Arc::new(watch::channel(0).0),
            valid_until: Arc::new(AtomicU64::new(u64::MAX)),
            _keep: Some(Arc::new(state)),
        }
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The term to renew with, when a peer says that it knows `asked`.
pub(super) fn next_term(term: u64, asked: u64) -> u64 {
    let plausible = asked > term && asked - term <= MAX_RAISE && asked < MAX_TERM;
    if plausible { asked + 1 } else { term }
}
