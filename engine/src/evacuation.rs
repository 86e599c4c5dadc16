//! Emptying a whole group (`spec.mode` Evacuate): who goes, when the reception does, and which worker of another group takes a user
//! (V9); moves nobody.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Because;
use crate::group::{DrainKind, Group, WorkerView};
use crate::ids::Birth;
use crate::plan::{Action, Decision};
use crate::share::Share;
use crate::thresholds::Policy;

/// Why somebody goes, or nobody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another group takes its users.
    Outlet(Arc<str>, usize),
    /// Nobody lives there, and nobody will.
    Uninhabited(Arc<str>),
    /// The reception goes, the last: nobody lives in the group and its guests stayed away.
    LastOne(Arc<str>),
    /// Nobody lives in the group; the guests of the reception may still come back, for so long.
    GuestsMayReturn(Arc<str>, Duration),
    /// One of its guests came back before it was gone.
    GuestReturned(Arc<str>),
    /// So many users live here, and whether another group takes them.
    UsersLeft {
        /// In the whole group.
        users: usize,
        /// An other group takes them.
        outlet: bool,
    },
    /// A spawn that nobody needs any more.
    SpawnNotNeeded(Arc<str>),
    /// All is done.
    NobodyLeft,
}

impl Why {
    /// The reason as a label.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Outlet(..) | Self::Uninhabited(_) => "evacuating",
            Self::LastOne(_) => "evacuated",
            Self::GuestsMayReturn(..) => "guests_may_return",
            Self::GuestReturned(_) => "guest_returned",
            Self::UsersLeft { .. } => "users_left",
            Self::SpawnNotNeeded(_) => "spawn_cancelled",
            Self::NobodyLeft => "nobody_left",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outlet(name, users) => write!(
                f,
                "Evacuate: {name} goes, its {users} users move to another group of the pool (V9)"
            ),
            Self::Uninhabited(name) => write!(f, "Evacuate: nobody lives on {name}, so it goes"),
            Self::LastOne(name) => write!(
                f,
                "Evacuate: nobody lives in the group and the guests of {name} stayed away for guestTimeout, so it goes, the last"
            ),
            Self::GuestsMayReturn(name, left) => write!(
                f,
                "Evacuate: nobody lives in the group; guests of {name} may still come back for {} s",
                left.as_secs() + u64::from(left.subsec_nanos() > 0)
            ),
            Self::GuestReturned(name) => write!(
                f,
                "Evacuate: a guest of {name} came back before it was gone, so it serves on"
            ),
            Self::UsersLeft { users, outlet: true } => write!(
                f,
                "Evacuate: {users} users are left and move to another group as it has room (V9)"
            ),
            Self::UsersLeft { users, outlet: false } => write!(
                f,
                "Evacuate: {users} users are left and leave by themselves: no other group of the pool takes them (V9)"
            ),
            Self::SpawnNotNeeded(name) => {
                write!(f, "Evacuate: the spawn of {name} is not needed and is cancelled")
            }
            Self::NobodyLeft => f.write_str("Evacuate: nobody is left"),
        }
    }
}

/// How many users live in the group.
pub fn users(group: &Group) -> usize {
    group.workers().map(|worker| worker.users).sum()
}

/// What empties the group further; one decision without an action when nothing does now.
pub fn evacuation(group: &Group, policy: &Policy, now: Duration) -> Vec<Decision> {
    let going = steps(group, policy, now);
    if !going.is_empty() {
        return going;
    }
    vec![rest(group, policy, now)]
}

/// Spawns that nobody needs, and everybody but the reception who can be emptied.
fn steps(group: &Group, policy: &Policy, now: Duration) -> Vec<Decision> {
    let needed = group.placeable_count() == 0 && users(group) > 0;
    let spawns = group.in_flight(policy.spawn_timeout, now).filter(|_| !needed);
    let unneeded = spawns.map(|spawn| {
        decision(
            Some(Action::CancelSpawn { birth: spawn.birth }),
            Why::SpawnNotNeeded(Arc::clone(&spawn.name)),
        )
    });
    let going = group.placeable().skip(1).filter_map(|worker| {
        let name = Arc::clone(&worker.name);
        let why = match worker.users {
            0 => Why::Uninhabited(name),
            users if policy.outlet => Why::Outlet(name, users),
            _ => return None,
        };
        Some(decision(Some(Action::Drain { birth: worker.birth }), why))
    });
    unneeded.chain(going).collect()
}

/// The reception's turn, or what is waited for.
fn rest(group: &Group, policy: &Policy, now: Duration) -> Decision {
    let Some(reception) = group.reception() else {
        return closed(group, policy, now);
    };
    let users = users(group);
    if users > 0 || group.placeable_count() > 1 || group.drains().next().is_some() {
        let outlet = policy.outlet;
        return decision(None, Why::UsersLeft { users, outlet });
    }
    let name = Arc::clone(&reception.name);
    match guests(reception, now) {
        Some(left) => decision(None, Why::GuestsMayReturn(name, left)),
        None => decision(
            Some(Action::Drain {
                birth: reception.birth,
            }),
            Why::LastOne(name),
        ),
    }
}

/// Nobody takes newcomers: the last is closed already, or gone.
fn closed(group: &Group, policy: &Policy, now: Duration) -> Decision {
    if let Some(worker) = returned(group, now) {
        let action = Action::CancelDrain { birth: worker.birth };
        return decision(Some(action), Why::GuestReturned(Arc::clone(&worker.name)));
    }
    match users(group) {
        0 => decision(None, Why::NobodyLeft),
        users => decision(
            None,
            Why::UsersLeft {
                users,
                outlet: policy.outlet,
            },
        ),
    }
}

/// The closed reception, when one of its guests came back before it was gone: it serves on.
pub(crate) fn returned(group: &Group, now: Duration) -> Option<&WorkerView> {
    if group.reception().is_some() {
        return None;
    }
    let mut closed = group.drains();
    let found =
        closed.find(|(worker, drain)| drain.kind == DrainKind::Compaction && guests(worker, now).is_some());
    found.map(|(worker, _)| worker)
}

/// How long guests of this worker may still come back; `None` when they stayed away.
fn guests(worker: &WorkerView, now: Duration) -> Option<Duration> {
    let until = worker.guests_until.filter(|until| *until > now)?;
    Some(until.saturating_sub(now))
}

fn decision(action: Option<Action>, why: Why) -> Decision {
    Decision {
        action,
        because: Because::new(why.code(), why),
    }
}

/// When time alone lets the reception go, or a worker that guests came back to.
pub(crate) fn wake_at(group: &Group, now: Duration) -> Option<Duration> {
    let until = |worker: &WorkerView| worker.guests_until.filter(|until| *until > now);
    if let Some(reception) = group.reception() {
        return until(reception);
    }
    let closed = group
        .drains()
        .filter(|(_, drain)| drain.kind == DrainKind::Compaction);
    closed.filter_map(|(worker, _)| until(worker)).min()
}

/// The worker of other groups that takes one user (V9): the least loaded below its own threshold, what is on its way there (`coming`)
/// included, ties to the oldest. None below: nobody, so that the group there grows first, or with `anyway` the least loaded.
pub fn outlet<'a>(
    groups: impl IntoIterator<Item = (&'a Group, &'a Policy)>,
    coming: &BTreeMap<Birth, Share>,
    anyway: bool,
) -> Option<Birth> {
    let candidates = groups.into_iter().flat_map(|(group, policy)| {
        let reception = group.reception().map(|worker| worker.birth);
        let any_known = group.fresh().next().is_some();
        let known = move |worker: &&WorkerView| worker.stale != any_known;
        group.placeable().filter(known).map(move |worker| {
            let more = coming.get(&worker.birth).copied().unwrap_or_default();
            let load = worker.load() + more;
            let is_full = load >= policy.threshold(reception == Some(worker.birth));
            (is_full, load, worker.birth)
        })
    });
    let (is_full, _, birth) = candidates.min()?;
    (anyway || !is_full).then_some(birth)
}
