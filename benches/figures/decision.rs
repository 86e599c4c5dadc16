//! Decision latency: from the moment a report leaves an agent until the commander orders the worker that the report asks for.
//!
//! The real channel and commander in this process, scripted agents at the other end. Every new worker is as full as the others as
//! soon as it is there, so that its first report asks for the next one: the group grows to its largest by one worker a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use elastic_pool::channel::proto::channel_client::ChannelClient;
use elastic_pool::channel::proto::{AgentHello, AgentMessage, Report, agent_message};
use elastic_pool::channel::server::{AuthError, Authenticator, PeerIdentity, Server};
use elastic_pool::channel::{LeaderState, PROTOCOL};
use elastic_pool::clock::Clock;
use elastic_pool::commander;
use elastic_pool::credentials::Key;
use elastic_pool::engine::ids::{Birth, Term};
use elastic_pool::metrics::Metrics;
use elastic_pool::vehicle::{Fact, GroupSpec, ObjectKey, Orders, PoolKeys, WorkerFact};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::figure;
use crate::handling;
use crate::stats::percentile;

/// The group's size in the end; every worker but the first is a decision.
const WORKERS: usize = 201;
/// One decision takes at most this long.
const LIMIT: Duration = Duration::from_secs(5);
const MANIFEST: &str = "apiVersion: elasticpool.dev/v1alpha1
kind: PoolGroup
metadata: {name: bench-blue, namespace: bench}
spec:
  pool: bench
  runtime: {version: blue}
  workers: {min: 1, max: 10000}
  thresholds: {smoothingRows: 1, cpu: \"1\", memory: 1Gi}
  template:
    spec:
      containers:
        - {name: app, image: none, command: [none], ports: [{name: http, containerPort: 8080}]}
";

/// Takes the token for the pod's UID.
struct Trusting;

impl Authenticator for Trusting {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>> {
        let identity = PeerIdentity {
            namespace: "bench".to_owned(),
            pod_name: token.to_owned(),
            pod_uid: token.to_owned(),
            service_account: "default".to_owned(),
        };
        async move { Ok(identity) }.boxed()
    }
}

/// A commander with its channel, and the agents that were made so far.
struct World {
    group: ObjectKey,
    facts: mpsc::Sender<Fact>,
    wanted: watch::Receiver<Arc<Orders>>,
    channel: Channel,
    agents: BTreeMap<Birth, mpsc::Sender<AgentMessage>>,
    stop: CancellationToken,
}

/// Prints the figures.
pub(crate) async fn measure() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let result = world.grow().await;
    world.stop.cancel();
    let mut times = result?;
    for percent in [50, 99] {
        let time = percentile(&mut times, percent).context("no decision")?;
        figure(&format!("decision_latency_p{percent}_ms"), time, "ms");
    }
    let longest = percentile(&mut times, 100).unwrap_or_default();
    eprintln!(
        "decision: {} decisions in a group of 1 to {WORKERS} workers, longest {longest:.2} ms",
        times.len()
    );
    handling::measure()
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let (stop, term) = (CancellationToken::new(), Term(1));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port")?;
        let address = listener.local_addr()?;
        let (events, channel_events) = mpsc::channel(1024);
        let (_, leading) = watch::channel(LeaderState::Leading { term });
        tokio::spawn(Server::new(Arc::new(Trusting), leading, events).serve(listener, stop.clone()));
        let (facts, fact_events) = mpsc::channel(1024);
        let (orders, wanted) = watch::channel(Arc::default());
        let metrics = Arc::new(Metrics::new()?);
        commander::start(
            term,
            channel_events,
            fact_events,
            orders,
            None,
            metrics,
            stop.clone(),
        );
        let spec = spec()?;
        let keys = PoolKeys {
            pool: Key::random()?,
            ticket: Key::random()?,
        };
        let (group, pool) = (spec.key.clone(), spec.pool.clone());
        for fact in [Fact::Group(Box::new(spec)), Fact::Keys(pool, keys), Fact::Synced] {
            facts.send(fact).await?;
        }
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect()
            .await?;
        Ok(Self {
            group,
            facts,
            wanted,
            channel,
            agents: BTreeMap::new(),
            stop,
        })
    }

    /// Milliseconds of every decision.
    async fn grow(&mut self) -> anyhow::Result<Vec<f64>> {
        let (clock, mut times) = (Clock::start(), Vec::new());
        let mut births = self.next_births().await?;
        while self.agents.len() + births.len() < WORKERS {
            let mut began = clock.now();
            for birth in births {
                let agent = self.make(birth).await?;
                began = clock.now();
                agent.send(report()).await?;
            }
            births = self.next_births().await?;
            times.push(clock.now().saturating_sub(began).as_secs_f64() * 1000.0);
        }
        Ok(times)
    }

    /// Waits until workers are wanted that are not there yet.
    async fn next_births(&mut self) -> anyhow::Result<BTreeSet<Birth>> {
        let (group, agents) = (&self.group, &self.agents);
        let fresh = |orders: &Orders| -> BTreeSet<Birth> {
            let wanted = orders.desired.get(group).map(|desired| desired.spawn.as_slice());
            let wanted = wanted.unwrap_or_default().iter().copied();
            wanted.filter(|birth| !agents.contains_key(birth)).collect()
        };
        let some = self.wanted.wait_for(|orders| !fresh(orders).is_empty());
        let orders = tokio::time::timeout(LIMIT, some)
            .await
            .with_context(|| format!("{} full workers and no new one is ordered", agents.len()))??;
        Ok(fresh(&orders))
    }

    /// Makes a worker: its pod, then its agent's Hello; returns once it was welcomed.
    async fn make(&mut self, birth: Birth) -> anyhow::Result<mpsc::Sender<AgentMessage>> {
        let uid = format!("uid-{birth}");
        let fact = fact(&self.group, birth);
        self.facts.send(Fact::Worker(Box::new(fact))).await?;
        let (agent, messages) = mpsc::channel(16);
        let hello = AgentHello {
            protocol: PROTOCOL,
            pod_uid: uid.clone(),
            incarnation: uid.clone(),
            app_instance: uid.clone(),
            contract: true,
            capabilities: vec!["snapshot".to_owned()],
            ..AgentHello::default()
        };
        agent.send(message(agent_message::Message::Hello(hello))).await?;
        let mut request = Request::new(ReceiverStream::new(messages));
        let token = format!("Bearer {uid}").parse().context("token")?;
        request.metadata_mut().insert("authorization", token);
        let mut commands = ChannelClient::new(self.channel.clone())
            .agent(request)
            .await?
            .into_inner();
        commands.message().await?.context("not welcomed")?;
        tokio::spawn(async move { while let Ok(Some(_)) = commands.message().await {} });
        self.agents.insert(birth, agent.clone());
        Ok(agent)
    }
}

/// What every worker is made of.
const TEMPLATE: &str = "t1";

/// A pod that is ready.
pub(crate) fn fact(group: &ObjectKey, birth: Birth) -> WorkerFact {
    let uid = format!("uid-{birth}");
    WorkerFact {
        birth,
        group: group.clone(),
        name: uid.clone(),
        pod_uid: uid,
        ready: true,
        address: "127.0.0.1:1".to_owned(),
        peer: "127.0.0.1:1".to_owned(),
        terminating: false,
        finished: false,
        app_container_id: String::new(),
        app_restarts: 0,
        failure: None,
        template_hash: TEMPLATE.to_owned(),
        agent_hash: String::new(),
        must_go: false,
    }
}

pub(crate) fn spec() -> anyhow::Result<GroupSpec> {
    let manifests = elastic_pool::api::manifest::read(MANIFEST)?;
    let group = manifests.groups.first().context("no group")?;
    let spec = elastic_pool::api::resolve::group_spec(group, true)?;
    Ok(GroupSpec {
        template_hash: TEMPLATE.to_owned(),
        ..spec
    })
}

fn message(message: agent_message::Message) -> AgentMessage {
    AgentMessage {
        message: Some(message),
    }
}

/// A worker that is full.
fn report() -> AgentMessage {
    message(agent_message::Message::Report(Report {
        sequence: 1,
        users: Some(100.0),
        cpu: Some(0.95),
        rss: Some(1e8),
        ..Report::default()
    }))
}
