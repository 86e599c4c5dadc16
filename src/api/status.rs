//! What status shows: figures, conditions, the last decisions; bounded, and without names of users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most conditions in a status.
pub const MAX_CONDITIONS: usize = 20;
/// Most decisions in a status.
pub const MAX_DECISIONS: usize = 10;

/// True, False or Unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can say.
    Unknown,
}

/// One condition, in the form that all of Kubernetes uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Its type, unique in the list: Ready, ReportsFresh, TemplateInvalid, ...
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// CamelCase word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// One sentence for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` changed last, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Generation of the manifest that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One decision of the commander.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
    /// CamelCase, as the event's reason.
    #[schemars(length(max = 128))]
    pub action: String,
    /// Figures and rule numbers in one sentence.
    #[schemars(length(max = 1024))]
    pub because: String,
}

/// What the operator knows of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolGroupStatus {
    /// Generation of the manifest that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Living workers.
    pub workers: u32,
    /// Routable workers.
    pub ready_workers: u32,
    /// Workers wanted now.
    pub desired_workers: u32,
    /// Workers of an older template.
    pub outdated_workers: u32,
    /// Users who live in the group.
    pub users: u32,
    /// Pod that takes newcomers in.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub reception: String,
    /// Capacity C of the ledger in points, 1/100 worker (C1).
    pub capacity_points: i64,
    /// Occupied O of the ledger in points.
    pub occupied_points: i64,
    /// Headroom H = C - O in points.
    pub headroom_points: i64,
    /// Conditions by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The last decisions, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub last_decisions: Vec<Decision>,
}
