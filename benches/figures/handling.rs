//! What one report costs the commander, from its arrival as an event to the last order that follows: archive, engine, tables, orders.
//!
//! The commander alone, in this thread, with one group of 1,000 and of 10,000 workers; the cost must not grow with the group.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use elastic_pool::channel::PROTOCOL;
use elastic_pool::channel::proto::{AgentCommand, AgentHello, AgentMessage, Report, agent_message};
use elastic_pool::channel::server::{ChannelEvent, ConnectionId, PeerIdentity};
use elastic_pool::clock::Clock;
use elastic_pool::commander::{Commander, Event};
use elastic_pool::credentials::Key;
use elastic_pool::engine::ids::{Birth, Term};
use elastic_pool::metrics::Metrics;
use elastic_pool::vehicle::{Fact, GroupSpec, PoolKeys, WorkerFact};
use tokio::sync::mpsc;

use crate::decision;
use crate::figure;

const SIZES: [u32; 2] = [1_000, 10_000];
/// Reports before the first that is measured: every window of the six smoothing rows is full.
const WARM_UP: u64 = 7;
/// Reports of each worker that are measured.
const MEASURED: u64 = 5;

/// Prints the figures.
pub(crate) fn measure() -> anyhow::Result<()> {
    for size in SIZES {
        let mut fleet = Fleet::start(size)?;
        for round in 1..=WARM_UP {
            fleet.round(round);
        }
        let mut clocked = Duration::ZERO;
        for round in 1..=MEASURED {
            clocked += fleet.round(WARM_UP + round);
        }
        let reports = MEASURED * u64::from(size);
        let mean = clocked.as_secs_f64() * 1e6 / reports as f64;
        figure(&format!("report_handling_us_{size}"), mean, "us");
        figure(&format!("tick_us_{size}"), fleet.tick().as_secs_f64() * 1e6, "us");
    }
    Ok(())
}

/// A commander and as many connected workers as its group wants.
struct Fleet {
    commander: Commander,
    clock: Clock,
    now: Duration,
    connections: Vec<ConnectionId>,
    /// Kept: an agent whose stream ends is disconnected.
    agents: Vec<mpsc::Receiver<AgentCommand>>,
}

impl Fleet {
    fn start(size: u32) -> anyhow::Result<Self> {
        let now = Duration::from_secs(1);
        let mut fleet = Self {
            commander: Commander::new(Term(1), Arc::new(Metrics::new()?), now),
            clock: Clock::start(),
            now,
            connections: Vec::new(),
            agents: Vec::new(),
        };
        let spec = GroupSpec {
            min: size,
            smoothing_rows: 6,
            ..decision::spec()?
        };
        let (group, keys) = (
            spec.key.clone(),
            PoolKeys {
                pool: Key::random()?,
                ticket: Key::random()?,
            },
        );
        let facts = [
            Fact::Keys(spec.pool.clone(), keys),
            Fact::Group(Box::new(spec)),
            Fact::Synced,
        ];
        for fact in facts {
            fleet.commander.handle(Event::Fact(fact), now);
        }
        let orders = fleet.commander.take_orders().context("no orders")?;
        let wanted = &orders.desired.get(&group).context("no group")?.spawn;
        ensure!(
            wanted.len() == size as usize,
            "{} workers are wanted",
            wanted.len()
        );
        for birth in wanted {
            let fact = decision::fact(&group, *birth);
            fleet.welcome(&fact);
        }
        Ok(fleet)
    }

    fn welcome(&mut self, fact: &WorkerFact) {
        let Birth(number) = fact.birth;
        let connection = ConnectionId(number);
        let hello = AgentHello {
            protocol: PROTOCOL,
            pod_uid: fact.pod_uid.clone(),
            incarnation: fact.pod_uid.clone(),
            app_instance: fact.pod_uid.clone(),
            contract: true,
            capabilities: vec!["snapshot".to_owned()],
            ..AgentHello::default()
        };
        let identity = PeerIdentity {
            namespace: fact.group.namespace.clone(),
            pod_name: fact.name.clone(),
            pod_uid: fact.pod_uid.clone(),
            service_account: "default".to_owned(),
        };
        let (commands, agent) = mpsc::channel(64);
        self.connections.push(connection);
        self.agents.push(agent);
        self.commander
            .handle(Event::Fact(Fact::Worker(Box::new(fact.clone()))), self.now);
        let up = ChannelEvent::AgentUp {
            connection,
            identity,
            hello: Box::new(hello),
            commands,
        };
        self.commander.handle(Event::Channel(up), self.now);
    }

    /// One report of every worker, 5 s after the last, all a little different; the time that handling them took.
    fn round(&mut self, sequence: u64) -> Duration {
        self.now += Duration::from_secs(5);
        let mut clocked = Duration::ZERO;
        for (index, connection) in self.connections.iter().enumerate() {
            let load = 0.3 + 0.01 * ((index as u64 + sequence) % 17) as f64;
            let report = Report {
                sequence,
                users: Some(100.0),
                cpu: Some(load),
                rss: Some(1e8),
                ..Report::default()
            };
            let message = AgentMessage {
                message: Some(agent_message::Message::Report(report)),
            };
            let event = Event::Channel(ChannelEvent::Agent(*connection, Box::new(message)));
            let began = self.clock.now();
            self.commander.handle(event, self.now);
            drop(self.commander.take_orders());
            clocked += self.clock.now().saturating_sub(began);
        }
        clocked
    }

    /// The longest of 20 ticks, one of which brings the figures of the whole group up to date.
    fn tick(&mut self) -> Duration {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            self.now += Duration::from_millis(100);
            let began = self.clock.now();
            self.commander.handle(Event::Tick, self.now);
            longest = longest.max(self.clock.now().saturating_sub(began));
        }
        longest
    }
}
