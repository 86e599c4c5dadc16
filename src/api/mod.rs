//! The Kubernetes API of this project: the types of PoolGroup and Pool, their CRDs, names and defaults; it talks to no server.

pub mod conditions;
mod crd;
pub mod labels;
pub mod manifest;
pub mod measures;
pub mod pool;
pub mod pool_group;
pub mod remembered;
pub mod resolve;
pub mod status;
pub mod template;
pub mod update;

pub use crd::{crd_yaml, crds, crds_yaml};
pub use measures::{DurationText, FieldError, Quantity};
pub use pool::{Pool, PoolSpec, PoolStatus};
pub use pool_group::{PoolGroup, PoolGroupSpec};
pub use status::{Condition, Decision, PoolGroupStatus};

/// API group of both kinds.
pub const GROUP: &str = "elasticpool.dev";
/// The served version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "elasticpool.dev/v1alpha1";
/// `spec.class` where none is given, and the class an operator serves where it is told nothing else.
pub const DEFAULT_CLASS: &str = "default";
/// Longest name of a PoolGroup or Pool: names derived from it stay within 63 characters.
pub const MAX_NAME: usize = 50;
