//! Who would be emptied next, what blocks it, and where each of its users would go, in their order (C2, C6, C7).

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::{grows, name, whole_seconds};
use super::{Saved, SavedUser, Stays, words};
use crate::capacity::Growth;
use crate::compaction::{self, Compaction, Step, Survivors, move_order};
use crate::group::{DrainKind, WorkerView};
use crate::ids::Birth;
use crate::plan::{Action, Plan};
use crate::share::Share;
use crate::thresholds::{Mode, MoveMode};

/// The worker that would be emptied next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Victim {
    pub(super) worker: String,
    pub(super) occupancy: f64,
    pub(super) users: usize,
    pub(super) because: String,
    /// Why it is not drained now; empty when it is.
    pub(super) blocked_by: Vec<String>,
    pub(super) moves: Vec<Move>,
}

/// A worker that is being emptied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Drained {
    pub(super) worker: String,
    pub(super) kind: &'static str,
    pub(super) progress: &'static str,
    pub(super) for_s: u64,
    pub(super) users: usize,
    pub(super) moves: Vec<Move>,
}

/// One user's way out, or why he stays.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Move {
    pub(super) user: String,
    pub(super) open_requests: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    /// What the target would then be at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) projected: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stays: Option<String>,
}

impl Victim {
    pub(super) fn of(saved: &Saved, plan: &Plan, growth: &Growth, compaction: &Compaction) -> Option<Self> {
        let victim = compaction::victim(saved.group(), saved.policy(), saved.taken_at())?;
        Some(Self {
            worker: victim.name.to_string(),
            occupancy: victim.occupancy.as_f64(),
            users: victim.users,
            because: because(saved, victim),
            blocked_by: blocked(saved, plan, growth, compaction),
            moves: moves(saved, victim, DrainKind::Compaction, BTreeMap::new()),
        })
    }
}

fn because(saved: &Saved, victim: &WorkerView) -> String {
    let others = saved.group().placeable_count().saturating_sub(1);
    let (name, load) = (&victim.name, victim.occupancy);
    if others == 1 {
        format!("C2: {name} at {load} is the only worker beside the reception")
    } else {
        format!(
            "C2: {name} at {load} is the least occupied of {others} workers beside the reception, ties go to the oldest"
        )
    }
}

fn blocked(saved: &Saved, plan: &Plan, growth: &Growth, compaction: &Compaction) -> Vec<String> {
    if plan
        .actions()
        .any(|action| matches!(action, Action::Drain { .. } | Action::Replace { .. }))
    {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    if grows(plan) {
        reasons.push(format!("growth comes first: {}", growth.because));
    }
    match (compaction.step, saved.policy().mode) {
        (Step::Drain(_), Mode::Active | Mode::Evacuate) => {}
        (Step::Drain(_), mode) => {
            reasons.push(format!("spec.mode is {}: nobody is compacted", words::mode(mode)));
        }
        _ => reasons.push(compaction.because.to_string()),
    }
    if let Some(update) = plan.update.as_ref().filter(|update| !update.is_blocked()) {
        reasons.push(format!("the update comes first: {}", update.because));
    }
    reasons
}

impl Drained {
    pub(super) fn all(saved: &Saved) -> Vec<Self> {
        let group = saved.group();
        // What moved already and is not measured yet stands for what these drains have added so far (C4, C6).
        let transit: BTreeMap<Birth, Share> = group
            .placeable()
            .map(|worker| (worker.birth, worker.transit))
            .collect();
        let row = |(worker, drain): (&WorkerView, crate::group::Drain)| Self {
            worker: worker.name.to_string(),
            kind: words::kind(drain.kind),
            progress: words::progress(drain.progress),
            for_s: saved.taken_at().saturating_sub(drain.since).as_secs(),
            users: worker.users,
            moves: moves(saved, worker, drain.kind, transit.clone()),
        };
        group.drains().map(row).collect()
    }
}

/// The users of `from` in the order of C6, each with the target chosen for him after those before him.
fn moves(saved: &Saved, from: &WorkerView, kind: DrainKind, added: BTreeMap<Birth, Share>) -> Vec<Move> {
    let (group, policy) = (saved.group(), saved.policy());
    if saved.users(from.birth).is_empty() {
        return Vec::new();
    }
    let mut survivors = Survivors::without(group, policy, from.birth, &added);
    let mut load = added;
    let share = from.share_per_user();
    let mut next = || {
        let target = survivors.take(share)?;
        let more = load.entry(target).or_default();
        *more += share;
        let measured = group
            .get(target)
            .map(|worker| worker.occupancy)
            .unwrap_or_default();
        Some((name(group, target), (measured + *more).as_f64()))
    };
    let users = saved.users(from.birth).iter();
    let order = move_order(users.map(|user| (user, user.open_requests)));
    let one = |user: &SavedUser| {
        let stays = stays(saved, kind, user);
        let target = if stays.is_none() { next() } else { None };
        let nobody = || {
            target
                .is_none()
                .then(|| "no other worker is there to take him (C6)".to_owned())
        };
        let stays = stays.or_else(nobody);
        let (to, projected) = target.unzip();
        Move {
            user: user.user.to_string(),
            open_requests: user.open_requests,
            to,
            projected,
            stays,
        }
    };
    order.into_iter().map(one).collect()
}

fn stays(saved: &Saved, kind: DrainKind, user: &SavedUser) -> Option<String> {
    if saved.policy().moves == MoveMode::Drain {
        return Some("moves.mode is Drain: he leaves by himself (C7)".to_owned());
    }
    if !saved.policy().moves_users(kind) {
        return Some("updateStrategy.type is Drain: he leaves by himself (D2)".to_owned());
    }
    match user.stays? {
        Stays::PinnedStream => Some("an open stream pins him (C7)".to_owned()),
        Stays::PackageTooLarge => Some("his package is too large (C7)".to_owned()),
        Stays::BackingOff { until } if until > saved.taken_at() => {
            let left = whole_seconds(until, saved.taken_at());
            Some(format!("a move of his failed, the next try is in {left} s (V6)"))
        }
        Stays::BackingOff { .. } => None,
    }
}
