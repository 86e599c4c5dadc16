//! The commander: archive of reports, judge over placement, growth and compaction, and mover of users; it touches
//! neither Kubernetes nor a clock.
//!
//! One value, [`Commander`], holds all live state and is changed by one event at a time ([`Commander::handle`]).
//! Commands leave through the bounded queues of connected peers, wishes for workers through [`Commander::orders`].

mod actor;
mod archive;
mod commands;
mod deaths;
mod decide;
mod deposits;
mod drain;
mod evacuate;
mod facts;
mod gateways;
mod group;
mod hello;
mod history;
mod login;
mod mover;
mod operation;
mod orders;
mod pool;
mod recovery;
mod routing;
pub mod surface;
mod update;
mod view;
mod waits;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::ids::{Birth, Epoch, Term, UserId};

pub use actor::{CommanderHandle, start};
pub use group::Advice;
pub(crate) use group::policy;
pub use history::{DecisionSink, UnknownGroup};
pub use view::{MonitorGroup, MonitorState, MonitorWorker};
pub use waits::DrainView;

use crate::channel::proto::{Ownership, agent_command};
use crate::channel::server::{ChannelEvent, ConnectionId};
use crate::metrics::Metrics;
use crate::vehicle::{Fact, ObjectKey};
use group::GroupState;
use operation::Operations;
use orders::Outlet;
use pool::{PoolState, Pools};
use worker::Worker;

/// How long a new leader waits for pods that may hold users (D3).
const RECOVERY_LIMIT: Duration = Duration::from_secs(5);
/// How long a new leader gives gateways to dial, once one has, before it undoes what they have not seen (D3).
const GATEWAYS_LIMIT: Duration = Duration::from_secs(2);
/// A gateway waits this long for an answer to a login, then the reception keeps the user (L2, P6).
const PLACE_LIMIT: Duration = Duration::from_millis(500);
/// A login's answer that takes longer leaves the move to a later try (L3).
const LOGIN_ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// On the channel.
    Channel(ChannelEvent),
    /// Among the workers.
    Fact(Fact),
    /// Time went on.
    Tick,
    /// The next move of a drain is due.
    Beat,
}

/// All live state of one leader's term.
#[derive(Debug)]
pub struct Commander {
    term: Term,
    last_epoch: u64,
    last_birth: u64,
    last_command: u64,
    last_gateway: u64,
    /// Time of the event being handled, on this process's monotonic clock.
    now: Duration,
    started: Duration,
    synced: bool,
    pools: Pools,
    groups: BTreeMap<ObjectKey, GroupState>,
    workers: BTreeMap<Birth, Worker>,
    by_uid: HashMap<String, Birth>,
    agents: HashMap<ConnectionId, Birth>,
    gateways: HashMap<ConnectionId, ObjectKey>,
    operations: Operations,
    deposits: deposits::Deposits,
    drains: BTreeMap<Birth, drain::DrainState>,
    recovery: recovery::Recovery,
    /// By the number on its pod: the birth of a worker whose app restarted (D1).
    reborn: BTreeMap<Birth, Birth>,
    /// Births whose last pod is gone, so that a late fact does not bring them back.
    buried: BTreeSet<Birth>,
    dirty_groups: BTreeSet<ObjectKey>,
    /// Workers whose preStop waits though nobody deleted their pods, as far as is known.
    stops_asked: BTreeSet<Birth>,
    outlet: Outlet,
    /// Another is about to lead: no operation starts any more.
    resting: bool,
    /// When the next move of a drain is due that waits for nothing else.
    beat_at: Option<Duration>,
    metrics: Arc<Metrics>,
    /// Where decisions are saved, if anywhere.
    sink: Option<DecisionSink>,
}

impl Commander {
    /// A commander that has heard nothing yet.
    pub fn new(term: Term, metrics: Arc<Metrics>, now: Duration) -> Self {
        Self {
            term,
            last_epoch: 0,
            last_birth: 0,
            last_command: 0,
            last_gateway: 0,
            now,
            started: now,
            synced: false,
            pools: Pools::default(),
            groups: BTreeMap::new(),
            workers: BTreeMap::new(),
            by_uid: HashMap::new(),
            agents: HashMap::new(),
            gateways: HashMap::new(),
            operations: Operations::default(),
            deposits: deposits::Deposits::default(),
            drains: BTreeMap::new(),
            recovery: recovery::Recovery::default(),
            reborn: BTreeMap::new(),
            buried: BTreeSet::new(),
            dirty_groups: BTreeSet::new(),
            stops_asked: BTreeSet::new(),
            outlet: Outlet::default(),
            resting: false,
            beat_at: None,
            metrics,
            sink: None,
        }
    }

    /// Saves every decision from now on.
    #[must_use]
    pub fn saving(mut self, sink: Option<DecisionSink>) -> Self {
        self.sink = sink;
        self
    }

    /// From now on no move or join starts: those under way end, so that the next leader finds nobody in one.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// No move or join is under way.
    pub fn is_at_rest(&self) -> bool {
        self.operations.active.is_empty()
    }

    /// Takes one event, decides what follows from it, and tells everyone concerned.
    pub fn handle(&mut self, event: Event, now: Duration) {
        self.now = now;
        match event {
            Event::Channel(event) => self.on_channel(event),
            Event::Fact(fact) => self.on_fact(fact),
            Event::Tick => self.on_tick(),
            Event::Beat => self.fill_drains(),
        }
        self.settle();
    }

    /// Follows up on a change, for what it concerns alone: plans, moves, tables, orders.
    fn settle(&mut self) {
        self.finish_recovery();
        self.decide_dirty();
        self.publish_tables();
        self.refresh_orders();
    }

    fn on_channel(&mut self, event: ChannelEvent) {
        match event {
            ChannelEvent::AgentUp {
                connection,
                identity,
                hello,
                commands,
            } => {
                self.agent_up(connection, &identity, &hello, commands);
            }
            ChannelEvent::Agent(connection, message) => self.agent_said(connection, *message),
            ChannelEvent::GatewayUp {
                connection,
                identity,
                hello,
                commands,
            } => {
                self.gateway_up(connection, &identity, &hello, commands);
            }
            ChannelEvent::Gateway(connection, message) => self.gateway_said(connection, *message),
            ChannelEvent::Down(connection) => self.connection_down(connection),
        }
    }

    fn on_tick(&mut self) {
        self.expire_reports();
        // This looks at every worker, and deadTimeout is a second at least.
        if self.outlet.tick(self.now) {
            self.bury_silent();
        }
        self.release_restarts();
        self.tick_operations();
        self.tick_deposits();
        self.watch_evacuations();
        self.fill_drains();
        let now = self.now;
        let due: Vec<ObjectKey> = self
            .groups
            .iter()
            .filter(|(_, group)| group.wake_at.is_some_and(|at| at <= now))
            .map(|(key, _)| key.clone())
            .collect();
        self.dirty_groups.extend(due);
    }

    /// The next epoch of this term (V8).
    fn next_epoch(&mut self) -> Epoch {
        self.last_epoch += 1;
        Epoch(self.term.number(self.last_epoch))
    }

    fn next_birth(&mut self) -> Birth {
        self.last_birth += 1;
        Birth(self.term.number(self.last_birth))
    }

    fn next_command(&mut self) -> u64 {
        self.last_command += 1;
        self.last_command
    }

    /// Tells a worker's agent something that wants no answer.
    fn tell_agent(&self, birth: Birth, command: agent_command::Command) -> bool {
        self.workers
            .get(&birth)
            .is_some_and(|worker| worker.tell(0, command))
    }

    fn pool_of_group(&self, group: &ObjectKey) -> Option<ObjectKey> {
        self.groups.get(group).map(|group| group.spec.pool.clone())
    }

    fn pool_of_worker(&self, birth: Birth) -> Option<ObjectKey> {
        self.pool_of_group(&self.workers.get(&birth)?.group)
    }

    /// The ticket of an ownership; empty while the pool has no keys.
    fn ticket(&self, pool: &PoolState, user: &UserId, owner: Birth, epoch: Epoch) -> String {
        let uid = self.workers.get(&owner).map_or("", Worker::pod_uid);
        pool.pod_key(uid)
            .map_or_else(String::new, |key| key.ticket(user.as_str(), epoch))
    }

    /// What a gateway needs to know of a user.
    fn ownership(&self, pool: &PoolState, user: &UserId) -> Ownership {
        let Some(resident) = pool.surface.get(user) else {
            return pool::nobody(user);
        };
        Ownership {
            user: user.to_string(),
            birth: resident.owner.0,
            epoch: resident.epoch.0,
            ticket: self.ticket(pool, user, resident.owner, resident.epoch),
            clients: resident.clients.iter().map(ToString::to_string).collect(),
        }
    }

    /// Something of a group changed: it is decided anew and told to those who act on it.
    fn touch(&mut self, group: &ObjectKey) {
        self.outlet.mark(group);
        self.remeasured(group);
    }

    /// Only figures of a group changed: it is decided anew.
    fn remeasured(&mut self, group: &ObjectKey) {
        if !self.dirty_groups.contains(group) {
            self.dirty_groups.insert(group.clone());
        }
    }

    /// Changes where a worker is in its life; false for a worker that its group does not know.
    fn set_state(&mut self, birth: Birth, state: WorkerState) -> bool {
        let Some(key) = self.workers.get(&birth).map(|worker| worker.group.clone()) else {
            return false;
        };
        let known = self
            .groups
            .get_mut(&key)
            .is_some_and(|group| group.engine.update(birth, |view| view.state = state));
        if known {
            self.reroute(birth);
            self.touch(&key);
        }
        known
    }

    /// Keeps a decision for status, events and the monitor.
    fn note(&mut self, key: &ObjectKey, action: &str, because: String, warning: bool) {
        if let Some(group) = self.groups.get_mut(key) {
            group.note(action, because, warning);
            self.outlet.mark(key);
        }
    }
}
