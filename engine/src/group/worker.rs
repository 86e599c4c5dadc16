//! One living worker as decisions see it; never the group around it.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::Birth;
use crate::share::Share;

/// Why a worker is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainKind {
    /// The ledger chose it (C2); growth may cancel it (G2).
    Compaction,
    /// Its pod must go (D2); nothing cancels that.
    MustGo,
    /// It is of an older template and workers of the new one take over.
    Update,
}

/// How far a drain has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainProgress {
    /// Users still live there or admission is not yet closed everywhere.
    #[default]
    Running,
    /// Empty after its admission was closed (L7).
    Empty,
    /// It cannot be emptied now: pinned stream, user backing off, package too large (C7).
    Stuck,
}

/// A drain under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Why.
    pub kind: DrainKind,
    /// Since when.
    pub since: Duration,
    /// How far.
    pub progress: DrainProgress,
}

/// Why a spawn does not come up (G4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpawnFault {
    /// It took too long, and nobody says why.
    TimedOut,
    /// There is no room for it: unschedulable, over a quota. Time or a bigger cluster helps.
    NoCapacity,
    /// It cannot run as declared: image, config, crash. Only another template helps.
    Mistake,
}

impl SpawnFault {
    /// The fault as a label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::TimedOut => "spawn_timeout",
            Self::NoCapacity => "no_capacity",
            Self::Mistake => "spawn_mistake",
        }
    }
}

/// Where a living worker is in its life. A worker that is dead or gone is not in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Spawned at `since`, not routable yet.
    Nascent {
        /// The create call.
        since: Duration,
    },
    /// Its pod is ready and its agent has announced; a missed probe or one lost connection changes nothing (D1).
    Routable,
    /// Routable, takes nobody new, its users leave.
    Draining(Drain),
    /// Told to go; still there.
    Retiring {
        /// Whether it must go (D2), so that its replacement may exceed `max` (G2).
        must_go: bool,
    },
}

/// One living worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Birth number; the order of workers is the order of birth.
    pub birth: Birth,
    /// Its pod's name, for people.
    pub name: Arc<str>,
    /// Where it is in its life.
    pub state: WorkerState,
    /// Smoothed occupancy, the last known one when stale (E2, E3).
    pub occupancy: Share,
    /// Unknown by E5: silent for three intervals, or it holds users and nothing can be measured.
    pub stale: bool,
    /// When silence makes it stale (`occupancy::stale_from`); `None` when it never reported.
    pub stale_from: Option<Duration>,
    /// Has filled a smoothing window in this term, or was born in it (E5).
    pub warm: bool,
    /// Counts as room until then (G1): routable since + one smoothing window; `None` once `smoothing_rows` rows came.
    pub room_until: Option<Duration>,
    /// Users that live there.
    pub users: usize,
    /// Load moved here that its smoothed reading does not show yet (C4).
    pub transit: Share,
    /// No victim before this (C7).
    pub passed_over_until: Option<Duration>,
    /// Of an older template: its replacement may exceed `max` (G2).
    pub outdated: bool,
    /// What is known to keep a spawn from coming up (G4).
    pub hindered: Option<SpawnFault>,
    /// Until then its guests may come back ([`Mode::Evacuate`](crate::Mode::Evacuate)); `None` for a worker without any.
    pub guests_until: Option<Duration>,
}

impl WorkerView {
    /// A warm, idle, routable worker without users.
    pub fn new(birth: Birth, name: &str) -> Self {
        Self {
            birth,
            name: name.into(),
            state: WorkerState::Routable,
            occupancy: Share::ZERO,
            stale: false,
            stale_from: None,
            warm: true,
            room_until: None,
            users: 0,
            transit: Share::ZERO,
            passed_over_until: None,
            outdated: false,
            hindered: None,
            guests_until: None,
        }
    }

    /// What keeps a spawn from coming up, as far as is known (G4).
    pub fn fault(&self) -> SpawnFault {
        self.hindered.unwrap_or(SpawnFault::TimedOut)
    }

    /// All that it carries: what it measured and what was moved here since (C4).
    pub fn load(&self) -> Share {
        self.occupancy + self.transit.max(Share::ZERO)
    }

    /// Takes newcomers: routable and not draining.
    pub fn is_placeable(&self) -> bool {
        self.state == WorkerState::Routable
    }

    /// The part of its load that one of its users stands for (C6); all of it when it names none.
    pub fn share_per_user(&self) -> Share {
        self.load().divided(self.users)
    }
}
