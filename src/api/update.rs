//! How running workers are brought up to date: types and their bounds, no behaviour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::measures::{DurationBounds, DurationText};

/// Bounds of `spec.updateStrategy.guestTimeout`.
pub const GUEST_TIMEOUT: DurationBounds = DurationBounds {
    field: "spec.updateStrategy.guestTimeout",
    min: "0s",
    max: "24h",
};

/// How workers of an older template are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// Move: their users move to workers of the new template. Drain: they take nobody new and wait until their users
    /// have left; so does Move where moves.mode is Drain. OnDelete: only once their pods are deleted.
    #[serde(rename = "type")]
    pub kind: UpdateType,
    /// The reception goes last; its guests, who cannot move, keep it until they have left or for this time.
    #[schemars(extend("x-kubernetes-validations" = GUEST_TIMEOUT.rules()))]
    pub guest_timeout: DurationText,
}

impl Default for UpdateStrategy {
    fn default() -> Self {
        Self {
            kind: UpdateType::default(),
            guest_timeout: "10m".into(),
        }
    }
}

/// How workers of an older template are replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateType {
    /// Their users move.
    #[default]
    Move,
    /// Their users leave by themselves.
    Drain,
    /// Only once their pods are deleted.
    OnDelete,
}

impl From<UpdateType> for elastic_pool_engine::UpdateType {
    fn from(update: UpdateType) -> Self {
        match update {
            UpdateType::Move => Self::Move,
            UpdateType::Drain => Self::Drain,
            UpdateType::OnDelete => Self::OnDelete,
        }
    }
}

/// When running workers get another agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AgentUpdate {
    /// Together with a new template only.
    #[default]
    WithTemplate,
    /// Another agent counts as another template.
    Move,
}
