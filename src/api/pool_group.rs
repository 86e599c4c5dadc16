//! PoolGroup: the workers of one runtime version of an application; types and their bounds, no behaviour.

#![allow(
    clippy::duplicated_attributes,
    reason = "several printer columns have one type"
)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::measures::{DurationBounds, DurationText, Quantity, QuantityBounds};
use super::status::PoolGroupStatus;
use super::template::{Resources, Template};
use super::update::{AgentUpdate, UpdateStrategy};

/// Bounds of `spec.sessionTimeout`.
pub const SESSION_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.sessionTimeout",
    min: "1s",
    max: "168h",
};
/// Bounds of `spec.workers.spawnTimeout`.
pub const SPAWN_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.workers.spawnTimeout",
    min: "1s",
    max: "1h",
};
/// Bounds of `spec.reports.interval`.
pub const INTERVAL: DurationBounds = DurationBounds {
    field: "spec.reports.interval",
    min: "100ms",
    max: "5m",
};
/// Bounds of `spec.reports.deadTimeout`.
pub const DEAD_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.reports.deadTimeout",
    min: "1s",
    max: "1h",
};
/// Bounds of `spec.moves.holdTimeout`.
pub const HOLD_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.moves.holdTimeout",
    min: "100ms",
    max: "60s",
};
/// Bounds of `spec.moves.quiesceTimeout`.
pub const QUIESCE_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.moves.quiesceTimeout",
    min: "10ms",
    max: "60s",
};
/// Bounds of `spec.moves.drainTimeout`.
pub const DRAIN_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.moves.drainTimeout",
    min: "1s",
    max: "24h",
};
/// Bounds of `spec.moves.maxPackage`.
pub const MAX_PACKAGE: QuantityBounds = QuantityBounds {
    field: "spec.moves.maxPackage",
    min: "1Ki",
    max: "1Gi",
};
/// Bounds of `spec.thresholds.memory`.
pub const MEMORY: QuantityBounds = QuantityBounds {
    field: "spec.thresholds.memory",
    min: "1Mi",
    max: "64Ti",
};
/// Bounds of `spec.thresholds.cpu`: one core is an interpreter lock's wall (E1).
pub const CPU: QuantityBounds = QuantityBounds {
    field: "spec.thresholds.cpu",
    min: "1m",
    max: "1",
};

/// The rule of a field that is always there and never changes.
pub(super) fn immutable(field: &str) -> Value {
    json!([{
        "rule": "self == oldSelf",
        "message": format!("{field} is immutable: make a new object with the new value instead"),
    }])
}

fn version_rules() -> Value {
    json!([{
        "rule": "has(self.version) == has(oldSelf.version) && (!has(self.version) || self.version == oldSelf.version)",
        "message": "spec.runtime.version is immutable: make a new PoolGroup for the new version instead",
    }])
}

fn workers_rules() -> Value {
    json!([{
        "rule": "!has(self.max) || self.min <= self.max",
        "message": "spec.workers.min is greater than spec.workers.max: write min <= max",
    }])
}

fn thresholds_rules() -> Value {
    json!([{
        "rule": "self.receptionPercent <= self.admissionPercent",
        "message": "spec.thresholds.receptionPercent is greater than spec.thresholds.admissionPercent: write receptionPercent <= admissionPercent",
    }])
}

fn moves_rules() -> Value {
    json!([{
        "rule": "duration(self.quiesceTimeout) <= duration(self.holdTimeout)",
        "message": "spec.moves.quiesceTimeout is longer than spec.moves.holdTimeout: held requests would give up before the user is quiet; write quiesceTimeout <= holdTimeout",
    }])
}

/// What a group of workers is and how it grows and shrinks.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "elasticpool.dev",
    version = "v1alpha1",
    kind = "PoolGroup",
    plural = "poolgroups",
    shortname = "pgrp",
    namespaced,
    status = "PoolGroupStatus",
    derive = "PartialEq",
    category = "elasticpool",
    doc = "A PoolGroup is the workers of one runtime version of an application.",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.runtime.version",
        description = "runtime version"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyWorkers",
        description = "workers that serve"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredWorkers",
        description = "workers wanted now"
    ),
    printcolumn(
        name = "Users",
        type_ = "integer",
        json_path = ".status.users",
        description = "users who live here"
    ),
    printcolumn(
        name = "Headroom",
        type_ = "integer",
        json_path = ".status.headroomPoints",
        description = "free capacity in points, 100 = one worker"
    ),
    printcolumn(
        name = "Reception",
        type_ = "string",
        json_path = ".status.reception",
        description = "takes newcomers in"
    ),
    printcolumn(
        name = "Mode",
        type_ = "string",
        json_path = ".spec.mode",
        description = "what the operator may do"
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.pool",
        description = "its pool",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PoolGroupSpec {
    /// The Pool, in this namespace, whose gateway serves this group; immutable.
    #[schemars(
        length(min = 1, max = 50),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$"),
        extend("x-kubernetes-validations" = immutable("spec.pool"))
    )]
    pub pool: String,
    /// Which operator serves it; immutable.
    #[serde(default = "default_class")]
    #[schemars(length(min = 1, max = 63), extend("x-kubernetes-validations" = immutable("spec.class")))]
    pub class: String,
    /// What the workers run.
    #[serde(default)]
    pub runtime: Runtime,
    /// The pod that a worker is made from.
    pub template: Template,
    /// How the app is reached and what it answers.
    #[serde(default)]
    pub app: App,
    /// Who is placed: people who log in, or every client (P7). Session where moves.mode is Drain, else Login;
    /// fixed while the group has workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Users>,
    /// After this time without a request a user without a list, or a session, has left.
    #[serde(default = "default_session_timeout")]
    #[schemars(extend("x-kubernetes-validations" = SESSION_TIMEOUT.rules()))]
    pub session_timeout: DurationText,
    /// How many workers.
    #[serde(default)]
    pub workers: Workers,
    /// When a worker is full.
    #[serde(default)]
    pub thresholds: Thresholds,
    /// How workers are measured.
    #[serde(default)]
    pub reports: Reports,
    /// How users are taken from one worker to another.
    #[serde(default)]
    pub moves: Moves,
    /// What the operator may do. Placement, min and the replacement of dead workers go on in every mode but Evacuate.
    #[serde(default)]
    pub mode: Mode,
    /// How workers of an older template are replaced.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,
    /// Whether another agent, as a new operator brings it or spec.agent asks for, replaces running workers.
    #[serde(default)]
    pub agent_update: AgentUpdate,
    /// The sidecar of a worker.
    #[serde(default)]
    pub agent: Agent,
}

fn default_class() -> String {
    super::DEFAULT_CLASS.to_owned()
}

fn default_session_timeout() -> DurationText {
    "30m".into()
}

/// What the workers run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = version_rules()))]
pub struct Runtime {
    /// Runtime version, as blue, green or 1.4.2; immutable; the group's name where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub version: Option<String>,
    /// Names the form in which the app hands users out. Groups of one pool with the same one exchange users (V9); none
    /// where absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^[-A-Za-z0-9_./+]*$"))]
    pub snapshot_format: Option<String>,
}

/// How the app is reached and what it answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct App {
    /// The app's container; the first one where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub container: Option<String>,
    /// The app's port; where absent the container's port named http, else its only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// What the app speaks on its port. An app of H2C answers the contract in HTTP/1.1: name another contractPort, or none.
    #[serde(skip_serializing_if = "AppProtocol::is_default")]
    pub protocol: AppProtocol,
    /// Whether the app answers the worker contract.
    pub contract: Contract,
    /// Port of the contract where it is not the app's; the app may bind it to loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub contract_port: Option<u16>,
}

/// What an app speaks on its port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AppProtocol {
    /// HTTP/1.1.
    #[default]
    HTTP1,
    /// HTTP/2 without TLS, as for gRPC.
    H2C,
}

impl AppProtocol {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the app answers the worker contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Contract {
    /// Ask it.
    #[default]
    Auto,
    /// It does not; nothing is asked.
    None,
}

/// Who is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Users {
    /// People who log in: an answer carries Pool-User.
    Login,
    /// Every client (P7).
    Session,
}

/// How many workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = workers_rules()))]
pub struct Workers {
    /// At least; 1 to 10000.
    #[schemars(range(min = 1, max = 10000))]
    pub min: u32,
    /// At most; 1 to 10000; unbounded where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max: Option<u32>,
    /// By how many a replacement may exceed max.
    #[schemars(range(max = 1000))]
    pub max_surge: u32,
    /// A worker that takes longer to start is replaced (G4).
    #[schemars(extend("x-kubernetes-validations" = SPAWN_TIMEOUT.rules()))]
    pub spawn_timeout: DurationText,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            min: 1,
            max: None,
            max_surge: 1,
            spawn_timeout: "120s".into(),
        }
    }
}

/// When a worker is full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = thresholds_rules()))]
pub struct Thresholds {
    /// Below it the reception keeps a newcomer (P2); 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub reception_percent: u32,
    /// Below it another worker admits a newcomer (P3); 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub admission_percent: u32,
    /// Free capacity, in percent of one worker's admission, above which a worker is emptied (C1); 100 to 1000.
    #[schemars(range(min = 100, max = 1000))]
    pub compaction_margin_percent: u32,
    /// Reports that a reading is averaged over (E2); 1 to 60.
    #[schemars(range(min = 1, max = 60))]
    pub smoothing_rows: u32,
    /// Memory at which a worker is full; the app container's limit where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = MEMORY.rules()))]
    pub memory: Option<Quantity>,
    /// CPU at which a worker is full, at most one core; the app container's limit where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = CPU.rules()))]
    pub cpu: Option<Quantity>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            reception_percent: 50,
            admission_percent: 80,
            compaction_margin_percent: 150,
            smoothing_rows: 6,
            memory: None,
            cpu: None,
        }
    }
}

/// How workers are measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Reports {
    /// Time between two reports of a worker (M1).
    #[schemars(extend("x-kubernetes-validations" = INTERVAL.rules()))]
    pub interval: DurationText,
    /// A worker that nobody has reached for so long is dead (D1).
    #[schemars(extend("x-kubernetes-validations" = DEAD_TIMEOUT.rules()))]
    pub dead_timeout: DurationText,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            interval: "5s".into(),
            dead_timeout: "60s".into(),
        }
    }
}

/// How users are taken from one worker to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = moves_rules()))]
pub struct Moves {
    /// Live: users are moved. Drain: a worker that is to go waits for its users to leave.
    pub mode: MovesMode,
    /// Longest time that a request is held (V1).
    #[schemars(extend("x-kubernetes-validations" = HOLD_TIMEOUT.rules()))]
    pub hold_timeout: DurationText,
    /// Longest wait for a user's open requests (V2).
    #[schemars(extend("x-kubernetes-validations" = QUIESCE_TIMEOUT.rules()))]
    pub quiesce_timeout: DurationText,
    /// Time that a pod which must go has to move its users (D2).
    #[schemars(extend("x-kubernetes-validations" = DRAIN_TIMEOUT.rules()))]
    pub drain_timeout: DurationText,
    /// Largest package of one user (V3).
    #[schemars(extend("x-kubernetes-validations" = MAX_PACKAGE.rules()))]
    pub max_package: Quantity,
    /// Moves at once in this group; 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    pub parallelism: u32,
    /// What becomes of WebSockets and event streams at a move.
    pub streams: Streams,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            mode: MovesMode::Live,
            hold_timeout: "5s".into(),
            quiesce_timeout: "2s".into(),
            drain_timeout: "120s".into(),
            max_package: "16Mi".into(),
            parallelism: 8,
            streams: Streams::default(),
        }
    }
}

/// Whether users are moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MovesMode {
    /// Users are moved.
    #[default]
    Live,
    /// Users stay until they leave.
    Drain,
}

/// What becomes of open streams at a move.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Streams {
    /// Close under Live and Pin under Drain where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<StreamsPolicy>,
}

/// What becomes of open streams at a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StreamsPolicy {
    /// They are closed politely; the reconnect lands on the new worker.
    Close,
    /// Their user is not moved.
    Pin,
}

/// What the operator may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Decides and acts.
    #[default]
    Active,
    /// Decides and explains; does not grow or compact.
    Recommend,
    /// Neither grows nor compacts nor advises.
    Frozen,
    /// Becomes empty: min counts as 0, newcomers go to the pool's other groups, users move to a group of the same
    /// snapshotFormat or leave by themselves; the reception goes last.
    Evacuate,
}

impl From<Mode> for crate::vehicle::Mode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Active => Self::Active,
            Mode::Recommend => Self::Recommend,
            Mode::Frozen => Self::Frozen,
            Mode::Evacuate => Self::Evacuate,
        }
    }
}

/// The sidecar of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Agent {
    /// Its image; the operator's own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Its resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}
