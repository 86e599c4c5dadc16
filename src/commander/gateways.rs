//! Gateways: who may speak for which pool, and their totals (M4, U1); it decides nothing.

use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::ids::{Birth, GatewayId, UserId};
use tokio::sync::mpsc;

use super::pool::Gateway;
use super::{Commander, PLACE_LIMIT};
use crate::channel::proto::{
    self, GatewayCommand, GatewayHello, GatewayMessage, GatewayWelcome, gateway_command, gateway_message,
};
use crate::channel::server::{ConnectionId, PeerIdentity};
use crate::vehicle::ObjectKey;

/// Users that one message of totals may name.
const TOTALS_LIMIT: usize = 200_000;

impl Commander {
    /// A gateway announces itself; its pool comes from its service account and namespace.
    pub(super) fn gateway_up(
        &mut self,
        connection: ConnectionId,
        identity: &PeerIdentity,
        hello: &GatewayHello,
        commands: mpsc::Sender<GatewayCommand>,
    ) {
        let key = ObjectKey {
            namespace: hello.namespace.clone(),
            name: hello.pool.clone(),
        };
        let ours = identity.namespace == key.namespace
            && identity.service_account == crate::channel::gateway_account(&key.name);
        if !ours || self.pools.get(&key).is_none() {
            self.metrics.peer_refused("unknown_gateway");
            tracing::debug!(pod = %identity.pod_name, pool = %key, "a gateway of no pool of ours was refused");
            return;
        }
        self.publish_tables();
        self.gateway_claims(&key, hello);
        self.last_gateway += 1;
        let fresh = GatewayId(self.last_gateway);
        let hold = self.hold_timeout(&key);
        let Some(pool) = self.pools.get_mut(&key) else {
            return;
        };
        let id = *pool.gateway_ids.entry(hello.pod_uid.clone()).or_insert(fresh);
        let gateway = Gateway {
            id,
            commands,
            incarnation: hello.incarnation.clone(),
        };
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        gateway.tell(gateway_command::Command::Welcome(GatewayWelcome {
            term: self.term.0,
            place_timeout_ms: milliseconds(PLACE_LIMIT),
            hold_timeout_ms: milliseconds(hold),
        }));
        pool.gateways.retain(|_, other| other.id != id);
        pool.gateways.insert(connection, gateway);
        self.gateways.insert(connection, key.clone());
        self.metrics.connections("gateway", self.gateways.len());
        let Some(pool) = self.pools.get(&key) else { return };
        let table = pool.full_table(|pool, user| self.ownership(pool, user));
        if let Some(gateway) = pool.gateways.get(&connection) {
            gateway.tell(gateway_command::Command::Table(table));
        }
        self.gateway_joined(&key, id);
    }

    fn hold_timeout(&self, pool: &ObjectKey) -> std::time::Duration {
        let holds = self
            .groups
            .values()
            .filter(|group| group.spec.pool == *pool)
            .map(|group| group.spec.hold_timeout);
        holds.max().unwrap_or(std::time::Duration::from_secs(5))
    }

    pub(super) fn gateway_down(&mut self, key: &ObjectKey, connection: ConnectionId) {
        self.metrics.connections("gateway", self.gateways.len());
        let gone = self
            .pools
            .get_mut(key)
            .and_then(|pool| pool.gateways.remove(&connection));
        if let Some(gateway) = gone {
            self.gateway_left(key, gateway.id);
        }
    }

    pub(super) fn gateway_said(&mut self, connection: ConnectionId, message: GatewayMessage) {
        let Some(key) = self.gateways.get(&connection).cloned() else {
            return;
        };
        let Some(message) = message.message else { return };
        match message {
            gateway_message::Message::Hello(_) => {}
            gateway_message::Message::Place(place) => self.place(&key, connection, &place),
            gateway_message::Message::LookUp(question) => self.look_up(&key, connection, &question),
            gateway_message::Message::Held(held) => self.held(&key, connection, held),
            gateway_message::Message::Quiet(quiet) => self.quiet(&key, &quiet),
            gateway_message::Message::Totals(totals) => self.totals(&key, connection, &totals),
        }
    }

    /// Adds the differences of one gateway's cumulative totals (M4, U1).
    fn totals(&mut self, key: &ObjectKey, connection: ConnectionId, totals: &proto::Totals) {
        let now = self.now;
        let Some(pool) = self.pools.get_mut(key) else {
            return;
        };
        let Some(gateway) = pool.gateways.get(&connection) else {
            return;
        };
        let (id, incarnation) = (gateway.id, gateway.incarnation.clone());
        for total in totals.users.iter().take(TOTALS_LIMIT) {
            let Ok(user) = UserId::new(&total.user) else {
                continue;
            };
            if pool.surface.get(&user).is_none() {
                continue;
            }
            let sum = pool.user_sums.entry(user.clone()).or_default();
            let before = sum.total();
            let seconds = if total.seconds.is_finite() {
                total.seconds
            } else {
                0.0
            };
            sum.observe(
                id,
                &incarnation,
                Forwards {
                    requests: total.requests,
                    errors: 0,
                    seconds,
                },
            );
            let more = sum.total().since(before);
            pool.surface.consume(&user, more, now);
        }
        for total in totals.workers.iter().take(TOTALS_LIMIT) {
            let Some(worker) = self.workers.get_mut(&Birth(total.birth)) else {
                continue;
            };
            let seconds = if total.seconds.is_finite() {
                total.seconds
            } else {
                0.0
            };
            let before = worker.forwards.total();
            let counters = Forwards {
                requests: total.requests,
                errors: total.errors,
                seconds,
            };
            worker.forwards.observe(id, &incarnation, counters);
            if worker.forwards.total().since(before).requests > 0 {
                worker.heard = now;
                worker.asked_last = now;
            }
        }
        self.metrics.held(id.0, totals.held);
    }
}
