//! Carries out the engine's plan of a group: births, drains, retirements; what to do is the engine's business.

use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::plan::{Action, Decision, Plan};
use elastic_pool_engine::{Because, WorkerState, WorkerView, plan};

use super::Commander;
use super::group::Advice;
use super::worker::Worker;
use crate::channel::proto::{Admission, agent_command};
use crate::net::{Protection, lacks};
use crate::vehicle::{ObjectKey, SpawnFailure};

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
        self.tell_waits(key);
        self.regroup(key);
        self.outlet.mark_figures(key);
        self.look_around(key);
        let Some(group) = self.groups.get(key) else {
            return;
        };
        let live = self.pools.get(&group.spec.pool).is_some_and(|pool| pool.live);
        if !self.synced || !live {
            return;
        }
        let mut plan = plan(&group.snapshot(), self.now);
        if group.gone {
            // Nobody is born, drained or taken back in a group that was deleted; who is empty may go.
            let retires = |decision: &Decision| matches!(decision.action, Some(Action::Retire { .. }));
            plan.decisions.retain(retires);
        }
        self.remember(key, &plan);
        let Plan {
            decisions,
            advice,
            conditions,
            ledger,
            wake_at,
            update,
        } = plan;
        let guests = self.guests_until(key);
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        group.ledger = ledger;
        group.wake_at = wake_at.into_iter().chain(guests).min();
        if group.conditions != conditions || group.update != update {
            group.conditions = conditions;
            group.update = update;
            self.outlet.mark(key);
        }
        for decision in decisions {
            match decision.action {
                Some(action) => self.carry_out(key, action, &decision.because),
                None => self.explain(key, &decision.because),
            }
        }
        self.advise(key, advice.into_iter().next());
    }

    /// "Nothing" is told when its reason changes, and only where somebody waits for something.
    fn explain(&mut self, key: &ObjectKey, because: &Because) {
        self.metrics.decision("none", because.code);
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let limit = matches!(
            because.code,
            "max_workers"
                | "backing_off"
                | "no_capacity"
                | "spawn_mistake"
                | "no_victim"
                | "would_grow_again"
                | "update_backing_off"
                | "update_max_full"
                | "update_no_victim"
        );
        if limit && group.told != because.code {
            because.code.clone_into(&mut group.told);
            let warning = because.code != "would_grow_again";
            self.note(key, "NothingDone", because.text(), warning);
            return;
        }
        if because.code == "room" {
            if matches!(
                group.told.as_str(),
                "max_workers" | "backing_off" | "no_capacity" | "spawn_mistake"
            ) {
                group.told.clear();
            }
            // G4: nobody waits for capacity any more. A mistake stays one until a spawn comes up.
            let waits = group.is_spawning(self.now) || group.update.is_some();
            if matches!(group.failure, Some(SpawnFailure::NoCapacity(_))) && !waits {
                group.failure = None;
                self.outlet.mark(key);
            }
        }
    }

    /// What spec.mode Recommend keeps the group from doing: told once per change of its reason.
    fn advise(&mut self, key: &ObjectKey, advice: Option<Decision>) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let advice = advice.and_then(|Decision { action, because }| {
            Some(Advice {
                action: words(action?, because.code).0,
                reason: because.code,
                because: because.text(),
            })
        });
        let reason = |advice: &Option<Advice>| advice.as_ref().map(|advice| (advice.action, advice.reason));
        let changed = reason(&group.advice) != reason(&advice);
        if !changed {
            // The newest figures, without telling them again.
            group.advice = advice;
            return;
        }
        let text = advice
            .as_ref()
            .map(|advice| format!("{}: {}", advice.action, advice.because));
        group.advice = advice;
        self.outlet.mark(key);
        if let Some(text) = text {
            self.note(key, "Recommended", text, false);
        }
    }

    fn carry_out(&mut self, key: &ObjectKey, action: Action, because: &Because) {
        let (name, metric) = words(action, because.code);
        let left = self.left_behind(key, action);
        let done = match action {
            Action::Spawn { count } => self.spawn(key, count),
            Action::CancelSpawn { birth } => self.unspawn(birth),
            Action::AbandonSpawn { birth } => self.abandon(birth, because),
            Action::Drain { birth } => self.drain(birth, DrainKind::Compaction),
            Action::Replace { birth } => self.replace(birth),
            Action::CancelDrain { birth } => self.cancel_drain(birth, because.code == "not_empty"),
            Action::Retire { birth } => self.retire(birth),
        };
        if done {
            self.metrics.decision(metric, because.code);
            if let Some(group) = self.groups.get_mut(key) {
                group.told.clear();
                group.reasons.clear();
            }
            let warning = matches!(action, Action::AbandonSpawn { .. });
            self.note(key, name, because.text() + &left, warning);
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
    pub(super) fn unspawn(&mut self, birth: Birth) -> bool {
        let Some(worker) = self.workers.get(&birth) else {
            return false;
        };
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return false;
        };
        group.wanted.remove(&birth);
        if let Some(fact) = &worker.fact {
            group.retiring.insert(worker.label, fact.pod_uid.clone());
            return self.set_state(birth, WorkerState::Retiring { must_go: false });
        }
        group.engine.remove(birth);
        self.outlet.mark(&worker.group);
        self.workers.remove(&birth);
        self.buried.insert(birth);
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
        if let Some(worker) = self.workers.get_mut(&birth) {
            worker.empty = false;
            worker.told_waits.clear();
        }
        let progress = DrainProgress::Running;
        let draining = WorkerState::Draining(Drain {
            kind,
            since,
            progress,
        });
        if !self.set_state(birth, draining) {
            return false;
        }
        self.tell_agent(
            birth,
            agent_command::Command::Admission(Admission { open: false }),
        );
        self.begin_drain(birth);
        true
    }

    /// G2, C7: back to full service; `failed` pauses it as a victim.
    pub(super) fn cancel_drain(&mut self, birth: Birth, failed: bool) -> bool {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return false;
        };
        let pause = failed.then(|| worker.pause_after_failed_drain(now));
        if let Some(group) = self.groups.get_mut(&worker.group) {
            group.engine.update(birth, |view| view.passed_over_until = pause);
        }
        if !self.set_state(birth, WorkerState::Routable) {
            return false;
        }
        self.tell_agent(birth, agent_command::Command::Admission(Admission { open: true }));
        self.end_drain(birth);
        true
    }

    /// Deletes an empty worker, or one whose time is up (D2); emptiness is checked once more.
    fn retire(&mut self, birth: Birth) -> bool {
        let guests = self.guests_of(birth).is_some();
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
        // Only a pod that ends anyway is left to its end with users on it; a cordon alone ends nobody (D2).
        let ends_anyway = must_go && worker.terminating;
        let inhabited = self
            .pools
            .get(&group.spec.pool)
            .is_some_and(|pool| pool.surface.count(birth) > 0);
        let in_use = inhabited || guests || !worker.empty || self.operations.touches(birth);
        if !ends_anyway && in_use && !lacks(Protection::SecondLook) {
            return false;
        }
        group.retiring.insert(worker.label, worker.pod_uid().to_owned());
        self.set_state(birth, WorkerState::Retiring { must_go });
        self.end_drain(birth);
        true
    }
}

/// An action as the word of an event and as a metric's label.
fn words(action: Action, code: &str) -> (&'static str, &'static str) {
    match action {
        Action::Drain { .. } if code.starts_with("evacuat") => ("DrainStarted", "drain"),
        Action::Spawn { .. } => ("Spawned", "spawn"),
        Action::CancelSpawn { .. } => ("SpawnCancelled", "cancel_spawn"),
        Action::AbandonSpawn { .. } => ("SpawnAbandoned", "abandon_spawn"),
        Action::Drain { .. } => ("CompactionStarted", "drain"),
        Action::Replace { .. } => ("ReplacementStarted", "replace"),
        Action::CancelDrain { .. } => ("DrainCancelled", "cancel_drain"),
        Action::Retire { .. } => ("WorkerRetired", "retire"),
    }
}
