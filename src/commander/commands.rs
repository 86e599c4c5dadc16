//! A move's effects as messages to agents and gateways (V1-V6); when each is due is the engine's business.

use elastic_pool_engine::ids::{Epoch, GatewayId};
use elastic_pool_engine::moves::{Back, Effect, Kind, Move, Package};

use super::operation::{Operation, Subject, Told};
use super::{Commander, pool};
use crate::channel::proto::{
    self, Activate, Assign, Cancel, Discard, Fetch, Forget, Hold, Ownership, Route, Snapshot, Thaw,
    agent_command, gateway_command,
};

impl Commander {
    pub(super) fn hold(
        &self,
        (key, user): &Subject,
        operation: &Operation,
        id: Epoch,
        to: GatewayId,
    ) -> bool {
        let Some(pool) = self.pools.get(key) else {
            return false;
        };
        let client = match operation.kind {
            Kind::Move => String::new(),
            Kind::Join { client } => client.to_string(),
        };
        let hold = gateway_command::Command::Hold(Hold {
            r#move: id.0,
            user: user.to_string(),
            client,
        });
        pool.gateways
            .values()
            .find(|gateway| gateway.id == to)
            .is_some_and(|gateway| gateway.tell(hold))
    }

    /// A command to one of the two agents, with an id that its answer will carry.
    pub(super) fn command(&mut self, subject: &Subject, operation: &Operation, state: &Move, effect: Effect) {
        let (user, id) = (subject.1.to_string(), state.id.0);
        let join = matches!(operation.kind, Kind::Join { .. });
        let (to, told, command) = match effect {
            Effect::Snapshot => {
                let snapshot = Snapshot {
                    user,
                    r#move: id,
                    join,
                };
                (
                    state.source,
                    Told::Snapshot,
                    agent_command::Command::Snapshot(snapshot),
                )
            }
            Effect::Fetch(package) => {
                let Some(fetch) = self.fetch(subject, state, package, join) else {
                    return;
                };
                (state.target, Told::Fetch, agent_command::Command::Fetch(fetch))
            }
            Effect::Activate => {
                let activate = Activate {
                    user,
                    r#move: id,
                    join,
                };
                (
                    state.target,
                    Told::Activate,
                    agent_command::Command::Activate(activate),
                )
            }
            Effect::Assign => {
                let Ownership {
                    epoch,
                    ticket,
                    clients,
                    ..
                } = self.owner_of(&subject.0, &subject.1);
                let assign = Assign {
                    user,
                    epoch,
                    ticket,
                    clients,
                };
                (state.target, Told::Assign, agent_command::Command::Assign(assign))
            }
            Effect::Forget => (
                state.source,
                Told::Forget,
                agent_command::Command::Forget(Forget { user, r#move: id }),
            ),
            Effect::Discard => (
                state.target,
                Told::Discard,
                agent_command::Command::Discard(Discard { user, r#move: id }),
            ),
            Effect::Thaw(epoch) => {
                let Some(pool) = self.pools.get(&subject.0) else {
                    return;
                };
                let ticket = self.ticket(pool, &subject.1, state.source, epoch);
                let thaw = Thaw {
                    user,
                    r#move: id,
                    epoch: epoch.0,
                    ticket,
                };
                (state.source, Told::Thaw, agent_command::Command::Thaw(thaw))
            }
            Effect::Hold(_) | Effect::Route | Effect::Cancel(_) | Effect::Finish(_) => return,
        };
        let number = self.next_command();
        self.operations.commands.insert(number, (subject.clone(), told));
        if let Some(worker) = self.workers.get(&to) {
            worker.tell(number, command);
        }
    }

    fn fetch(&self, (key, user): &Subject, state: &Move, package: Package, join: bool) -> Option<Fetch> {
        let source = self.workers.get(&state.source)?.fact.as_ref()?;
        let pass = self
            .pools
            .get(key)?
            .pod_key(&source.pod_uid)?
            .package_pass(user.as_str(), state.id);
        Some(Fetch {
            user: user.to_string(),
            r#move: state.id.0,
            source: source.peer.clone(),
            pass,
            package: Some(proto::Package {
                bytes: package.bytes,
                sha256: package.sha256,
                format: package.format,
            }),
            join,
        })
    }

    /// V5, the commit: the surface names the target and every gateway hears it.
    pub(super) fn route(&mut self, (key, user): &Subject, operation: &Operation, state: &Move) {
        let Some(pool) = self.pools.get_mut(key) else {
            return;
        };
        match operation.kind {
            Kind::Move => {
                pool.surface.settle(user, state.target, state.id);
            }
            Kind::Join { client } => pool.surface.bind(client, user),
        }
        let ownership = self.owner_of(key, user);
        self.broadcast(
            key,
            &gateway_command::Command::Route(Route {
                r#move: state.id.0,
                user: Some(ownership),
            }),
        );
        if let Some(active) = self.operations.active.get(&(key.clone(), user.clone())) {
            self.metrics
                .pause(self.now.saturating_sub(active.since).as_secs_f64());
        }
    }

    /// V6: held requests go back to the owner, under the epoch that the source thawed with.
    pub(super) fn cancel(&mut self, operation: &Operation, state: &Move, back: Back) {
        let (key, user) = (&operation.pool, &operation.user);
        let client = match operation.kind {
            Kind::Move => String::new(),
            Kind::Join { client } => client.to_string(),
        };
        let ownership = match back {
            Back::Unchanged => self.owner_of(key, user),
            Back::Source(epoch) => {
                if let Some(pool) = self.pools.get_mut(key) {
                    pool.surface.settle(user, state.source, epoch);
                }
                self.owner_of(key, user)
            }
            Back::Nobody => pool::nobody(user),
        };
        let cancel = Cancel {
            r#move: state.id.0,
            user: Some(ownership),
            client,
        };
        self.broadcast(key, &gateway_command::Command::Cancel(cancel));
    }
}
