//! Workers of an older template: replaced as the engine says, guests last, and what the group's condition tells of it.

use std::time::Duration;

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::group::DrainKind;
use elastic_pool_engine::ids::Birth;

use super::Commander;
use super::group::GroupState;
use super::view::condition;
use crate::vehicle::{ConditionView, Mode, ObjectKey, SpawnFailure};

impl Commander {
    /// Closes a worker of an older template; its users move, the guests of a reception stay for a while (V9).
    pub(super) fn replace(&mut self, birth: Birth) -> bool {
        let Some(key) = self.workers.get(&birth).map(|worker| worker.group.clone()) else {
            return false;
        };
        let reception = self.groups.get(&key).and_then(|group| group.engine.reception());
        let took_guests = reception.is_some_and(|worker| worker.birth == birth);
        if let Some(worker) = self.workers.get_mut(&birth) {
            worker.took_guests = took_guests;
        }
        self.drain(birth, DrainKind::Update)
    }

    /// Until when a reception that is replaced waits for its guests: they have asked for nothing for guestTimeout, or it
    /// was closed so long ago. `None` once that is over, and for every other worker.
    pub(super) fn guests_of(&self, birth: Birth) -> Option<Duration> {
        let worker = self.workers.get(&birth).filter(|worker| worker.took_guests)?;
        let group = self.groups.get(&worker.group)?;
        let Some(WorkerState::Draining(drain)) = group.engine.get(birth).map(|view| view.state) else {
            return None;
        };
        let closed = self.now.saturating_sub(drain.since);
        let idle = worker
            .guests_idle
            .map(|(said, idle)| idle.saturating_add(self.now.saturating_sub(said)));
        let left = group
            .spec
            .guest_timeout
            .saturating_sub(closed.max(idle.unwrap_or_default()));
        (drain.kind == DrainKind::Update && left > Duration::ZERO).then(|| self.now.saturating_add(left))
    }

    /// The same for whichever worker of a group is the first to be looked at again.
    pub(super) fn guests_until(&self, key: &ObjectKey) -> Option<Duration> {
        let group = self.groups.get(key)?;
        group
            .engine
            .updating()
            .filter_map(|birth| self.guests_of(birth))
            .min()
    }

    /// A spawn of the template before is not waited for where it says that it cannot start, or would be replaced as soon
    /// as it is ready. True when it was given up.
    pub(super) fn give_up_spawn(&mut self, birth: Birth) -> bool {
        let nascent = matches!(self.view_of(birth), Some(WorkerState::Nascent { .. }));
        let Some(worker) = self.workers.get(&birth).filter(|_| nascent) else {
            return false;
        };
        let (Some(group), Some(fact)) = (self.groups.get(&worker.group), &worker.fact) else {
            return false;
        };
        // One of an earlier term may hold users.
        let ours = worker.asked_at.is_some() && !worker.announced;
        let outdated = group.spec.outdates(fact);
        let replaced = outdated && ours && group.policy.prefers_new();
        (replaced || (outdated && worker.hindered)) && self.unspawn(birth)
    }

    /// Whether workers are on their way, and where an update stands.
    pub(super) fn progressing(&self, group: &GroupState) -> ConditionView {
        let spawning = group.is_spawning(self.now);
        let outdated = group.engine.workers().filter(|view| view.outdated).count();
        if outdated == 0 || group.spec.mode == Mode::Evacuate {
            let (reason, text) = if spawning {
                ("Spawning", "a worker is on its way")
            } else {
                ("Settled", "nobody is on the way")
            };
            return condition("Progressing", spawning, reason, text.to_owned());
        }
        let of = format!(
            "{outdated} of {} workers are of an older template",
            group.engine.living()
        );
        if !group.policy.replaces() {
            let text = format!("{of} and stay until their pods are deleted (updateStrategy.type OnDelete)");
            return condition("Progressing", spawning, "OnDelete", text);
        }
        if group.spec.mode != Mode::Active {
            let text = format!("{of} and stay: spec.mode is {:?}", group.spec.mode);
            return condition("Progressing", spawning, "UpdateWithheld", text);
        }
        match &group.failure {
            Some(SpawnFailure::Mistake(text)) => {
                let text = format!("{of}, and the new one does not become ready, so nobody is moved: {text}");
                condition("Progressing", false, "UpdateStopped", text)
            }
            Some(SpawnFailure::NoCapacity(text)) => {
                let text = format!("{of}, and there is no capacity for one of the new: {text}");
                condition("Progressing", false, "UpdateWaitsForCapacity", text)
            }
            None => self.updating(group, &of),
        }
    }

    fn updating(&self, group: &GroupState, of: &str) -> ConditionView {
        let name = |birth: Birth| group.engine.name(birth).to_owned();
        if let Some(birth) = group
            .engine
            .updating()
            .find(|birth| self.guests_of(*birth).is_some())
        {
            let text = format!(
                "{of}; {} waits for its guests to leave, or for guestTimeout",
                name(birth)
            );
            return condition("Progressing", true, "Updating", text);
        }
        // Whoever leaves makes room: it goes on by itself.
        let leaves = |state| matches!(state, WorkerState::Draining(_) | WorkerState::Retiring { .. });
        let waits = group.engine.workers().any(|view| leaves(view.state));
        let blocked = group
            .update
            .as_ref()
            .filter(|update| update.is_blocked() && !waits);
        if let Some(update) = blocked {
            let text = format!("{of}; {}", update.because);
            return condition("Progressing", false, "UpdateBlocked", text);
        }
        condition(
            "Progressing",
            true,
            "Updating",
            format!("{of} and are replaced one after the other"),
        )
    }
}
