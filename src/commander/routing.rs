//! The table that gateways copy, kept up to date worker by worker and group by group; it decides nothing.

use std::collections::BTreeSet;

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::placement;

use super::Commander;
use super::pool::PoolState;
use crate::channel::proto::{self, Table, gateway_command};
use crate::vehicle::ObjectKey;

impl Commander {
    /// Has a worker's pool look at what gateways know of it.
    pub(super) fn reroute(&mut self, birth: Birth) {
        if let Some(key) = self.pool_of_worker(birth)
            && let Some(pool) = self.pools.get_mut(&key)
        {
            pool.rerouted.insert(birth);
        }
    }

    /// The same for a group, where what gateways know of it is not so any more: a report seldom changes that.
    pub(super) fn regroup(&mut self, key: &ObjectKey) {
        let Some(pool_key) = self.pool_of_group(key) else {
            return;
        };
        let row = self.group_row(key);
        let told = self
            .pools
            .get(&pool_key)
            .and_then(|pool| pool.told.groups.get(&key.name));
        if row.as_ref() != told
            && let Some(pool) = self.pools.get_mut(&pool_key)
        {
            pool.regrouped.insert(key.name.clone());
        }
    }

    /// Sends every pool's changes to its gateways.
    pub(super) fn publish_tables(&mut self) {
        for key in self.pools.take_touched() {
            let Some(mut pool) = self.pools.lend(&key) else {
                continue;
            };
            let table = self.changes(&mut pool);
            self.pools.put_back(pool);
            let Some(table) = table else { continue };
            let owners: BTreeSet<Birth> = table.users.iter().map(|user| Birth(user.birth)).collect();
            self.broadcast(&key, &gateway_command::Command::Table(table));
            for birth in owners {
                self.refresh(birth);
            }
        }
    }

    /// What changed since the last call; `None` when nothing did.
    fn changes(&self, pool: &mut PoolState) -> Option<Table> {
        let (mut workers, mut dead) = (Vec::new(), Vec::new());
        for birth in std::mem::take(&mut pool.rerouted) {
            match self.gateway_view(birth) {
                Some(worker) if pool.told.workers.get(&birth) != Some(&worker) => {
                    pool.told.workers.insert(birth, worker.clone());
                    workers.push(worker);
                }
                Some(_) => {}
                None => dead.extend(pool.told.workers.remove(&birth).map(|_| birth.0)),
            }
        }
        let mut regrouped = false;
        for name in std::mem::take(&mut pool.regrouped) {
            let key = ObjectKey {
                namespace: pool.key.namespace.clone(),
                name,
            };
            let row = self.group_row(&key);
            if row.as_ref() != pool.told.groups.get(&key.name) {
                regrouped = true;
                match row {
                    Some(row) => pool.told.groups.insert(key.name, row),
                    None => pool.told.groups.remove(&key.name),
                };
            }
        }
        let live = pool.live && !self.recovery.is_open_in(&pool.key);
        let went_live = std::mem::replace(&mut pool.told.live, live) != live;
        let users = pool.surface.take_changed();
        if workers.is_empty() && dead.is_empty() && users.is_empty() && !regrouped && !went_live {
            return None;
        }
        Some(Table {
            version: pool.surface.version().0,
            full: false,
            live,
            groups: if regrouped {
                pool.told.groups.values().cloned().collect()
            } else {
                Vec::new()
            },
            workers,
            dead,
            users: users.iter().map(|user| self.ownership(pool, user)).collect(),
        })
    }

    /// A group as gateways see it; `None` for one that is no more.
    pub(super) fn group_row(&self, key: &ObjectKey) -> Option<proto::Group> {
        let group = self.groups.get(key)?;
        let reception = group.engine.guest_home().map_or(0, |worker| worker.birth.0);
        let newcomer = if group.spec.session_users {
            placement::place(&group.engine, &group.policy, None).map_or(reception, |placed| placed.worker.0)
        } else {
            reception
        };
        Some(proto::Group {
            name: key.name.clone(),
            reception,
            default_group: group.spec.default_group,
            session_users: group.spec.session_users,
            newcomer,
            closed: !group.is_open(),
            session_timeout_ms: u64::try_from(group.spec.session_timeout.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// A worker as gateways see it; `None` for one that they cannot forward to.
    pub(super) fn gateway_view(&self, birth: Birth) -> Option<proto::Worker> {
        let worker = self.workers.get(&birth)?;
        let state = self.view_of(birth)?;
        let fact = worker.fact.as_ref().filter(|fact| !fact.address.is_empty())?;
        if matches!(state, WorkerState::Nascent { .. }) {
            return None;
        }
        Some(proto::Worker {
            birth: birth.0,
            pod_uid: fact.pod_uid.clone(),
            name: fact.name.clone(),
            group: fact.group.name.clone(),
            address: fact.address.clone(),
            routable: !worker.dead,
            admits: state == WorkerState::Routable,
            generation: 0,
        })
    }
}
