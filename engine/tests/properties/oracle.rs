//! The rules once more, in the plainest way: every worker looked at, every sum computed anew, every user placed by hand.
//! Slow on purpose, and written from spec.md: where the engine says something else, one of the two is wrong.

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{Drain, DrainKind};
use elastic_pool_engine::{Birth, MoveMode, Policy, Share, WorkerState, WorkerView};

/// What one worker may be asked.
pub(crate) trait Facts {
    fn is_open(&self) -> bool;
    fn drain(&self) -> Option<Drain>;
    fn nascent_since(&self) -> Option<Duration>;
    fn must_go(&self) -> bool;
}

impl Facts for WorkerView {
    fn is_open(&self) -> bool {
        matches!(self.state, WorkerState::Routable)
    }

    fn drain(&self) -> Option<Drain> {
        match self.state {
            WorkerState::Draining(drain) => Some(drain),
            _ => None,
        }
    }

    fn nascent_since(&self) -> Option<Duration> {
        match self.state {
            WorkerState::Nascent { since } => Some(since),
            _ => None,
        }
    }

    fn must_go(&self) -> bool {
        self.drain().is_some_and(|drain| drain.kind == DrainKind::MustGo)
            || self.state == WorkerState::Retiring { must_go: true }
    }
}

/// A group as a plain list in order of birth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oracle<'a> {
    pub(crate) workers: &'a [WorkerView],
    pub(crate) policy: &'a Policy,
    pub(crate) spawns: SpawnHistory,
    pub(crate) now: Duration,
}

/// Growth as the oracle sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grows {
    pub(crate) spawn: usize,
    pub(crate) cancel: Vec<Birth>,
    pub(crate) code: &'static str,
}

/// Compaction as the oracle sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shrinks {
    No,
    CancelSpawn(Birth),
    Drain(Birth),
}

impl<'a> Oracle<'a> {
    pub(crate) fn open(&self) -> Vec<&'a WorkerView> {
        self.workers.iter().filter(|worker| worker.is_open()).collect()
    }

    pub(crate) fn reception(&self) -> Option<&'a WorkerView> {
        self.workers.iter().find(|worker| worker.is_open())
    }

    fn others(&self) -> Vec<&'a WorkerView> {
        self.open().split_off(1)
    }

    fn spawning(&self) -> Vec<Birth> {
        let mut spawning: Vec<(Duration, Birth)> = self
            .workers
            .iter()
            .filter_map(|worker| Some((worker.nascent_since()?, worker.birth)))
            .filter(|(since, _)| self.now.saturating_sub(*since) <= self.policy.spawn_timeout)
            .collect();
        spawning.sort_unstable();
        spawning.into_iter().map(|(_, birth)| birth).collect()
    }

    pub(crate) fn overdue(&self) -> usize {
        let nascent = self.workers.iter().filter(|w| w.nascent_since().is_some());
        nascent.count() - self.spawning().len()
    }

    /// C1 and C4: capacity and what is occupied.
    pub(crate) fn ledger(&self) -> (Share, Share) {
        let capacity = (0..self.open().len())
            .map(|place| self.policy.threshold(place == 0))
            .sum();
        let occupied = self.open().iter().map(|w| w.occupancy + w.transit).sum();
        (capacity, occupied)
    }

    /// G1 and E5.
    pub(crate) fn has_room(&self) -> bool {
        let Some(reception) = self.reception() else {
            return false;
        };
        let is_new = |worker: &WorkerView| worker.room_until.is_some_and(|until| until > self.now);
        let known: Vec<_> = self.others().into_iter().filter(|w| !w.stale).collect();
        if known.is_empty() {
            return reception.stale || is_new(reception) || reception.occupancy < self.policy.reception;
        }
        known
            .iter()
            .any(|w| is_new(w) || w.occupancy < self.policy.admission)
    }

    /// G1, G2, G4 and G5.
    pub(crate) fn growth(&self) -> Grows {
        let (open, coming) = (self.open().len(), self.spawning().len());
        let missing = self.policy.min.saturating_sub(open).saturating_sub(coming);
        let mut drains: Vec<&WorkerView> = self.workers.iter().collect();
        drains.retain(|w| w.drain().is_some_and(|drain| drain.kind == DrainKind::Compaction));
        let wanted = if open == 0 && coming == 0 {
            missing.max(1)
        } else {
            missing
        };
        if open == 0 || missing > 0 {
            let code = if open == 0 {
                "no_routable_worker"
            } else {
                "below_min"
            };
            drains.sort_by_key(|w| (w.occupancy, w.birth));
            let back = drains.iter().take(wanted).map(|w| w.birth).collect();
            return self.spawn(wanted, back, code);
        }
        if self.has_room() {
            return nothing("room");
        }
        // With one more than max, C8 would send it away again.
        let too_many = self.policy.max.is_some_and(|max| open >= max);
        if let Some(roomiest) = drains.iter().min_by_key(|w| (w.occupancy, w.birth))
            && !too_many
        {
            return Grows {
                cancel: vec![roomiest.birth],
                ..nothing("drain_cancelled")
            };
        }
        if coming > 0 {
            return nothing("spawn_in_flight");
        }
        self.spawn(1, vec![], "cannot_place")
    }

    fn spawn(&self, wanted: usize, cancel: Vec<Birth>, code: &'static str) -> Grows {
        let wanted = wanted - cancel.len();
        if wanted == 0 {
            return Grows {
                cancel,
                ..nothing(code)
            };
        }
        let living = (self.workers.len() - self.overdue()) as u128;
        let going = self.workers.iter().filter(|worker| worker.must_go()).count();
        let surge = self.policy.max_surge.min(going) as u128;
        let allowed = self.policy.max.map_or(wanted as u128, |max| {
            (max as u128 + surge).saturating_sub(living).min(wanted as u128)
        });
        if allowed == 0 {
            return Grows {
                cancel,
                ..nothing("max_workers")
            };
        }
        // Nobody is spawned in a pause, so who fails in one was made together with who failed before.
        let pause = |failures| (0..failures).fold(0, |pause: u64, _| (pause * 2).clamp(10, 300));
        let blocked = |failures, last: Option<Duration>| {
            let pause = Duration::from_secs(pause(failures));
            last.is_some_and(|at| at.saturating_add(pause) > self.now)
        };
        let (failures, last) = (self.spawns.failures, self.spawns.last_failure);
        if blocked(failures, last) || self.overdue() > 0 && blocked(failures + 1, Some(self.now)) {
            return Grows {
                cancel,
                ..nothing("backing_off")
            };
        }
        Grows {
            spawn: usize::try_from(allowed).unwrap(),
            cancel,
            code,
        }
    }

    /// C2, C7, C8 and E5.
    pub(crate) fn compaction(&self) -> Shrinks {
        let (capacity, occupied) = self.ledger();
        let (open, coming) = (self.open().len(), self.spawning());
        let above_max = self.policy.max.is_some_and(|max| open + coming.len() > max);
        let above_margin = capacity - occupied > self.policy.margin + Share::from_f64(1e-9).unwrap();
        let reports = |worker: &&WorkerView| worker.is_open() || worker.drain().is_some();
        let unknown = self.workers.iter().filter(reports).any(|worker| worker.stale)
            || self
                .workers
                .iter()
                .any(|worker| !worker.warm && (reports(&worker) || worker.nascent_since().is_some()));
        if !(above_max || above_margin) || unknown {
            return Shrinks::No;
        }
        if let Some(last) = coming.last() {
            let spared = open + coming.len() > self.policy.min && self.has_room();
            return if above_max || spared {
                Shrinks::CancelSpawn(*last)
            } else {
                Shrinks::No
            };
        }
        // Under `Drain` who is drained only waits for its users to leave.
        let waits_only = self.policy.moves == MoveMode::Drain && !above_max;
        let draining = self.workers.iter().any(|worker| worker.drain().is_some());
        if draining && !waits_only || open <= self.policy.min {
            return Shrinks::No;
        }
        let Some(victim) = self.victim() else {
            return Shrinks::No;
        };
        let after = self.without(victim);
        let fits = if above_max {
            after.iter().all(|(_, load, _)| !load.exceeds(Share::ONE))
        } else {
            let only = after.len() == 1;
            after
                .iter()
                .skip(usize::from(!only))
                .any(|(_, load, limit)| load < limit)
        };
        if fits {
            Shrinks::Drain(victim.birth)
        } else {
            Shrinks::No
        }
    }

    fn victim(&self) -> Option<&'a WorkerView> {
        let free = |w: &&WorkerView| w.passed_over_until.is_none_or(|until| until <= self.now);
        self.open()
            .into_iter()
            .skip(1)
            .filter(free)
            .min_by_key(|w| (w.occupancy, w.birth))
    }

    /// C6: each open worker but `drained` with its load after all users of `drained` were placed, and its threshold.
    pub(crate) fn without(&self, drained: &WorkerView) -> Vec<(Birth, Share, Share)> {
        let staying = self.open().into_iter().filter(|w| w.birth != drained.birth);
        let mut loads: Vec<(Birth, Share, Share)> = staying
            .enumerate()
            .map(|(place, w)| {
                (
                    w.birth,
                    w.occupancy + w.transit,
                    self.policy.threshold(place == 0),
                )
            })
            .collect();
        let (users, share) = match drained.users {
            0 => (1, drained.occupancy + drained.transit),
            users => (users, (drained.occupancy + drained.transit).divided(users)),
        };
        for _ in 0..if share == Share::ZERO { 0 } else { users } {
            let target = loads
                .iter_mut()
                .min_by_key(|(birth, load, limit)| (*load >= *limit, *load, *birth));
            if let Some((_, load, _)) = target {
                *load += share;
            }
        }
        loads
    }

    /// P2, P3, P4, L5 and E5: keeps him or not, who takes him, with a warning or not.
    pub(crate) fn place(&self, at: Option<Birth>) -> Option<(bool, Birth, bool)> {
        let reception = self.reception()?;
        let source = self
            .workers
            .iter()
            .find(|w| Some(w.birth) == at)
            .unwrap_or(reception);
        let any_known = self.open().iter().any(|worker| !worker.stale);
        let known = |worker: &WorkerView| !worker.stale || !any_known;
        let alone = self.open().len() == 1;
        let is_reception = source.birth == reception.birth;
        if is_reception && (alone || known(reception) && reception.occupancy < self.policy.reception) {
            return Some((true, reception.birth, false));
        }
        if source.is_open() && !is_reception && known(source) && source.occupancy < self.policy.admission {
            return Some((true, source.birth, false));
        }
        if !source.is_open() && (alone || known(reception) && reception.occupancy < self.policy.reception) {
            return Some((false, reception.birth, false));
        }
        let mut others = self.others();
        others.retain(|worker| worker.birth != source.birth);
        if others.iter().any(|worker| !worker.stale) {
            others.retain(|worker| !worker.stale);
        }
        let Some(lowest) = others.iter().min_by_key(|w| (w.occupancy, w.birth)) else {
            return Some((true, source.birth, true));
        };
        let has_room = lowest.occupancy < self.policy.admission;
        let taker = if has_room { lowest } else { others.last()? };
        Some((false, taker.birth, !has_room))
    }
}

fn nothing(code: &'static str) -> Grows {
    Grows {
        spawn: 0,
        cancel: vec![],
        code,
    }
}
