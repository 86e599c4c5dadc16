//! The operator: stands for election, serves the channel, and runs commander and controller while it leads.
//!
//! A process leads once: when its leadership or term ends it exits, and the kubelet starts another.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elastic_pool_engine::ids::Term;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::channel::server::{AuthError, Authenticator, ChannelEvent, PeerIdentity, Server};
use crate::channel::{LeaderState, gateway_account};
use crate::clock::Clock;
use crate::commander::{self, CommanderHandle, DecisionSink};
use crate::controller::auth::TokenReviewer;
use crate::controller::build::OperatorEnv;
use crate::controller::leader::{Elector, LeaderConfig, Leadership};
use crate::controller::roster::{Role, Roster};
use crate::controller::{self, ControllerConfig, Heartbeat};
use crate::credentials::{hex_encode, random_bytes};
use crate::decisions;
use crate::metrics::Metrics;
use crate::monitor::{self, Monitor};
use crate::net::TcpListener;
use crate::vehicle::Orders;

/// Facts and channel events that may wait.
const QUEUE: usize = 4096;
/// Moves under way get this long to end before a leader that is told to stop hands over.
const HANDOVER: Duration = Duration::from_secs(5);

/// Flags of `elastic-pool operator`; the chart sets them by environment.
#[derive(Debug, Clone, clap::Args)]
pub struct OperatorArgs {
    /// Which PoolGroups and Pools this operator serves: those whose spec.class is this.
    #[arg(long, env = "ELASTIC_POOL_CLASS", default_value = "default")]
    class: String,
    /// Namespaces to watch, comma separated; empty: all.
    #[arg(
        long,
        env = "ELASTIC_POOL_WATCH_NAMESPACES",
        value_delimiter = ',',
        default_value = ""
    )]
    watch_namespaces: Vec<String>,
    /// Name of the Lease in this pod's namespace.
    #[arg(long, env = "ELASTIC_POOL_LEASE", default_value = "elastic-pool")]
    lease: String,
    /// host:port under which agents and gateways dial the channel.
    #[arg(long, env = "ELASTIC_POOL_CHANNEL")]
    channel: String,
    /// Port of the channel.
    #[arg(long, env = "ELASTIC_POOL_CHANNEL_PORT", default_value_t = 7443)]
    channel_port: u16,
    /// Port of metrics and probes.
    #[arg(long, env = "ELASTIC_POOL_METRICS_PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Port of the monitor, on loopback.
    #[arg(long, env = "ELASTIC_POOL_MONITOR_PORT", default_value_t = 7070)]
    monitor_port: u16,
    /// Folder in which every decision is saved as JSON lines, a file for each group, at most 80 MiB of them.
    #[arg(long, env = "ELASTIC_POOL_SAVE_DECISIONS")]
    save_decisions: Option<PathBuf>,
    /// Image of agents and gateways: the operator's own.
    #[arg(long, env = "ELASTIC_POOL_IMAGE")]
    image: String,
    /// imagePullPolicy of agents and gateways.
    #[arg(long, env = "ELASTIC_POOL_PULL_POLICY", default_value = "IfNotPresent")]
    pull_policy: String,
    /// imagePullSecrets of agents and gateways, as JSON.
    #[arg(long, env = "ELASTIC_POOL_PULL_SECRETS", default_value = "[]")]
    pull_secrets: String,
    /// Resources of agents, as JSON.
    #[arg(long, env = "ELASTIC_POOL_AGENT_RESOURCES", default_value = "")]
    agent_resources: String,
    /// Resources of gateways, as JSON.
    #[arg(long, env = "ELASTIC_POOL_GATEWAY_RESOURCES", default_value = "")]
    gateway_resources: String,
    /// This pod's name.
    #[arg(long, env = "POD_NAME")]
    pod_name: String,
    /// This pod's namespace.
    #[arg(long, env = "POD_NAMESPACE")]
    pod_namespace: String,
    /// This pod's UID.
    #[arg(long, env = "POD_UID")]
    pod_uid: String,
    /// This pod's address, told to peers that ask a follower.
    #[arg(long, env = "POD_IP")]
    pod_ip: IpAddr,
}

/// Runs until `told` to stop, or until its leadership ends. A leader ends the moves under way before it hands over.
pub async fn run(args: OperatorArgs, told: CancellationToken) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let env = environment(&args)?;
    let clock = Clock::start();
    let client = Client::try_default().await.context("find the Kubernetes API")?;
    let metrics = Arc::new(Metrics::new()?);
    let (show, commander) = watch::channel(None);
    tokio::spawn(hand_over(told, commander.clone(), stop.clone()));
    let monitored = Monitor {
        metrics: Arc::clone(&metrics),
        commander,
    };
    let (channel, any) = (listen(args.channel_port).await?, listen(args.metrics_port).await?);
    let loopback = TcpListener::bind(("127.0.0.1", args.monitor_port))
        .await
        .context("bind the monitor's port")?;
    tokio::spawn(monitor::serve_metrics(any, monitored.clone(), stop.clone()));
    tokio::spawn(monitor::serve_state(loopback, monitored, stop.clone()));

    let address = SocketAddr::new(args.pod_ip, args.channel_port).to_string();
    let nonce = hex_encode(&random_bytes::<8>()?);
    let mut config = LeaderConfig::new(&args.pod_namespace, &args.class, &args.pod_uid, &nonce, &address);
    config.name.clone_from(&args.lease);
    let (elector, leadership) = Elector::new(client.clone(), config, clock);
    let roster = Roster::default();
    let reviewer = Arc::new(KnownPods {
        reviewer: TokenReviewer::new(client.clone(), clock),
        roster: roster.clone(),
    });
    let (events, channel_events) = mpsc::channel(QUEUE);
    let raise = leadership.clone();
    let refusals = Arc::clone(&metrics);
    let server = Server::new(reviewer, leadership.watch(), events)
        .on_higher_term(move |term| raise.raise_term(term))
        .on_refused(move |reason| refusals.peer_refused(reason));
    tokio::spawn(server.serve(channel, stop.clone()));

    let controller = ControllerConfig {
        class: args.class.clone(),
        namespaces: args
            .watch_namespaces
            .iter()
            .filter(|name| !name.is_empty())
            .cloned()
            .collect(),
        env,
        instance: args.pod_name.clone(),
        roster,
        heartbeat: Heartbeat::new(clock),
    };
    let sink = match args.save_decisions.clone() {
        Some(folder) => Some(decisions::save_in(folder, Arc::clone(&metrics)).context("save decisions")?),
        None => None,
    };
    let lead = Lead {
        sink,
        client,
        controller,
        metrics,
        show,
        channel_events,
        clock,
    };
    let elected = elector.run(stop.clone());
    let leading = lead.when_elected(leadership, stop.clone());
    tokio::select! {
        ended = elected => ended.context("the election ended"),
        ended = leading => ended,
    }
}

/// Told to stop, cancels `stop` once no move is under way: a user in the midst of one would wait for the next leader.
async fn hand_over(
    told: CancellationToken,
    commander: watch::Receiver<Option<CommanderHandle>>,
    stop: CancellationToken,
) {
    told.cancelled().await;
    let leading = commander.borrow().clone();
    if let Some(commander) = leading
        && tokio::time::timeout(HANDOVER, commander.rest()).await.is_err()
    {
        tracing::warn!("moves are still under way, the next leader ends them");
    }
    stop.cancel();
}

/// Peers are pods that the controller knows: whoever shows a valid token and is no worker or gateway of ours is refused.
struct KnownPods {
    reviewer: TokenReviewer,
    roster: Roster,
}

impl Authenticator for KnownPods {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>> {
        async move {
            let identity = self.reviewer.authenticate(token).await?;
            // The account is taken from the role, so that a worker which runs under a gateway's account is no gateway.
            let service_account = match self.roster.role(&identity.namespace, &identity.pod_uid) {
                Some(Role::Gateway(pool)) => gateway_account(&pool.name),
                Some(Role::Worker(..)) => String::new(),
                None => return Err(AuthError::Refused),
            };
            Ok(PeerIdentity {
                service_account,
                ..identity
            })
        }
        .boxed()
    }
}

/// What a leader needs.
struct Lead {
    /// Where decisions are saved, if anywhere.
    sink: Option<DecisionSink>,
    client: Client,
    controller: ControllerConfig,
    metrics: Arc<Metrics>,
    show: watch::Sender<Option<CommanderHandle>>,
    channel_events: mpsc::Receiver<ChannelEvent>,
    clock: Clock,
}

impl Lead {
    /// Waits for the leadership, then leads until it ends.
    async fn when_elected(self, leadership: Leadership, stop: CancellationToken) -> anyhow::Result<()> {
        let mut state = leadership.watch();
        let Ok(term) = state
            .wait_for(|state| matches!(state, LeaderState::Leading { .. }))
            .await
            .map(|state| term(&state))
        else {
            return std::future::pending().await;
        };
        tracing::info!(%term, "this operator leads");
        self.metrics.set_leader(true);
        let (facts, fact_events) = mpsc::channel(QUEUE);
        let (orders, wanted) = watch::channel(Arc::new(Orders::default()));
        let handle = commander::start(
            term,
            self.channel_events,
            fact_events,
            orders,
            self.sink,
            Arc::clone(&self.metrics),
            stop.clone(),
        );
        self.show.send_replace(Some(handle));
        let controller = controller::run(
            self.client,
            self.controller,
            facts,
            wanted,
            leadership,
            self.clock,
            stop.clone(),
        );
        tokio::select! {
            ended = controller => {
                // Told to stop, its parts end in any order, and miss each other: what they say of it is no fault.
                if !stop.is_cancelled() {
                    ended.context("the controller ended")?;
                }
                // The election releases the lease and ends the process.
                std::future::pending().await
            }
            changed = state.wait_for(|state| !matches!(state, LeaderState::Leading { term: now } if *now == term)) => {
                if stop.is_cancelled() {
                    // The lease is being released: the election ends the process.
                    std::future::pending::<()>().await;
                }
                let now = changed.map_or(Term(0), |state| self::term(&state));
                bail!("term {term} is over, {now} is the present one: this process starts anew")
            }
        }
    }
}

fn term(state: &LeaderState) -> Term {
    match state {
        LeaderState::Leading { term } | LeaderState::Following { term, .. } => *term,
    }
}

/// Both address families, where the machine has both.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(("0.0.0.0", port))
            .await
            .with_context(|| format!("bind port {port}")),
    }
}

fn environment(args: &OperatorArgs) -> anyhow::Result<OperatorEnv> {
    fn json<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> anyhow::Result<T> {
        serde_json::from_str(text).with_context(|| format!("{name} is not the JSON it should be: {text}"))
    }
    let resources = |name: &str, text: &str| match text {
        "" | "null" | "{}" => Ok(None),
        text => json(name, text).map(Some),
    };
    Ok(OperatorEnv {
        image: args.image.clone(),
        pull_policy: args.pull_policy.clone(),
        pull_secrets: json("ELASTIC_POOL_PULL_SECRETS", &args.pull_secrets)?,
        channel: args.channel.clone(),
        agent_resources: resources("ELASTIC_POOL_AGENT_RESOURCES", &args.agent_resources)?,
        gateway_resources: resources("ELASTIC_POOL_GATEWAY_RESOURCES", &args.gateway_resources)?,
    })
}
