//! Carries out the engine's plan of a group: births, drains, retirements; what to do is the engine's business.

use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::plan::{Action, Decision, Plan, Snapshot};
use elastic_pool_engine::{Because, WorkerState, WorkerView, plan};

use super::Commander;
use super::worker::Worker;
use crate::channel::proto::{Admission, agent_command};
use crate::vehicle::{Mode, ObjectKey, SpawnFailure};

/// A plan is made again after its actions, but never for ever.
const ROUNDS: usize = 4;

impl Commander {
    /// Plans every group that changed, until nothing more follows.
    pub(super) fn decide_dirty(&mut self) {
        for _ in 0..ROUNDS {
            let dirty = std::mem::take(&mut self.dirty_groups);
            if dirty.is_empty() {
                return;
            }
            for key in dirty {
                self.decide(&key);
            }
        }
    }

    fn decide(&mut self, key: &ObjectKey) {
        self.refresh_drains(key);
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        self.orders_changed = true;
        let live = self.pools.get(&group.spec.pool).is_some_and(|pool| pool.live);
        if !self.synced || !live || group.gone {
            return;
        }
        let snapshot = Snapshot {
            group: &group.engine,
            policy: &group.policy,
            spawns: &group.spawns,
        };
        let Plan {
            decisions,
            advice,
            conditions,
            ledger,
            wake_at,
        } = plan(&snapshot, self.now);
        group.ledger = ledger;
        group.conditions = conditions;
        group.wake_at = wake_at;
        for decision in decisions {
            match decision.action {
                Some(action) => self.carry_out(key, action, &decision.because),
                None => self.explain(key, &decision.because),
            }
        }
        if let (Some(group), Some(Decision { because, .. })) = (self.groups.get_mut(key), advice.first())
            && group.spec.mode == Mode::Recommend
            && group.told != because.code
        {
            because.code.clone_into(&mut group.told);
            group.note("Recommended", because.text(), false);
        }
    }

    /// "Nothing" is told when its reason changes, and only where somebody waits for something.
    fn explain(&mut self, key: &ObjectKey, because: &Because) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        self.metrics.decision("none", because.code);
        let limit = matches!(
            because.code,
            "max_workers"
                | "backing_off"
                | "no_capacity"
                | "spawn_mistake"
                | "no_victim"
                | "would_grow_again"
        );
        if limit && group.told != because.code {
            because.code.clone_into(&mut group.told);
            group.note("NothingDone", because.text(), because.code != "would_grow_again");
        }
        if matches!(because.code, "room")
            && matches!(
                group.told.as_str(),
                "max_workers" | "backing_off" | "no_capacity" | "spawn_mistake"
            )
        {
            group.told.clear();
        }
    }

    fn carry_out(&mut self, key: &ObjectKey, action: Action, because: &Because) {
        let (name, metric) = match action {
            Action::Spawn { .. } => ("Spawned", "spawn"),
            Action::CancelSpawn { .. } => ("SpawnCancelled", "cancel_spawn"),
            Action::AbandonSpawn { .. } => ("SpawnAbandoned", "abandon_spawn"),
            Action::Drain { .. } => ("CompactionStarted", "drain"),
            Action::CancelDrain { .. } => ("DrainCancelled", "cancel_drain"),
            Action::Retire { .. } => ("WorkerRetired", "retire"),
        };
        let done = match action {
            Action::Spawn { count } => self.spawn(key, count),
            Action::CancelSpawn { birth } => self.unspawn(birth),
            Action::AbandonSpawn { birth } => self.abandon(birth, because),
            Action::Drain { birth } => self.drain(birth, DrainKind::Compaction),
            Action::CancelDrain { birth } => self.cancel_drain(birth, because.code == "not_empty"),
            Action::Retire { birth } => self.retire(birth),
        };
        if done {
            self.metrics.decision(metric, because.code);
            if let Some(group) = self.groups.get_mut(key) {
                group.told.clear();
                group.note(
                    name,
                    because.text(),
                    matches!(action, Action::AbandonSpawn { .. }),
                );
            }
            self.touch(key);
        }
    }

    fn spawn(&mut self, key: &ObjectKey, count: usize) -> bool {
        for _ in 0..count {
            let birth = self.next_birth();
            let now = self.now;
            let Some(group) = self.groups.get_mut(key) else {
                return false;
            };
            let mut worker = Worker::new(birth, key.clone(), group.policy.window_rows, now);
            worker.asked_at = Some(now);
            let view = WorkerView {
                state: WorkerState::Nascent { since: now },
                ..WorkerView::new(birth, &worker.name())
            };
            group.engine.put(view);
            group.wanted.insert(birth);
            self.workers.insert(birth, worker);
        }
        true
    }

    /// A spawn that is not wanted any more: nobody lives there yet.
    fn unspawn(&mut self, birth: Birth) -> bool {
        let Some(worker) = self.workers.get(&birth) else {
            return false;
        };
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return false;
        };
        group.wanted.remove(&birth);
        if let Some(fact) = &worker.fact {
            group.retiring.insert(birth, fact.pod_uid.clone());
            group.engine.update(birth, |view| {
                view.state = WorkerState::Retiring { must_go: false }
            });
        } else {
            group.engine.remove(birth);
            self.workers.remove(&birth);
            self.buried.insert(birth);
        }
        true
    }

    fn abandon(&mut self, birth: Birth, because: &Because) -> bool {
        let now = self.now;
        let failure = self
            .workers
            .get(&birth)
            .and_then(|worker| worker.fact.as_ref()?.failure.clone());
        if let Some(group) = self
            .workers
            .get(&birth)
            .and_then(|worker| self.groups.get_mut(&worker.group))
        {
            let fault = failure.as_ref().map_or(SpawnFault::TimedOut, SpawnFailure::fault);
            group.spawns.fail(now, fault);
            group.failure = Some(failure.unwrap_or_else(|| SpawnFailure::Mistake(because.text())));
        }
        self.unspawn(birth)
    }

    /// Closes a worker's admission; its users are moved by `fill_drains`.
    pub(super) fn drain(&mut self, birth: Birth, kind: DrainKind) -> bool {
        let since = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return false;
        };
        worker.empty = false;
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return false;
        };
        let progress = DrainProgress::Running;
        group.engine.update(birth, |view| {
            view.state = WorkerState::Draining(Drain {
                kind,
                since,
                progress,
            });
        });
        self.tell_agent(
            birth,
            agent_command::Command::Admission(Admission { open: false }),
        );
        self.begin_drain(birth);
        true
    }

    /// G2, C7: back to full service; `failed` pauses it as a victim.
    fn cancel_drain(&mut self, birth: Birth, failed: bool) -> bool {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return false;
        };
        let pause = failed.then(|| worker.pause_after_failed_drain(now));
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return false;
        };
        group.engine.update(birth, |view| {
            view.state = WorkerState::Routable;
            view.passed_over_until = pause;
        });
        self.tell_agent(birth, agent_command::Command::Admission(Admission { open: true }));
        self.end_drain(birth);
        true
    }

    /// Deletes an empty worker, or one whose time is up (D2); emptiness is checked once more.
    fn retire(&mut self, birth: Birth) -> bool {
        let Some(worker) = self.workers.get(&birth) else {
            return false;
        };
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return false;
        };
        let Some(WorkerState::Draining(drain)) = group.engine.get(birth).map(|view| view.state) else {
            return false;
        };
        let must_go = drain.kind == DrainKind::MustGo;
        let inhabited = self
            .pools
            .get(&group.spec.pool)
            .is_some_and(|pool| pool.surface.count(birth) > 0);
        if !must_go && (inhabited || !worker.empty || self.operations.touches(birth)) {
            return false;
        }
        group.retiring.insert(birth, worker.pod_uid().to_owned());
        group
            .engine
            .update(birth, |view| view.state = WorkerState::Retiring { must_go });
        self.end_drain(birth);
        true
    }
}
