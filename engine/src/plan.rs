//! Growth and compaction of one group put together: the next actions and how long they hold; carries out nothing.

use std::time::Duration;

use crate::Because;
use crate::capacity::{self, Growth, Reason, SpawnHistory};
use crate::compaction::{self, Step};
use crate::group::{Drain, DrainKind, DrainProgress, Group, WorkerView};
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::thresholds::{Mode, MoveMode, Policy};

/// Everything a plan stands on. Call [`Group::expire`] first, so that silence is seen.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The workers.
    pub group: &'a Group,
    /// What the owner asks for.
    pub policy: &'a Policy,
    /// Spawns that failed.
    pub spawns: &'a SpawnHistory,
}

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make this many workers.
    Spawn {
        /// At least one.
        count: usize,
    },
    /// Delete a spawn that is no longer needed (C2).
    CancelSpawn {
        /// Which.
        birth: Birth,
    },
    /// Delete a spawn that took too long, and count a failure (G4).
    AbandonSpawn {
        /// Which.
        birth: Birth,
    },
    /// Close a worker to newcomers and move its users away (C2).
    Drain {
        /// Which.
        birth: Birth,
    },
    /// Put a drained worker back to full service (G2, C7).
    CancelDrain {
        /// Which.
        birth: Birth,
    },
    /// Delete a worker that is empty, or that must go and whose time is up (C2, D2). Check that it is empty again first.
    Retire {
        /// Which.
        birth: Birth,
    },
}

/// What people should see as a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Growth is asked for and `max` forbids it (G2).
    ScalingLimited,
    /// More workers than `max` stay (C8).
    AboveMax,
    /// Spawns fail or take too long (G4).
    SpawnsFailing,
    /// These workers are stale (E5).
    ReportsStale(Vec<Birth>),
}

/// An action, or none, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What to do; `None` says why nothing is done.
    pub action: Option<Action>,
    /// Why.
    pub because: Because,
}

/// What to do now, and until when that holds unless a fact changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are to be carried out.
    pub decisions: Vec<Decision>,
    /// What `Mode::Recommend` would have done.
    pub advice: Vec<Decision>,
    /// What people should see.
    pub conditions: Vec<Condition>,
    /// The ledger it stands on.
    pub ledger: Ledger,
    /// When to plan again though nothing was reported.
    pub wake_at: Option<Duration>,
}

impl Plan {
    /// The actions alone.
    pub fn actions(&self) -> impl Iterator<Item = Action> {
        self.decisions.iter().filter_map(|decision| decision.action)
    }

    /// The reasons alone, those for doing nothing included.
    pub fn reasons(&self) -> impl Iterator<Item = &Because> {
        self.decisions.iter().map(|decision| &decision.because)
    }

    fn decide(&mut self, mode: Mode, action: Option<Action>, because: Because) {
        let withheld = mode != Mode::Active && action.is_some_and(|action| !is_duty(action, &because));
        let decision = Decision { action, because };
        match mode {
            _ if !withheld => self.decisions.push(decision),
            Mode::Recommend => self.advice.push(decision),
            _ => {}
        }
    }
}

/// What goes on in every mode: `min`, the dead and D2, and an end to what was begun.
fn is_duty(action: Action, because: &Because) -> bool {
    match action {
        Action::Spawn { .. } => because.code != Reason::CannotPlace.code(),
        Action::Drain { .. } | Action::CancelSpawn { .. } => false,
        Action::AbandonSpawn { .. } | Action::CancelDrain { .. } | Action::Retire { .. } => true,
    }
}

/// Decides everything about one group at once: deterministic, total, and it never fails.
pub fn plan(snapshot: &Snapshot<'_>, now: Duration) -> Plan {
    let Snapshot {
        group,
        policy,
        spawns,
    } = *snapshot;
    let compaction = compaction::compaction(group, policy, now);
    // A spawn that is given up now is a failure like any other: its replacement waits (G4).
    let given_up = group.overdue(policy.spawn_timeout, now).count();
    let growth = capacity::growth(group, policy, &spawns.failed_now(given_up, now), now);
    let mut plan = Plan {
        decisions: Vec::new(),
        advice: Vec::new(),
        conditions: conditions(snapshot, &growth, now),
        ledger: compaction.ledger,
        wake_at: wake_at(snapshot, now),
    };
    for spawn in group.overdue(policy.spawn_timeout, now) {
        let text = format!(
            "G4: {} is not routable after {} s",
            spawn.name,
            policy.spawn_timeout.as_secs()
        );
        let action = Action::AbandonSpawn { birth: spawn.birth };
        plan.decide(policy.mode, Some(action), Because::new("spawn_timeout", text));
    }
    let grows = growth.spawn > 0 || !growth.cancel.is_empty();
    drains(&mut plan, snapshot, &growth.cancel, now);
    grow(&mut plan, policy.mode, growth);
    if !grows {
        let action = match compaction.step {
            Step::None => None,
            Step::CancelSpawn(birth) => Some(Action::CancelSpawn { birth }),
            Step::Drain(birth) => Some(Action::Drain { birth }),
        };
        plan.decide(policy.mode, action, compaction.because);
    }
    plan
}

fn grow(plan: &mut Plan, mode: Mode, growth: Growth) {
    for birth in growth.cancel {
        plan.decide(mode, Some(Action::CancelDrain { birth }), growth.because.clone());
    }
    let spawn = (growth.spawn > 0).then_some(Action::Spawn { count: growth.spawn });
    plan.decide(mode, spawn, growth.because);
}

fn drains(plan: &mut Plan, snapshot: &Snapshot<'_>, cancelled: &[Birth], now: Duration) {
    let policy = snapshot.policy;
    for (worker, drain) in snapshot
        .group
        .drains()
        .filter(|(worker, _)| !cancelled.contains(&worker.birth))
    {
        if let Some((action, because)) = drained(worker, drain, policy, now) {
            plan.decide(policy.mode, Some(action), because);
        }
    }
}

fn drained(worker: &WorkerView, drain: Drain, policy: &Policy, now: Duration) -> Option<(Action, Because)> {
    let (birth, name) = (worker.birth, &worker.name);
    let retire = |code, text| Some((Action::Retire { birth }, Because::new(code, text)));
    match (drain.kind, drain.progress) {
        (_, DrainProgress::Empty) => retire("empty", format!("C2: {name} is empty")),
        (DrainKind::MustGo, _) if now >= drain.since.saturating_add(policy.drain_timeout) => {
            let text = format!("D2: the time of {name} is up, {} users are left", worker.users);
            retire("drain_timeout", text)
        }
        (DrainKind::Compaction, DrainProgress::Stuck) if policy.moves == MoveMode::Live => {
            let text = format!("C7: {name} did not become empty, {} users are left", worker.users);
            Some((Action::CancelDrain { birth }, Because::new("not_empty", text)))
        }
        _ => None,
    }
}

fn conditions(snapshot: &Snapshot<'_>, growth: &Growth, now: Duration) -> Vec<Condition> {
    let Snapshot {
        group,
        policy,
        spawns,
    } = *snapshot;
    let mut conditions = Vec::new();
    if growth.reason == Reason::MaxWorkers {
        conditions.push(Condition::ScalingLimited);
    }
    let staying = group.placeable_count() + group.in_flight(policy.spawn_timeout, now).count();
    if policy.max.is_some_and(|max| staying > max) {
        conditions.push(Condition::AboveMax);
    }
    if spawns.failures > 0 || group.overdue(policy.spawn_timeout, now).next().is_some() {
        conditions.push(Condition::SpawnsFailing);
    }
    if group.stale().len() > 0 {
        conditions.push(Condition::ReportsStale(group.stale().collect()));
    }
    conditions
}

fn wake_at(snapshot: &Snapshot<'_>, now: Duration) -> Option<Duration> {
    let Snapshot {
        group,
        policy,
        spawns,
    } = *snapshot;
    let just_after = |at: Duration| at.saturating_add(Duration::from_millis(1));
    let spawn = group.next_overdue(policy.spawn_timeout, now).map(just_after);
    let drain = group
        .drains()
        .filter(|(_, drain)| drain.kind == DrainKind::MustGo)
        .map(|(_, drain)| drain.since.saturating_add(policy.drain_timeout))
        .filter(|at| *at > now)
        .min();
    [group.next_change(now), spawns.blocked_until(now), spawn, drain]
        .into_iter()
        .flatten()
        .min()
}
