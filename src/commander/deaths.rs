//! Workers that die, fall silent or lose their app (D1): their users are swept, but for those whom V7 saves.

use elastic_pool_engine::group::SpawnFault;
use elastic_pool_engine::ids::{Birth, UserId};
use elastic_pool_engine::window::Window;
use elastic_pool_engine::{WorkerState, WorkerView};

use super::Commander;
use super::worker::Worker;
use crate::vehicle::{SpawnFailure, WorkerFact};

impl Commander {
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
        let label = worker.label;
        let failure = worker.fact.as_ref().and_then(|fact| fact.failure.clone());
        self.reroute(birth);
        self.deposits.cut(birth);
        self.operations_lose_worker(birth);
        self.recovery_loses_worker(birth);
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        let state = group.engine.get(birth).map(|view| view.state);
        let failed = matches!(state, Some(WorkerState::Nascent { .. })) && birth.term() == self.term;
        if failed {
            let fault = failure.as_ref().map_or(SpawnFault::TimedOut, SpawnFailure::fault);
            group.spawns.fail(self.now, fault);
            group.failure = Some(failure.unwrap_or_else(|| SpawnFailure::Mistake(format!("{name}: {why}"))));
        }
        let lost = self.sweep(birth, self.cause_of_loss(birth));
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        if lost > 0 || failed {
            group.note(
                "WorkerDied",
                format!("D1: {name}: {why}; {lost} users were swept"),
                true,
            );
        }
        group.engine.remove(birth);
        if !uid.is_empty() {
            group.retiring.insert(label, uid);
        }
        self.end_drain(birth);
        self.touch(&key);
    }

    /// Why users go with this worker: its group was deleted, or it had to go (D2), and they could not be moved in time;
    /// else it died.
    fn cause_of_loss(&self, birth: Birth) -> &'static str {
        let Some(worker) = self.workers.get(&birth).filter(|worker| worker.terminating) else {
            return "worker_died";
        };
        if self.groups.get(&worker.group).is_some_and(|group| group.gone) {
            "group_deleted"
        } else {
            "drain_timeout"
        }
    }

    /// D1: a restarted app holds nobody that lived in the process before it: its pod is a new worker, with a birth
    /// number of its own, which is returned.
    ///
    /// The pod's label keeps the number that it was made under, and the vehicle goes on using that.
    pub(super) fn app_restarted(&mut self, birth: Birth) -> Birth {
        self.operations_lose_worker(birth);
        self.recovery_loses_worker(birth);
        let lost = self.sweep(birth, "app_restarted");
        self.end_drain(birth);
        self.reroute(birth);
        let Some(old) = self.workers.remove(&birth) else {
            return birth;
        };
        if let Some(agent) = &old.agent {
            self.agents.remove(&agent.connection);
        }
        let (fresh, now, key) = (self.next_birth(), self.now, old.group.clone());
        let name = old.name();
        let window_rows = self
            .groups
            .get(&key)
            .map_or(Window::ROWS, |group| group.policy.window_rows);
        let mut worker = Worker {
            label: old.label,
            terminating: old.terminating,
            ..Worker::new(fresh, key.clone(), window_rows, now)
        };
        if let Some(fact) = old.fact {
            self.by_uid.insert(fact.pod_uid.clone(), fresh);
            worker.fact = Some(WorkerFact { birth: fresh, ..fact });
        }
        self.workers.insert(fresh, worker);
        self.reborn.insert(old.label, fresh);
        self.buried.insert(birth);
        if let Some(group) = self.groups.get_mut(&key) {
            group.engine.remove(birth);
            group.engine.put(WorkerView {
                state: WorkerState::Nascent { since: now },
                ..WorkerView::new(fresh, &name)
            });
        }
        let text = format!("D1: the app of {name} restarted; {lost} users were swept");
        self.note(&key, "AppRestarted", text, true);
        self.touch(&key);
        fresh
    }

    /// The present birth number of the worker in the pod that carries this one.
    pub(super) fn present(&self, label: Birth) -> Birth {
        self.reborn.get(&label).copied().unwrap_or(label)
    }

    /// Removes every user whom a worker's death takes and counts him under `cause`; returns how many. Call after
    /// [`Self::operations_lose_worker`]: whose complete package stands at a target is not lost (V7), his operation
    /// ends either way.
    fn sweep(&mut self, birth: Birth, cause: &'static str) -> usize {
        let Some(key) = self.pool_of_worker(birth) else {
            return 0;
        };
        let Some(pool) = self.pools.get_mut(&key) else {
            return 0;
        };
        let saved = |user: &UserId| self.operations.is_open(&key, user);
        let users: Vec<UserId> = pool
            .surface
            .of_worker(birth)
            .filter(|user| !saved(user))
            .cloned()
            .collect();
        for user in &users {
            tracing::warn!(%user, worker = %birth, cause, "user lost with his worker");
            pool.surface.remove(user);
            pool.user_sums.remove(user);
            // Whatever kept him from being moved was of the life that he lost.
            self.operations.clear_pause(&(key.clone(), user.clone()));
        }
        self.metrics.users_lost(cause, users.len());
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
            let known = worker.announced || (worker.birth.term() != self.term && worker.fact.is_some());
            let asked = known && !worker.dead && worker.agent.is_none();
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
