//! Workers that die, fall silent or lose their app (D1): their users are swept, but for those whom V7 saves.

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::group::SpawnFault;
use elastic_pool_engine::ids::{Birth, UserId};

use super::Commander;
use super::worker::Worker;
use crate::vehicle::SpawnFailure;

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
        let failure = worker.fact.as_ref().and_then(|fact| fact.failure.clone());
        self.reroute(birth);
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
        let lost = self.sweep(birth, "worker_died");
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
            group.retiring.insert(birth, uid);
        }
        self.end_drain(birth);
        self.touch(&key);
    }

    /// D1: a restarted app holds nobody that lived in the process before it.
    pub(super) fn app_restarted(&mut self, birth: Birth) {
        self.operations_lose_worker(birth);
        let lost = self.sweep(birth, "app_restarted");
        if let Some(worker) = self.workers.get(&birth) {
            let (key, name) = (worker.group.clone(), worker.name());
            let text = format!("D1: the app of {name} restarted; {lost} users were swept");
            self.note(&key, "AppRestarted", text, true);
        }
        self.refresh(birth);
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
