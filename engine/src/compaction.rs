//! Who is emptied and where his users go (C2, C5-C8); never moves anybody and never takes the reception.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Because;
use crate::capacity;
use crate::group::{Drain, Group, WorkerView};
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::projection::Projection;
use crate::share::Share;
use crate::thresholds::{Mode, MoveMode, Policy};

/// What the ledger asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// Cancel this spawn: it is not needed any more (C2).
    CancelSpawn(Birth),
    /// Empty this worker, then retire it.
    Drain(Birth),
}

/// One decision on one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// What to do.
    pub step: Step,
    /// The figures it stands on.
    pub ledger: Ledger,
    /// More workers than `max` stay (C8).
    pub above_max: bool,
    /// Why, in a sentence.
    pub because: Because,
}

/// Why somebody goes or nobody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// H is not above the margin.
    WithinMargin(Ledger),
    /// E5: one is stale.
    Stale(Arc<str>),
    /// E5: so many have not filled a smoothing window in this term.
    WarmingUp(usize),
    /// A spawn that G1 does not ask for any more.
    SpawnNotNeeded(Ledger, Arc<str>),
    /// A spawn that is still needed.
    SpawnInFlight(Arc<str>),
    /// As few as may be.
    MinWorkers {
        /// Routable and not draining.
        workers: usize,
        /// The floor.
        min: usize,
    },
    /// One at a time.
    DrainRunning(Arc<str>),
    /// C7: all are passed over.
    NoVictim,
    /// C2: the least occupied goes.
    LeastOccupied(Ledger, Arc<str>, Share),
    /// C2: without it the group would grow again.
    WouldGrowAgain(Arc<str>, Share),
    /// C8: it goes whatever H is.
    AboveMax {
        /// Routable, not draining, or on the way.
        staying: usize,
        /// The victim.
        name: Arc<str>,
        /// How full it is.
        occupancy: Share,
    },
    /// C8: without it a worker would be over 1.0.
    WouldOverflow(Arc<str>),
}

impl Why {
    /// The reason as a label.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::WithinMargin(_) => "within_margin",
            Self::Stale(_) => "stale",
            Self::WarmingUp(_) => "warming_up",
            Self::SpawnNotNeeded(..) => "spawn_cancelled",
            Self::SpawnInFlight(_) => "spawn_in_flight",
            Self::MinWorkers { .. } => "min_workers",
            Self::DrainRunning(_) => "drain_running",
            Self::NoVictim => "no_victim",
            Self::LeastOccupied(..) => "above_margin",
            Self::WouldGrowAgain(..) => "would_grow_again",
            Self::AboveMax { .. } => "above_max",
            Self::WouldOverflow(_) => "above_max_full",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithinMargin(ledger) => {
                write!(f, "C2: {ledger}: H is not above the margin, so nobody goes")
            }
            Self::Stale(name) => write!(f, "E5: {name} is stale, its load unknown, so nobody goes"),
            Self::WarmingUp(n) => {
                write!(
                    f,
                    "E5: {} not filled a smoothing window, so nobody goes",
                    if *n == 1 {
                        "1 worker has".to_owned()
                    } else {
                        format!("{n} workers have")
                    }
                )
            }
            Self::SpawnNotNeeded(ledger, name) => {
                write!(
                    f,
                    "C2: {ledger}: the spawn of {name} is not needed any more and is cancelled"
                )
            }
            Self::SpawnInFlight(name) => write!(f, "C2: {name} is on its way and needed, so nobody goes"),
            Self::MinWorkers { workers, min } => {
                write!(f, "C2: {workers} take users and min is {min}, so nobody goes")
            }
            Self::DrainRunning(name) => write!(f, "C2: {name} is being drained, and one goes at a time"),
            Self::NoVictim => {
                f.write_str("C7: nobody beside the reception can be emptied now, so nobody goes")
            }
            Self::LeastOccupied(ledger, name, occupancy) => {
                write!(
                    f,
                    "C2: {ledger}: H is above the margin, so {name} goes, at {occupancy} the least occupied beside the reception"
                )
            }
            Self::WouldGrowAgain(name, occupancy) => {
                write!(
                    f,
                    "C2: without {name}, the least occupied at {occupancy}, the group could not place well and would grow again, so nobody goes"
                )
            }
            Self::AboveMax {
                staying,
                name,
                occupancy,
            } => write!(
                f,
                "C8: {staying} workers are more than max, so {name} goes, at {occupancy} the least occupied beside the reception"
            ),
            Self::WouldOverflow(name) => {
                write!(
                    f,
                    "C8: without {name} a worker would be at more than 1.0, so nobody goes though there are more than max"
                )
            }
        }
    }
}

/// Reads the ledger once (C2, C8).
pub fn compaction(group: &Group, policy: &Policy, now: Duration) -> Compaction {
    let ledger = Ledger::of(group, policy);
    let (step, why) = match decide(group, policy, &ledger, now) {
        Ok((step, why)) => (step, why),
        Err(why) => (Step::None, why),
    };
    Compaction {
        step,
        ledger,
        above_max: is_too_many(policy, group.outdated_count(), staying(group, policy, now)),
        because: Because::new(why.code(), why),
    }
}

/// Workers that stay: routable and not draining, or on their way.
pub fn staying(group: &Group, policy: &Policy, now: Duration) -> usize {
    group.placeable_count() + group.in_flight_count(policy.spawn_timeout, now)
}

/// Of `outdated` workers those that are replaced where `staying` stay: no more than there are of the new template.
pub(crate) fn replaced(policy: &Policy, outdated: usize, staying: usize) -> usize {
    if !policy.replaces() {
        return 0;
    }
    outdated.min(staying.saturating_sub(outdated))
}

/// More than `max` and the surge of those about to be replaced allow (C8).
pub fn is_too_many(policy: &Policy, outdated: usize, staying: usize) -> bool {
    let surge = policy.max_surge.min(replaced(policy, outdated, staying));
    policy.max.is_some_and(|max| staying > max.saturating_add(surge))
}

fn decide(group: &Group, policy: &Policy, ledger: &Ledger, now: Duration) -> Result<(Step, Why), Why> {
    let staying = staying(group, policy, now);
    let above_max = is_too_many(policy, group.outdated_count(), staying);
    if !above_max && !ledger.is_above_margin() {
        return Err(Why::WithinMargin(*ledger));
    }
    known(group)?;
    if let Some(spawn) = group.in_flight(policy.spawn_timeout, now).next_back() {
        let name = Arc::clone(&spawn.name);
        let unneeded =
            above_max || (staying > policy.floor() && capacity::has_room(group, policy, now).is_ok());
        return if unneeded {
            Ok((Step::CancelSpawn(spawn.birth), Why::SpawnNotNeeded(*ledger, name)))
        } else {
            Err(Why::SpawnInFlight(name))
        };
    }
    if ledger.workers <= policy.floor() {
        let (workers, min) = (ledger.workers, policy.floor());
        return Err(Why::MinWorkers { workers, min });
    }
    // A worker that only waits for its users to leave blocks nobody else, unless it is one of too many.
    let counts = |drain: Drain| above_max || (!waits(policy) && policy.moves_users(drain.kind));
    if let Some((drained, _)) = group.drains().find(|(_, drain)| counts(*drain)) {
        return Err(Why::DrainRunning(Arc::clone(&drained.name)));
    }
    let victim = victim(group, policy, now).ok_or(Why::NoVictim)?;
    let (name, occupancy) = (Arc::clone(&victim.name), victim.occupancy);
    let after = Projection::without(group, policy, victim);
    let why = if above_max {
        if after.overflows() {
            return Err(Why::WouldOverflow(name));
        }
        Why::AboveMax {
            staying,
            name,
            occupancy,
        }
    } else {
        if !after.places_well() {
            return Err(Why::WouldGrowAgain(name, occupancy));
        }
        Why::LeastOccupied(*ledger, name, occupancy)
    };
    Ok((Step::Drain(victim.birth), why))
}

/// A drained worker stays closed until it is empty, however long that takes (C7, Evacuate).
pub(crate) fn waits(policy: &Policy) -> bool {
    policy.moves == MoveMode::Drain || policy.mode == Mode::Evacuate
}

/// E5: nothing of a group is compacted on unknown figures.
fn known(group: &Group) -> Result<(), Why> {
    if let Some(stale) = group.stale().next() {
        return Err(Why::Stale(group.name(stale).into()));
    }
    match group.cold_count() {
        0 => Ok(()),
        n => Err(Why::WarmingUp(n)),
    }
}

/// The least occupied that is not the reception and not passed over; ties go to the oldest (C2, C7). While workers of an
/// older template are to be replaced, only one of them: one of the new template would be spawned again.
pub(crate) fn victim<'a>(group: &'a Group, policy: &Policy, now: Duration) -> Option<&'a WorkerView> {
    let reception = group.reception()?.birth;
    let any = !policy.replaces() || group.outdated_count() == 0;
    group
        .victims(now)
        .find(|worker| worker.birth != reception && (any || worker.outdated))
}

/// The workers that take over, with their projected occupancies (C6).
#[derive(Clone, Debug)]
pub struct Survivors {
    below: BinaryHeap<Reverse<(bool, Share, Birth)>>,
    full: BinaryHeap<Reverse<(bool, Share, Birth)>>,
    reception: Option<Birth>,
    reception_threshold: Share,
    admission_threshold: Share,
}

impl Survivors {
    /// The placeable workers but `drained`, the known ones if there are any, each with what was `added` to it so far.
    pub fn without(group: &Group, policy: &Policy, drained: Birth, added: &BTreeMap<Birth, Share>) -> Self {
        let others = || group.placeable().filter(|worker| worker.birth != drained);
        let mut survivors = Self {
            below: BinaryHeap::new(),
            full: BinaryHeap::new(),
            reception: others().next().map(|worker| worker.birth),
            reception_threshold: policy.reception,
            admission_threshold: policy.admission,
        };
        let any_known = others().any(|worker| !worker.stale);
        for worker in others().filter(|worker| !(any_known && worker.stale)) {
            let more = added.get(&worker.birth).copied().unwrap_or_default();
            survivors.put(
                worker.occupancy + more,
                worker.birth,
                policy.prefers_new() && worker.outdated,
            );
        }
        survivors
    }

    /// `last`: of an older template, so that others take users before it.
    fn put(&mut self, load: Share, birth: Birth, last: bool) {
        let is_reception = self.reception == Some(birth);
        let threshold = if is_reception {
            self.reception_threshold
        } else {
            self.admission_threshold
        };
        let heap = if load < threshold {
            &mut self.below
        } else {
            &mut self.full
        };
        heap.push(Reverse((last, load, birth)));
    }

    /// Takes one user who stands for `share`: the lowest below its own threshold, else the lowest; ties to the oldest. One of
    /// an older template that is to be replaced comes after the others.
    pub fn take(&mut self, share: Share) -> Option<Birth> {
        let Reverse((last, load, birth)) = self.below.pop().or_else(|| self.full.pop())?;
        self.put(load + share, birth, last);
        Some(birth)
    }
}

/// Where the next user of `drained` goes (C6): what [`Survivors::take`] would say first, without a look at every worker.
pub fn target(
    group: &Group,
    policy: &Policy,
    drained: Birth,
    added: &BTreeMap<Birth, Share>,
) -> Option<Birth> {
    let stays = |worker: &&WorkerView| worker.birth != drained;
    let reception = group.placeable().find(stays)?;
    let any_known = group.fresh().any(|worker| stays(&worker));
    let known = |worker: &&WorkerView| worker.is_placeable() && worker.stale != any_known;
    let untouched = |worker: &&WorkerView| {
        stays(worker) && worker.birth != reception.birth && !added.contains_key(&worker.birth)
    };
    let is_last = |worker: &WorkerView| policy.prefers_new() && worker.outdated;
    // Of those whose figures are the measured ones, only the least occupied of each template can be the one.
    let measured = |last: bool| {
        let of = |worker: &&WorkerView| untouched(worker) && is_last(worker) == last;
        if any_known {
            group.fresh().find(of)
        } else {
            group.unknown().find(of)
        }
    };
    let older = if group.outdated_count() > 0 {
        measured(true)
    } else {
        None
    };
    let touched = added.keys().filter_map(|birth| group.get(*birth)).filter(stays);
    let load = |worker: &WorkerView| worker.occupancy + added.get(&worker.birth).copied().unwrap_or_default();
    measured(false)
        .into_iter()
        .chain(older)
        .chain(touched)
        .chain([reception])
        .filter(known)
        .min_by_key(|worker| {
            let is_full = load(worker) >= policy.threshold(worker.birth == reception.birth);
            (is_full, is_last(worker), load(worker), worker.birth)
        })
        .map(|worker| worker.birth)
}

/// The order in which users leave: the idle first, then the busy, each in the order given (C6).
pub fn move_order<U>(users: impl IntoIterator<Item = (U, usize)>) -> Vec<U> {
    let (idle, busy): (Vec<_>, Vec<_>) = users
        .into_iter()
        .partition(|(_, open_requests)| *open_requests == 0);
    idle.into_iter().chain(busy).map(|(user, _)| user).collect()
}

#[cfg(test)]
mod tests {
    use super::{Survivors, target};
    use crate::group::{Group, WorkerState, WorkerView};
    use crate::ids::Birth;
    use crate::share::Share;
    use crate::thresholds::Policy;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn workers() -> impl Strategy<Value = Group> {
        let worker = (0u32..=20, 0u8..8, any::<bool>(), prop::bool::weighted(0.3));
        prop::collection::vec(worker, 0..8).prop_map(|workers| {
            let view = |((load, state, stale, outdated), birth): (_, u64)| WorkerView {
                occupancy: Share::from_percent(load * 5),
                state: match state {
                    0 => WorkerState::Nascent {
                        since: std::time::Duration::ZERO,
                    },
                    1 => WorkerState::Retiring { must_go: false },
                    _ => WorkerState::Routable,
                },
                stale: stale && state % 2 == 0,
                outdated,
                ..WorkerView::new(Birth(birth), "w")
            };
            workers.into_iter().zip(1..).map(view).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn a_target_is_that_of_a_look_at_everybody(
            group in workers(),
            drained in 0u64..9,
            users in 0usize..30,
            share in 0u32..20,
        ) {
            let (policy, share, drained) = (Policy::default(), Share::from_percent(share), Birth(drained));
            let mut added = BTreeMap::new();
            for _ in 0..users {
                let expected = Survivors::without(&group, &policy, drained, &added).take(share);
                prop_assert_eq!(target(&group, &policy, drained, &added), expected, "{:?}", added);
                let Some(birth) = expected else { break };
                *added.entry(birth).or_default() += share;
            }
        }
    }
}
