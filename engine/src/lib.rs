//! The pure decisions of elastic-pool: no I/O, no clock, no Kubernetes; `now` is always an argument.
//!
//! `report` and `window` keep what a worker measured (M), `occupancy` turns it into a [`Share`] (E),
//! `placement` answers a login (P), `capacity` grows (G), `ledger` and `compaction` shrink (C), `plan` puts
//! growth and compaction together, `moves` is one user's move (V), `recovery` judges what a new leader hears.
//! `snapshot` saves a group to be asked again, `cases` answers made-up ones.

pub mod backoff;
pub mod capacity;
pub mod cases;
pub mod compaction;
mod field;
pub mod forward;
pub mod group;
pub mod ids;
pub mod ledger;
pub mod moves;
pub mod occupancy;
pub mod placement;
pub mod plan;
pub mod recovery;
pub mod report;
pub mod share;
pub mod snapshot;
pub mod thresholds;
pub mod window;

pub use field::FieldError;
pub use group::{DrainKind, Group, WorkerState, WorkerView};
pub use ids::{Birth, ClientId, Epoch, GatewayId, Term, UserId};
pub use plan::{Action, Plan, Snapshot, plan};
pub use share::Share;
pub use thresholds::{Mode, MoveMode, Policy};

use std::fmt;

/// Why a decision was taken: a stable code for metrics and events, and one sentence with rules and figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Because {
    /// Closed set, snake case, fit for a metric label.
    pub code: &'static str,
    /// Rule numbers and figures, for people.
    pub text: String,
}

impl Because {
    /// Pairs a code with its sentence.
    pub fn new(code: &'static str, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
