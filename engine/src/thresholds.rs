//! What a group's owner asks for: thresholds, bounds and pauses as values; never reads them from anywhere.

use std::time::Duration;

use crate::group::DrainKind;
use crate::occupancy::Limits;
use crate::share::Share;
use crate::window::Window;

/// How users leave a worker that is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveMode {
    /// They are moved, alive.
    #[default]
    Live,
    /// The worker takes nobody new and waits until they have left.
    Drain,
}

/// How workers of an older template are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateType {
    /// Their users are moved to workers of the new one.
    #[default]
    Move,
    /// They take nobody new and wait until their users have left.
    Drain,
    /// Only once somebody deletes their pods.
    OnDelete,
}

/// What the engine may do on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    #[default]
    Active,
    /// Says what it would grow and compact, and does neither; `min`, the dead and D2 go on.
    Recommend,
    /// The same without the advice.
    Frozen,
    /// Everything that empties the group: `min` counts as 0 and nobody is taken in.
    Evacuate,
}

impl Mode {
    /// Growth and compaction go on by themselves.
    pub(crate) const fn acts(self) -> bool {
        matches!(self, Self::Active | Self::Evacuate)
    }
}

/// The policy of one group. Defaults are those of spec.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The reception keeps newcomers below this (P2) [0.5].
    pub reception: Share,
    /// The others take newcomers below this (P3) [0.8].
    pub admission: Share,
    /// Headroom above which a worker goes (C1): 1.5 x admission unless said otherwise.
    pub margin: Share,
    /// Rows a mean is taken over (E2) [6].
    pub smoothing_rows: usize,
    /// Rows kept of a worker (M4) [60].
    pub window_rows: usize,
    /// Time between reports (M1) [5 s].
    pub interval: Duration,
    /// The floor (G5) [1].
    pub min: usize,
    /// The ceiling (G2); `None` is unbounded.
    pub max: Option<usize>,
    /// How far replacements may exceed `max` (G2) [1].
    pub max_surge: usize,
    /// A spawn that takes longer has failed (G4) [120 s].
    pub spawn_timeout: Duration,
    /// How long a worker that must go may take to empty (D2) [120 s].
    pub drain_timeout: Duration,
    /// What a full component is (E1).
    pub limits: Limits,
    /// How drained users leave.
    pub moves: MoveMode,
    /// What may be done at all.
    pub mode: Mode,
    /// Another group takes this one's users now (V9); asked under [`Mode::Evacuate`] alone.
    pub outlet: bool,
    /// How workers of an older template are replaced.
    pub update: UpdateType,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            reception: Share::from_percent(50),
            admission: Share::from_percent(80),
            margin: Share::from_percent(120),
            smoothing_rows: 6,
            window_rows: Window::ROWS,
            interval: Duration::from_secs(5),
            min: 1,
            max: None,
            max_surge: 1,
            spawn_timeout: Duration::from_mins(2),
            drain_timeout: Duration::from_mins(2),
            limits: Limits::default(),
            moves: MoveMode::default(),
            mode: Mode::default(),
            outlet: false,
            update: UpdateType::default(),
        }
    }
}

impl Policy {
    /// One smoothing window: as long as the smoothing rows take to arrive (G1, E5).
    pub fn smoothing_window(&self) -> Duration {
        self.interval
            .saturating_mul(u32::try_from(self.smoothing_rows).unwrap_or(u32::MAX))
    }

    /// The floor that holds (G5): none for a group that is to be empty.
    pub fn floor(&self) -> usize {
        if self.mode == Mode::Evacuate { 0 } else { self.min }
    }

    /// Workers of an older template are replaced without anybody's deleting them.
    pub fn replaces(&self) -> bool {
        self.update != UpdateType::OnDelete && self.mode != Mode::Evacuate
    }

    /// Users who come to a worker of an older template would have to leave it again, so the others take them first.
    pub fn prefers_new(&self) -> bool {
        self.replaces() && self.mode == Mode::Active
    }

    /// Users of a drain of this kind are moved; else they leave by themselves.
    pub fn moves_users(&self, kind: DrainKind) -> bool {
        let waits = kind == DrainKind::Update && self.update == UpdateType::Drain;
        self.moves == MoveMode::Live && !waits
    }

    /// The threshold of a worker in its role (C6).
    pub fn threshold(&self, is_reception: bool) -> Share {
        if is_reception {
            self.reception
        } else {
            self.admission
        }
    }
}
