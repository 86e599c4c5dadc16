//! The commander against scripted agents and gateways: whole scenarios, time as an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, Term, UserId};
use tokio::sync::mpsc;

use super::{Commander, Event};
use crate::channel::proto::{
    Ack, AgentCommand, AgentHello, AgentMessage, Claim, GatewayCommand, GatewayHello, GatewayMessage, Held,
    Nack, Package, Place, Placed, Quiet, Report, Table, UserBorn, agent_command, agent_message, claim, found,
    gateway_command, gateway_message, nack,
};
use crate::channel::server::{ChannelEvent, ConnectionId, PeerIdentity};
use crate::credentials::Key;
use crate::metrics::Metrics;
use crate::vehicle::{Fact, GroupSpec, Mode, ObjectKey, Orders, PoolKeys, WorkerFact};

mod deposits;
mod recovery;

fn pool() -> ObjectKey {
    ObjectKey {
        namespace: "test".into(),
        name: "shop".into(),
    }
}

fn group() -> ObjectKey {
    ObjectKey {
        namespace: "test".into(),
        name: "shop-blue".into(),
    }
}

fn spec() -> GroupSpec {
    GroupSpec {
        key: group(),
        uid: "group-uid".into(),
        pool: pool(),
        version: "blue".into(),
        generation: 1,
        default_group: true,
        mode: Mode::Active,
        session_users: false,
        session_timeout: Duration::from_mins(30),
        min: 1,
        max: Some(4),
        max_surge: 1,
        spawn_timeout: Duration::from_mins(2),
        reception_threshold: 0.5,
        admission_threshold: 0.8,
        margin_workers: 1.5,
        smoothing_rows: 2,
        memory_limit: None,
        cpu_capacity: 1.0,
        interval: Duration::from_secs(5),
        dead_timeout: Duration::from_mins(1),
        live_moves: true,
        hold_timeout: Duration::from_secs(5),
        quiesce_timeout: Duration::from_secs(2),
        drain_timeout: Duration::from_mins(2),
        max_package: 1 << 24,
        parallelism: 2,
        close_streams: true,
        template_hash: "t1".into(),
    }
}

/// A scripted agent: acknowledges what it is told, unless told not to.
struct FakeAgent {
    connection: ConnectionId,
    commands: mpsc::Receiver<AgentCommand>,
    sequence: u64,
    told: Vec<agent_command::Command>,
    deaf: bool,
    nack_snapshots: bool,
    closed: bool,
}

struct FakeGateway {
    connection: ConnectionId,
    commands: mpsc::Receiver<GatewayCommand>,
    told: Vec<gateway_command::Command>,
}

/// One commander and its world.
struct World {
    commander: Commander,
    now: Duration,
    keys: PoolKeys,
    agents: BTreeMap<Birth, FakeAgent>,
    gateways: Vec<FakeGateway>,
    connections: u64,
    orders: Orders,
    requests: u64,
}

impl World {
    fn new(term: u64, spec: GroupSpec) -> Self {
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
            orders: Orders::default(),
            requests: 0,
        };
        world.fact(Fact::Group(Box::new(spec)));
        world.fact(Fact::Keys(pool(), keys));
        world
    }

    /// A world that is synced, with its first worker routable and one gateway.
    fn serving() -> Self {
        Self::serving_with(spec())
    }

    fn serving_with(spec: GroupSpec) -> Self {
        let mut world = Self::new(1, spec);
        world.fact(Fact::Synced);
        world.gateway();
        world.make_wanted();
        world
    }

    fn event(&mut self, event: Event) {
        self.commander.handle(event, self.now);
        self.answer();
        if let Some(orders) = self.commander.take_orders() {
            self.orders = orders;
        }
    }

    fn fact(&mut self, fact: Fact) {
        self.event(Event::Fact(fact));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.event(Event::Tick);
        }
    }

    fn connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId(self.connections)
    }

    fn gateway(&mut self) -> usize {
        self.gateway_that_knows(Vec::new())
    }

    fn gateway_that_knows(&mut self, users: Vec<crate::channel::proto::Ownership>) -> usize {
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

    fn fact_of(birth: Birth) -> WorkerFact {
        WorkerFact {
            birth,
            group: group(),
            name: format!("shop-blue-{}", birth.0 & 0xff),
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
            must_go: false,
        }
    }

    /// Makes every wanted worker: a pod, then its agent's Hello.
    fn make_wanted(&mut self) -> Vec<Birth> {
        let wanted = self
            .orders
            .desired
            .get(&group())
            .map(|desired| desired.spawn.clone())
            .unwrap_or_default();
        for birth in &wanted {
            self.fact(Fact::Worker(Box::new(World::fact_of(*birth))));
            self.hello(*birth, Vec::new());
        }
        wanted
    }

    fn hello(&mut self, birth: Birth, users: Vec<Claim>) {
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
            app_instance: format!("app-{}", birth.0),
            contract: true,
            users,
            ..AgentHello::default()
        };
        let agent = FakeAgent {
            connection,
            commands,
            sequence: 0,
            told: Vec::new(),
            deaf: false,
            nack_snapshots: false,
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

    fn say(&mut self, birth: Birth, message: agent_message::Message) {
        let connection = self.agents[&birth].connection;
        let message = Box::new(AgentMessage {
            message: Some(message),
        });
        self.event(Event::Channel(ChannelEvent::Agent(connection, message)));
    }

    fn gateway_says(&mut self, index: usize, message: gateway_message::Message) {
        let connection = self.gateways[index].connection;
        let message = Box::new(GatewayMessage {
            message: Some(message),
        });
        self.event(Event::Channel(ChannelEvent::Gateway(connection, message)));
    }

    /// One report of every worker; `cpu` in its order of birth, the last for all further ones.
    fn reports(&mut self, cpu: &[f64]) {
        self.pass(Duration::from_secs(5));
        let births: Vec<Birth> = self.agents.keys().copied().collect();
        for (index, birth) in births.iter().enumerate() {
            let cpu = cpu.get(index).or(cpu.last()).copied();
            let Some(agent) = self.agents.get_mut(birth) else {
                continue;
            };
            agent.sequence += 1;
            let empty = agent.closed && !self.has_users(*birth);
            let Some(agent) = self.agents.get_mut(birth) else {
                continue;
            };
            let report = Report {
                sequence: agent.sequence,
                cpu,
                empty,
                ..Report::default()
            };
            self.say(*birth, agent_message::Message::Report(report));
        }
    }

    /// A full smoothing window of a busy reception: before it a worker counts as room (G1).
    fn saturate(&mut self) {
        self.reports(&[0.9]);
        self.reports(&[0.9]);
    }

    fn has_users(&self, birth: Birth) -> bool {
        self.commander.pools[&pool()].surface.count(birth) > 0
    }

    /// Lets agents and gateways answer until nobody says anything more.
    fn answer(&mut self) {
        loop {
            let mut said = Vec::new();
            for agent in self.agents.values_mut() {
                while let Ok(AgentCommand {
                    id,
                    command: Some(command),
                }) = agent.commands.try_recv()
                {
                    if let agent_command::Command::Admission(admission) = &command {
                        agent.closed = !admission.open;
                    }
                    let snapshot = matches!(command, agent_command::Command::Snapshot(_));
                    agent.told.push(command);
                    if id == 0 || agent.deaf {
                        continue;
                    }
                    let message = if snapshot && agent.nack_snapshots {
                        agent_message::Message::Nack(Nack {
                            id,
                            reason: nack::Reason::Busy.into(),
                            message: String::new(),
                        })
                    } else {
                        let package = snapshot.then(Package::default);
                        agent_message::Message::Ack(Ack { id, package })
                    };
                    let message = Box::new(AgentMessage {
                        message: Some(message),
                    });
                    said.push(Event::Channel(ChannelEvent::Agent(agent.connection, message)));
                }
            }
            for gateway in &mut self.gateways {
                while let Ok(GatewayCommand {
                    command: Some(command),
                }) = gateway.commands.try_recv()
                {
                    if let gateway_command::Command::Hold(hold) = &command {
                        let held = gateway_message::Message::Held(Held { r#move: hold.r#move });
                        let message = Box::new(GatewayMessage { message: Some(held) });
                        said.push(Event::Channel(ChannelEvent::Gateway(gateway.connection, message)));
                    }
                    gateway.told.push(command);
                }
            }
            if said.is_empty() {
                return;
            }
            for event in said {
                self.commander.handle(event, self.now);
            }
        }
    }

    fn login(&mut self, user: &str, client: u8, at: Birth) -> Placed {
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

    fn owner(&self, user: &str) -> Option<(Birth, Epoch)> {
        let user = UserId::new(user).unwrap();
        self.commander.pools[&pool()]
            .surface
            .get(&user)
            .map(|resident| (resident.owner, resident.epoch))
    }

    fn births(&self) -> Vec<Birth> {
        self.commander.groups[&group()]
            .engine
            .workers()
            .map(|worker| worker.birth)
            .collect()
    }

    fn retired(&self) -> Vec<Birth> {
        self.orders.desired[&group()]
            .retire
            .iter()
            .map(|(birth, _)| *birth)
            .collect()
    }

    fn owned(&self, user: &str, birth: Birth, epoch: u64) -> Claim {
        let pod = self.keys.ticket.for_pod(&format!("uid-{}", birth.0));
        Claim {
            user: user.into(),
            epoch,
            state: claim::State::Owned.into(),
            ticket: pod.ticket(user, Epoch(epoch)),
            ..Claim::default()
        }
    }

    fn full_table(&self, index: usize) -> &Table {
        let full = |command: &'_ gateway_command::Command| matches!(command, gateway_command::Command::Table(table) if table.full);
        match self.gateways[index].told.iter().find(|command| full(command)) {
            Some(gateway_command::Command::Table(table)) => table,
            _ => panic!("a gateway gets a full table"),
        }
    }
}

#[test]
fn the_floor_is_made_at_once_and_each_birth_is_asked_for_once() {
    let mut world = World::new(1, spec());
    world.fact(Fact::Synced);
    let first = world.orders.desired[&group()].spawn.clone();
    assert_eq!(first.len(), 1);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.orders.desired[&group()].spawn, first);
    world.make_wanted();
    assert!(world.orders.desired[&group()].spawn.is_empty());
    assert_eq!(world.orders.views[&group()].ready_workers, 1);
}

#[test]
fn nothing_is_decided_before_the_vehicle_has_told_all() {
    let mut world = World::new(1, spec());
    world.pass(Duration::from_secs(30));
    assert!(
        world
            .orders
            .desired
            .get(&group())
            .is_none_or(|desired| desired.spawn.is_empty())
    );
}

#[test]
fn a_login_is_kept_by_the_reception_below_its_threshold() {
    let mut world = World::serving();
    let reception = world.births()[0];
    let placed = world.login("alice", 1, reception);
    assert!(!placed.move_follows);
    assert_eq!(placed.user.unwrap().birth, reception.0);
    assert_eq!(world.owner("alice").unwrap().0, reception);
}

#[test]
fn a_full_reception_spawns_and_passes_the_next_login_live() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    assert_eq!(
        world.orders.desired[&group()].spawn.len(),
        1,
        "growth on measured occupancy"
    );
    let made = world.make_wanted();
    let placed = world.login("alice", 1, reception);
    assert!(placed.move_follows);
    assert_eq!(
        placed.user.unwrap().birth,
        reception.0,
        "he is served where he logged in until his move"
    );
    assert_eq!(world.owner("alice").unwrap().0, made[0]);
    let told = &world.agents[&reception].told;
    assert!(
        told.iter()
            .any(|command| matches!(command, agent_command::Command::Forget(_)))
    );
}

#[test]
fn the_least_occupied_worker_is_emptied_by_moves_and_then_retired() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    for (number, user) in ["alice", "bob", "carol"].iter().enumerate() {
        world.login(user, u8::try_from(number).unwrap(), reception);
    }
    assert_eq!(world.commander.pools[&pool()].surface.count(second), 3);
    for _ in 0..8 {
        world.reports(&[0.02, 0.01]);
    }
    assert_eq!(world.commander.pools[&pool()].surface.count(second), 0);
    assert_eq!(world.owner("alice").unwrap().0, reception);
    assert_eq!(world.retired(), [second]);
    world.fact(Fact::WorkerGone(second));
    assert_eq!(world.births(), [reception]);
    assert!(world.retired().is_empty());
}

#[test]
fn an_aborted_move_leaves_its_user_where_he_was_under_a_higher_epoch() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    world.make_wanted();
    world.agents.get_mut(&reception).unwrap().nack_snapshots = true;
    world.login("alice", 1, reception);
    let (owner, epoch) = world.owner("alice").unwrap();
    assert_eq!(owner, reception);
    let cancelled = world.gateways[0]
        .told
        .iter()
        .rev()
        .find_map(|command| match command {
            gateway_command::Command::Cancel(cancel) => cancel.user.clone(),
            _ => None,
        });
    assert_eq!(
        cancelled.map(|user| (user.birth, user.epoch)),
        Some((reception.0, epoch.0))
    );
    assert!(world.commander.operations.active.is_empty());
}

#[test]
fn a_second_browser_is_joined_to_where_its_user_lives() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    world.login("alice", 1, reception);
    let before = world.owner("alice").unwrap();
    assert_eq!(before.0, second);
    let placed = world.login("alice", 2, reception);
    assert!(placed.join_follows);
    assert_eq!(
        world.owner("alice").unwrap(),
        before,
        "a join changes neither owner nor epoch"
    );
    let user = UserId::new("alice").unwrap();
    assert_eq!(
        world.commander.pools[&pool()].surface.user_of(ClientId([2; 16])),
        Some(&user)
    );
    let forgot = |command: &agent_command::Command| matches!(command, agent_command::Command::Forget(_));
    assert_eq!(
        world.agents[&reception]
            .told
            .iter()
            .filter(|command| forgot(command))
            .count(),
        2
    );
}

#[test]
fn a_worker_without_fresh_reports_is_never_compacted() {
    let mut world = World::serving();
    world.saturate();
    world.make_wanted();
    world.reports(&[0.4, 0.4]);
    world.reports(&[0.4, 0.4]);
    let second = world.births()[1];
    let deaf = world.agents.remove(&second).unwrap();
    for _ in 0..8 {
        world.reports(&[0.0]);
    }
    assert_eq!(world.commander.groups[&group()].engine.drains().count(), 0);
    let fresh = world.orders.views[&group()]
        .conditions
        .iter()
        .find(|condition| condition.kind == "ReportsFresh");
    assert_eq!(fresh.unwrap().reason, "Stale");
    drop(deaf);
}

#[test]
fn impossible_readings_are_shown_and_never_become_numbers() {
    let mut world = World::serving();
    for bad in [f64::NAN, -1.0, f64::INFINITY, 1e300] {
        world.reports(&[bad]);
        let view = &world.orders.views[&group()];
        let fresh = view
            .conditions
            .iter()
            .find(|condition| condition.kind == "ReportsFresh")
            .unwrap();
        assert_eq!(
            (fresh.status, fresh.reason.as_str()),
            (Some(false), "ImpossibleReadings")
        );
        assert_eq!(view.occupied_points, 0);
        assert!(world.orders.desired[&group()].spawn.is_empty());
    }
}

#[test]
fn a_new_leader_relearns_users_from_agents_and_compacts_nobody_on_empty_windows() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    let epoch = Term(3).number(9);
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    let gateway = world.gateway();
    assert!(!world.full_table(gateway).live);
    world.hello(first, vec![world.owned("alice", first, epoch)]);
    assert!(world.owner("alice").is_none(), "not before every pod has spoken");
    world.hello(second, vec![world.owned("bob", second, epoch + 1)]);
    assert_eq!(world.owner("alice"), Some((first, Epoch(epoch))));
    assert_eq!(world.owner("bob"), Some((second, Epoch(epoch + 1))));
    world.pass(Duration::from_secs(10));
    assert!(
        world.orders.desired[&group()].spawn.is_empty(),
        "nobody is spawned beside living workers"
    );
    assert!(world.retired().is_empty());
    world.reports(&[0.0, 0.0]);
    assert_eq!(
        world.commander.groups[&group()].engine.drains().count(),
        0,
        "E5: one row is no window"
    );
}

#[test]
fn a_forged_ticket_makes_a_claim_provisional() {
    let mut world = World::new(7, spec());
    let first = Birth(Term(3).number(1));
    world.fact(Fact::Worker(Box::new(World::fact_of(first))));
    world.fact(Fact::Synced);
    let mut claim = world.owned("alice", first, Term(3).number(9));
    claim.ticket = "00".repeat(32);
    world.hello(first, vec![claim]);
    let (owner, epoch) = world.owner("alice").unwrap();
    assert_eq!(owner, first);
    assert_eq!(epoch.term(), Term(7), "granted anew by this leader");
}

#[test]
fn a_new_leader_joins_a_slice_that_nobody_granted_to_its_owner() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    world.gateway();
    world.hello(first, vec![world.owned("alice", first, Term(3).number(9))]);
    let slice = Claim {
        user: "alice".into(),
        state: claim::State::Provisional.into(),
        clients: vec![ClientId([8; 16]).to_string()],
        ..Claim::default()
    };
    world.hello(second, vec![slice]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(first));
    let joined = |command: &agent_command::Command| matches!(command, agent_command::Command::Snapshot(snapshot) if snapshot.join);
    assert!(
        world.agents[&second].told.iter().any(joined),
        "the slice is asked for"
    );
}

#[test]
fn an_agent_of_a_foreign_pod_is_refused() {
    let mut world = World::serving();
    let before = world.commander.agents.len();
    world.hello(Birth(999), Vec::new());
    assert_eq!(world.commander.agents.len(), before);
    assert!(world.agents[&Birth(999)].told.is_empty());
}

#[test]
fn a_dead_workers_users_are_swept_and_it_is_replaced() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    world.fact(Fact::WorkerGone(reception));
    world.agents.remove(&reception);
    assert_eq!(world.owner("alice"), None);
    assert_eq!(
        world.orders.desired[&group()].spawn.len(),
        1,
        "G5: fewer than min are replaced at once"
    );
    assert_ne!(
        world.orders.desired[&group()].spawn,
        [reception],
        "a birth number is never used twice"
    );
}

#[test]
fn a_restarted_app_holds_nobody() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    let connection = world.connection();
    let (commands, _kept) = mpsc::channel(64);
    let identity = PeerIdentity {
        namespace: "test".into(),
        pod_name: "pod".into(),
        pod_uid: format!("uid-{}", reception.0),
        service_account: "default".into(),
    };
    let hello = AgentHello {
        protocol: 1,
        pod_uid: identity.pod_uid.clone(),
        incarnation: "other".into(),
        app_instance: "another process".into(),
        ..AgentHello::default()
    };
    let up = ChannelEvent::AgentUp {
        connection,
        identity,
        hello: Box::new(hello),
        commands,
    };
    world.event(Event::Channel(up));
    assert_eq!(world.owner("alice"), None);
}

#[test]
fn a_user_whom_no_gateway_placed_is_granted_where_he_is() {
    let mut world = World::serving();
    let reception = world.births()[0];
    let client = ClientId([4; 16]).to_string();
    world.say(
        reception,
        agent_message::Message::UserBorn(UserBorn {
            user: "alice".into(),
            client,
        }),
    );
    assert_eq!(world.owner("alice"), None);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(reception));
}

#[test]
fn a_look_up_says_gone_only_of_those_who_live_nowhere() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    for (user, expected) in [("alice", found::Verdict::Owned), ("nobody", found::Verdict::Gone)] {
        world.requests += 1;
        let request = world.requests;
        let question = crate::channel::proto::LookUp {
            request,
            user: user.into(),
            client: String::new(),
            epoch: 1,
        };
        world.gateway_says(0, gateway_message::Message::LookUp(question));
        let verdict = world.gateways[0]
            .told
            .iter()
            .rev()
            .find_map(|command| match command {
                gateway_command::Command::Found(found) if found.request == request => Some(found.verdict()),
                _ => None,
            });
        assert_eq!(verdict, Some(expected), "{user}");
    }
}

#[test]
fn a_gateway_that_connects_in_a_move_holds_too() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    world.make_wanted();
    world.agents.get_mut(&reception).unwrap().deaf = true;
    world.login("alice", 1, reception);
    let late = world.gateway();
    let held = world.gateways[late]
        .told
        .iter()
        .any(|command| matches!(command, gateway_command::Command::Hold(_)));
    assert!(held);
}
