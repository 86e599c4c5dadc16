//! Facts from the vehicle and what follows for a worker's life: born, routable, told to go, dead (D1, D2).

use std::time::Duration;

use elastic_pool_engine::group::{DrainKind, SpawnFault};
use elastic_pool_engine::ids::{Birth, UserId};
use elastic_pool_engine::{WorkerState, WorkerView};

use super::Commander;
use super::group::{GroupState, policy};
use super::pool::PoolState;
use super::worker::Worker;
use crate::channel::proto::{Admission, agent_command};
use crate::vehicle::{Fact, GroupSpec, ObjectKey, PoolKeys, SpawnFailure, WorkerFact};

/// By then the watch has told of a deletion that a preStop told of first.
const NEWS: Duration = Duration::from_secs(2);

impl Commander {
    pub(super) fn on_fact(&mut self, fact: Fact) {
        match fact {
            Fact::Group(spec) => self.group_fact(*spec),
            Fact::GroupGone(key) => self.group_gone(&key),
            Fact::Worker(fact) => self.worker_fact(&fact),
            Fact::WorkerGone(birth) => self.worker_gone(birth),
            Fact::Synced => self.synced(),
            Fact::Keys(pool, keys) => self.pool_keys(&pool, keys),
            Fact::SpawnFailed(group, birth, failure) => self.spawn_failed(&group, birth, failure),
        }
    }

    fn group_fact(&mut self, spec: GroupSpec) {
        let key = spec.key.clone();
        let pool = spec.pool.clone();

        self.pools
            .entry(pool.clone())
            .or_insert_with(|| PoolState::new(pool));
        match self.groups.get_mut(&key) {
            Some(group) => {
                if group.spec.template_hash != spec.template_hash {
                    group.spawns.clear();
                    group.failure = None;
                }
                group.policy = policy(
                    &spec,
                    spec.live_moves && group.policy.moves == elastic_pool_engine::MoveMode::Live,
                );
                group.spec = spec;
                group.gone = false;
            }
            None => {
                self.groups.insert(key.clone(), GroupState::new(spec));
            }
        }

        self.touch(&key);
    }

    fn group_gone(&mut self, key: &ObjectKey) {
        if let Some(group) = self.groups.get_mut(key) {
            group.gone = true;
            group.wanted.clear();
        }
        self.orders_changed = true;
        self.remove_empty_group(key);
    }

    /// A deleted group is forgotten once its last worker is gone, a pool with its last group.
    fn remove_empty_group(&mut self, key: &ObjectKey) {
        let empty = |group: &GroupState| group.gone && group.engine.living() == 0;
        if !self.groups.get(key).is_some_and(empty) {
            return;
        }
        let Some(group) = self.groups.remove(key) else {
            return;
        };
        self.metrics.forget_group(key);
        let pool = group.spec.pool;
        if !self.groups.values().any(|other| other.spec.pool == pool) {
            self.pools.remove(&pool);
        }
    }

    fn pool_keys(&mut self, pool: &ObjectKey, keys: PoolKeys) {
        self.pools
            .entry(pool.clone())
            .or_insert_with(|| PoolState::new(pool.clone()))
            .keys = Some(keys);
    }

    fn worker_fact(&mut self, fact: &WorkerFact) {
        let birth = fact.birth;
        if self.buried.contains(&birth) {
            self.delete_unwanted(fact);
            return;
        }
        if !self.workers.contains_key(&birth) && !self.adopt(fact) {
            return;
        }
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let before = worker.fact.replace(fact.clone());
        worker.terminating |= fact.terminating;
        if let (None, Some(asked)) = (&before, worker.asked_at) {
            self.metrics
                .grew("created", self.now.saturating_sub(asked).as_secs_f64());
        }
        self.by_uid.insert(fact.pod_uid.clone(), birth);
        if let Some(group) = self.groups.get_mut(&fact.group) {
            group.wanted.remove(&birth);
        }
        if fact.finished {
            self.dies(birth, "its pod ended");
            return;
        }
        if before.is_some_and(|before| before.app_container_id != fact.app_container_id) {
            self.welcome_again(birth);
        }
        if let Some(failure) = &fact.failure {
            self.spawn_hurt(birth, failure.clone());
        }
        if fact.terminating || fact.must_go {
            self.must_go(
                birth,
                if fact.terminating {
                    "its pod is being deleted"
                } else {
                    "its node is being emptied"
                },
            );
        }
        self.try_routable(birth);
        self.refresh(birth);
    }

    /// A worker that this term did not make: it was there before the term, and holds users perhaps.
    fn adopt(&mut self, fact: &WorkerFact) -> bool {
        let now = self.now;
        let Some(group) = self.groups.get_mut(&fact.group) else {
            return false;
        };
        if fact.birth.term() == self.term && fact.birth.0 > self.term.number(self.last_birth) {
            // Numbers of this term that this process did not hand out: it continues behind them.
            self.last_birth = fact.birth.0 - self.term.number(0);
        }
        let worker = Worker::new(fact.birth, fact.group.clone(), group.policy.window_rows, now);
        group.engine.put(WorkerView {
            state: WorkerState::Nascent { since: now },
            ..WorkerView::new(fact.birth, &fact.name)
        });
        self.workers.insert(fact.birth, worker);
        true
    }

    /// A pod of a spawn that was cancelled while the vehicle was making it.
    fn delete_unwanted(&mut self, fact: &WorkerFact) {
        if let Some(group) = self.groups.get_mut(&fact.group) {
            group.retiring.insert(fact.birth, fact.pod_uid.clone());
            self.orders_changed = true;
        }
    }

    fn spawn_failed(&mut self, key: &ObjectKey, birth: Birth, failure: SpawnFailure) {
        let now = self.now;
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        if !group.wanted.remove(&birth) {
            return;
        }
        group.engine.remove(birth);
        group.spawns.fail(now, failure.fault());
        let text = match &failure {
            SpawnFailure::NoCapacity(text) => format!("G4: no capacity: {text}"),
            SpawnFailure::Mistake(text) => format!("G4: the worker cannot be made: {text}"),
        };
        group.failure = Some(failure);
        group.note("SpawnFailed", text, true);
        self.workers.remove(&birth);
        self.buried.insert(birth);
        self.touch(key);
    }

    /// G4: a spawn that says why it does not come up is shown at once, and given up at its timeout.
    fn spawn_hurt(&mut self, birth: Birth, failure: SpawnFailure) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return;
        };
        if !matches!(
            group.engine.get(birth).map(|view| view.state),
            Some(WorkerState::Nascent { .. })
        ) {
            return;
        }
        let fault = failure.fault();
        group.engine.update(birth, |view| view.hindered = Some(fault));
        // The kubelet's texts alternate and count up: one of them is told as a decision, the newest is the condition's.
        if !std::mem::replace(&mut worker.hindered, true) {
            let (SpawnFailure::NoCapacity(text) | SpawnFailure::Mistake(text)) = &failure;
            group.note("SpawnHindered", format!("G4: {}: {text}", worker.name()), true);
        }
        group.failure = Some(failure);
    }

    /// Routable: its pod is ready and its agent has announced; from then on only death or a drain changes it.
    pub(super) fn try_routable(&mut self, birth: Birth) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let ready = worker
            .fact
            .as_ref()
            .is_some_and(|fact| fact.ready && !fact.address.is_empty());
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return;
        };
        let Some(WorkerState::Nascent { since }) = group.engine.get(birth).map(|view| view.state) else {
            return;
        };
        if !ready || !worker.announced || worker.dead {
            return;
        }
        worker.routable_since = Some(now);
        worker.rows = 0;
        group
            .engine
            .update(birth, |view| view.state = WorkerState::Routable);
        if worker.birth.term() == self.term {
            self.metrics.spawned(now.saturating_sub(since).as_secs_f64());
            self.metrics
                .grew("routable", now.saturating_sub(since).as_secs_f64());
            group.spawns.clear();
            group.failure = None;
            let name = worker.name();
            group.note("WorkerReady", format!("{name} is routable"), false);
        }
        self.refresh(birth);
    }

    /// D2: it must go for a reason that is not ours: its users move first.
    pub(super) fn must_go(&mut self, birth: Birth, why: &str) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        worker.terminating |= why.starts_with("its pod");
        let name = worker.name();
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return;
        };
        match group.engine.get(birth).map(|view| view.state) {
            Some(WorkerState::Routable) => {}
            Some(WorkerState::Draining(drain)) if drain.kind == DrainKind::Compaction => {}
            Some(WorkerState::Nascent { .. }) if !worker.terminating => return,
            Some(WorkerState::Nascent { .. }) => {
                group
                    .engine
                    .update(birth, |view| view.state = WorkerState::Retiring { must_go: true });
                return;
            }
            _ => return,
        }
        group.note("DrainStarted", format!("D2: {name} must go: {why}"), false);
        self.drain(birth, DrainKind::MustGo);
        self.touch_worker(birth);
    }

    /// An agent's preStop waits. A failed liveness probe runs it as well as a deletion: the pod's own state tells.
    pub(super) fn told_to_stop(&mut self, birth: Birth) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        if worker.fact.as_ref().is_some_and(|fact| fact.terminating) {
            self.must_go(birth, "its pod was told to stop");
        } else {
            worker.stop_asked.get_or_insert(now);
        }
    }

    /// Ends the preStop of a pod that nobody deletes: its app is only restarted.
    pub(super) fn release_restarts(&mut self) {
        let now = self.now;
        for worker in self.workers.values_mut() {
            let deleted = worker.fact.as_ref().is_some_and(|fact| fact.terminating);
            if worker
                .stop_asked
                .is_some_and(|since| now.saturating_sub(since) >= NEWS)
            {
                worker.stop_asked = None;
                if !deleted {
                    worker.tell(0, agent_command::Command::Admission(Admission { open: true }));
                }
            }
        }
    }

    fn worker_gone(&mut self, birth: Birth) {
        self.dies(birth, "its pod is gone");
        let Some(worker) = self.workers.remove(&birth) else {
            return;
        };
        self.by_uid.remove(worker.pod_uid());
        self.buried.insert(birth);
        if let Some(group) = self.groups.get_mut(&worker.group) {
            group.engine.remove(birth);
            group.retiring.remove(&birth);
            group.wanted.remove(&birth);
        }
        self.metrics.forget_worker(&worker.group, &worker.name());
        self.end_drain(birth);
        self.touch(&worker.group);
        self.remove_empty_group(&worker.group);
    }

    /// D1: sweeps a worker; its users' next requests are guests'. What V7 can save is saved first.
    pub(super) fn dies(&mut self, birth: Birth, why: &str) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        if std::mem::replace(&mut worker.dead, true) {
            return;
        }
        worker.agent = None;
        let (key, uid, name) = (worker.group.clone(), worker.pod_uid().to_owned(), worker.name());
        let failure = worker.fact.as_ref().and_then(|fact| fact.failure.as_ref());
        let fault = failure.map_or(SpawnFault::TimedOut, SpawnFailure::fault);
        self.deposits.cut(birth);
        self.operations_lose_worker(birth);
        self.recovery_loses_worker(birth);
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let was_nascent = matches!(
            group.engine.get(birth).map(|view| view.state),
            Some(WorkerState::Nascent { .. })
        );
        if was_nascent {
            group.spawns.fail(self.now, fault);
        }
        let lost = self.sweep(birth, &key);
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        if lost > 0 || was_nascent {
            group.note(
                "WorkerDied",
                format!("D1: {name}: {why}; {lost} users were swept"),
                true,
            );
        }
        group.engine.remove(birth);
        if !uid.is_empty() {
            group.retiring.insert(birth, uid);
        }
        self.end_drain(birth);
        self.touch(&key);
    }

    /// Removes every user that still lives on a dead worker and counts him as lost.
    fn sweep(&mut self, birth: Birth, group: &ObjectKey) -> usize {
        let Some(key) = self.pool_of_group(group) else {
            return 0;
        };
        let Some(pool) = self.pools.get_mut(&key) else {
            return 0;
        };
        // V7: whose complete package stands at a target is not lost; his operation ends either way.
        let saved = |user: &UserId| self.operations.is_open(&key, user);
        let users: Vec<_> = pool
            .surface
            .of_worker(birth)
            .filter(|user| !saved(user))
            .cloned()
            .collect();
        for user in &users {
            tracing::warn!(%user, worker = %birth, "user lost with his worker");
            pool.surface.remove(user);
            pool.user_sums.remove(user);
        }
        self.metrics.users_lost("worker_died", users.len());
        users.len()
    }

    /// D1: silence of commander and gateways alike for `deadTimeout`.
    pub(super) fn bury_silent(&mut self) {
        let now = self.now;
        let silent = |worker: &&Worker| {
            let limit = self
                .groups
                .get(&worker.group)
                .map(|group| group.spec.dead_timeout);
            let asked = worker.announced && !worker.dead && worker.agent.is_none();
            asked && limit.is_some_and(|limit| now.saturating_sub(worker.heard) > limit)
        };
        let dead: Vec<Birth> = self
            .workers
            .values()
            .filter(silent)
            .map(|worker| worker.birth)
            .collect();
        for birth in dead {
            self.dies(
                birth,
                "neither its agent nor a gateway's forward was heard for deadTimeout",
            );
        }
    }
}
