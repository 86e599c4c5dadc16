//! A day served by an elastic pool: the engine's own placement, growth, compaction and drains, carried out by a vehicle
//! that needs its time for a spawn and for a move. It decides nothing itself.

mod drain;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Settings;
use super::agenda::Agenda;
use super::crowd::{Change, Day, User};
use super::curve::{Curve, Means};
use super::meter::{Meter, Overload, first_report};
use crate::capacity::SpawnHistory;
use crate::group::{DrainProgress, Group, SpawnFault, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::ledger::Transit;
use crate::occupancy;
use crate::placement::{Verdict, place};
use crate::plan::{Action, Snapshot, plan};
use crate::share::Share;
use crate::thresholds::Policy;
use drain::Leaving;

/// What the day came to.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// Living workers, from the order to make one until it is told to go.
    pub(super) workers: Means,
    /// Moves per minute, those of logins that were passed on included.
    pub(super) moves_per_minute: Vec<u32>,
    /// Users moved by compaction.
    pub(super) moves: usize,
    /// Logins that the reception passed to another worker (P3), a move each (P5).
    pub(super) passed: usize,
    pub(super) logins: usize,
    /// Logins that went to a worker whose smoothed occupancy was not below the admission threshold.
    pub(super) placed_above: usize,
    pub(super) overload: Overload,
    /// Users present at the end, by the workers' own lists.
    pub(super) users_at_end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Routable(Birth),
    Report(Birth),
    /// The switch of a move (V5).
    Moved {
        user: usize,
        from: Birth,
        to: Birth,
        share: Share,
    },
    Wake,
    /// A login for which nobody was routable tries again.
    Retry {
        user: usize,
    },
}

#[derive(Clone, Debug)]
struct Worker {
    meter: Meter,
    users: BTreeSet<usize>,
    rows: usize,
    routable_since: Option<Duration>,
    transit: Vec<Transit>,
    /// Moves under way to this worker.
    arriving: usize,
    drain: Option<Leaving>,
}

/// Where a user lives and what he needs now.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    here: bool,
    home: Option<Birth>,
    load: Share,
}

struct Pool<'a> {
    policy: &'a Policy,
    settings: &'a Settings,
    now: Duration,
    agenda: Agenda<Event>,
    wake: Option<Duration>,
    group: Group,
    spawns: SpawnHistory,
    workers: BTreeMap<Birth, Worker>,
    births: u64,
    residents: Vec<Resident>,
    living: Curve,
    served: Served,
}

/// Serves the whole day until `end`.
pub(super) fn serve(users: &[User], policy: &Policy, settings: &Settings, end: Duration) -> Served {
    drive(users, policy, settings, end, |_| {})
}

/// The same, with somebody who looks on after every event.
fn drive(
    users: &[User],
    policy: &Policy,
    settings: &Settings,
    end: Duration,
    mut look: impl FnMut(&Pool<'_>),
) -> Served {
    let mut pool = Pool::open(users.len(), policy, settings, end);
    let mut day = Day::new(users, settings, end);
    loop {
        let own = pool.agenda.next_before(end);
        match (day.next_at(), own) {
            (Some(change), own) if own.is_none_or(|own| change <= own) => {
                if let Some((at, user, change)) = day.next() {
                    pool.now = at;
                    pool.changed(user, change);
                }
            }
            (_, Some(_)) => pool.step(),
            _ => return pool.close(),
        }
        look(&pool);
    }
}

impl<'a> Pool<'a> {
    /// The pool has been there before the day: `min` workers are routable.
    fn open(users: usize, policy: &'a Policy, settings: &'a Settings, end: Duration) -> Self {
        let curve = Curve::new(end);
        let mut pool = Self {
            policy,
            settings,
            now: Duration::ZERO,
            agenda: Agenda::new(),
            wake: None,
            group: Group::default(),
            spawns: SpawnHistory::default(),
            workers: BTreeMap::new(),
            births: 0,
            residents: vec![Resident::default(); users],
            living: curve.clone(),
            served: Served {
                workers: curve.clone().finish(),
                moves_per_minute: vec![0; curve.finish().minutes.len()],
                moves: 0,
                passed: 0,
                logins: 0,
                placed_above: 0,
                overload: Overload::default(),
                users_at_end: 0,
            },
        };
        for _ in 0..policy.min {
            let birth = pool.spawn();
            pool.routable(birth);
        }
        pool
    }

    fn close(mut self) -> Served {
        self.served.workers = self.living.finish();
        self.served.users_at_end = self.workers.values().map(|worker| worker.users.len()).sum();
        self.served
    }

    fn step(&mut self) {
        let Some((at, event)) = self.agenda.next() else {
            return;
        };
        self.now = at;
        match event {
            Event::Routable(birth) => self.routable(birth),
            Event::Report(birth) => self.report(birth),
            Event::Moved {
                user,
                from,
                to,
                share,
            } => self.moved(user, from, to, share),
            Event::Retry { user } => self.login(user),
            Event::Wake => {
                self.wake = None;
                self.decide();
            }
        }
    }

    fn changed(&mut self, user: usize, change: Change) {
        let now = self.now;
        let resident = &mut self.residents[user];
        let before = resident.load;
        match change {
            Change::Arrives(load) => {
                *resident = Resident {
                    here: true,
                    home: None,
                    load,
                };
                self.served.logins += 1;
                self.login(user);
            }
            Change::Needs(load) => {
                resident.load = load;
                if let Some(worker) = resident.home.and_then(|home| self.workers.get_mut(&home)) {
                    worker.meter.change(before, load, now);
                }
            }
            Change::Leaves => {
                let home = std::mem::take(resident).home;
                if let Some(worker) = home.and_then(|home| self.workers.get_mut(&home)) {
                    worker.users.remove(&user);
                    worker.meter.leave(before, now);
                }
                if let Some(home) = home {
                    self.refresh(home);
                }
            }
        }
    }

    fn login(&mut self, user: usize) {
        if !self.residents[user].here {
            return;
        }
        let Ok(placement) = place(&self.group, self.policy, None) else {
            self.agenda
                .add(self.now + Duration::from_secs(1), Event::Retry { user });
            return;
        };
        let home = placement.worker;
        if placement.verdict == Verdict::Pass {
            self.served.passed += 1;
            self.count_move();
        }
        let occupancy = self
            .group
            .get(home)
            .map_or(Share::ZERO, |worker| worker.occupancy);
        if occupancy >= self.policy.admission {
            self.served.placed_above += 1;
        }
        self.put(user, home);
        self.refresh(home);
        self.decide();
    }

    fn put(&mut self, user: usize, home: Birth) {
        let resident = &mut self.residents[user];
        resident.home = Some(home);
        if let Some(worker) = self.workers.get_mut(&home) {
            worker.users.insert(user);
            worker.meter.enter(resident.load, self.now);
        }
    }

    fn count_move(&mut self) {
        let minute = usize::try_from(self.now.as_secs() / 60).unwrap_or(usize::MAX);
        if let Some(count) = self.served.moves_per_minute.get_mut(minute) {
            *count += 1;
        }
    }

    fn report(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        worker
            .meter
            .report(self.policy, self.now, &mut self.served.overload);
        worker.rows += 1;
        worker.transit.iter_mut().for_each(|moved| moved.rows += 1);
        let rows = self.policy.smoothing_rows;
        worker.transit.retain(|moved| moved.rows < rows);
        let empty = worker.users.is_empty()
            && worker.arriving == 0
            && worker.drain.as_ref().is_none_or(|drain| drain.moving.is_empty());
        self.group.update(birth, |view| {
            if let WorkerState::Draining(drain) = &mut view.state {
                drain.progress = if empty {
                    DrainProgress::Empty
                } else {
                    DrainProgress::Running
                };
            }
        });
        self.agenda
            .add(self.now + self.policy.interval, Event::Report(birth));
        self.refresh(birth);
        self.decide();
    }

    /// Writes what is known of a worker into the group, as the commander does.
    fn refresh(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let rows = self.policy.smoothing_rows;
        let window = self.policy.smoothing_window();
        let room_until = worker
            .routable_since
            .map(|since| since + window)
            .filter(|_| worker.rows < rows);
        let transit = worker.transit.iter().map(|moved| moved.remaining(rows)).sum();
        let stale_from = occupancy::stale_from(worker.meter.reported_at(), self.policy.interval);
        self.group.update(birth, |view| {
            view.occupancy = worker.meter.reading.occupancy;
            view.stale_from = stale_from;
            view.room_until = room_until;
            view.users = worker.users.len();
            view.transit = transit;
        });
    }

    fn decide(&mut self) {
        loop {
            self.group.expire(self.now);
            let snapshot = Snapshot {
                group: &self.group,
                policy: self.policy,
                spawns: &self.spawns,
            };
            let plan = plan(&snapshot, self.now);
            if let Some(at) = plan.wake_at.filter(|at| self.wake.is_none_or(|wake| *at < wake)) {
                self.wake = Some(at);
                self.agenda.add(at, Event::Wake);
            }
            let mut acted = false;
            for action in plan.actions() {
                acted |= self.carry_out(action);
            }
            if !acted {
                return;
            }
        }
    }

    /// Whether anything changed.
    fn carry_out(&mut self, action: Action) -> bool {
        match action {
            Action::Spawn { count } => {
                for _ in 0..count {
                    let birth = self.spawn();
                    self.agenda
                        .add(self.now + self.settings.spawn, Event::Routable(birth));
                }
                true
            }
            Action::CancelSpawn { birth } => self.remove(birth),
            Action::AbandonSpawn { birth } => {
                self.spawns.fail(self.now, SpawnFault::TimedOut);
                self.remove(birth)
            }
            Action::Drain { birth } | Action::Replace { birth } => self.drain(birth),
            Action::CancelDrain { birth } => self.cancel_drain(birth),
            Action::Retire { birth } => {
                let empty = self
                    .workers
                    .get(&birth)
                    .is_some_and(|worker| worker.users.is_empty());
                empty && self.remove(birth)
            }
        }
    }

    fn spawn(&mut self) -> Birth {
        self.births += 1;
        let birth = Birth(self.births);
        self.group.put(WorkerView {
            state: WorkerState::Nascent { since: self.now },
            ..WorkerView::new(birth, &format!("w{}", self.births))
        });
        self.living.set(self.group.living() as f64, self.now);
        birth
    }

    fn remove(&mut self, birth: Birth) -> bool {
        self.workers.remove(&birth);
        let removed = self.group.remove(birth).is_some();
        self.living.set(self.group.living() as f64, self.now);
        removed
    }

    fn routable(&mut self, birth: Birth) {
        let now = self.now;
        if !self
            .group
            .update(birth, |view| view.state = WorkerState::Routable)
        {
            return;
        }
        let worker = Worker {
            meter: Meter::new(self.policy, now),
            users: BTreeSet::new(),
            rows: 0,
            routable_since: Some(now),
            transit: Vec::new(),
            arriving: 0,
            drain: None,
        };
        self.workers.insert(birth, worker);
        self.spawns.clear();
        self.agenda.add(
            first_report(self.policy, self.settings, birth.0, now),
            Event::Report(birth),
        );
        self.refresh(birth);
        self.decide();
    }
}
