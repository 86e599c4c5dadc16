//! What is known of a group's workers at one moment, indexed so that a report costs O(log n); never decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::Birth;
use crate::share::Share;

/// Why a worker is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainKind {
    /// The ledger chose it (C2); growth may cancel it (G2).
    Compaction,
    /// Its pod must go (D2); nothing cancels that.
    MustGo,
}

/// How far a drain has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainProgress {
    /// Users still live there or admission is not yet closed everywhere.
    #[default]
    Running,
    /// Empty after its admission was closed (L7).
    Empty,
    /// It cannot be emptied now: pinned stream, user backing off, package too large (C7).
    Stuck,
}

/// A drain under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Why.
    pub kind: DrainKind,
    /// Since when.
    pub since: Duration,
    /// How far.
    pub progress: DrainProgress,
}

/// Where a living worker is in its life. A worker that is dead or gone is not in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Spawned at `since`, not routable yet.
    Nascent {
        /// The create call.
        since: Duration,
    },
    /// Its pod is ready and its agent has announced; a missed probe or one lost connection changes nothing (D1).
    Routable,
    /// Routable, takes nobody new, its users leave.
    Draining(Drain),
    /// Told to go; still there.
    Retiring {
        /// Whether it must go (D2), so that its replacement may exceed `max` (G2).
        must_go: bool,
    },
}

/// One living worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// Birth number; the order of workers is the order of birth.
    pub birth: Birth,
    /// Its pod's name, for people.
    pub name: Arc<str>,
    /// Where it is in its life.
    pub state: WorkerState,
    /// Smoothed occupancy, the last known one when stale (E2, E3).
    pub occupancy: Share,
    /// Unknown by E5: silent for three intervals, or it holds users and nothing can be measured.
    pub stale: bool,
    /// When silence makes it stale (`occupancy::stale_from`); `None` when it never reported.
    pub stale_from: Option<Duration>,
    /// Has filled a smoothing window in this term, or was born in it (E5).
    pub warm: bool,
    /// Counts as room until then (G1): routable since + one smoothing window; `None` once `smoothing_rows` rows came.
    pub room_until: Option<Duration>,
    /// Users that live there.
    pub users: usize,
    /// Load moved here that its smoothed reading does not show yet (C4).
    pub transit: Share,
    /// No victim before this (C7).
    pub passed_over_until: Option<Duration>,
}

impl WorkerView {
    /// A warm, idle, routable worker without users.
    pub fn new(birth: Birth, name: &str) -> Self {
        Self {
            birth,
            name: name.into(),
            state: WorkerState::Routable,
            occupancy: Share::ZERO,
            stale: false,
            stale_from: None,
            warm: true,
            room_until: None,
            users: 0,
            transit: Share::ZERO,
            passed_over_until: None,
        }
    }

    /// Takes newcomers: routable and not draining.
    pub fn is_placeable(&self) -> bool {
        self.state == WorkerState::Routable
    }

    /// The part of its occupancy that one of its users stands for (C6); all of it when it names none.
    pub fn share_per_user(&self) -> Share {
        self.occupancy.divided(self.users)
    }
}

/// The living workers of one group, in order of birth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    workers: BTreeMap<Birth, WorkerView>,
    index: Index,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Index {
    placeable: BTreeSet<Birth>,
    fresh: BTreeSet<(Share, Birth)>,
    young: BTreeSet<(Duration, Birth)>,
    nascent: BTreeSet<(Duration, Birth)>,
    draining: BTreeSet<Birth>,
    stale: BTreeSet<Birth>,
    stale_from: BTreeSet<(Duration, Birth)>,
    passed_over: BTreeSet<(Duration, Birth)>,
    cold: usize,
    must_go: usize,
    occupied: Share,
    transit: Share,
}

fn toggle<T: Ord>(set: &mut BTreeSet<T>, item: T, present: bool) {
    if present {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}

fn count(counter: &mut usize, present: bool) {
    *counter = if present {
        *counter + 1
    } else {
        counter.saturating_sub(1)
    };
}

impl Index {
    fn set(&mut self, worker: &WorkerView, present: bool) {
        let birth = worker.birth;
        match worker.state {
            WorkerState::Nascent { since } => toggle(&mut self.nascent, (since, birth), present),
            WorkerState::Routable => self.set_placeable(worker, present),
            WorkerState::Draining(drain) => {
                toggle(&mut self.draining, birth, present);
                if drain.kind == DrainKind::MustGo {
                    count(&mut self.must_go, present);
                }
            }
            WorkerState::Retiring { must_go: true } => count(&mut self.must_go, present),
            WorkerState::Retiring { must_go: false } => {}
        }
        let reports = matches!(worker.state, WorkerState::Routable | WorkerState::Draining(_));
        if reports && worker.stale {
            toggle(&mut self.stale, birth, present);
        } else if let (true, Some(from)) = (reports, worker.stale_from) {
            toggle(&mut self.stale_from, (from, birth), present);
        }
    }

    fn set_placeable(&mut self, worker: &WorkerView, present: bool) {
        let birth = worker.birth;
        toggle(&mut self.placeable, birth, present);
        if !worker.stale {
            toggle(&mut self.fresh, (worker.occupancy, birth), present);
            if let Some(until) = worker.room_until {
                toggle(&mut self.young, (until, birth), present);
            }
        }
        if !worker.warm {
            count(&mut self.cold, present);
        }
        if let Some(until) = worker.passed_over_until {
            toggle(&mut self.passed_over, (until, birth), present);
        }
        if present {
            self.occupied += worker.occupancy;
            self.transit += worker.transit;
        } else {
            self.occupied -= worker.occupancy;
            self.transit -= worker.transit;
        }
    }
}

impl FromIterator<WorkerView> for Group {
    fn from_iter<I: IntoIterator<Item = WorkerView>>(workers: I) -> Self {
        let mut group = Self::default();
        workers.into_iter().for_each(|worker| group.put(worker));
        group
    }
}

impl Group {
    /// Adds a worker, or replaces what was known of it.
    pub fn put(&mut self, worker: WorkerView) {
        self.remove(worker.birth);
        self.index.set(&worker, true);
        self.workers.insert(worker.birth, worker);
    }

    /// Forgets a worker that is dead or gone.
    pub fn remove(&mut self, birth: Birth) -> Option<WorkerView> {
        let worker = self.workers.remove(&birth)?;
        self.index.set(&worker, false);
        Some(worker)
    }

    /// Changes what is known of a worker; `false` when it is not here. Its birth number stays.
    pub fn update(&mut self, birth: Birth, change: impl FnOnce(&mut WorkerView)) -> bool {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return false;
        };
        self.index.set(worker, false);
        change(worker);
        worker.birth = birth;
        self.index.set(worker, true);
        true
    }

    /// Marks those stale whose silence reached three intervals (E5) and names them; call before [`crate::plan()`].
    pub fn expire(&mut self, now: Duration) -> Vec<Birth> {
        let silent: Vec<Birth> = self
            .index
            .stale_from
            .range(..=(now, Birth(u64::MAX)))
            .map(|(_, birth)| *birth)
            .collect();
        for birth in &silent {
            self.update(*birth, |worker| worker.stale = true);
        }
        silent
    }

    /// One worker.
    pub fn get(&self, birth: Birth) -> Option<&WorkerView> {
        self.workers.get(&birth)
    }

    /// The name of a worker, for sentences.
    pub fn name(&self, birth: Birth) -> &str {
        self.get(birth).map_or("(unknown)", |worker| &worker.name)
    }

    /// All living workers, in order of birth.
    pub fn workers(&self) -> impl ExactSizeIterator<Item = &WorkerView> + DoubleEndedIterator {
        self.workers.values()
    }

    /// How many live, whatever their state (G2's count).
    pub fn living(&self) -> usize {
        self.workers.len()
    }

    /// The reception: the first routable worker by birth that is not draining.
    pub fn reception(&self) -> Option<&WorkerView> {
        self.index.placeable.first().and_then(|birth| self.get(*birth))
    }

    /// Where guests go: the reception, or the oldest draining worker when there is none.
    pub fn guest_home(&self) -> Option<&WorkerView> {
        self.reception()
            .or_else(|| self.index.draining.first().and_then(|birth| self.get(*birth)))
    }

    /// N of C1: routable workers that are not draining.
    pub fn placeable_count(&self) -> usize {
        self.index.placeable.len()
    }

    /// The same workers, in order of birth.
    pub fn placeable(&self) -> impl DoubleEndedIterator<Item = &WorkerView> {
        self.index.placeable.iter().filter_map(|birth| self.get(*birth))
    }

    /// The same, known ones only, the least occupied first, ties by birth.
    pub fn fresh(&self) -> impl Iterator<Item = &WorkerView> {
        self.index.fresh.iter().filter_map(|(_, birth)| self.get(*birth))
    }

    /// Known placeable workers that count as room whatever they measured, at `now` (G1).
    pub fn young(&self, now: Duration) -> impl Iterator<Item = &WorkerView> {
        self.index
            .young
            .iter()
            .rev()
            .take_while(move |(until, _)| *until > now)
            .filter_map(|(_, birth)| self.get(*birth))
    }

    /// Spawns not yet routable and within `timeout`, oldest first (G2, G4).
    pub fn in_flight(
        &self,
        timeout: Duration,
        now: Duration,
    ) -> impl DoubleEndedIterator<Item = &WorkerView> {
        self.nascent()
            .filter(move |(since, _)| !overdue(*since, timeout, now))
            .map(|(_, worker)| worker)
    }

    /// Spawns that took longer than `timeout`, oldest first (G4).
    pub fn overdue(&self, timeout: Duration, now: Duration) -> impl Iterator<Item = &WorkerView> {
        self.nascent()
            .take_while(move |(since, _)| overdue(*since, timeout, now))
            .map(|(_, worker)| worker)
    }

    /// When the oldest spawn still in flight will have taken longer than `timeout` (G4).
    pub fn next_overdue(&self, timeout: Duration, now: Duration) -> Option<Duration> {
        self.nascent()
            .map(|(since, _)| since.saturating_add(timeout))
            .find(|at| *at >= now)
    }

    fn nascent(&self) -> impl DoubleEndedIterator<Item = (Duration, &WorkerView)> {
        self.index
            .nascent
            .iter()
            .filter_map(|(since, birth)| Some((*since, self.get(*birth)?)))
    }

    /// Drains under way, in order of birth.
    pub fn drains(&self) -> impl Iterator<Item = (&WorkerView, Drain)> {
        self.index.draining.iter().filter_map(|birth| {
            let worker = self.get(*birth)?;
            match worker.state {
                WorkerState::Draining(drain) => Some((worker, drain)),
                _ => None,
            }
        })
    }

    /// Compaction drains under way, in order of birth.
    pub fn compacting(&self) -> impl Iterator<Item = &WorkerView> {
        self.drains()
            .filter(|(_, drain)| drain.kind == DrainKind::Compaction)
            .map(|(worker, _)| worker)
    }

    /// Workers that must go, draining or retiring (D2).
    pub fn must_go_count(&self) -> usize {
        self.index.must_go
    }

    /// Stale workers, in order of birth (E5).
    pub fn stale(&self) -> impl ExactSizeIterator<Item = Birth> {
        self.index.stale.iter().copied()
    }

    /// Placeable workers that have not filled a smoothing window in this term (E5).
    pub fn cold_count(&self) -> usize {
        self.index.cold
    }

    /// Sum of occupancies over the placeable workers, and of the load in transit to them (C1, C4).
    pub fn load(&self) -> (Share, Share) {
        (self.index.occupied, self.index.transit)
    }

    /// The next moment after `now` at which time alone changes what a decision sees, spawns and drains aside.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let after = (now, Birth(u64::MAX));
        [&self.index.young, &self.index.stale_from, &self.index.passed_over]
            .into_iter()
            .filter_map(|set| set.range(after..).next())
            .map(|(at, _)| *at)
            .min()
    }
}

fn overdue(since: Duration, timeout: Duration, now: Duration) -> bool {
    now.saturating_sub(since) > timeout
}

#[cfg(test)]
mod tests {
    use super::{Drain, DrainKind, DrainProgress, Group, Index, WorkerState, WorkerView};
    use crate::ids::Birth;
    use crate::share::Share;
    use proptest::prelude::*;
    use std::time::Duration;

    fn any_worker() -> impl Strategy<Value = WorkerView> {
        (1u64..6, 0u8..7, 0u32..100, any::<(bool, bool)>(), 0u64..3).prop_map(
            |(birth, state, load, (stale, warm), at)| {
                let at = Duration::from_secs(at);
                let drain = |kind| {
                    WorkerState::Draining(Drain {
                        kind,
                        since: at,
                        progress: DrainProgress::Running,
                    })
                };
                WorkerView {
                    state: match state {
                        0 => WorkerState::Nascent { since: at },
                        1 => drain(DrainKind::Compaction),
                        2 => drain(DrainKind::MustGo),
                        3 => WorkerState::Retiring { must_go: stale },
                        _ => WorkerState::Routable,
                    },
                    occupancy: Share::from_percent(load),
                    transit: Share::from_percent(load / 2),
                    stale,
                    warm,
                    stale_from: warm.then_some(at),
                    room_until: stale.then_some(at),
                    passed_over_until: (load > 50).then_some(at),
                    ..WorkerView::new(Birth(birth), "w")
                }
            },
        )
    }

    proptest! {
        #[test]
        fn the_index_is_that_of_a_group_built_anew(changes in prop::collection::vec(any_worker(), 0..40)) {
            let mut group = Group::default();
            for change in changes {
                if change.occupancy == Share::ZERO {
                    group.remove(change.birth);
                } else if !group.update(change.birth, |worker| *worker = change.clone()) {
                    group.put(change);
                }
            }
            let anew: Group = group.workers().rev().cloned().collect();
            prop_assert_eq!(&group.index, &anew.index);
            let births: Vec<Birth> = group.workers().map(|worker| worker.birth).collect();
            for birth in births {
                group.remove(birth);
            }
            prop_assert_eq!(group.index, Index::default());
        }
    }

    #[test]
    fn silence_of_three_intervals_makes_a_worker_stale() {
        let mut group = Group::from_iter([WorkerView {
            stale_from: Some(Duration::from_secs(15)),
            ..WorkerView::new(Birth(1), "w1")
        }]);
        assert_eq!(group.next_change(Duration::ZERO), Some(Duration::from_secs(15)));
        assert_eq!(group.expire(Duration::from_millis(14_999)), []);
        assert_eq!(group.expire(Duration::from_secs(15)), [Birth(1)]);
        assert_eq!(group.fresh().count(), 0);
        assert_eq!(group.expire(Duration::from_secs(16)), []);
    }
}
