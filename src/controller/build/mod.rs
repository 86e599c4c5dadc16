//! Builds the objects that the controller applies, as plain values; it reads and writes nothing.

mod gateway;
mod refusals;
mod shared;
#[cfg(test)]
mod tests;
mod worker;

use crate::api::pool::SecretName;
use crate::api::template::Resources;

pub use gateway::{
    PoolSecrets, gateway_address, gateway_budget, gateway_deployment, gateway_objects, gateway_secret,
    gateway_service, gateway_service_account, implicit_pool, tickets_secret,
};
pub use worker::{agent_hash, group_budget, worker_pod};

/// What agents and gateways are made of, as the operator was told at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorEnv {
    /// The operator's own image.
    pub image: String,
    /// `imagePullPolicy`.
    pub pull_policy: String,
    /// Secrets that the image is pulled with; they stand in the pool's namespace under these names.
    pub pull_secrets: Vec<SecretName>,
    /// host:port of the operator's channel.
    pub channel: String,
    /// Resources of an agent whose group names none; absent: built in.
    pub agent_resources: Option<Resources>,
    /// Resources of a gateway whose pool names none; absent: built in.
    pub gateway_resources: Option<Resources>,
}
