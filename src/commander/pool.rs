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
    pub(super) groups: Vec<crate::channel::proto::Group>,
    pub(super) workers: BTreeMap<Birth, crate::channel::proto::Worker>,
    pub(super) live: bool,
}

impl PoolState {
    pub(super) fn new(key: ObjectKey) -> Self {
        Self {
            key,
            keys: None,
            gateways: BTreeMap::new(),
            surface: Surface::default(),
            told: Routing::default(),
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

    /// What changed since the last call, as a delta; `None` when nothing did.
    pub(super) fn delta(
        &mut self,
        routing: Routing,
        ownership: impl Fn(&Self, &UserId) -> Ownership,
    ) -> Option<Table> {
        let changed: BTreeSet<UserId> = self.surface.take_changed();
        if changed.is_empty() && routing == self.told {
            return None;
        }
        let told = std::mem::replace(&mut self.told, routing);
        let workers = self
            .told
            .workers
            .iter()
            .filter(|(birth, worker)| told.workers.get(birth) != Some(worker));
        let dead = told
            .workers
            .keys()
            .filter(|birth| !self.told.workers.contains_key(birth));
        Some(Table {
            version: self.surface.version().0,
            full: false,
            live: self.told.live,
            groups: if told.groups == self.told.groups {
                Vec::new()
            } else {
                self.told.groups.clone()
            },
            workers: workers.map(|(_, worker)| worker.clone()).collect(),
            dead: dead.map(|birth| birth.0).collect(),
            users: changed.iter().map(|user| ownership(self, user)).collect(),
        })
    }

    /// Everything, for a gateway that has just connected; call after [`Self::delta`] went to the others.
    pub(super) fn full_table(&self, ownership: impl Fn(&Self, &UserId) -> Ownership) -> Table {
        Table {
            version: self.surface.version().0,
            full: true,
            live: self.told.live,
            groups: self.told.groups.clone(),
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
