//! The orders in which a group is asked, kept up to date with each change; never a worker's whole view, never a decision.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use super::{DrainKind, DrainProgress, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::share::{Share, Total};

/// Sets ordered by what is asked of them. A change touches only those that it concerns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    pub(super) placeable: BTreeSet<Birth>,
    /// Placeable and known, by birth.
    pub(super) fresh: BTreeSet<Birth>,
    /// Placeable by occupancy: known and free to go, known but passed over (C7), stale.
    pub(super) free: BTreeSet<(Share, Birth)>,
    held: BTreeSet<(Share, Birth)>,
    pub(super) unknown: BTreeSet<(Share, Birth)>,
    pub(super) young: BTreeSet<(Duration, Birth)>,
    pub(super) nascent: BTreeSet<(Duration, Birth)>,
    pub(super) draining: BTreeSet<Birth>,
    /// Compaction drains, the least occupied first.
    pub(super) compacting: BTreeSet<(Share, Birth)>,
    /// Drains of workers of an older template.
    pub(super) updating: BTreeSet<Birth>,
    /// Drains that came to an end of some kind.
    pub(super) ended: BTreeSet<Birth>,
    /// Drains of workers that must go, by their begin.
    pub(super) must_go_since: BTreeSet<(Duration, Birth)>,
    pub(super) stale: BTreeSet<Birth>,
    pub(super) stale_from: BTreeSet<(Duration, Birth)>,
    pub(super) passed_over: BTreeSet<(Duration, Birth)>,
    /// Placeable workers with load in transit, by all that they carry.
    pub(super) laden: BTreeSet<(Share, Birth)>,
    pub(super) cold: usize,
    pub(super) must_go: usize,
    pub(super) outdated: usize,
    pub(super) occupied: Total,
    pub(super) transit: Total,
}

/// What the index knows of one worker.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether one set holds the worker"
)]
struct Facets {
    placeable: bool,
    fresh: bool,
    free: Option<Share>,
    held: Option<Share>,
    unknown: Option<Share>,
    young: Option<Duration>,
    nascent: Option<Duration>,
    draining: bool,
    compacting: Option<Share>,
    updating: bool,
    ended: bool,
    must_go_since: Option<Duration>,
    stale: bool,
    stale_from: Option<Duration>,
    passed_over: Option<Duration>,
    laden: Option<Share>,
    cold: bool,
    must_go: bool,
    outdated: bool,
    occupied: Share,
    transit: Share,
}

impl Facets {
    fn of(worker: &WorkerView) -> Self {
        let mut facets = Self::default();
        match worker.state {
            WorkerState::Nascent { since } => facets.nascent = Some(since),
            WorkerState::Routable => facets.see_placeable(worker),
            WorkerState::Draining(drain) => {
                facets.draining = true;
                facets.ended = drain.progress != DrainProgress::Running;
                match drain.kind {
                    DrainKind::Compaction => facets.compacting = Some(worker.occupancy),
                    DrainKind::Update => facets.updating = true,
                    DrainKind::MustGo => {
                        facets.must_go = true;
                        facets.must_go_since = Some(drain.since);
                    }
                }
            }
            WorkerState::Retiring { must_go } => facets.must_go = must_go,
        }
        let reports = facets.placeable || facets.draining;
        facets.stale = reports && worker.stale;
        facets.stale_from = worker.stale_from.filter(|_| reports && !worker.stale);
        facets.cold = !worker.warm && (reports || facets.nascent.is_some());
        facets
    }

    fn see_placeable(&mut self, worker: &WorkerView) {
        self.placeable = true;
        self.fresh = !worker.stale;
        let order = match (worker.stale, worker.passed_over_until) {
            (true, _) => &mut self.unknown,
            (false, Some(_)) => &mut self.held,
            (false, None) => &mut self.free,
        };
        *order = Some(worker.occupancy);
        self.young = worker.room_until.filter(|_| !worker.stale);
        self.passed_over = worker.passed_over_until;
        self.laden = (worker.transit > Share::ZERO).then(|| worker.load());
        self.outdated = worker.outdated;
        self.occupied = worker.occupancy;
        self.transit = worker.transit.max(Share::ZERO);
    }
}

fn belong<K>(set: &mut BTreeSet<K>, key: impl Fn() -> K, before: bool, after: bool)
where
    K: Ord,
{
    match (before, after) {
        (true, false) => {
            set.remove(&key());
        }
        (false, true) => {
            set.insert(key());
        }
        _ => {}
    }
}

fn order<T>(set: &mut BTreeSet<(T, Birth)>, birth: Birth, before: Option<T>, after: Option<T>)
where
    T: Copy + Ord,
{
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&(before, birth));
    }
    if let Some(after) = after {
        set.insert((after, birth));
    }
}

fn count(counter: &mut usize, before: bool, after: bool) {
    *counter = (*counter + usize::from(after)).saturating_sub(usize::from(before));
}

impl Index {
    /// Takes a worker in.
    pub(super) fn add(&mut self, worker: &WorkerView) {
        self.shift(worker.birth, &Facets::default(), &Facets::of(worker));
    }

    /// Lets a worker go.
    pub(super) fn drop(&mut self, worker: &WorkerView) {
        self.shift(worker.birth, &Facets::of(worker), &Facets::default());
    }

    /// Applies `change` to a worker and follows it.
    pub(super) fn follow(&mut self, worker: &mut WorkerView, change: impl FnOnce(&mut WorkerView)) {
        let (birth, before) = (worker.birth, Facets::of(worker));
        change(worker);
        worker.birth = birth;
        self.shift(birth, &before, &Facets::of(worker));
    }

    fn shift(&mut self, birth: Birth, old: &Facets, new: &Facets) {
        belong(&mut self.placeable, || birth, old.placeable, new.placeable);
        belong(&mut self.fresh, || birth, old.fresh, new.fresh);
        belong(&mut self.draining, || birth, old.draining, new.draining);
        belong(&mut self.updating, || birth, old.updating, new.updating);
        belong(&mut self.ended, || birth, old.ended, new.ended);
        belong(&mut self.stale, || birth, old.stale, new.stale);
        order(&mut self.free, birth, old.free, new.free);
        order(&mut self.held, birth, old.held, new.held);
        order(&mut self.unknown, birth, old.unknown, new.unknown);
        order(&mut self.compacting, birth, old.compacting, new.compacting);
        order(&mut self.laden, birth, old.laden, new.laden);
        order(&mut self.young, birth, old.young, new.young);
        order(&mut self.nascent, birth, old.nascent, new.nascent);
        order(
            &mut self.must_go_since,
            birth,
            old.must_go_since,
            new.must_go_since,
        );
        order(&mut self.stale_from, birth, old.stale_from, new.stale_from);
        order(&mut self.passed_over, birth, old.passed_over, new.passed_over);
        count(&mut self.cold, old.cold, new.cold);
        count(&mut self.must_go, old.must_go, new.must_go);
        count(&mut self.outdated, old.outdated, new.outdated);
        self.occupied.replace(old.occupied, new.occupied);
        self.transit.replace(old.transit, new.transit);
    }

    /// Known placeable workers, the least occupied first, ties by birth.
    pub(super) fn by_occupancy(&self) -> impl Iterator<Item = (Share, Birth)> {
        merged(
            self.free.iter().copied(),
            self.held.iter().copied(),
            Ordering::Less,
        )
    }

    /// The same, the other way round.
    pub(super) fn fullest_first(&self) -> impl Iterator<Item = (Share, Birth)> {
        merged(
            self.free.iter().rev().copied(),
            self.held.iter().rev().copied(),
            Ordering::Greater,
        )
    }
}

/// Two ordered sequences as one; `order` is that of each of them.
pub(super) fn merged<T: Ord>(
    one: impl Iterator<Item = T>,
    other: impl Iterator<Item = T>,
    order: Ordering,
) -> impl Iterator<Item = T> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if a.cmp(b) != order => other.next(),
        (None, _) => other.next(),
        _ => one.next(),
    })
}
