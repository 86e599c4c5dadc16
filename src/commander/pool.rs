//! What the commander holds of one pool: its keys, its gateways, its surface, and the table that gateways copy.

use std::collections::{BTreeMap, BTreeSet};

use elastic_pool_engine::ids::{Birth, Epoch, GatewayId, UserId};
use tokio::sync::mpsc;

use super::surface::Surface;
use crate::channel::proto::{GatewayCommand, Ownership, Table, gateway_command};
use crate::channel::server::ConnectionId;
use crate::credentials::Key;
use crate::vehicle::{ObjectKey, PoolKeys};

/// A connected gateway.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) id: GatewayId,
    pub(super) commands: mpsc::Sender<GatewayCommand>,
    /// For the sums of M4: another incarnation starts its totals anew.
    pub(super) incarnation: String,
}

/// One pool of this operator.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) key: ObjectKey,
    pub(super) keys: Option<PoolKeys>,
    pub(super) gateways: BTreeMap<ConnectionId, Gateway>,
    pub(super) surface: Surface,
    /// What gateways were told of workers and groups last.
    pub(super) told: Routing,
    /// Workers of which gateways may have to be told something else.
    pub(super) rerouted: BTreeSet<Birth>,
    /// Names of groups of which they may have to be.
    pub(super) regrouped: BTreeSet<String>,
    /// Each gateway's numbers are kept over a reconnect of the same pod.
    pub(super) gateway_ids: BTreeMap<String, GatewayId>,
    /// Cumulative totals by user and gateway, to add differences (U1).
    pub(super) user_sums: std::collections::HashMap<UserId, elastic_pool_engine::forward::ForwardSum>,
    /// False while a new leader is still hearing agents (D3, L6).
    pub(super) live: bool,
}

/// The part of a table that is not users.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Routing {
    pub(super) groups: BTreeMap<String, crate::channel::proto::Group>,
    pub(super) workers: BTreeMap<Birth, crate::channel::proto::Worker>,
    pub(super) live: bool,
}

/// The pools of this operator. Whoever asks to change one has its gateways told of what is new.
#[derive(Debug, Default)]
pub(super) struct Pools {
    all: BTreeMap<ObjectKey, PoolState>,
    touched: BTreeSet<ObjectKey>,
    /// Those whose users are not known again yet (D3).
    recovering: BTreeSet<ObjectKey>,
}

impl Pools {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&PoolState> {
        self.all.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut PoolState> {
        let pool = self.all.get_mut(key)?;
        if !self.touched.contains(key) {
            self.touched.insert(key.clone());
        }
        Some(pool)
    }

    /// The pool, made where there is none.
    pub(super) fn make(&mut self, key: &ObjectKey) -> &mut PoolState {
        if !self.all.contains_key(key) {
            self.recovering.insert(key.clone());
        }
        self.touched.insert(key.clone());
        self.all
            .entry(key.clone())
            .or_insert_with(|| PoolState::new(key.clone()))
    }

    /// D3: its users are known, newcomers are placed.
    pub(super) fn make_live(&mut self, key: &ObjectKey) {
        self.recovering.remove(key);
        if let Some(pool) = self.get_mut(key) {
            pool.live = true;
        }
    }

    pub(super) fn recovering(&self) -> impl Iterator<Item = &ObjectKey> {
        self.recovering.iter()
    }

    /// Pools that somebody asked to change since the last call.
    pub(super) fn take_touched(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.touched)
    }

    /// Lends a pool out, so that it can be changed while the rest is read; [`Self::put_back`] follows.
    pub(super) fn lend(&mut self, key: &ObjectKey) -> Option<PoolState> {
        self.all.remove(key)
    }

    pub(super) fn put_back(&mut self, pool: PoolState) {
        self.all.insert(pool.key.clone(), pool);
    }
}

#[cfg(test)]
impl std::ops::Index<&ObjectKey> for Pools {
    type Output = PoolState;

    fn index(&self, key: &ObjectKey) -> &PoolState {
        &self.all[key]
    }
}

impl PoolState {
    pub(super) fn new(key: ObjectKey) -> Self {
        Self {
            key,
            keys: None,
            gateways: BTreeMap::new(),
            surface: Surface::default(),
            told: Routing::default(),
            rerouted: BTreeSet::new(),
            regrouped: BTreeSet::new(),
            gateway_ids: BTreeMap::new(),
            user_sums: std::collections::HashMap::new(),
            live: false,
        }
    }

    /// The ticket key of a pod; `None` before the pool has keys.
    pub(super) fn pod_key(&self, pod_uid: &str) -> Option<Key> {
        self.keys.as_ref().map(|keys| keys.ticket.for_pod(pod_uid))
    }

    /// Tells every gateway; names the connections of those that do not take it.
    pub(super) fn broadcast(&self, command: &gateway_command::Command) -> Vec<ConnectionId> {
        let deaf = |gateway: &Gateway| !gateway.tell(command.clone());
        self.gateways
            .iter()
            .filter(|(_, gateway)| deaf(gateway))
            .map(|(connection, _)| *connection)
            .collect()
    }

    /// Everything, for a gateway that has just connected; call after the changes went to the others.
    pub(super) fn full_table(&self, ownership: impl Fn(&Self, &UserId) -> Ownership) -> Table {
        Table {
            version: self.surface.version().0,
            full: true,
            live: self.told.live,
            groups: self.told.groups.values().cloned().collect(),
            workers: self.told.workers.values().cloned().collect(),
            dead: Vec::new(),
            users: self
                .surface
                .residents()
                .map(|(user, _)| ownership(self, user))
                .collect(),
        }
    }
}

impl Gateway {
    /// Tells this gateway; false when its queue is full or its stream has ended.
    pub(super) fn tell(&self, command: gateway_command::Command) -> bool {
        self.commands
            .try_send(GatewayCommand {
                command: Some(command),
            })
            .is_ok()
    }
}

/// An ownership of nobody: the user is gone.
pub(super) fn nobody(user: &UserId) -> Ownership {
    Ownership {
        user: user.to_string(),
        birth: 0,
        epoch: Epoch::PROVISIONAL.0,
        ticket: String::new(),
        clients: Vec::new(),
    }
}
