//! What a saved group would do now, and why, as one JSON object; it asks the engine and judges nothing itself.

use serde::Serialize;

use super::exact::write_seconds;
use super::leave::{Drained, Victim};
use super::{Saved, words};
use crate::capacity::{self, Growth};
use crate::compaction::{self, Compaction, Step};
use crate::group::Group;
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::placement::{PlaceError, Placement, place};
use crate::plan::{Action, Condition, Decision, Plan, plan};

/// What a group would do: growth, the next victim and where its users would go, the next login, the ledger, the plan.
///
/// Its JSON is one line with its keys always in the same order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub(super) group: String,
    pub(super) taken_at_s: String,
    pub(super) decisions: Vec<Decided>,
    pub(super) advice: Vec<Decided>,
    pub(super) growth: Grows,
    pub(super) compaction: Shrinks,
    pub(super) next_victim: Option<Victim>,
    pub(super) drains: Vec<Drained>,
    pub(super) next_login: NextLogin,
    pub(super) ledger: Figures,
    pub(super) workers: Vec<Worker>,
    pub(super) conditions: Vec<Told>,
    /// When to ask again though nothing is reported: seconds after the snapshot was taken.
    pub(super) wake_in_s: Option<String>,
}

/// A decision of the plan: an action or, with `action` null, why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Decided {
    pub(super) action: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<usize>,
    pub(super) reason: &'static str,
    pub(super) because: String,
}

/// Growth: workers to spawn and drains to cancel (G).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Grows {
    pub(super) spawn: usize,
    pub(super) cancel: Vec<String>,
    pub(super) reason: &'static str,
    pub(super) because: String,
    /// Why none of it is done, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<String>,
}

/// A condition, as `kubectl describe` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Told {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) message: String,
}

/// What the ledger asks for (C), before growth and `spec.mode` have their say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Shrinks {
    pub(super) retire: Option<String>,
    pub(super) cancel_spawn: Option<String>,
    pub(super) reason: &'static str,
    pub(super) because: String,
}

/// Where a login that lives nowhere would go (P2, P3); `worker` is null while nobody is routable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NextLogin {
    pub(super) decision: Option<&'static str>,
    pub(super) worker: Option<String>,
    pub(super) warning: bool,
    pub(super) because: String,
}

/// The ledger (C1), in workers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Figures {
    #[serde(rename = "workers")]
    pub(super) workers: usize,
    pub(super) c: f64,
    pub(super) o: f64,
    pub(super) h: f64,
    #[serde(rename = "margin")]
    pub(super) margin: f64,
}

/// A worker, as far as decisions saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) birth: String,
    pub(super) state: &'static str,
    pub(super) reception: bool,
    pub(super) occupancy: f64,
    pub(super) users: usize,
    /// What makes it special: stale (E5), cold (E5), young (G1), passed over (C7), load in transit (C4).
    pub(super) notes: Vec<String>,
}

impl Answer {
    pub(super) fn of(saved: &Saved) -> Self {
        let (group, policy, now) = (saved.group(), saved.policy(), saved.taken_at());
        let plan = plan(&saved.snapshot(), now);
        let spawns = saved.spawns.with_given_up(group, policy, now);
        let growth = capacity::growth(group, policy, &spawns, now);
        let compaction = compaction::compaction(group, policy, now);
        Self {
            group: saved.name().to_owned(),
            taken_at_s: write_seconds(now),
            next_victim: Victim::of(saved, &plan, &growth, &compaction),
            drains: Drained::all(saved),
            next_login: NextLogin::of(group, place(group, policy, None)),
            ledger: Figures::of(&plan.ledger),
            workers: Worker::all(saved),
            conditions: plan.conditions.iter().map(|it| Told::of(saved, it)).collect(),
            wake_in_s: plan.wake_at.map(|at| write_seconds(at.saturating_sub(now))),
            decisions: decided(group, &plan.decisions),
            advice: decided(group, &plan.advice),
            growth: Grows::of(saved, &plan, &growth),
            compaction: Shrinks::of(group, &compaction),
        }
    }

    /// One line of JSON, without a line break.
    pub fn to_json(&self) -> String {
        // Strings, finite numbers and lists only: nothing that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

pub(super) fn name(group: &Group, birth: Birth) -> String {
    group.name(birth).to_owned()
}

fn decided(group: &Group, decisions: &[Decision]) -> Vec<Decided> {
    decisions
        .iter()
        .map(|decision| Decided::of(group, decision))
        .collect()
}

impl Decided {
    fn of(group: &Group, decision: &Decision) -> Self {
        let (action, birth, count) = match decision.action {
            None => (None, None, None),
            Some(Action::Spawn { count }) => (Some("spawn"), None, Some(count)),
            Some(Action::CancelSpawn { birth }) => (Some("cancel_spawn"), Some(birth), None),
            Some(Action::AbandonSpawn { birth }) => (Some("abandon_spawn"), Some(birth), None),
            Some(Action::Drain { birth }) => (Some("drain"), Some(birth), None),
            Some(Action::Replace { birth }) => (Some("replace"), Some(birth), None),
            Some(Action::CancelDrain { birth }) => (Some("cancel_drain"), Some(birth), None),
            Some(Action::Retire { birth }) => (Some("retire"), Some(birth), None),
        };
        Self {
            action,
            worker: birth.map(|birth| name(group, birth)),
            count,
            reason: decision.because.code,
            because: decision.because.to_string(),
        }
    }
}

impl Grows {
    fn of(saved: &Saved, plan: &Plan, growth: &Growth) -> Self {
        let mode = words::mode(saved.policy().mode);
        let withheld =
            (growth.spawn > 0 && !grows(plan)).then(|| format!("spec.mode is {mode}: nobody is spawned"));
        Self {
            spawn: growth.spawn,
            cancel: growth
                .cancel
                .iter()
                .map(|birth| name(saved.group(), *birth))
                .collect(),
            reason: growth.reason.code(),
            because: growth.because.to_string(),
            withheld,
        }
    }
}

impl Shrinks {
    fn of(group: &Group, compaction: &Compaction) -> Self {
        let (retire, cancel_spawn) = match compaction.step {
            Step::None => (None, None),
            Step::Drain(birth) => (Some(birth), None),
            Step::CancelSpawn(birth) => (None, Some(birth)),
        };
        Self {
            retire: retire.map(|birth| name(group, birth)),
            cancel_spawn: cancel_spawn.map(|birth| name(group, birth)),
            reason: compaction.because.code,
            because: compaction.because.to_string(),
        }
    }
}

impl NextLogin {
    fn of(group: &Group, placement: Result<Placement, PlaceError>) -> Self {
        match placement {
            Ok(placement) => Self {
                decision: Some(placement.verdict.code()),
                worker: Some(name(group, placement.worker)),
                warning: placement.warning,
                because: placement.because.to_string(),
            },
            Err(error) => Self {
                decision: None,
                worker: None,
                warning: false,
                because: format!("P3: {error}"),
            },
        }
    }
}

impl Figures {
    fn of(ledger: &Ledger) -> Self {
        Self {
            workers: ledger.workers,
            c: ledger.capacity.as_f64(),
            o: ledger.occupied.as_f64(),
            h: ledger.headroom.as_f64(),
            margin: ledger.margin.as_f64(),
        }
    }
}

impl Worker {
    fn all(saved: &Saved) -> Vec<Self> {
        let reception = saved.group().reception().map(|worker| worker.birth);
        let row = |view: &crate::WorkerView| Self {
            name: view.name.to_string(),
            birth: view.birth.to_string(),
            state: words::state(view.state),
            reception: reception == Some(view.birth),
            occupancy: view.occupancy.as_f64(),
            users: view.users,
            notes: notes(saved, view),
        };
        saved.group().workers().map(row).collect()
    }
}

fn notes(saved: &Saved, view: &crate::WorkerView) -> Vec<String> {
    let now = saved.taken_at();
    let ahead = |until: Option<std::time::Duration>| until.filter(|until| *until > now);
    let mut notes = Vec::new();
    if view.stale {
        notes.push("E5: stale, its figures are unknown".to_owned());
    }
    if !view.warm {
        notes.push("E5: has not filled a smoothing window in this term".to_owned());
    }
    if let Some(until) = ahead(view.room_until) {
        notes.push(format!("G1: counts as room for {} s", whole_seconds(until, now)));
    }
    if let Some(until) = ahead(view.passed_over_until) {
        notes.push(format!("C7: no victim for {} s", whole_seconds(until, now)));
    }
    if view.outdated {
        let fate = if saved.policy().replaces() {
            "to be replaced"
        } else {
            "replaced once its pod is deleted"
        };
        notes.push(format!("G2: of an older template, {fate}"));
    }
    if let Some(fault) = view.hindered {
        notes.push(format!("G4: does not come up, {}", words::fault(fault)));
    }
    if view.transit > crate::Share::ZERO {
        notes.push(format!("C4: {} moved here is not measured yet", view.transit));
    }
    notes
}

/// Seconds from `now` to `until`, rounded up: nothing that lies ahead reads as 0.
pub(super) fn whole_seconds(until: std::time::Duration, now: std::time::Duration) -> u64 {
    let left = until.saturating_sub(now);
    left.as_secs() + u64::from(left.subsec_nanos() > 0 && left.as_secs() < u64::MAX)
}

impl Told {
    fn of(saved: &Saved, condition: &Condition) -> Self {
        let (group, max) = (saved.group(), saved.policy().max.unwrap_or_default());
        let (kind, message) = match condition {
            Condition::ScalingLimited => (
                "ScalingLimited",
                format!(
                    "G2: {} live and max is {max}, so nobody is spawned",
                    group.living()
                ),
            ),
            Condition::AboveMax => (
                "AboveMax",
                format!("C8: {} take users and max is {max}", group.placeable_count()),
            ),
            Condition::SpawnsFailing(fault) => (
                "SpawnsFailing",
                format!("G4: spawns fail, the last one because {}", words::fault(*fault)),
            ),
            Condition::ReportsStale { workers, first } => (
                "ReportsStale",
                format!("E5: {workers} stale, the oldest is {}", group.name(*first)),
            ),
        };
        Self { kind, message }
    }
}

/// Whether the plan acts on growth, so that the ledger is not asked in this round.
pub(super) fn grows(plan: &Plan) -> bool {
    plan.actions()
        .any(|action| matches!(action, Action::Spawn { .. } | Action::CancelDrain { .. }))
}
