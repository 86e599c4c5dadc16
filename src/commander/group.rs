//! What the commander holds of one group: its policy, its indexed workers, what it wants of the vehicle and what it said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::ledger::Ledger;
use elastic_pool_engine::occupancy::Limits;
use elastic_pool_engine::plan::{Action, Snapshot};
use elastic_pool_engine::update::Update;
use elastic_pool_engine::window::Window;
use elastic_pool_engine::{Group, Mode as EngineMode, MoveMode, Policy, Share};
use serde::Serialize;

use super::history::History;
use crate::vehicle::{DecisionNote, Desired, GroupSpec, Mode};

/// Decisions kept for status and the monitor.
const NOTES: usize = 10;

/// One group of this operator.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) spec: GroupSpec,
    pub(super) policy: Policy,
    /// The living workers, as the engine sees them.
    pub(super) engine: Group,
    pub(super) spawns: SpawnHistory,
    /// Births wanted and not made yet.
    pub(super) wanted: BTreeSet<Birth>,
    /// Births to delete, with their pod's UID.
    pub(super) retiring: BTreeMap<Birth, String>,
    pub(super) notes: VecDeque<DecisionNote>,
    pub(super) notes_seen: u64,
    /// The reason for doing nothing that was told last, so that only a change is told.
    pub(super) told: String,
    pub(super) ledger: Ledger,
    pub(super) conditions: Vec<elastic_pool_engine::plan::Condition>,
    /// What becomes of workers of an older template, where there are any to be replaced.
    pub(super) update: Option<Update>,
    /// When the plan is to be made again though nothing was reported.
    pub(super) wake_at: Option<Duration>,
    /// Deleted: its workers drain within their grace and nobody new is born.
    pub(super) gone: bool,
    /// Why the last spawn failed (G4).
    pub(super) failure: Option<crate::vehicle::SpawnFailure>,
    /// What spec.mode Recommend would have it do now.
    pub(super) advice: Option<Advice>,
    /// Actions and reasons of the last plan that was kept; empty once one of them was carried out.
    pub(super) reasons: Vec<Reason>,
    /// The last decisions with what they stood on.
    pub(super) history: History,
}

/// What a decision came to, without its figures.
pub(super) type Reason = (Option<Action>, &'static str);

/// A recommendation, for status and the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// CamelCase, as the events of decisions that are carried out: `Spawned`, `CompactionStarted`, `SpawnCancelled`.
    pub action: &'static str,
    /// The decision's code.
    pub reason: &'static str,
    /// Rule numbers and figures in one sentence.
    pub because: String,
}

impl GroupState {
    pub(super) fn new(spec: GroupSpec) -> Self {
        Self {
            policy: policy(&spec, spec.live_moves),
            spec,
            engine: Group::default(),
            spawns: SpawnHistory::default(),
            wanted: BTreeSet::new(),
            retiring: BTreeMap::new(),
            notes: VecDeque::new(),
            notes_seen: 0,
            told: String::new(),
            ledger: Ledger::default(),
            conditions: Vec::new(),
            update: None,
            wake_at: None,
            gone: false,
            failure: None,
            advice: None,
            reasons: Vec::new(),
            history: History::default(),
        }
    }

    /// What a plan stands on.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            group: &self.engine,
            policy: &self.policy,
            spawns: &self.spawns,
        }
    }

    /// It takes newcomers, and users of other groups (V9).
    pub(super) fn is_open(&self) -> bool {
        !self.gone && self.spec.mode != Mode::Evacuate
    }

    /// A worker is wanted or on its way.
    pub(super) fn is_spawning(&self, now: Duration) -> bool {
        let mut on_the_way = self.engine.in_flight(self.policy.spawn_timeout, now);
        on_the_way.next().is_some()
    }

    /// Keeps a decision for status, events and the monitor.
    pub(super) fn note(&mut self, action: &str, because: String, warning: bool) {
        if warning {
            tracing::warn!(group = %self.spec.key, action, %because, "decision");
        } else {
            tracing::info!(group = %self.spec.key, action, %because, "decision");
        }
        let at = crate::clock::unix_seconds();
        self.notes.push_front(DecisionNote {
            at,
            action: action.to_owned(),
            because,
            warning,
        });
        self.notes.truncate(NOTES);
        self.notes_seen += 1;
    }

    pub(super) fn desired(&self) -> Desired {
        Desired {
            spawn: self.wanted.iter().copied().collect(),
            retire: self
                .retiring
                .iter()
                .map(|(birth, uid)| (*birth, uid.clone()))
                .collect(),
            released: self.retiring.keys().copied().collect(),
        }
    }
}

/// The engine's policy of a manifest; `live` is false where the app cannot hand users out.
pub(crate) fn policy(spec: &GroupSpec, live: bool) -> Policy {
    let share = |value: f64| Share::from_f64(value).unwrap_or_default().clamped();
    let admission = share(spec.admission_threshold);
    Policy {
        reception: share(spec.reception_threshold),
        admission,
        margin: admission.times(Share::from_f64(spec.margin_workers).unwrap_or(Share::ONE)),
        smoothing_rows: spec.smoothing_rows.max(1) as usize,
        window_rows: Window::ROWS.max(spec.smoothing_rows as usize),
        interval: spec.interval,
        min: spec.min as usize,
        max: spec.max.map(|max| max as usize),
        max_surge: spec.max_surge as usize,
        spawn_timeout: spec.spawn_timeout,
        drain_timeout: spec.drain_timeout,
        limits: Limits {
            memory_bytes: spec.memory_limit,
            cpu_cores: spec.cpu_capacity,
        },
        moves: if live { MoveMode::Live } else { MoveMode::Drain },
        mode: match spec.mode {
            Mode::Active => EngineMode::Active,
            Mode::Recommend => EngineMode::Recommend,
            Mode::Frozen => EngineMode::Frozen,
            Mode::Evacuate => EngineMode::Evacuate,
        },
        outlet: false,
        update: spec.update,
    }
}
