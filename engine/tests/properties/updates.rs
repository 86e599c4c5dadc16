//! Whole updates of a group: users stay as they are, only the template changes, and a commander in small carries the plans out.

use std::collections::{BTreeMap, BTreeSet};

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::{Survivors, target};
use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::placement::place;
use elastic_pool_engine::{Action, Birth, Group, Policy, Share, WorkerState, WorkerView};
use proptest::prelude::*;
use std::time::Duration;

use crate::oracle::Facts;
use crate::world::{NOW, any_workers, close, config, lives, load, plan_at, policy, reopen, retire, steady};

#[derive(Clone, Debug)]
struct Course {
    policy: Policy,
    workers: Vec<WorkerView>,
    /// Reports until a spawn is routable.
    start_up: u32,
    moves_per_tick: usize,
    /// Reports until each next change of the template.
    changes: Vec<usize>,
}

fn course(changes: std::ops::Range<usize>) -> impl Strategy<Value = Course> {
    let times = (1u32..8, 1usize..6);
    let changes = prop::collection::vec(0usize..60, changes);
    (policy(), steady(1..=7), times, changes).prop_map(|(policy, workers, times, changes)| Course {
        policy: Policy {
            // Without any surge, or from above max, an update need not get anywhere.
            max_surge: policy.max_surge.max(1),
            max: policy.max.map(|max| max.max(workers.len())),
            ..policy
        },
        workers,
        start_up: times.0,
        moves_per_tick: times.1,
        changes,
    })
}

struct Pool<'a> {
    course: &'a Course,
    now: Duration,
    group: Group,
    spawns: SpawnHistory,
    template: u32,
    made_of: BTreeMap<Birth, u32>,
    broken: BTreeSet<u32>,
    ready: BTreeMap<Birth, Duration>,
    users: Vec<(Birth, Share)>,
    added: BTreeMap<Birth, Share>,
    born: u64,
    replaced: usize,
    /// At max, and whoever goes next would put more than a whole worker's load on one.
    is_full: bool,
}

impl<'a> Pool<'a> {
    fn new(course: &'a Course) -> Self {
        let mut pool = Self {
            course,
            now: NOW,
            group: Group::default(),
            spawns: SpawnHistory::default(),
            template: 0,
            made_of: BTreeMap::new(),
            broken: BTreeSet::new(),
            ready: BTreeMap::new(),
            users: Vec::new(),
            added: BTreeMap::new(),
            born: 100,
            replaced: 0,
            is_full: false,
        };
        for worker in &course.workers {
            let users = if worker.occupancy == Share::ZERO {
                0
            } else {
                worker.users.max(1)
            };
            let share = worker.occupancy.divided(users);
            pool.users
                .extend(std::iter::repeat_n((worker.birth, share), users));
            pool.made_of.insert(worker.birth, 0);
            pool.group.put(worker.clone());
        }
        pool
    }

    /// Spawns of the template before are given up, as a commander does.
    fn change_template(&mut self, to: u32) {
        self.template = to;
        self.spawns.clear();
        let outdated = |birth: &Birth| self.made_of[birth] != to;
        let late: Vec<Birth> = self.ready.keys().copied().filter(outdated).collect();
        for birth in late {
            self.ready.remove(&birth);
            self.group.remove(birth);
        }
        let births: Vec<Birth> = self.group.workers().map(|worker| worker.birth).collect();
        for birth in births {
            let outdated = self.made_of[&birth] != to;
            self.group.update(birth, |worker| worker.outdated = outdated);
        }
    }

    fn tick(&mut self) -> Vec<Action> {
        self.now += self.course.policy.interval;
        let ready: Vec<Birth> = self
            .ready
            .iter()
            .filter(|(_, at)| **at <= self.now)
            .map(|(birth, _)| *birth)
            .collect();
        for birth in ready {
            self.ready.remove(&birth);
            self.group
                .update(birth, |worker| worker.state = WorkerState::Routable);
            self.spawns.clear();
        }
        self.move_users();
        self.report();
        let plan = plan_at(&mut self.group, &self.course.policy, &self.spawns, self.now);
        let code = plan.update.as_ref().map(|update| update.because.code);
        self.is_full = code == Some("update_max_full");
        let actions: Vec<Action> = plan.actions().collect();
        for action in &actions {
            self.carry_out(*action);
        }
        self.check();
        actions
    }

    fn report(&mut self) {
        let births: Vec<Birth> = self.group.workers().map(|worker| worker.birth).collect();
        for birth in births {
            let here = || self.users.iter().filter(|(home, _)| *home == birth);
            let load: Share = here().map(|(_, cost)| *cost).sum();
            self.group.update(birth, |worker| {
                worker.occupancy = load.clamped();
                worker.users = here().count();
            });
        }
    }

    fn move_users(&mut self) {
        let policy = &self.course.policy;
        let Some(drained) = self.group.drains().next().map(|(worker, _)| worker.clone()) else {
            return;
        };
        let mut survivors = Survivors::without(&self.group, policy, drained.birth, &self.added);
        let share = drained.share_per_user();
        let mut left = self.course.moves_per_tick;
        for at in 0..self.users.len() {
            if self.users[at].0 != drained.birth || left == 0 {
                continue;
            }
            left -= 1;
            let to = survivors.take(share).expect("somebody stays");
            self.check_target(drained.birth, to);
            self.users[at].0 = to;
            *self.added.entry(to).or_default() += share;
        }
        if left > 0 {
            self.group.update(drained.birth, |worker| {
                if let WorkerState::Draining(drain) = &mut worker.state {
                    drain.progress = DrainProgress::Empty;
                }
            });
        }
    }

    /// Nobody moves to an older template while one of the new has room.
    fn check_target(&self, from: Birth, to: Birth) {
        if !self.group.get(to).unwrap().outdated {
            return;
        }
        let reception = self
            .group
            .placeable()
            .map(|worker| worker.birth)
            .find(|birth| *birth != from);
        for worker in self.group.placeable().filter(|worker| !worker.outdated) {
            let load = worker.occupancy + self.added.get(&worker.birth).copied().unwrap_or_default();
            let limit = self.course.policy.threshold(reception == Some(worker.birth));
            assert!(
                load >= limit,
                "{to} is of an older template, and {} has room",
                worker.birth
            );
        }
    }

    fn close(&mut self, birth: Birth, kind: DrainKind) {
        self.added.clear();
        close(&mut self.group, birth, kind, self.now);
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Spawn { count } => {
                for _ in 0..count {
                    self.born += 1;
                    let birth = Birth(self.born);
                    if !self.broken.contains(&self.template) {
                        self.ready.insert(
                            birth,
                            self.now + self.course.policy.interval * self.course.start_up,
                        );
                    }
                    self.made_of.insert(birth, self.template);
                    let state = WorkerState::Nascent { since: self.now };
                    self.group.put(WorkerView {
                        state,
                        ..WorkerView::new(birth, "w")
                    });
                }
            }
            Action::CancelSpawn { birth } => {
                self.ready.remove(&birth);
                self.group.remove(birth);
            }
            Action::AbandonSpawn { birth } => {
                self.spawns.fail(self.now, SpawnFault::TimedOut);
                self.group.remove(birth);
            }
            Action::Drain { birth } => self.close(birth, DrainKind::Compaction),
            Action::Replace { birth } => {
                self.replaced += 1;
                let is_reception = self.group.reception().map(|worker| worker.birth) == Some(birth);
                assert!(
                    !is_reception || self.group.outdated_count() == 1,
                    "the reception goes last"
                );
                let new = self.group.placeable().any(|worker| !worker.outdated);
                assert!(new, "nobody goes before one of the new template is ready");
                self.close(birth, DrainKind::Update);
            }
            Action::CancelDrain { birth } => reopen(&mut self.group, birth),
            Action::Retire { birth } => retire(&mut self.group, &self.users, birth),
        }
    }

    fn check(&self) {
        let policy = &self.course.policy;
        let most = policy.max.map(|max| max + policy.max_surge);
        assert!(
            most.is_none_or(|most| self.group.living() <= most),
            "more than max and its surge"
        );
        assert!(self.group.drains().count() <= 1, "one after the other");
        assert!(self.group.placeable_count() > 0, "nobody is left to serve");
        for (home, _) in &self.users {
            assert!(self.group.get(*home).is_some(), "a user of nobody");
        }
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.tick();
        }
    }

    /// Until nothing was done for longer than a start-up, a pause and a drain take.
    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..3000 {
            quiet = if self.tick().is_empty() { quiet + 1 } else { 0 };
            if quiet == 80 {
                return;
            }
        }
        panic!("never settles");
    }
}

proptest! {
    #![proptest_config(lives())]

    #[test]
    fn an_update_ends_with_every_worker_of_the_new_template(course in course(1..4)) {
        let mut pool = Pool::new(&course);
        for (after, template) in course.changes.iter().zip(1..) {
            pool.ticks(*after);
            pool.change_template(template);
        }
        pool.settle();
        if pool.is_full {
            return Ok(());
        }
        let left: Vec<Birth> = pool.group.workers().filter(|worker| worker.outdated).map(|worker| worker.birth).collect();
        prop_assert_eq!(left, []);
        prop_assert_eq!(pool.group.drains().count(), 0);
        prop_assert!(pool.group.placeable_count() >= course.policy.min);
        prop_assert!(course.policy.max.is_none_or(|max| pool.group.living() <= max));
    }

    #[test]
    fn nobody_is_replaced_for_a_template_that_does_not_come_up(course in course(1..2)) {
        let mut pool = Pool::new(&course);
        pool.ticks(course.changes[0]);
        pool.broken.insert(1);
        pool.change_template(1);
        pool.ticks(400);
        prop_assert_eq!(pool.replaced, 0);
        // Changed back, it is as if nothing had been.
        pool.change_template(0);
        pool.settle();
        prop_assert!(pool.is_full || pool.group.workers().all(|worker| !worker.outdated));
    }

    #[test]
    fn a_template_changed_back_in_the_middle_keeps_who_is_left(course in course(2..3)) {
        let mut pool = Pool::new(&course);
        pool.change_template(1);
        pool.ticks(course.changes[0]);
        let old: Vec<Birth> = pool.group.placeable().filter(|worker| worker.outdated).map(|worker| worker.birth).collect();
        pool.change_template(0);
        let new = pool.group.outdated_count();
        pool.ticks(1);
        let serves = |birth: &Birth| pool.group.get(*birth).is_some();
        prop_assert!(old.iter().all(serves), "of {:?}", old);
        prop_assert!(pool.group.outdated_count() <= new);
        pool.settle();
        prop_assert!(pool.is_full || pool.group.workers().all(|worker| !worker.outdated));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nobody_is_placed_on_an_older_template_while_a_newer_worker_has_room(
        mut workers in any_workers(8),
        outdated in prop::collection::vec(any::<bool>(), 8),
        policy in policy(),
        at in 0u64..9,
        share in load(),
    ) {
        for (worker, outdated) in workers.iter_mut().zip(outdated) {
            worker.outdated = outdated;
        }
        let group: Group = workers.into_iter().collect();
        let at = Birth(at);
        let new = || group.fresh().filter(|worker| !worker.outdated);
        if group.placeable_count() > 1 && let Ok(placed) = place(&group, &policy, Some(at)) {
            let reception = group.reception().unwrap().birth;
            let room = new().any(|worker| {
                worker.birth != at && worker.birth != reception && worker.occupancy < policy.admission
            });
            let taker = group.get(placed.worker).unwrap();
            prop_assert!(!(taker.outdated && room), "{:?}", placed);
        }
        let mut added = BTreeMap::new();
        for _ in 0..4 {
            let Some(to) = target(&group, &policy, at, &added) else { break };
            let reception = group.placeable().find(|worker| worker.birth != at).unwrap().birth;
            let has_room = |worker: &WorkerView| {
                let load = worker.occupancy + added.get(&worker.birth).copied().unwrap_or_default();
                load < policy.threshold(worker.birth == reception)
            };
            let room = new().any(|worker| worker.birth != at && has_room(worker));
            prop_assert!(!(group.get(to).unwrap().outdated && room));
            *added.entry(to).or_default() += share;
        }
    }

    #[test]
    fn an_update_waits_for_no_figure_of_who_is_up_to_date(workers in any_workers(8), policy in policy()) {
        let mut group: Group = workers.into_iter().collect();
        let plan = plan_at(&mut group, &policy, &SpawnHistory::default(), NOW);
        prop_assert_eq!(&plan.update, &None, "nobody is outdated");
        let replaces = |action: &Action| matches!(action, Action::Replace { .. });
        prop_assert!(!plan.actions().any(|action| replaces(&action)));
        prop_assert!(group.workers().all(|worker| !worker.must_go() || !worker.is_open()));
    }
}
