//! Groups that are to be empty: which groups of their pool take their users (V9), whether their guests may come back, and
//! what people are told meanwhile; who goes is the engine's business.

use std::collections::BTreeMap;

use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::{MoveMode, Share, evacuation};

use super::Commander;
use super::group::GroupState;
use crate::api::conditions::{EVACUATING, NEWCOMERS_REFUSED};
use crate::vehicle::{ConditionView, Mode, ObjectKey};

impl Commander {
    /// Groups of the same pool that take this one's users now: of an equal, non-empty snapshotFormat, open and served (V9).
    pub(super) fn outlets<'a>(&'a self, key: &'a ObjectKey) -> impl Iterator<Item = &'a GroupState> {
        let from = self
            .groups
            .get(key)
            .filter(|from| from.policy.moves == MoveMode::Live);
        let others = self.groups.iter().filter(move |(other, _)| *other != key);
        others.map(|(_, group)| group).filter(move |to| {
            from.is_some_and(|from| exchange(from, to))
                && to.is_open()
                && to.policy.moves == MoveMode::Live
                && to.engine.placeable_count() > 0
        })
    }

    /// The worker of another group that takes one of this group's users; with `anyway` though none has room.
    pub(super) fn outlet(&self, key: &ObjectKey, anyway: bool) -> Option<Birth> {
        let groups = self.outlets(key).map(|group| (&group.engine, &group.policy));
        evacuation::outlet(groups, &self.coming(), anyway)
    }

    /// What moves under way will bring to each worker.
    fn coming(&self) -> BTreeMap<Birth, Share> {
        let mut coming: BTreeMap<Birth, Share> = BTreeMap::new();
        for operation in self.operations.moves() {
            *coming.entry(operation.target).or_default() += operation.share.unwrap_or_default();
        }
        coming
    }

    /// Whether users, or what a resident did elsewhere, may pass between two workers (V9).
    pub(super) fn exchange(&self, one: Birth, other: Birth) -> bool {
        let group = |birth: Birth| self.groups.get(&self.workers.get(&birth)?.group);
        match (group(one), group(other)) {
            (Some(one), Some(other)) => one.spec.key == other.spec.key || exchange(one, other),
            _ => false,
        }
    }

    /// What the plan of a group that is to be empty stands on besides its workers.
    pub(super) fn look_around(&mut self, key: &ObjectKey) {
        let evacuating = |group: &&GroupState| group.spec.mode == Mode::Evacuate;
        if !self.groups.get(key).as_ref().is_some_and(evacuating) {
            return;
        }
        let outlet = self.outlets(key).next().is_some();
        let workers = &self.workers;
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        group.policy.outlet = outlet;
        let timeout = group.spec.guest_timeout;
        let births: Vec<Birth> = group.engine.workers().map(|view| view.birth).collect();
        for birth in births {
            let asked = workers.get(&birth).map(|worker| {
                let said = worker.guests_idle.map(|(said, idle)| said.saturating_sub(idle));
                said.unwrap_or(worker.asked_last)
            });
            let until = asked.map(|at| at.saturating_add(timeout));
            group.engine.update(birth, |view| view.guests_until = until);
        }
    }

    /// Has users leave the open workers of a group that is to be empty, while another group takes them; its drained
    /// workers are emptied as ever.
    pub(super) fn watch_evacuations(&mut self) {
        let evacuating =
            |(_, group): &(&ObjectKey, &GroupState)| !group.gone && group.spec.mode == Mode::Evacuate;
        let keys: Vec<ObjectKey> = self
            .groups
            .iter()
            .filter(evacuating)
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.outlet.mark_figures(&key);
            let outlet = self.outlets(&key).next().is_some();
            let Some(group) = self.groups.get(&key) else {
                continue;
            };
            let changed = group.policy.outlet != outlet;
            let live = self.pools.get(&group.spec.pool).is_some_and(|pool| pool.live);
            let left = |birth: &Birth| !self.drains.contains_key(birth) && self.users_on(group, *birth) > 0;
            let open = group.engine.placeable().map(|view| view.birth).filter(left);
            let open: Vec<Birth> = open.filter(|_| outlet && live).collect();
            if changed {
                self.remeasured(&key);
            }
            for birth in open {
                self.begin_drain(birth);
            }
        }
    }

    /// Tells people that a group is to be empty from now on, or not any more.
    pub(super) fn tell_evacuation(&mut self, key: &ObjectKey, before: Mode) {
        let Some(group) = self.groups.get(key).filter(|group| group.spec.mode != before) else {
            return;
        };
        let users = evacuation::users(&group.engine);
        if group.spec.mode == Mode::Evacuate {
            let text = format!(
                "spec.mode is Evacuate: {users} users live here; {}",
                self.newcomers_refused(group).message
            );
            self.note(key, "EvacuationStarted", text, false);
        } else if before == Mode::Evacuate {
            let text = format!("spec.mode is not Evacuate any more: the {users} users who live here stay");
            self.note(key, "EvacuationCancelled", text, false);
        }
    }

    /// The last worker of a group that was to be empty is gone.
    pub(super) fn tell_evacuated(&mut self, key: &ObjectKey) {
        let done = |group: &GroupState| {
            !group.gone && group.spec.mode == Mode::Evacuate && group.engine.living() == 0
        };
        if self.groups.get(key).is_some_and(done) {
            let text = "spec.mode is Evacuate and nobody is left: the group may be deleted".to_owned();
            self.note(key, "Evacuated", text, false);
        }
    }

    /// The conditions of a group that is to be empty; none for any other. Without figures, which change all the time.
    pub(super) fn evacuation_conditions(&self, group: &GroupState) -> Vec<ConditionView> {
        if group.spec.mode != Mode::Evacuate {
            return Vec::new();
        }
        vec![self.evacuating(group), self.newcomers_refused(group)]
    }

    fn evacuating(&self, group: &GroupState) -> ConditionView {
        let key = &group.spec.key;
        let users = evacuation::users(&group.engine) > 0;
        let (status, reason, message) = if group.engine.living() == 0 {
            (false, "Evacuated", "nobody is left: the group may be deleted")
        } else if !users {
            (
                true,
                "WaitingForGuests",
                "no user lives here; guests keep the reception until none came for guestTimeout",
            )
        } else if self.outlets(key).next().is_none() {
            (
                true,
                "WaitingForUsers",
                "no other group of the pool takes the users: none that serves has the same snapshotFormat; they leave by themselves",
            )
        } else if self.outlet(key, false).is_none() {
            (
                true,
                "NoRoom",
                "the groups that take the users are full: moves go on as they grow",
            )
        } else {
            (true, "Moving", "users move to another group of the pool")
        };
        condition(EVACUATING, status, reason, message.to_owned())
    }

    fn newcomers_refused(&self, group: &GroupState) -> ConditionView {
        let open: Vec<&str> = self
            .groups
            .values()
            .filter(|other| other.spec.pool == group.spec.pool && other.is_open())
            .map(|other| other.spec.key.name.as_str())
            .collect();
        if open.is_empty() {
            let text = format!(
                "no group of pool {} takes newcomers: they are answered 503 until one does",
                group.spec.pool.name
            );
            return condition(NEWCOMERS_REFUSED, true, "NoActiveGroup", text);
        }
        let text = format!("newcomers go to {}", super::view::first_few(&open));
        condition(NEWCOMERS_REFUSED, false, "TakenElsewhere", text)
    }
}

fn exchange(one: &GroupState, other: &GroupState) -> bool {
    one.spec.pool == other.spec.pool
        && !one.spec.snapshot_format.is_empty()
        && one.spec.snapshot_format == other.spec.snapshot_format
        && one.spec.session_users == other.spec.session_users
}

fn condition(kind: &str, status: bool, reason: &str, message: String) -> ConditionView {
    ConditionView {
        kind: kind.to_owned(),
        status: Some(status),
        reason: reason.to_owned(),
        message,
    }
}
