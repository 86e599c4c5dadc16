//! How workers of an older template are replaced, one after the other, the reception last (G2, D2); never moves anybody.
//!
//! A worker of the new template comes up first and proves it; only then somebody leaves. One of the older template goes
//! once those of the new one have room for what it carries, or one of them stands ready and empty.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Because;
use crate::capacity::{self, Hindrance, SpawnHistory};
use crate::group::{DrainKind, DrainProgress, Group, SpawnFault, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::placement::Figures;
use crate::projection::Projection;
use crate::share::Share;
use crate::thresholds::Policy;

/// What is to be done about workers of an older template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing now.
    None,
    /// Make a worker of the new template.
    Spawn,
    /// Close this one, and empty it.
    Replace(Birth),
}

impl Step {
    pub(crate) fn action(self) -> Option<crate::plan::Action> {
        match self {
            Self::None => None,
            Self::Spawn => Some(crate::plan::Action::Spawn { count: 1 }),
            Self::Replace(birth) => Some(crate::plan::Action::Replace { birth }),
        }
    }
}

/// One decision about workers of an older template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// What to do.
    pub step: Step,
    /// Why, in a sentence.
    pub because: Because,
    blocked: bool,
}

impl Update {
    /// It cannot go on by itself: something else has to change first.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }
}

/// Why one is replaced, made, waited for or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// D2: it goes; those of the new template take over.
    Replaced(Arc<str>, Heir),
    /// G2: nobody of the new template could take over from this one.
    Wanted(Arc<str>),
    /// One after the other.
    Running(Arc<str>),
    /// A spawn is on its way.
    InFlight(Arc<str>),
    /// E5: so many have not filled a smoothing window in this term.
    WarmingUp(usize),
    /// C7: none of them can be emptied now.
    NoVictim(usize),
    /// G2, G4: a worker is needed for this one and may not be made.
    Hindered(Arc<str>, Hindrance),
    /// C8: as many live as may, and without it a worker would be over 1.0.
    WouldOverflow(Arc<str>),
    /// It is not to be replaced any more.
    UpToDate(Arc<str>),
    /// Nobody of the new template is there to take over.
    NobodyNew(Arc<str>),
}

/// Who takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heir {
    /// This one stands ready and empty.
    Ready(Arc<str>),
    /// Together they have room; the least occupied.
    Room(Figures),
    /// As many live as may: they take over though they are full.
    Full(Figures),
}

impl Why {
    /// The reason as a label.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Replaced(..) => "outdated",
            Self::Wanted(_) => "replacement",
            Self::Running(_) => "update_running",
            Self::InFlight(_) => "update_spawn_in_flight",
            Self::WarmingUp(_) => "update_warming_up",
            Self::NoVictim(_) => "update_no_victim",
            Self::Hindered(_, Hindrance::Max { .. }) => "update_max_workers",
            Self::Hindered(..) => "update_backing_off",
            Self::WouldOverflow(_) => "update_max_full",
            Self::UpToDate(_) => "up_to_date",
            Self::NobodyNew(_) => "nobody_new",
        }
    }

    const fn is_blocked(&self) -> bool {
        matches!(
            self,
            Self::NoVictim(_) | Self::Hindered(..) | Self::WouldOverflow(_)
        )
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replaced(name, heir) => write!(f, "D2: {name} is of an older template and goes, {heir}"),
            Self::Wanted(name) => write!(
                f,
                "G2: {name} is of an older template and nobody of the new one could take over, so one is spawned"
            ),
            Self::Running(name) => {
                write!(f, "D2: {name} is being emptied, and one is replaced at a time")
            }
            Self::InFlight(name) => write!(
                f,
                "G2: {name} is on its way, and nobody is replaced before it is ready"
            ),
            Self::WarmingUp(n) => write!(
                f,
                "E5: {n} of the workers of an earlier leader have not filled a smoothing window, so nobody is replaced"
            ),
            Self::NoVictim(n) => write!(
                f,
                "C7: {n} workers are of an older template, and none of them can be emptied now"
            ),
            Self::Hindered(name, hindrance) => write!(
                f,
                "G2: {name} is of an older template and waits: {}",
                Hindered(hindrance)
            ),
            Self::WouldOverflow(name) => write!(
                f,
                "C8: as many live as may, and without {name}, of an older template, a worker would be at more than 1.0, so it stays"
            ),
            Self::UpToDate(name) => {
                write!(
                    f,
                    "D2: {name} is not to be replaced any more and takes newcomers again"
                )
            }
            Self::NobodyNew(name) => write!(
                f,
                "D2: nobody of the new template is routable, so {name} takes newcomers again"
            ),
        }
    }
}

impl fmt::Display for Heir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(name) => write!(f, "{name} of the new one stands ready"),
            Self::Room(of) => write!(
                f,
                "those of the new one have room, the most of them {} at {}",
                of.name, of.occupancy
            ),
            Self::Full(of) => write!(
                f,
                "as many live as may, and those of the new one take over, the least occupied {} at {}",
                of.name, of.occupancy
            ),
        }
    }
}

struct Hindered<'a>(&'a Hindrance);

impl fmt::Display for Hindered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Hindrance::Max { living, max } => {
                write!(f, "{living} live, max is {max}, and maxSurge allows no more")
            }
            Hindrance::BackingOff { failures, fault } => {
                let last = match fault {
                    SpawnFault::TimedOut => "",
                    SpawnFault::NoCapacity => ", the last for want of capacity,",
                    SpawnFault::Mistake => ", the last by a mistake in the template,",
                };
                write!(f, "{failures} spawns failed{last} and the pause is not over (G4)")
            }
            Hindrance::DrainCancelled(name) | Hindrance::InFlight(name) => write!(f, "{name} is on its way"),
        }
    }
}

/// What to do now; `None` where nobody of an older template is to be replaced.
pub fn update(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Option<Update> {
    if !policy.replaces() || group.outdated_count() == 0 {
        return None;
    }
    let (step, why) = match decide(group, policy, spawns, now) {
        Ok((step, why)) => (step, why),
        Err(why) => (Step::None, why),
    };
    Some(Update {
        step,
        blocked: why.is_blocked(),
        because: Because::new(why.code(), why),
    })
}

/// Why a worker that is emptied for an update is put back to service, if it is.
pub fn end(group: &Group, policy: &Policy, birth: Birth) -> Option<Why> {
    let worker = group.get(birth)?;
    match worker.state {
        WorkerState::Draining(drain) if drain.kind == DrainKind::Update => {}
        _ => return None,
    }
    let name = || Arc::clone(&worker.name);
    if !worker.outdated || !policy.replaces() {
        return Some(Why::UpToDate(name()));
    }
    (new_count(group) == 0).then(|| Why::NobodyNew(name()))
}

/// Placeable workers of the new template.
fn new_count(group: &Group) -> usize {
    group.placeable_count() - group.outdated_count()
}

fn decide(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Result<(Step, Why), Why> {
    let running = group.drains().find(|(_, drain)| {
        drain.kind != DrainKind::MustGo
            && drain.progress == DrainProgress::Running
            && policy.moves_users(drain.kind)
    });
    if let Some((worker, _)) = running {
        return Err(Why::Running(Arc::clone(&worker.name)));
    }
    if let Some(spawn) = group.in_flight(policy.spawn_timeout, now).next() {
        return Err(Why::InFlight(Arc::clone(&spawn.name)));
    }
    match group.cold_count() {
        0 => {}
        n => return Err(Why::WarmingUp(n)),
    }
    let victim = victim(group, now).ok_or_else(|| Why::NoVictim(group.outdated_count()))?;
    let name = || Arc::clone(&victim.name);
    // Each that is closed and not gone yet is stood in for.
    let closed = group.updating().len();
    let stood_in_for = new_count(group) > closed && group.placeable_count() > policy.min;
    if stood_in_for && let Some(heir) = heir(group, policy, victim) {
        return Ok((Step::Replace(victim.birth), Why::Replaced(name(), heir)));
    }
    match capacity::allowed(group, policy, spawns, 1, now) {
        Ok(_) => Ok((Step::Spawn, Why::Wanted(name()))),
        Err(Hindrance::Max { .. }) if stood_in_for && closed == 0 && nobody_leaves(group) => {
            if Projection::without(group, policy, victim).overflows() {
                return Err(Why::WouldOverflow(name()));
            }
            let heir = Heir::Full(least(group, policy));
            Ok((Step::Replace(victim.birth), Why::Replaced(name(), heir)))
        }
        Err(hindrance) => Err(Why::Hindered(name(), hindrance)),
    }
}

/// Nobody's place becomes free by itself.
fn nobody_leaves(group: &Group) -> bool {
    let leaves = |worker: &WorkerView| {
        matches!(
            worker.state,
            WorkerState::Draining(_) | WorkerState::Retiring { .. }
        )
    };
    !group.workers().any(leaves)
}

/// The least occupied beside the reception, those of which nothing is known last; the reception when it is the only one.
fn victim(group: &Group, now: Duration) -> Option<&WorkerView> {
    let reception = group.reception()?;
    let other = |worker: &&WorkerView| worker.outdated && worker.birth != reception.birth;
    let last = || (reception.outdated && group.outdated_count() == 1).then_some(reception);
    group
        .victims(now)
        .find(other)
        .or_else(|| group.unknown().find(other))
        .or_else(last)
}

/// Who takes over from `victim` without getting full.
fn heir(group: &Group, policy: &Policy, victim: &WorkerView) -> Option<Heir> {
    let empty = |worker: &&WorkerView| worker.users == 0 && worker.transit == Share::ZERO;
    let ready = || {
        group
            .placeable()
            .rev()
            .filter(|worker| !worker.outdated)
            .find(empty)
    };
    if !policy.moves_users(DrainKind::Update) {
        // His users stay with him; only newcomers need somebody.
        return Some(ready().map_or_else(
            || Heir::Room(least(group, policy)),
            |worker| Heir::Ready(Arc::clone(&worker.name)),
        ));
    }
    let reception = group
        .placeable()
        .map(|worker| worker.birth)
        .find(|birth| *birth != victim.birth);
    let mut left = victim.load();
    for worker in group.fresh().filter(|worker| !worker.outdated) {
        let room = policy.threshold(Some(worker.birth) == reception) - worker.load();
        left -= room.max(Share::ZERO);
        if left <= Share::ZERO {
            return Some(Heir::Room(least(group, policy)));
        }
    }
    ready().map(|worker| Heir::Ready(Arc::clone(&worker.name)))
}

/// The least occupied of the new template, for people.
fn least(group: &Group, policy: &Policy) -> Figures {
    let worker = group
        .fresh()
        .find(|worker| !worker.outdated)
        .or_else(|| group.unknown().find(|worker| !worker.outdated));
    worker.map_or_else(
        || Figures {
            name: "nobody".into(),
            occupancy: Share::ZERO,
            threshold: policy.admission,
        },
        |worker| Figures::of(worker, policy.admission),
    )
}
