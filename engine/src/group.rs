//! What is known of a group's workers at one moment, indexed so that a report costs O(log n); never decides.

mod index;
mod worker;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::time::Duration;

use crate::ids::Birth;
use crate::share::Share;
use index::Index;

pub use worker::{Drain, DrainKind, DrainProgress, SpawnFault, WorkerState, WorkerView};

/// The living workers of one group, in order of birth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    workers: BTreeMap<Birth, WorkerView>,
    index: Index,
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
        self.index.add(&worker);
        self.workers.insert(worker.birth, worker);
    }

    /// Forgets a worker that is dead or gone.
    pub fn remove(&mut self, birth: Birth) -> Option<WorkerView> {
        let worker = self.workers.remove(&birth)?;
        self.index.drop(&worker);
        Some(worker)
    }

    /// Changes what is known of a worker; `false` when it is not here. Its birth number stays.
    pub fn update(&mut self, birth: Birth, change: impl FnOnce(&mut WorkerView)) -> bool {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return false;
        };
        self.index.follow(worker, change);
        true
    }

    /// Sees what time alone changed; call before [`crate::plan()`]. Names those that went stale for silence (E5), and ends the pauses of
    /// those passed over as victims (C7).
    pub fn expire(&mut self, now: Duration) -> Vec<Birth> {
        for birth in due(&self.index.passed_over, now) {
            self.update(birth, |worker| worker.passed_over_until = None);
        }
        let silent = due(&self.index.stale_from, now);
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
        self.index.by_occupancy().filter_map(|(_, birth)| self.get(birth))
    }

    /// The same with their occupancies, without looking at the workers themselves.
    pub(crate) fn occupancies(&self) -> impl Iterator<Item = (Share, Birth)> {
        self.index.by_occupancy()
    }

    /// Stale placeable workers, the least occupied as far as was known first.
    pub fn unknown(&self) -> impl Iterator<Item = &WorkerView> {
        self.index
            .unknown
            .iter()
            .filter_map(|(_, birth)| self.get(*birth))
    }

    /// Known placeable workers, the youngest first.
    pub fn youngest_known(&self) -> impl Iterator<Item = &WorkerView> {
        self.index.fresh.iter().rev().filter_map(|birth| self.get(*birth))
    }

    /// Known placeable workers that were not passed over as victims, or whose pause is over, the least occupied first (C7).
    pub fn victims(&self, now: Duration) -> impl Iterator<Item = &WorkerView> {
        let mut over: Vec<(Share, Birth)> = due(&self.index.passed_over, now)
            .into_iter()
            .filter_map(|birth| self.get(birth))
            .filter(|worker| !worker.stale)
            .map(|worker| (worker.occupancy, worker.birth))
            .collect();
        over.sort_unstable();
        index::merged(self.index.free.iter().copied(), over.into_iter(), Ordering::Less)
            .filter_map(|(_, birth)| self.get(birth))
    }

    /// The heaviest known placeable worker other than `without`, load in transit included (C8).
    pub fn heaviest(&self, without: Birth) -> Option<Share> {
        let other = |(_, birth): &(Share, Birth)| *birth != without;
        let measured = self.index.fullest_first().find(other);
        let laden = self.index.laden.iter().rev().copied().find(other);
        Some(measured.max(laden)?.0)
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
        self.spawns(in_time(timeout, now)..)
    }

    /// How many they are.
    pub fn in_flight_count(&self, timeout: Duration, now: Duration) -> usize {
        self.index.nascent.len() - self.overdue(timeout, now).count()
    }

    /// Spawns that took longer than `timeout`, oldest first (G4).
    pub fn overdue(&self, timeout: Duration, now: Duration) -> impl DoubleEndedIterator<Item = &WorkerView> {
        self.spawns(..in_time(timeout, now))
    }

    /// When the oldest spawn still in flight will have taken longer than `timeout` (G4).
    pub fn next_overdue(&self, timeout: Duration, now: Duration) -> Option<Duration> {
        let (since, _) = self.index.nascent.range(in_time(timeout, now)..).next()?;
        since.checked_add(timeout)
    }

    fn spawns(
        &self,
        since: impl RangeBounds<(Duration, Birth)>,
    ) -> impl DoubleEndedIterator<Item = &WorkerView> {
        self.index
            .nascent
            .range(since)
            .filter_map(|(_, birth)| self.get(*birth))
    }

    /// Drains under way, in order of birth.
    pub fn drains(&self) -> impl Iterator<Item = (&WorkerView, Drain)> {
        self.index.draining.iter().filter_map(|birth| self.drain(*birth))
    }

    /// Drains that call for something, in order of birth: not running any more, or of a worker that must go and had `timeout` for it.
    pub fn due_drains(&self, timeout: Duration, now: Duration) -> impl Iterator<Item = (&WorkerView, Drain)> {
        let mut births = self.index.ended.clone();
        if let Some(latest) = now.checked_sub(timeout) {
            births.extend(due(&self.index.must_go_since, latest));
        }
        births.into_iter().filter_map(|birth| self.drain(birth))
    }

    /// When the time of the next worker that must go is up (D2).
    pub fn next_due_drain(&self, timeout: Duration, now: Duration) -> Option<Duration> {
        let sets = &self.index.must_go_since;
        let next = match now.checked_sub(timeout) {
            Some(latest) => sets.range((latest, Birth(u64::MAX))..).next(),
            None => sets.first(),
        };
        next?.0.checked_add(timeout)
    }

    fn drain(&self, birth: Birth) -> Option<(&WorkerView, Drain)> {
        let worker = self.get(birth)?;
        match worker.state {
            WorkerState::Draining(drain) => Some((worker, drain)),
            _ => None,
        }
    }

    /// Compaction drains under way, the least occupied first.
    pub fn compacting(&self) -> impl Iterator<Item = &WorkerView> {
        self.index
            .compacting
            .iter()
            .filter_map(|(_, birth)| self.get(*birth))
    }

    /// Workers of an older template that are being emptied, in order of birth.
    pub fn updating(&self) -> impl ExactSizeIterator<Item = Birth> {
        self.index.updating.iter().copied()
    }

    /// Workers that must go, draining or retiring (D2).
    pub fn must_go_count(&self) -> usize {
        self.index.must_go
    }

    /// Placeable workers of an older template (G2).
    pub fn outdated_count(&self) -> usize {
        self.index.outdated
    }

    /// Stale workers, in order of birth (E5).
    pub fn stale(&self) -> impl ExactSizeIterator<Item = Birth> {
        self.index.stale.iter().copied()
    }

    /// Living workers of an earlier term that have not filled a smoothing window in this one, announced or not (E5).
    pub fn cold_count(&self) -> usize {
        self.index.cold
    }

    /// Sum of occupancies over the placeable workers, and of the load in transit to them (C1, C4).
    pub fn load(&self) -> (Share, Share) {
        (self.index.occupied.share(), self.index.transit.share())
    }

    /// All that the placeable workers carry, in units of 10^-12 of a worker: exact, whatever it is.
    pub(crate) fn load_units(&self) -> i128 {
        self.index.occupied.units() + self.index.transit.units()
    }

    /// Whether load is in transit to any placeable worker (C4).
    pub(crate) fn has_transit(&self) -> bool {
        !self.index.laden.is_empty()
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

/// The least key of a spawn that has not taken longer than `timeout`.
fn in_time(timeout: Duration, now: Duration) -> (Duration, Birth) {
    (now.saturating_sub(timeout), Birth(0))
}

fn due(times: &BTreeSet<(Duration, Birth)>, now: Duration) -> Vec<Birth> {
    let due = times.range(..=(now, Birth(u64::MAX)));
    due.map(|(_, birth)| *birth).collect()
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
                        4 => drain(DrainKind::Update),
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
                    outdated: load % 3 == 0,
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

    #[test]
    fn victims_are_known_and_not_passed_over_any_more() {
        let pause = Duration::from_secs(5);
        let worker = |birth, load, passed: bool, stale| WorkerView {
            occupancy: Share::from_percent(load),
            passed_over_until: passed.then_some(pause),
            stale,
            ..WorkerView::new(Birth(birth), "w")
        };
        let group = Group::from_iter([
            worker(1, 20, false, false),
            worker(2, 10, true, false),
            worker(3, 5, true, true),
            worker(4, 0, false, true),
        ]);
        let victims = |now: Duration| -> Vec<u64> {
            let victims = group.victims(now);
            victims.map(|worker| worker.birth.0).collect()
        };
        assert_eq!(victims(pause.saturating_sub(Duration::from_nanos(1))), [1]);
        assert_eq!(victims(pause), [2, 1]);
    }
}
