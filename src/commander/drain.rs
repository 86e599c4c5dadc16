//! Draining a worker: which of its users moves next and where to (C6, C7); the choice of the worker is the engine's.

use std::collections::BTreeMap;
use std::time::Duration;

use elastic_pool_engine::compaction::{move_order, target};
use elastic_pool_engine::group::{DrainKind, DrainProgress};
use elastic_pool_engine::ids::{Birth, UserId};
use elastic_pool_engine::{MoveMode, Share, WorkerState};

use super::Commander;
use super::operation::{Kind, Operation};
use crate::net::{Protection, lacks};
use crate::vehicle::ObjectKey;

/// A user is busy when he asked for something this recently.
const BUSY: Duration = Duration::from_secs(2);
/// Bytes of packages of one worker that are on their way at once; one may be larger.
const IN_FLIGHT: u64 = 4 << 20;
/// Between two moves of a worker once its first few are under way: those who stay are to notice nothing of it.
const BEAT: Duration = Duration::from_millis(10);
/// Moves of a worker that may begin without a pause between them.
const AT_FIRST: u32 = 16;

/// One drain's arithmetic.
#[derive(Debug, Clone, Default)]
pub(super) struct DrainState {
    /// What this drain has added to each target so far (C6).
    pub(super) added: BTreeMap<Birth, Share>,
    /// The part of the drained worker's occupancy that each of its users stands for.
    pub(super) share: Share,
    /// Size of this worker's packages, leaning to the largest of late; `None` before the first move told.
    package: Option<u64>,
    /// Between two moves; shorter where so many live here that a quarter of the drain's time would not do.
    beat: Duration,
    /// The beat that the next move belongs to.
    next: Duration,
}

impl DrainState {
    /// When the next move may begin.
    fn due(&self) -> Duration {
        self.next.saturating_sub(self.beat * (AT_FIRST - 1))
    }

    fn began(&mut self, now: Duration) {
        self.next = self.next.max(now) + self.beat;
    }

    /// Moves of this worker at once: large packages share the same cores and wires, so that several at a time would only
    /// make every pause longer. The first tells how large they are.
    fn at_once(&self, parallelism: usize) -> usize {
        let fit = self.package.map_or(1, |bytes| IN_FLIGHT / bytes.max(1));
        usize::try_from(fit)
            .unwrap_or(usize::MAX)
            .clamp(1, parallelism.max(1))
    }
}

impl Commander {
    /// Fixes what a drained worker's users stand for.
    pub(super) fn begin_drain(&mut self, birth: Birth) {
        self.refresh(birth);
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let Some(group) = self.groups.get(&worker.group) else {
            return;
        };
        let Some(view) = group.engine.get(birth) else {
            return;
        };
        let (timeout, users) = (group.policy.drain_timeout, self.users_on(group, birth));
        let state = DrainState {
            added: BTreeMap::new(),
            share: view.share_per_user(),
            package: None,
            beat: BEAT.min(timeout / 4 / u32::try_from(users.max(1)).unwrap_or(u32::MAX)),
            next: self.now,
        };
        self.drains.entry(birth).or_insert(state);
        self.fill_drains();
    }

    pub(super) fn end_drain(&mut self, birth: Birth) {
        if self.drains.remove(&birth).is_some() {
            self.operations.withdraw_waiting(birth);
        }
    }

    /// Starts moves of draining workers, up to the parallelism of their groups: of a source, to a target and in the
    /// group there are never more. A worker that must go comes before one that may.
    pub(super) fn fill_drains(&mut self) {
        self.beat_at = None;
        if self.resting {
            return;
        }
        let mut drained: Vec<Birth> = self.drains.keys().copied().collect();
        drained.sort_by_key(|birth| !self.is_urgent(*birth));
        for birth in drained {
            let Some(worker) = self.workers.get(&birth).filter(|worker| worker.is_connected()) else {
                continue;
            };
            let key = worker.group.clone();
            let Some(group) = self.groups.get(&key) else {
                continue;
            };
            let kind = group.engine.get(birth).and_then(|view| match view.state {
                WorkerState::Draining(drain) => Some(drain.kind),
                _ => None,
            });
            // An open worker is left by its users only where its group is to be empty.
            let live = group.policy.moves == MoveMode::Live && !group.is_open();
            if !kind.map_or(live, |kind| group.policy.moves_users(kind)) {
                continue;
            }
            let parallelism = group.spec.parallelism as usize;
            let in_group = |birth: Birth| self.workers.get(&birth).is_some_and(|worker| worker.group == key);
            let free = parallelism.saturating_sub(self.operations.running(in_group));
            let wanted = self
                .drains
                .get(&birth)
                .map_or(0, |drain| drain.at_once(parallelism));
            let room = wanted
                .saturating_sub(self.operations.running(|end| end == birth))
                .min(free);
            if room == 0 {
                continue;
            }
            let pool = group.spec.pool.clone();
            for user in self.next_users(&pool, birth, room) {
                let due = self.drains.get(&birth).map_or(self.now, DrainState::due);
                if due > self.now {
                    self.beat_at = Some(self.beat_at.map_or(due, |at| at.min(due)));
                    break;
                }
                if !self.move_away(&key, &pool, birth, &user) {
                    break;
                }
            }
        }
    }

    /// When [`super::Event::Beat`] is due: a drain waits for nothing but its next beat.
    pub fn beat_at(&self) -> Option<Duration> {
        self.beat_at
    }

    fn is_urgent(&self, birth: Birth) -> bool {
        matches!(self.view_of(birth), Some(WorkerState::Draining(drain)) if drain.kind == DrainKind::MustGo)
    }

    /// A user's package is known: the next ones of this worker are taken to be like it.
    pub(super) fn learn_size(&mut self, source: Birth, bytes: u64) {
        if let Some(drain) = self.drains.get_mut(&source) {
            drain.package = Some(drain.package.map_or(bytes, |known| bytes.max(known - known / 4)));
        }
    }

    /// Up to `most` users of a worker that can move now, the idle first (C6).
    fn next_users(&self, key: &ObjectKey, birth: Birth, most: usize) -> Vec<UserId> {
        let Some(pool) = self.pools.get(key) else {
            return Vec::new();
        };
        let free = |user: &&UserId| {
            !self.operations.is_busy(key, user)
                && !self
                    .operations
                    .is_paused(&(key.clone(), (*user).clone()), self.now)
        };
        let (mut found, mut idle) = (Vec::new(), 0);
        for user in pool.surface.of_worker(birth).filter(free) {
            let is_active = self.is_active(key, user);
            found.push((user.clone(), usize::from(is_active)));
            idle += usize::from(!is_active);
            if idle == most {
                break;
            }
        }
        let mut users = move_order(found);
        users.truncate(most);
        users
    }

    /// He asked for something just now.
    pub(super) fn is_active(&self, pool: &ObjectKey, user: &UserId) -> bool {
        let resident = self.pools.get(pool).and_then(|pool| pool.surface.get(user));
        let active = resident.and_then(|resident| resident.active_at);
        active.is_some_and(|at| self.now.saturating_sub(at) < BUSY)
    }

    /// Starts one move; false when nobody takes the user now.
    fn move_away(&mut self, group: &ObjectKey, pool: &ObjectKey, birth: Birth, user: &UserId) -> bool {
        let Some(target) = self.target_for(group, birth) else {
            return false;
        };
        let now = self.now;
        let Some(state) = self.drains.get_mut(&birth) else {
            return false;
        };
        state.began(now);
        let share = state.share;
        if self
            .groups
            .get(group)
            .is_some_and(|group| group.engine.get(target).is_some())
        {
            *state.added.entry(target).or_default() += share;
        }
        let mut operation = Operation::new(pool.clone(), user.clone(), birth, target, Kind::Move);
        operation.share = Some(share);
        self.operations.enqueue(operation);
        self.start_ready(pool, user);
        true
    }

    /// Where the next user of a worker goes: by C6 within his group, to another group where his own is to be empty or was
    /// deleted (V9). Whose worker has to be gone in time goes to a full one rather than nowhere (D2).
    fn target_for(&self, key: &ObjectKey, birth: Birth) -> Option<Birth> {
        let group = self.groups.get(key)?;
        let at_home = || {
            let added = &self.drains.get(&birth)?.added;
            target(&group.engine, &group.policy, birth, added)
        };
        if group.is_open() {
            return at_home();
        }
        let room = self.outlet(key, false);
        if group.gone {
            // Its other workers end as well.
            return room.or_else(|| self.outlet(key, true));
        }
        let drained = match self.view_of(birth)? {
            WorkerState::Draining(drain) => Some(drain.kind),
            _ => None,
        };
        match drained {
            Some(DrainKind::MustGo) => room.or_else(at_home).or_else(|| self.outlet(key, true)),
            // Where nobody else takes them, those who stay are brought together as ever.
            Some(_) if self.outlets(key).next().is_none() => at_home(),
            _ => room,
        }
    }

    /// A move of a drain did not happen: its target is not fuller for it.
    pub(super) fn take_back_share(&mut self, operation: &Operation) {
        if let (Some(share), Some(state)) = (operation.share, self.drains.get_mut(&operation.source))
            && let Some(added) = state.added.get_mut(&operation.target)
        {
            *added -= share;
        }
        // One that never told its size must not hold up the rest.
        self.learn_size(operation.source, 0);
    }

    /// How far each drain of a group has come, for the engine.
    pub(super) fn refresh_drains(&mut self, key: &ObjectKey) {
        let Some(group) = self.groups.get(key) else { return };
        let drains: Vec<(Birth, DrainKind)> = group
            .engine
            .drains()
            .map(|(worker, drain)| (worker.birth, drain.kind))
            .collect();
        for (birth, kind) in drains {
            let progress = self.drain_progress(key, birth, kind);
            let left = self.groups.get(key).map(|group| self.users_on(group, birth));
            if let Some(group) = self.groups.get_mut(key) {
                group.engine.update(birth, |view| {
                    view.users = left.unwrap_or_default();
                    if let WorkerState::Draining(drain) = &mut view.state {
                        drain.progress = progress;
                    }
                });
            }
        }
    }

    fn drain_progress(&self, key: &ObjectKey, birth: Birth, kind: DrainKind) -> DrainProgress {
        let (Some(worker), Some(group)) = (self.workers.get(&birth), self.groups.get(key)) else {
            return DrainProgress::Running;
        };
        let pool = &group.spec.pool;
        let Some(surface) = self.pools.get(pool).map(|pool| &pool.surface) else {
            return DrainProgress::Running;
        };
        let inhabited = surface.count(birth) > 0 || self.operations.touches(birth);
        if lacks(Protection::SecondLook) {
            return DrainProgress::Empty;
        }
        if !inhabited
            && self.guests_of(birth).is_none()
            && (worker.empty || (kind == DrainKind::MustGo && worker.announced && worker.agent.is_none()))
        {
            return DrainProgress::Empty;
        }
        let stuck = |user: &UserId| {
            self.operations.is_stuck(&(pool.clone(), user.clone()), self.now)
                && !self.operations.is_busy(pool, user)
        };
        if surface.count(birth) > 0 && surface.of_worker(birth).all(stuck) {
            return DrainProgress::Stuck;
        }
        DrainProgress::Running
    }
}
