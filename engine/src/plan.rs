//! Growth and compaction of one group put together: the next actions and how long they hold; carries out nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Because;
use crate::capacity::{self, Growth, Reason, SpawnHistory};
use crate::compaction::{self, Step};
use crate::evacuation;
use crate::group::{Drain, DrainKind, DrainProgress, Group, SpawnFault, WorkerView};
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::thresholds::{Mode, Policy};
use crate::update::{self, Update};

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
    /// Close a worker of an older template to newcomers; its users move to others or leave.
    Replace {
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
    /// Spawns fail, the last one for this (G4).
    SpawnsFailing(SpawnFault),
    /// Workers are stale (E5).
    ReportsStale {
        /// How many.
        workers: usize,
        /// The oldest of them.
        first: Birth,
    },
}

/// Why a drain or a spawn comes to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// G4: it took too long to become routable, for this as far as is known.
    SpawnTimeout {
        /// The spawn.
        name: Arc<str>,
        /// As long as it may take.
        timeout: Duration,
        /// What kept it.
        fault: SpawnFault,
    },
    /// C2: its users have left.
    Empty(Arc<str>),
    /// D2: its time is up, so many users are left.
    DrainTimeout(Arc<str>, usize),
    /// C7: it did not become empty, so many users are left.
    NotEmpty(Arc<str>, usize),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpawnTimeout { name, timeout, fault } => {
                let kept = match fault {
                    SpawnFault::TimedOut => "",
                    SpawnFault::NoCapacity => ": there is no capacity for it",
                    SpawnFault::Mistake => ": it cannot run as declared",
                };
                write!(
                    f,
                    "G4: {name} is not routable after {} s{kept}",
                    timeout.as_secs()
                )
            }
            Self::Empty(name) => write!(f, "C2: {name} is empty"),
            Self::DrainTimeout(name, users) => {
                write!(f, "D2: the time of {name} is up, {users} users are left")
            }
            Self::NotEmpty(name, users) => {
                write!(f, "C7: {name} did not become empty, {users} users are left")
            }
        }
    }
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
    /// What becomes of workers of an older template, where there are any to be replaced.
    pub update: Option<Update>,
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

    /// Somebody is drained, or a spawn cancelled.
    fn empties(&self) -> bool {
        let empties = |action| {
            matches!(
                action,
                Action::Drain { .. } | Action::CancelSpawn { .. } | Action::CancelDrain { .. }
            )
        };
        self.actions().any(empties)
    }

    fn abandon(&mut self, policy: &Policy, spawn: &WorkerView) {
        let why = Why::SpawnTimeout {
            name: Arc::clone(&spawn.name),
            timeout: policy.spawn_timeout,
            fault: spawn.fault(),
        };
        let action = Action::AbandonSpawn { birth: spawn.birth };
        self.decide(policy.mode, Some(action), Because::new(spawn.fault().code(), why));
    }

    fn decide(&mut self, mode: Mode, action: Option<Action>, because: Because) {
        let withheld = !mode.acts() && action.is_some_and(|action| !is_duty(action, &because));
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
        Action::Spawn { .. } => [Reason::NoRoutableWorker, Reason::BelowMin]
            .map(Reason::code)
            .contains(&because.code),
        Action::Drain { .. } | Action::Replace { .. } | Action::CancelSpawn { .. } => false,
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
    let failed = spawns.with_given_up(group, policy, now);
    let growth = capacity::growth(group, policy, &failed, now);
    let mut plan = Plan {
        decisions: Vec::with_capacity(2),
        advice: Vec::new(),
        update: update::update(group, policy, &failed, now),
        conditions: conditions(group, policy, &failed, growth.reason, now),
        ledger: compaction.ledger,
        wake_at: wake_at(group, policy, spawns, now),
    };
    for spawn in group.overdue(policy.spawn_timeout, now) {
        plan.abandon(policy, spawn);
    }
    let grows = growth.spawn > 0 || !growth.cancel.is_empty();
    take_back(&mut plan, group, policy);
    drains(&mut plan, snapshot, &growth.cancel, now);
    grow(&mut plan, policy.mode, growth);
    if policy.mode == Mode::Evacuate && !grows {
        plan.decisions.extend(evacuation::evacuation(group, policy, now));
    }
    // Where no other group takes the users, those who stay are brought together as ever.
    let leaves = policy.mode == Mode::Evacuate && (policy.outlet || plan.empties());
    if !grows && !leaves {
        // With too many workers C8 comes first: an update that may spawn nobody would wait for ever.
        let update = plan.update.clone().filter(|_| !compaction.above_max);
        let ledger_waits = update.as_ref().is_some_and(|update| !update.is_blocked());
        if let Some(update) = update {
            plan.decide(policy.mode, update.step.action(), update.because);
        }
        if !ledger_waits {
            plan.decide(policy.mode, compaction.step.action(), compaction.because);
        }
    }
    plan
}

impl Step {
    fn action(self) -> Option<Action> {
        match self {
            Self::None => None,
            Self::CancelSpawn(birth) => Some(Action::CancelSpawn { birth }),
            Self::Drain(birth) => Some(Action::Drain { birth }),
        }
    }
}

fn grow(plan: &mut Plan, mode: Mode, growth: Growth) {
    for birth in growth.cancel {
        plan.decide(mode, Some(Action::CancelDrain { birth }), growth.because.clone());
    }
    let spawn = (growth.spawn > 0).then_some(Action::Spawn { count: growth.spawn });
    plan.decide(mode, spawn, growth.because);
}

/// Workers of an older template for which nobody would take over any more, or which are not to be replaced, serve again.
fn take_back(plan: &mut Plan, group: &Group, policy: &Policy) {
    for birth in group.updating() {
        if let Some(why) = update::end(group, policy, birth) {
            let because = Because::new(why.code(), why);
            plan.decide(policy.mode, Some(Action::CancelDrain { birth }), because);
        }
    }
}

fn drains(plan: &mut Plan, snapshot: &Snapshot<'_>, cancelled: &[Birth], now: Duration) {
    let policy = snapshot.policy;
    let evacuated = (policy.mode == Mode::Evacuate).then_some(snapshot.group);
    let returned = evacuated.and_then(|group| evacuation::returned(group, now));
    let serves_on = returned.map(|worker| worker.birth);
    for (worker, drain) in snapshot
        .group
        .due_drains(policy.drain_timeout, now)
        .filter(|(worker, _)| !cancelled.contains(&worker.birth) && Some(worker.birth) != serves_on)
        .filter(|(worker, _)| update::end(snapshot.group, policy, worker.birth).is_none())
    {
        if let Some((action, because)) = drained(worker, drain, policy, now) {
            plan.decide(policy.mode, Some(action), because);
        }
    }
}

fn drained(worker: &WorkerView, drain: Drain, policy: &Policy, now: Duration) -> Option<(Action, Because)> {
    let (birth, name, users) = (worker.birth, || Arc::clone(&worker.name), worker.users);
    let (action, code, why) = match (drain.kind, drain.progress) {
        (_, DrainProgress::Empty) => (Action::Retire { birth }, "empty", Why::Empty(name())),
        (DrainKind::MustGo, _) if now >= drain.since.saturating_add(policy.drain_timeout) => {
            let why = Why::DrainTimeout(name(), users);
            (Action::Retire { birth }, "drain_timeout", why)
        }
        (DrainKind::Compaction, DrainProgress::Stuck) if !compaction::waits(policy) => {
            let why = Why::NotEmpty(name(), users);
            (Action::CancelDrain { birth }, "not_empty", why)
        }
        _ => return None,
    };
    Some((action, Because::new(code, why)))
}

fn conditions(
    group: &Group,
    policy: &Policy,
    spawns: &SpawnHistory,
    reason: Reason,
    now: Duration,
) -> Vec<Condition> {
    let limited = (reason == Reason::MaxWorkers).then_some(Condition::ScalingLimited);
    let staying = compaction::staying(group, policy, now);
    let above =
        compaction::is_too_many(policy, group.outdated_count(), staying).then_some(Condition::AboveMax);
    let failing = spawns.fault.map(Condition::SpawnsFailing);
    let mut stale = group.stale();
    let workers = stale.len();
    let stale = stale
        .next()
        .map(|first| Condition::ReportsStale { workers, first });
    [limited, above, failing, stale].into_iter().flatten().collect()
}

fn wake_at(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Option<Duration> {
    let just_after = |at: Duration| at.saturating_add(Duration::from_millis(1));
    let spawn = group.next_overdue(policy.spawn_timeout, now).map(just_after);
    let drain = group.next_due_drain(policy.drain_timeout, now);
    let guests = (policy.mode == Mode::Evacuate).then(|| evacuation::wake_at(group, now));
    [
        group.next_change(now),
        spawns.blocked_until(now),
        spawn,
        drain,
        guests.flatten(),
    ]
    .into_iter()
    .flatten()
    .min()
}
