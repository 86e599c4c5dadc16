//! One commander among scripted agents and gateways; time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::WorkerView;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, Term, UserId};
use tokio::sync::mpsc;

use super::manifest::{group, pool};
use super::peers::{FakeAgent, FakeGateway};
use crate::channel::proto::{
    AgentHello, AgentMessage, Claim, GatewayHello, GatewayMessage, Ownership, Place, Placed, Quiet, Report,
    Table, agent_message, claim, gateway_command, gateway_message,
};
use crate::channel::server::{ChannelEvent, ConnectionId, PeerIdentity};
use crate::commander::{Commander, Event};
use crate::credentials::Key;
use crate::metrics::Metrics;
use crate::vehicle::{Fact, GroupSpec, ObjectKey, Orders, PoolKeys, WorkerFact};

/// One commander and its world.
pub(super) struct World {
    pub(super) commander: Commander,
    pub(super) now: Duration,
    pub(super) keys: PoolKeys,
    pub(super) agents: BTreeMap<Birth, FakeAgent>,
    pub(super) gateways: Vec<FakeGateway>,
    pub(super) connections: u64,
    pub(super) orders: Arc<Orders>,
    pub(super) requests: u64,
    /// How often any app was restarted.
    pub(super) lives: u32,
    /// When a guest asked a worker for something last, as its agent says; others say nothing of guests.
    pub(super) guests: BTreeMap<Birth, Duration>,
}

impl World {
    pub(super) fn new(term: u64, spec: GroupSpec) -> Self {
        let now = Duration::from_secs(100);
        let keys = PoolKeys {
            pool: Key::random().unwrap(),
            ticket: Key::random().unwrap(),
        };
        let mut world = Self {
            commander: Commander::new(Term(term), Arc::new(Metrics::new().unwrap()), now),
            now,
            keys: keys.clone(),
            agents: BTreeMap::new(),
            gateways: Vec::new(),
            connections: 0,
            orders: Arc::default(),
            requests: 0,
            lives: 0,
            guests: BTreeMap::new(),
        };
        world.fact(Fact::Group(Box::new(spec)));
        world.fact(Fact::Keys(pool(), keys));
        world
    }

    /// A world that is synced, with its first worker routable and one gateway.
    pub(super) fn serving() -> Self {
        Self::serving_with(super::manifest::spec())
    }

    /// One that serves and whose reception is full, with the second worker made for that; the reception too.
    pub(super) fn growing() -> (Self, Birth) {
        let mut world = Self::serving();
        let reception = world.births()[0];
        world.saturate();
        world.make_wanted();
        (world, reception)
    }

    pub(super) fn serving_with(spec: GroupSpec) -> Self {
        let mut world = Self::new(1, spec);
        world.fact(Fact::Synced);
        world.gateway();
        world.make_wanted();
        world
    }

    pub(super) fn event(&mut self, event: Event) {
        self.commander.handle(event, self.now);
        self.answer();
        if let Some(orders) = self.commander.take_orders() {
            self.orders = orders;
        }
    }

    pub(super) fn fact(&mut self, fact: Fact) {
        self.event(Event::Fact(fact));
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.event(Event::Tick);
        }
    }

    pub(super) fn connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId(self.connections)
    }

    pub(super) fn gateway(&mut self) -> usize {
        self.gateway_that_knows(Vec::new())
    }

    pub(super) fn gateway_that_knows(&mut self, users: Vec<Ownership>) -> usize {
        let connection = self.connection();
        let (sender, commands) = mpsc::channel(4096);
        let name = format!("gateway-{}", connection.0);
        let identity = PeerIdentity {
            namespace: "test".into(),
            pod_name: name.clone(),
            pod_uid: name.clone(),
            service_account: "shop-gateway".into(),
        };
        let hello = GatewayHello {
            protocol: 1,
            pod_uid: name.clone(),
            incarnation: name,
            pool: "shop".into(),
            namespace: "test".into(),
            users,
            ..GatewayHello::default()
        };
        self.gateways.push(FakeGateway {
            connection,
            commands,
            told: Vec::new(),
        });
        let up = ChannelEvent::GatewayUp {
            connection,
            identity,
            hello: Box::new(hello),
            commands: sender,
        };
        self.event(Event::Channel(up));
        self.gateways.len() - 1
    }

    pub(super) fn fact_of(birth: Birth) -> WorkerFact {
        Self::fact_in(&group(), birth)
    }

    pub(super) fn fact_in(group: &ObjectKey, birth: Birth) -> WorkerFact {
        WorkerFact {
            birth,
            group: group.clone(),
            name: format!("{}-{}", group.name, birth.0 & 0xff_ffff),
            pod_uid: format!("uid-{}", birth.0),
            ready: true,
            address: "10.0.0.1:15080".into(),
            peer: "10.0.0.1:15081".into(),
            terminating: false,
            finished: false,
            app_container_id: String::new(),
            app_restarts: 0,
            failure: None,
            template_hash: "t1".into(),
            agent_hash: "a1".into(),
            must_go: false,
        }
    }

    /// Births that a group wants made.
    pub(super) fn wanted(&self, group: &ObjectKey) -> Vec<Birth> {
        let desired = self.orders.desired.get(group);
        desired.map(|desired| desired.spawn.clone()).unwrap_or_default()
    }

    /// Makes every wanted worker: a pod, then its agent's Hello. Answers those of the first group.
    pub(super) fn make_wanted(&mut self) -> Vec<Birth> {
        let wanted = self.wanted(&group());
        let groups: Vec<ObjectKey> = self.orders.desired.keys().cloned().collect();
        for group in groups {
            for birth in self.wanted(&group) {
                let made = WorkerFact {
                    template_hash: self.commander.groups[&group].spec.template_hash.clone(),
                    ..World::fact_in(&group, birth)
                };
                self.fact(Fact::Worker(Box::new(made)));
                self.hello(birth, Vec::new());
            }
        }
        wanted
    }

    pub(super) fn hello(&mut self, birth: Birth, users: Vec<Claim>) {
        let connection = self.connection();
        let (sender, commands) = mpsc::channel(4096);
        let identity = PeerIdentity {
            namespace: "test".into(),
            pod_name: "pod".into(),
            pod_uid: format!("uid-{}", birth.0),
            service_account: "default".into(),
        };
        let hello = AgentHello {
            protocol: 1,
            capabilities: vec!["snapshot".into()],
            pod_uid: identity.pod_uid.clone(),
            incarnation: format!("inc-{}", connection.0),
            app_instance: format!("app-{}-{}", birth.0, self.lives),
            contract: true,
            users,
            ..AgentHello::default()
        };
        let agent = FakeAgent {
            connection,
            commands,
            sequence: 0,
            told: Vec::new(),
            ignores: |_| false,
            nack_snapshots: false,
            package_bytes: 0,
            knows_nobody: false,
            closed: false,
        };
        self.agents.insert(birth, agent);
        let up = ChannelEvent::AgentUp {
            connection,
            identity,
            hello: Box::new(hello),
            commands: sender,
        };
        self.event(Event::Channel(up));
    }

    /// The agent's next Hello names another app process.
    pub(super) fn restart_app(&mut self, birth: Birth) {
        self.lives += 1;
        self.hello(birth, Vec::new());
    }

    pub(super) fn say(&mut self, birth: Birth, message: agent_message::Message) {
        let connection = self.agents[&birth].connection;
        let message = Box::new(AgentMessage {
            message: Some(message),
        });
        self.event(Event::Channel(ChannelEvent::Agent(connection, message)));
    }

    pub(super) fn gateway_says(&mut self, index: usize, message: gateway_message::Message) {
        let connection = self.gateways[index].connection;
        let message = Box::new(GatewayMessage {
            message: Some(message),
        });
        self.event(Event::Channel(ChannelEvent::Gateway(connection, message)));
    }

    /// One report of every worker; `cpu` in its order of birth, the last for all further ones.
    pub(super) fn reports(&mut self, cpu: &[f64]) {
        self.pass(Duration::from_secs(4));
        let births: Vec<Birth> = self.agents.keys().copied().collect();
        for (index, birth) in births.iter().enumerate() {
            let cpu = cpu.get(index).or(cpu.last()).copied();
            let report = Report {
                cpu,
                ..Report::default()
            };
            self.report(*birth, report);
        }
        self.pass(Duration::from_secs(1));
    }

    /// One report of one worker; sequence and emptiness are the agent's.
    pub(super) fn report(&mut self, birth: Birth, report: Report) {
        let inhabited = self.has_users(birth);
        let Some(agent) = self.agents.get_mut(&birth) else {
            return;
        };
        agent.sequence += 1;
        let idle = self.guests.get(&birth).map(|at| self.now.saturating_sub(*at));
        let idle = idle.map(|idle| u64::try_from(idle.as_millis()).unwrap());
        let report = Report {
            sequence: agent.sequence,
            guest_idle_ms: report.guest_idle_ms.or(idle),
            empty: agent.closed && !inhabited,
            ..report
        };
        self.say(birth, agent_message::Message::Report(report));
    }

    /// A full smoothing window of a busy reception: before it a worker counts as room (G1).
    pub(super) fn saturate(&mut self) {
        self.reports(&[0.9]);
        self.reports(&[0.9]);
    }

    pub(super) fn has_users(&self, birth: Birth) -> bool {
        let pool = self.commander.pool_of_worker(birth);
        pool.is_some_and(|pool| self.commander.pools[&pool].surface.count(birth) > 0)
    }

    pub(super) fn login(&mut self, user: &str, client: u8, at: Birth) -> Placed {
        self.requests += 1;
        let (request, client) = (self.requests, ClientId([client; 16]).to_string());
        let place = Place {
            request,
            user: user.into(),
            client: client.clone(),
            birth: at.0,
            group: String::new(),
        };
        self.gateway_says(0, gateway_message::Message::Place(place));
        let placed = self.gateways[0]
            .told
            .iter()
            .rev()
            .find_map(|command| match command {
                gateway_command::Command::Placed(placed) if placed.request == request => Some(placed.clone()),
                _ => None,
            });
        let placed = placed.expect("a login is answered");
        if placed.move_follows || placed.join_follows {
            self.gateway_says(
                0,
                gateway_message::Message::Quiet(Quiet {
                    user: user.into(),
                    client,
                }),
            );
        }
        placed
    }

    pub(super) fn owner(&self, user: &str) -> Option<(Birth, Epoch)> {
        let user = UserId::new(user).unwrap();
        self.commander.pools[&pool()]
            .surface
            .get(&user)
            .map(|resident| (resident.owner, resident.epoch))
    }

    pub(super) fn births(&self) -> Vec<Birth> {
        self.births_of(&group())
    }

    pub(super) fn births_of(&self, group: &ObjectKey) -> Vec<Birth> {
        self.commander.groups[group]
            .engine
            .workers()
            .map(|worker| worker.birth)
            .collect()
    }

    /// What the group's engine sees of a worker.
    pub(super) fn view(&self, birth: Birth) -> &WorkerView {
        self.commander.groups[&group()]
            .engine
            .get(birth)
            .expect("a worker")
    }

    /// Workers that are being emptied.
    pub(super) fn drained(&self) -> Vec<Birth> {
        let drains = self.commander.groups[&group()].engine.drains();
        drains.map(|(worker, _)| worker.birth).collect()
    }

    /// Status and reason of a condition.
    pub(super) fn condition(&self, kind: &str) -> (Option<bool>, String) {
        let conditions = &self.orders.views[&group()].conditions;
        let found = conditions.iter().find(|condition| condition.kind == kind);
        found.map_or((None, "absent".to_owned()), |found| {
            (found.status, found.reason.clone())
        })
    }

    /// How often a decision was told of the last ten.
    pub(super) fn told(&self, action: &str) -> usize {
        let notes = &self.orders.views[&group()].decisions;
        notes.iter().filter(|note| note.action == action).count()
    }

    /// Users lost by this cause.
    pub(super) fn lost(&self, cause: &str) -> u64 {
        self.commander.metrics.lost(cause)
    }

    /// The manifest as it is now, changed.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut GroupSpec)) {
        let mut spec = self.commander.groups[&group()].spec.clone();
        change(&mut spec);
        self.fact(Fact::Group(Box::new(spec)));
    }

    /// `count` routable workers, each as full as `cpu` says, all of them known for longer than a smoothing window.
    pub(super) fn with_workers(spec: GroupSpec, cpu: &[f64]) -> Self {
        let (min, max) = (spec.min, spec.max);
        let mut world = Self::serving_with(GroupSpec {
            min: u32::try_from(cpu.len()).unwrap(),
            max: None,
            ..spec
        });
        world.make_wanted();
        world.reports(cpu);
        world.reports(cpu);
        world.change(|spec| (spec.min, spec.max) = (min, max));
        world
    }

    pub(super) fn retired(&self) -> Vec<Birth> {
        self.orders.desired[&group()]
            .retire
            .iter()
            .map(|(birth, _)| *birth)
            .collect()
    }

    pub(super) fn owned(&self, user: &str, birth: Birth, epoch: u64) -> Claim {
        let pod = self.keys.ticket.for_pod(&format!("uid-{}", birth.0));
        Claim {
            user: user.into(),
            epoch,
            state: claim::State::Owned.into(),
            ticket: pod.ticket(user, Epoch(epoch)),
            ..Claim::default()
        }
    }

    pub(super) fn full_table(&self, index: usize) -> &Table {
        let full = |command: &'_ gateway_command::Command| matches!(command, gateway_command::Command::Table(table) if table.full);
        match self.gateways[index].told.iter().find(|command| full(command)) {
            Some(gateway_command::Command::Table(table)) => table,
            _ => panic!("a gateway gets a full table"),
        }
    }
}
