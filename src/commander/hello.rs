//! Agents: who may speak for which worker, what they announce, and what they say; it decides nothing about users.

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use tokio::sync::mpsc;

use super::Commander;
use super::worker::Agent;
use crate::channel::proto::{
    self, Admission, AgentCommand, AgentHello, AgentMessage, AgentWelcome, agent_command, agent_message,
};
use crate::channel::server::{ConnectionId, PeerIdentity};

impl Commander {
    /// An agent announces itself. Its role comes from our own store, not from its message: an unknown pod is refused
    /// by letting its stream end.
    pub(super) fn agent_up(
        &mut self,
        connection: ConnectionId,
        identity: &PeerIdentity,
        hello: &AgentHello,
        commands: mpsc::Sender<AgentCommand>,
    ) {
        let known = self.by_uid.get(&identity.pod_uid).copied();
        let Some(birth) = known.filter(|birth| self.workers.get(birth).is_some_and(|worker| !worker.dead))
        else {
            self.metrics.peer_refused("unknown_pod");
            tracing::debug!(pod = %identity.pod_name, "an agent of no worker of ours was refused");
            return;
        };
        if self
            .pool_of_worker(birth)
            .and_then(|pool| self.pools.get(&pool))
            .is_none_or(|pool| pool.keys.is_none())
        {
            return;
        }
        let birth = if self.is_other_process(birth, hello) {
            self.app_restarted(birth)
        } else {
            birth
        };
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        if let Some(before) = worker.agent.take() {
            self.agents.remove(&before.connection);
        }
        self.deposits.cut(birth);
        worker.window.announce(&hello.incarnation);
        worker.agent = Some(Agent {
            connection,
            commands,
            incarnation: hello.incarnation.clone(),
            snapshot: hello
                .capabilities
                .iter()
                .any(|capability| capability == "snapshot"),
        });
        worker.announced = true;
        worker.inhabited |= !hello.users.is_empty();
        worker.heard = now;
        worker.instance.clone_from(&hello.app_instance);
        self.agents.insert(connection, birth);
        self.metrics.connections("agent", self.agents.len());
        self.welcome_again(birth);
        self.learn_capabilities(birth);
        self.claims(birth, hello);
        self.agent_returned(birth);
        self.try_routable(birth);
    }

    /// The agent names another app process than the last time.
    fn is_other_process(&self, birth: Birth, hello: &AgentHello) -> bool {
        let Some(worker) = self.workers.get(&birth) else {
            return false;
        };
        let other = worker.instance != hello.app_instance;
        worker.announced && !worker.instance.is_empty() && !hello.app_instance.is_empty() && other
    }

    /// Sends Welcome (also when something in it changed).
    pub(super) fn welcome_again(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let Some(group) = self.groups.get(&worker.group) else {
            return;
        };
        let Some(pool) = self.pools.get(&group.spec.pool) else {
            return;
        };
        let (Some(keys), Some(fact)) = (&pool.keys, &worker.fact) else {
            return;
        };
        let spec = &group.spec;
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let welcome = AgentWelcome {
            term: self.term.0,
            birth: birth.0,
            worker: worker.name(),
            ticket_key: keys.ticket.for_pod(&fact.pod_uid).to_hex(),
            hops: vec![keys.pool.hop(&fact.pod_uid, 0)],
            interval_ms: milliseconds(spec.interval),
            session_users: spec.session_users,
            session_timeout_ms: milliseconds(spec.session_timeout),
            close_streams: spec.close_streams,
            quiesce_timeout_ms: milliseconds(spec.quiesce_timeout),
            max_package_bytes: spec.max_package,
            app_container_id: fact.app_container_id.clone(),
            drain_only: !spec.live_moves,
        };
        worker.tell(0, agent_command::Command::Welcome(welcome));
        let closed = matches!(
            group.engine.get(birth).map(|view| view.state),
            Some(WorkerState::Draining(_) | WorkerState::Retiring { .. })
        );
        if closed {
            worker.tell(0, agent_command::Command::Admission(Admission { open: false }));
        }
    }

    /// Without snapshots in its app a group's users cannot be moved: it is drained by waiting instead.
    pub(super) fn learn_capabilities(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let Some(snapshot) = worker.agent.as_ref().map(|agent| agent.snapshot) else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&worker.group) {
            let live = group.spec.live_moves && snapshot;
            group.policy.moves = if live {
                elastic_pool_engine::MoveMode::Live
            } else {
                elastic_pool_engine::MoveMode::Drain
            };
        }
    }

    pub(super) fn agent_said(&mut self, connection: ConnectionId, message: AgentMessage) {
        let Some(birth) = self.agents.get(&connection).copied() else {
            return;
        };
        let Some(message) = message.message else { return };
        match message {
            agent_message::Message::Hello(_) | agent_message::Message::State(_) => {}
            agent_message::Message::Report(report) => {
                let incarnation = self.workers.get(&birth).and_then(|worker| worker.agent.as_ref());
                if let Some(incarnation) = incarnation.map(|agent| agent.incarnation.clone()) {
                    self.report(birth, &incarnation, &report);
                }
            }
            agent_message::Message::Ack(ack) => self.acknowledged(birth, &ack),
            agent_message::Message::Nack(nack) => self.refused(birth, &nack),
            agent_message::Message::UserBorn(born) => self.user_born(birth, &born),
            agent_message::Message::UserGone(gone) => self.user_gone(birth, &gone),
            agent_message::Message::Resolve(open) => self.resolve(birth, &open),
            agent_message::Message::ClientLeft(left) => self.client_left(birth, &left),
            agent_message::Message::Offer(offer) => self.offered(birth, offer),
        }
    }

    /// L7: counts only for the life that the agent means.
    fn user_gone(&mut self, birth: Birth, gone: &proto::UserGone) {
        let (Ok(user), Some(key)) = (UserId::new(&gone.user), self.pool_of_worker(birth)) else {
            return;
        };
        self.recovery_loses_user(&key, &user, birth, Epoch(gone.epoch));
        let busy = self.operations.is_busy(&key, &user);
        let Some(pool) = self.pools.get_mut(&key) else {
            return;
        };
        let present = pool
            .surface
            .get(&user)
            .is_some_and(|resident| resident.owner == birth && resident.epoch == Epoch(gone.epoch));
        if present && !busy {
            pool.surface.remove(&user);
            pool.user_sums.remove(&user);
            self.operations.clear_pause(&(key, user));
            self.refresh(birth);
        }
    }

    /// A user of whom his worker's agent knows nothing any more.
    pub(super) fn left(&mut self, (key, user): &super::operation::Subject, birth: Birth) {
        let Some(pool) = self.pools.get_mut(key) else {
            return;
        };
        if pool
            .surface
            .get(user)
            .is_some_and(|resident| resident.owner == birth)
        {
            pool.surface.remove(user);
            pool.user_sums.remove(user);
            self.refresh(birth);
        }
    }

    fn client_left(&mut self, birth: Birth, left: &proto::ClientLeft) {
        let (Some(client), Some(key)) = (ClientId::parse(&left.client), self.pool_of_worker(birth)) else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&key)
            && pool
                .surface
                .user_of(client)
                .is_some_and(|user| user.as_str() == left.user)
        {
            pool.surface.unbind(client);
        }
    }

    pub(super) fn connection_down(&mut self, connection: ConnectionId) {
        if let Some(birth) = self.agents.remove(&connection) {
            self.deposits.cut(birth);
            self.metrics.connections("agent", self.agents.len());
            let terminating = self.workers.get_mut(&birth).is_some_and(|worker| {
                let current = worker
                    .agent
                    .as_ref()
                    .is_some_and(|agent| agent.connection == connection);
                if current {
                    worker.agent = None;
                    worker.heard = worker.heard.max(self.now);
                }
                current && worker.terminating
            });
            if terminating && self.retires(birth) {
                self.dies(birth, "its pod is terminating and its agent is gone");
            }
        }
        if let Some(pool) = self.gateways.remove(&connection) {
            self.gateway_down(&pool, connection);
        }
    }

    /// True for a worker whose pod ends anyway, so that its agent does not come back.
    fn retires(&self, birth: Birth) -> bool {
        matches!(self.view_of(birth), Some(WorkerState::Retiring { .. }))
    }
}
