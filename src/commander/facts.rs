//! Facts from the vehicle and what follows for a worker's life: born, routable, told to go, dead (D1, D2).

use std::time::Duration;

use elastic_pool_engine::group::{Drain, DrainKind};
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::{WorkerState, WorkerView};

use super::Commander;
use super::group::{GroupState, policy};
use super::worker::Worker;
use crate::channel::proto::{Admission, agent_command};
use crate::vehicle::{Fact, GroupSpec, Mode, ObjectKey, PoolKeys, SpawnFailure, WorkerFact};

/// By then the watch has told of a deletion that a preStop told of first.
const NEWS: Duration = Duration::from_secs(2);

/// What an agent's Welcome takes from a manifest.
#[derive(PartialEq)]
struct Told {
    interval: Duration,
    session_users: bool,
    session_timeout: Duration,
    quiesce_timeout: Duration,
    max_package: u64,
    close_streams: bool,
    live_moves: bool,
}

impl Told {
    fn of(spec: &GroupSpec) -> Self {
        Self {
            interval: spec.interval,
            session_users: spec.session_users,
            session_timeout: spec.session_timeout,
            quiesce_timeout: spec.quiesce_timeout,
            max_package: spec.max_package,
            close_streams: spec.close_streams,
            live_moves: spec.live_moves,
        }
    }
}

impl Commander {
    pub(super) fn on_fact(&mut self, fact: Fact) {
        match fact {
            Fact::Group(spec) => self.group_fact(*spec),
            Fact::GroupGone(key) => self.group_gone(&key),
            Fact::Worker(mut fact) => {
                fact.birth = self.present(fact.birth);
                self.worker_fact(&fact);
            }
            Fact::WorkerGone(label) => self.worker_gone(self.present(label)),
            Fact::Synced => self.synced(),
            Fact::Keys(pool, keys) => self.pool_keys(&pool, &keys),
            Fact::SpawnFailed(group, birth, failure) => self.spawn_failed(&group, birth, failure),
        }
    }

    fn group_fact(&mut self, spec: GroupSpec) {
        let key = spec.key.clone();
        self.pools.make(&spec.pool);
        match self.groups.get_mut(&key) {
            Some(group) => {
                let before = std::mem::replace(&mut group.spec, spec);
                group.gone = false;
                self.spec_changed(&key, &before);
            }
            None => {
                self.groups.insert(key.clone(), GroupState::new(spec));
            }
        }
        self.touch(&key);
    }

    /// A manifest changed while its group runs: everything that follows from it follows at once.
    fn spec_changed(&mut self, key: &ObjectKey, before: &GroupSpec) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        group.policy = policy(&group.spec, group.spec.live_moves);
        let template_changed =
            group.spec.template_hash != before.template_hash || group.spec.agent_hash != before.agent_hash;
        let retold = Told::of(&group.spec) != Told::of(before);
        let stops = group.spec.mode != before.mode
            && (before.mode == Mode::Evacuate || matches!(group.spec.mode, Mode::Recommend | Mode::Frozen));
        if template_changed {
            // G4: what failed was the other template.
            group.spawns.clear();
            group.failure = None;
        }
        let births: Vec<Birth> = group.engine.workers().map(|view| view.birth).collect();
        for birth in births {
            if template_changed {
                self.give_up_spawn(birth);
            }
            if stops {
                self.stop_compacting(birth);
            }
            self.learn_capabilities(birth);
            if retold {
                self.welcome_again(birth);
            }
        }
        self.reread(key);
        self.tell_evacuation(key, before.mode);
    }

    /// A mode that neither compacts nor updates nor evacuates puts the worker that is being emptied back to service.
    fn stop_compacting(&mut self, birth: Birth) {
        let Some(WorkerState::Draining(drain)) = self.view_of(birth) else {
            // Its users left while it was open (Evacuate); those who have not, stay.
            self.end_drain(birth);
            return;
        };
        let Some(worker) = self
            .workers
            .get(&birth)
            .filter(|_| drain.kind != DrainKind::MustGo)
        else {
            return;
        };
        let (key, name) = (worker.group.clone(), worker.name());
        self.cancel_drain(birth, false);
        let text = format!("spec.mode empties nobody any more: {name} takes newcomers again");
        self.note(&key, "DrainCancelled", text, false);
    }

    fn group_gone(&mut self, key: &ObjectKey) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        group.gone = true;
        group.wanted.clear();
        // The pods go too, each within its grace: until then their users move where another group takes them (V9).
        let births: Vec<Birth> = group.engine.workers().map(|view| view.birth).collect();
        for birth in births {
            self.must_go(birth, "its group was deleted");
        }
        self.touch(key);
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
        self.outlet.mark(key);
        // Its pool stays, empty: its gateways are told so, and its keys are those of the next group.
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.regrouped.insert(key.name.clone());
        }
    }

    /// Keys are made once. Others come with a Pool that was deleted and made again: agents and gateways need them.
    fn pool_keys(&mut self, key: &ObjectKey, keys: &PoolKeys) {
        let pool = self.pools.make(key);
        let before = pool.keys.replace(keys.clone());
        if before.is_none_or(|before| before == *keys) {
            return;
        }
        pool.surface.tell_all();
        let of_pool = |group: &&GroupState| group.spec.pool == *key;
        let groups = self.groups.values().filter(of_pool);
        let births: Vec<Birth> = groups
            .flat_map(|group| group.engine.workers().map(|view| view.birth))
            .collect();
        for birth in births {
            self.welcome_again(birth);
            self.reroute(birth);
        }
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
        self.outlet.mark(&worker.group);
        if let (None, Some(asked)) = (&before, worker.asked_at) {
            self.metrics
                .grew("created", self.now.saturating_sub(asked).as_secs_f64());
        }
        self.by_uid.insert(fact.pod_uid.clone(), birth);
        if let Some(group) = self.groups.get_mut(&fact.group) {
            group.wanted.remove(&birth);
        }
        self.reroute(birth);
        if self.give_up_spawn(birth) {
            return;
        }
        if fact.finished {
            self.dies(birth, "its pod ended");
            return;
        }
        if before
            .as_ref()
            .is_some_and(|before| before.app_container_id != fact.app_container_id)
        {
            self.welcome_again(birth);
        }
        if let Some(failure) = &fact.failure {
            self.spawn_hurt(birth, failure.clone());
        }
        self.try_routable(birth);
        if fact.terminating || fact.must_go {
            self.leave_if_told(birth);
        } else if before.is_some_and(|before| before.must_go) {
            self.may_stay(birth);
        }
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
        if fact.birth.term() != self.term {
            self.recovery_waits_for(fact.birth);
        }
        true
    }

    /// A pod of a spawn that was cancelled while the vehicle was making it.
    fn delete_unwanted(&mut self, fact: &WorkerFact) {
        if let Some(group) = self.groups.get_mut(&fact.group) {
            group.retiring.insert(fact.birth, fact.pod_uid.clone());
            self.outlet.mark(&fact.group);
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
        let key = worker.group.clone();
        let fault = failure.fault();
        group.engine.update(birth, |view| view.hindered = Some(fault));
        // The kubelet's texts alternate and count up: one of them is told as a decision, the newest is the condition's.
        if !std::mem::replace(&mut worker.hindered, true) {
            let (SpawnFailure::NoCapacity(text) | SpawnFailure::Mistake(text)) = &failure;
            group.note("SpawnHindered", format!("G4: {}: {text}", worker.name()), true);
        }
        group.failure = Some(failure);
        self.outlet.mark(&key);
    }

    /// Routable: its pod is ready and its agent has announced; from then on only death or a drain changes it. One of
    /// an earlier term was routable before: neither a missed probe nor an agent that has not dialed yet changes that.
    pub(super) fn try_routable(&mut self, birth: Birth) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth).filter(|worker| !worker.dead) else {
            return;
        };
        let Some(fact) = worker.fact.as_ref().filter(|fact| !fact.address.is_empty()) else {
            return;
        };
        let (adopted, asked) = (birth.term() != self.term, worker.asked_at.is_some());
        let ready = if adopted {
            fact.ready || worker.inhabited
        } else {
            fact.ready && worker.announced
        };
        if ready && worker.announced && worker.routable_since.is_none() {
            worker.routable_since = Some(now);
            worker.rows = 0;
        }
        let Some(WorkerState::Nascent { since }) = self.view_of(birth) else {
            return;
        };
        if !ready {
            return;
        }
        self.set_state(birth, WorkerState::Routable);
        if asked {
            self.spawned(birth, now.saturating_sub(since));
        }
        self.refresh(birth);
        self.leave_if_told(birth);
    }

    /// It must go, and could not be emptied before it was routable (D2).
    fn leave_if_told(&mut self, birth: Birth) {
        let fact = self.workers.get(&birth).and_then(|worker| worker.fact.as_ref());
        match fact.map(|fact| (fact.terminating, fact.must_go)) {
            Some((true, _)) => self.must_go(birth, "its pod is being deleted"),
            Some((false, true)) => self.must_go(birth, "its node is being emptied"),
            _ => {}
        }
    }

    /// A spawn of this term came up: whatever failed before is over (G4).
    fn spawned(&mut self, birth: Birth, took: Duration) {
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let (key, name) = (worker.group.clone(), worker.name());
        self.metrics.spawned(took.as_secs_f64());
        self.metrics.grew("routable", took.as_secs_f64());
        if let Some(group) = self.groups.get_mut(&key) {
            group.spawns.clear();
            group.failure = None;
        }
        self.note(&key, "WorkerReady", format!("{name} is routable"), false);
    }

    /// D2: it must go for a reason that is not ours: its users move first.
    pub(super) fn must_go(&mut self, birth: Birth, why: &str) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let told_to_stop = why.starts_with("its pod") && !worker.going;
        worker.terminating |= why.starts_with("its pod");
        worker.going |= worker.terminating;
        let (key, name, terminating) = (worker.group.clone(), worker.name(), worker.terminating);
        match self.view_of(birth) {
            Some(WorkerState::Routable) => {}
            Some(WorkerState::Draining(drain)) if drain.kind != DrainKind::MustGo => {}
            // Its node was emptied, and now its pod is told to stop: only now its time runs (D2).
            Some(WorkerState::Draining(drain)) if told_to_stop => {
                let since = self.now;
                self.set_state(birth, WorkerState::Draining(Drain { since, ..drain }));
                return;
            }
            Some(WorkerState::Nascent { .. }) if terminating => {
                self.set_state(birth, WorkerState::Retiring { must_go: true });
                return;
            }
            _ => return,
        }
        self.note(&key, "DrainStarted", format!("D2: {name} must go: {why}"), false);
        self.drain(birth, DrainKind::MustGo);
        if let Some(group) = self.groups.get_mut(&key) {
            // The last decisions show from where on it was drained.
            group.reasons.clear();
        }
        self.touch(&key);
    }

    /// Its node is not emptied any more: back to full service, unless its pod was told to stop meanwhile.
    fn may_stay(&mut self, birth: Birth) {
        let Some(WorkerState::Draining(drain)) = self.view_of(birth) else {
            return;
        };
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        if drain.kind == DrainKind::MustGo && !worker.terminating {
            let (key, name) = (worker.group.clone(), worker.name());
            self.cancel_drain(birth, false);
            let text = format!("D2: {name} may stay: its node is not being emptied any more");
            self.note(&key, "DrainCancelled", text, false);
        }
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
            self.stops_asked.insert(birth);
        }
    }

    /// Ends the preStop of a pod that nobody deletes: its app is only restarted.
    pub(super) fn release_restarts(&mut self) {
        let now = self.now;
        let workers = &mut self.workers;
        self.stops_asked.retain(|birth| {
            let Some(worker) = workers.get_mut(birth) else {
                return false;
            };
            let Some(since) = worker.stop_asked else {
                return false;
            };
            if now.saturating_sub(since) < NEWS {
                return true;
            }
            worker.stop_asked = None;
            let deleted = worker.fact.as_ref().is_some_and(|fact| fact.terminating);
            if !deleted {
                worker.tell(0, agent_command::Command::Admission(Admission { open: true }));
            }
            false
        });
    }

    fn worker_gone(&mut self, birth: Birth) {
        self.dies(birth, "its pod is gone");
        let Some(worker) = self.workers.remove(&birth) else {
            return;
        };
        self.by_uid.remove(worker.pod_uid());
        self.reborn.remove(&worker.label);
        self.buried.extend([birth, worker.label]);
        if let Some(group) = self.groups.get_mut(&worker.group) {
            group.engine.remove(birth);
            group.retiring.remove(&worker.label);
            group.wanted.remove(&birth);
        }
        self.metrics.forget_worker(&worker.group, &worker.name());
        self.end_drain(birth);
        self.touch(&worker.group);
        self.tell_evacuated(&worker.group);
        self.remove_empty_group(&worker.group);
    }
}
