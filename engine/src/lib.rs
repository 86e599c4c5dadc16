//! The pure decisions of elastic-pool: no I/O, no clock, no Kubernetes; `now` is always an argument.
//!
//! `report` and `window` keep what a worker measured (M), `occupancy` turns it into a [`Share`] (E),
//! `placement` answers a login (P), `capacity` grows (G), `ledger`, `compaction` and `projection` shrink (C), `update` replaces workers of an older template,
//! `evacuation` empties a group (V9),
//! `plan` puts growth and compaction together, `because` says why, `moves` is one user's move (V), `recovery` judges what a new leader hears,
//! `fence` is what an agent serves, `ownership` what the others believe (V8).
//! `snapshot` saves a group to be asked again, `cases` answers made-up ones, `simulate` serves a whole day.

pub mod backoff;
pub mod because;
pub mod capacity;
pub mod cases;
pub mod compaction;
pub mod evacuation;
pub mod fence;
mod field;
pub mod forward;
pub mod group;
pub mod ids;
pub mod ledger;
mod mismatch;
pub mod moves;
pub mod occupancy;
pub mod ownership;
pub mod placement;
pub mod plan;
mod projection;
pub mod recovery;
pub mod report;
pub mod share;
pub mod simulate;
pub mod snapshot;
mod strict;
pub mod thresholds;
pub mod update;
pub mod window;

pub use because::Because;
pub use field::FieldError;
pub use group::{DrainKind, Group, WorkerState, WorkerView};
pub use ids::{Birth, ClientId, Epoch, GatewayId, Term, UserId};
pub use plan::{Action, Plan, Snapshot, plan};
pub use share::Share;
pub use thresholds::{Mode, MoveMode, Policy, UpdateType};
