//! Types of conditions, for status and for the code that sets them; it decides none.

/// The group or pool serves.
pub const READY: &str = "Ready";
/// Something is on its way: a spawn, a drain, a rollout.
pub const PROGRESSING: &str = "Progressing";
/// Every routable worker reports.
pub const REPORTS_FRESH: &str = "ReportsFresh";
/// More workers are wanted than `max` allows (G2).
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// Something is wrong and named; the group goes on.
pub const DEGRADED: &str = "Degraded";
/// The manifest cannot make a worker; the message names the field. Running workers are untouched.
pub const TEMPLATE_INVALID: &str = "TemplateInvalid";
/// Workers wait for room in the cluster or for quota (G4).
pub const CAPACITY_PENDING: &str = "CapacityPending";
/// The app cannot hand users out: the group is treated as Drain.
pub const MOVES_UNSUPPORTED: &str = "MovesUnsupported";
/// More workers live than `max` (C8).
pub const ABOVE_MAX: &str = "AboveMax";
/// The group's class is not its pool's.
pub const POOL_CLASS_MISMATCH: &str = "PoolClassMismatch";
/// A name of ours is taken by an object that is not ours; it is left alone.
pub const NAME_CONFLICT: &str = "NameConflict";
/// What spec.mode Recommend keeps the group from doing.
pub const RECOMMENDATION: &str = "Recommendation";
/// The operator may not read nodes, so that a cordon drains nobody early (D2).
pub const NODES_UNREADABLE: &str = "NodesUnreadable";
/// The group is to be empty, and is not yet (spec.mode Evacuate).
pub const EVACUATING: &str = "Evacuating";
/// Newcomers find no group of the pool that takes them: they are answered 503.
pub const NEWCOMERS_REFUSED: &str = "NewcomersRefused";
/// A worker that is being emptied waits for somebody to leave (C7, D2).
pub const DRAIN_WAITING: &str = "DrainWaiting";
