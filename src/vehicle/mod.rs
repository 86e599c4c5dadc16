//! The seam between the commander and what runs workers: desired workers go down, facts come up; it decides nothing.
//!
//! [`kube`](crate::controller) runs pods, [`local`] runs processes. Both converge on [`Desired`] and report [`Fact`]s.

pub mod local;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::UpdateType;
use elastic_pool_engine::group::SpawnFault;
use elastic_pool_engine::ids::Birth;
use serde::{Deserialize, Serialize};

/// Namespace and name of a group or a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Namespace; groups and their pool share one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the commander knows of a group's manifest: [`crate::api`] types with every default resolved.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "a manifest's switches")]
pub struct GroupSpec {
    /// The group's namespace and name.
    pub key: ObjectKey,
    /// UID of the PoolGroup object.
    pub uid: String,
    /// The Pool it belongs to, in the same namespace.
    pub pool: ObjectKey,
    /// `spec.runtime.version`.
    pub version: String,
    /// `spec.runtime.snapshotFormat`: groups with the same one exchange users (V9); empty: with nobody.
    pub snapshot_format: String,
    /// Generation of the manifest that these values come from.
    pub generation: i64,
    /// True for the pool's default group.
    pub default_group: bool,
    /// `spec.mode`.
    pub mode: Mode,
    /// P7: a client id is a user.
    pub session_users: bool,
    /// L7, P7.
    pub session_timeout: Duration,
    /// Workers at least; 1..=10000.
    pub min: u32,
    /// Workers at most; absent = unbounded.
    pub max: Option<u32>,
    /// By how many a replacement may exceed `max`.
    pub max_surge: u32,
    /// G4.
    pub spawn_timeout: Duration,
    /// P2, 0..=1.
    pub reception_threshold: f64,
    /// P3, 0..=1.
    pub admission_threshold: f64,
    /// C1: margin = this x admission threshold.
    pub margin_workers: f64,
    /// E2.
    pub smoothing_rows: u32,
    /// E1: bytes; absent = no memory component.
    pub memory_limit: Option<u64>,
    /// E1: cores, 0 < capacity <= 1.
    pub cpu_capacity: f64,
    /// M1.
    pub interval: Duration,
    /// D1.
    pub dead_timeout: Duration,
    /// `moves.mode` is Live (else Drain).
    pub live_moves: bool,
    /// V1.
    pub hold_timeout: Duration,
    /// V2.
    pub quiesce_timeout: Duration,
    /// D2.
    pub drain_timeout: Duration,
    /// V3: bytes.
    pub max_package: u64,
    /// Moves at once in this group.
    pub parallelism: u32,
    /// V2: open streams are closed at a move (else their user is pinned).
    pub close_streams: bool,
    /// A template with this hash makes new workers.
    pub template_hash: String,
    /// An agent with this hash does; empty where another agent outdates nobody (`spec.agentUpdate`).
    pub agent_hash: String,
    /// How workers of an older template are replaced.
    pub update: UpdateType,
    /// How long guests keep a reception that is to go: of an older template, or of a group that is to be empty.
    pub guest_timeout: Duration,
}

impl GroupSpec {
    /// A worker that was made from another template, or with another agent where that counts.
    pub fn outdates(&self, worker: &WorkerFact) -> bool {
        let agent = !self.agent_hash.is_empty() && self.agent_hash != worker.agent_hash;
        agent || self.template_hash != worker.template_hash
    }
}

/// `spec.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Decides and acts.
    Active,
    /// Decides and explains; does not grow or compact.
    Recommend,
    /// Neither grows nor compacts nor advises.
    Frozen,
    /// Becomes empty, and takes nobody in.
    Evacuate,
}

/// Why a worker does not become routable (G4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnFailure {
    /// Unschedulable or over quota: no fault of the manifest.
    NoCapacity(String),
    /// Image, configuration, crash: somebody has to mend the manifest or the app.
    Mistake(String),
}

impl SpawnFailure {
    /// What the engine tells apart.
    pub const fn fault(&self) -> SpawnFault {
        match self {
            Self::NoCapacity(_) => SpawnFault::NoCapacity,
            Self::Mistake(_) => SpawnFault::Mistake,
        }
    }
}

/// What is known of one worker's pod or process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one pod")]
pub struct WorkerFact {
    /// Birth number, from the pod's label.
    pub birth: Birth,
    /// Its group.
    pub group: ObjectKey,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod; local: a random one.
    pub pod_uid: String,
    /// The pod is ready (agent and app).
    pub ready: bool,
    /// host:port of the agent's traffic port; empty while unknown.
    pub address: String,
    /// host:port of the agent's peer port.
    pub peer: String,
    /// Told to stop (deletionTimestamp).
    pub terminating: bool,
    /// Failed or succeeded: it never comes back.
    pub finished: bool,
    /// The app container's id, for the agent; empty while unknown.
    pub app_container_id: String,
    /// How often the app container was restarted (D1: a restarted app is a new worker).
    pub app_restarts: u32,
    /// It cannot start, and why.
    pub failure: Option<SpawnFailure>,
    /// Hash of the template it was made from.
    pub template_hash: String,
    /// Hash of the agent it was made with; empty where nobody knows.
    pub agent_hash: String,
    /// It must go (cordoned node, taint), though nobody deleted it yet.
    pub must_go: bool,
}

/// A fact that comes up from the vehicle.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A group is new or has changed.
    Group(Box<GroupSpec>),
    /// A group was deleted; its workers drain within their grace.
    GroupGone(ObjectKey),
    /// A worker is new or has changed.
    Worker(Box<WorkerFact>),
    /// The worker's pod no longer exists.
    WorkerGone(Birth),
    /// The first full list of groups and workers has been told: nothing is decided before.
    Synced,
    /// A pool's keys, once they exist.
    Keys(ObjectKey, PoolKeys),
    /// The vehicle could not make a worker (quota, admission, port): G4 backs off.
    SpawnFailed(ObjectKey, Birth, SpawnFailure),
}

/// The secrets of a pool that the commander needs.
#[derive(Debug, Clone)]
pub struct PoolKeys {
    /// Pool-Hop is made with it.
    pub pool: crate::credentials::Key,
    /// Tickets are made with keys derived from it.
    pub ticket: crate::credentials::Key,
}

impl PartialEq for PoolKeys {
    fn eq(&self, other: &Self) -> bool {
        self.pool.bytes() == other.pool.bytes() && self.ticket.bytes() == other.ticket.bytes()
    }
}

/// What the commander wants of one group's workers. Only births named here are touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// Make these, where they do not exist yet; each birth is made once.
    pub spawn: Vec<Birth>,
    /// Delete these by UID; they are empty, dead or never started.
    pub retire: Vec<(Birth, String)>,
    /// May be evicted at once: empty and closed (loses the disruption budget's label).
    pub released: Vec<Birth>,
}

/// One decision, for status, events and the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionNote {
    /// Seconds since 1970.
    pub at: u64,
    /// CamelCase, also the event's reason: `Spawned`, `CompactionStarted`, `WorkerRetired`, ...
    pub action: String,
    /// Rule numbers and figures in one sentence; no user names.
    pub because: String,
    /// True where somebody has to look.
    pub warning: bool,
}

/// One condition as the commander sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionView {
    /// Type, as in design: `Ready`, `ReportsFresh`, `ScalingLimited`, ...
    pub kind: String,
    /// True, False, or unknown.
    pub status: Option<bool>,
    /// CamelCase.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// What status and the monitor show of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupView {
    /// Living workers.
    pub workers: u32,
    /// Routable workers.
    pub ready_workers: u32,
    /// Workers wanted now.
    pub desired_workers: u32,
    /// Workers of an older template.
    pub outdated_workers: u32,
    /// Users living in the group.
    pub users: u32,
    /// Name of the reception; empty without one.
    pub reception: String,
    /// C1 in points (1/100 worker).
    pub capacity_points: i64,
    /// C1 in points.
    pub occupied_points: i64,
    /// C1 in points.
    pub headroom_points: i64,
    /// The commander's conditions, by type.
    pub conditions: Vec<ConditionView>,
    /// The last decisions, newest first, at most 10.
    pub decisions: Vec<DecisionNote>,
    /// Counts every decision ever noted in this term, so that none is told twice as an event.
    pub decisions_seen: u64,
}

/// All that goes down to the vehicle, as one level: the newest value counts, none is a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orders {
    /// Wanted workers by group.
    pub desired: BTreeMap<ObjectKey, Desired>,
    /// Figures by group.
    pub views: BTreeMap<ObjectKey, Arc<GroupView>>,
}

/// The commander's two ends of the seam.
#[derive(Debug)]
pub struct VehicleEnds {
    /// Facts from the vehicle, bounded.
    pub facts: tokio::sync::mpsc::Receiver<Fact>,
    /// Orders for the vehicle.
    pub orders: tokio::sync::watch::Sender<Arc<Orders>>,
}
