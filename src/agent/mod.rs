//! The agent: a sidecar in the request path of one worker; it fences, relays, measures and carries packages, and never judges.

mod app;
mod commander;
mod contract;
mod counters;
mod fence;
mod fence_file;
mod forward;
mod headers;
mod hop;
mod http_client;
mod listen;
mod loopback;
mod open;
mod outbox;
mod packages;
mod peer;
mod relay;
mod report;
mod sensor;
mod shared;
mod streams;
mod transfer;
mod unconfirmed;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::shared::Shared;
use crate::channel::link::{LinkConfig, Token};
use crate::credentials::{hex_encode, random_bytes};
use crate::net::TcpListener;

pub use self::fence_file::FenceFileError;

/// How the agent is told what it serves; every port 0 takes a free one.
#[derive(Debug, Clone, clap::Args)]
pub struct AgentArgs {
    /// host:port of the operator's channel.
    #[arg(long, env = "ELASTIC_POOL_CHANNEL")]
    pub channel: String,
    /// File with the projected service account token.
    #[arg(long, default_value = "/var/run/secrets/elasticpool.dev/token")]
    pub token_file: PathBuf,
    /// Traffic from gateways.
    #[arg(long, default_value = "0.0.0.0:15080")]
    pub listen: SocketAddr,
    /// Probes, preStop, packages and metrics.
    #[arg(long, default_value = "0.0.0.0:15081")]
    pub peer_listen: SocketAddr,
    /// Calls of the app.
    #[arg(long, default_value = "127.0.0.1:15082")]
    pub loopback_listen: SocketAddr,
    /// The app's port on loopback.
    #[arg(long)]
    pub app_port: u16,
    /// File in the volume shared with the app; the token of the worker contract is written there.
    #[arg(long, default_value = "/pool/token/token")]
    pub app_token_file: PathBuf,
    /// The agent's own memory volume.
    #[arg(long, default_value = "/pool/state")]
    pub state_dir: PathBuf,
    /// What the app speaks on its port.
    #[arg(long, value_enum, default_value = "http1")]
    pub app_protocol: AppProtocol,
    /// Whether the app may speak the worker contract.
    #[arg(long, value_enum, default_value = "auto")]
    pub contract: ContractMode,
    /// Loopback port of the worker contract; the app's port when absent.
    #[arg(long)]
    pub contract_port: Option<u16>,
    /// Name of the app's container, for the log.
    #[arg(long, default_value = "")]
    pub app_container: String,
    /// Measure this process and its descendants instead of a container.
    #[arg(long, conflicts_with = "app_pid_file")]
    pub app_pid: Option<u32>,
    /// As --app-pid, the number read from a file at each tick.
    #[arg(long)]
    pub app_pid_file: Option<PathBuf>,
    /// Measure nothing (the app's container shares no process namespace).
    #[arg(long)]
    pub no_sensor: bool,
    /// The pod's termination grace period in seconds; preStop waits at most this less 5 s.
    #[arg(long, default_value_t = 135)]
    pub drain_grace: u64,
    /// UID of this pod.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: String,
    /// Name of this pod; the worker's name until the commander says another.
    #[arg(long, env = "POD_NAME", default_value = "")]
    pub pod_name: String,
    /// Namespace of this pod, for the log.
    #[arg(long, env = "POD_NAMESPACE", default_value = "")]
    pub pod_namespace: String,
    /// Address of this pod, for the log.
    #[arg(long, env = "POD_IP", default_value = "")]
    pub pod_ip: String,
}

/// Does the app speak the worker contract?
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ContractMode {
    /// Ask it; a 404 means no.
    Auto,
    /// Never ask.
    None,
}

/// What an app speaks on its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AppProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
}

/// Whose processes are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measured {
    /// Nobody's.
    Nothing,
    /// The container that Welcome names, found in a shared process namespace.
    Container,
    /// This process and its descendants.
    Process(u32),
    /// As `Process`, the number read from a file.
    ProcessFile(PathBuf),
}

/// All that an [`Agent`] is told at its start.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Where the commander listens and what to show there.
    pub link: LinkConfig,
    /// Traffic port.
    pub listen: SocketAddr,
    /// Peer port.
    pub peer_listen: SocketAddr,
    /// Loopback port.
    pub loopback_listen: SocketAddr,
    /// Where the app listens.
    pub app: SocketAddr,
    /// What it speaks there.
    pub app_protocol: AppProtocol,
    /// Where the app answers the contract; `None`: it is never asked.
    pub contract: Option<SocketAddr>,
    /// Token for the app.
    pub app_token_file: PathBuf,
    /// Folder of the fence file.
    pub state_dir: PathBuf,
    /// UID of this pod.
    pub pod_uid: String,
    /// The worker's name until Welcome says another.
    pub worker: String,
    /// Whose processes are measured.
    pub measured: Measured,
    /// Where the processes are looked up; `/proc` but in tests.
    pub proc_root: PathBuf,
    /// Longest wait of `/drained`.
    pub drain_wait: Duration,
    /// How often the app is asked who lives there (L7).
    pub list_interval: Duration,
}

impl From<AgentArgs> for AgentConfig {
    fn from(args: AgentArgs) -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let measured = match (args.no_sensor, args.app_pid, args.app_pid_file) {
            (true, _, _) => Measured::Nothing,
            (_, Some(pid), _) => Measured::Process(pid),
            (_, _, Some(path)) => Measured::ProcessFile(path),
            (false, None, None) => Measured::Container,
        };
        Self {
            link: LinkConfig {
                address: args.channel,
                token: Token::File(args.token_file),
            },
            listen: args.listen,
            peer_listen: args.peer_listen,
            loopback_listen: args.loopback_listen,
            app: loopback(args.app_port),
            app_protocol: args.app_protocol,
            contract: (args.contract == ContractMode::Auto)
                .then(|| loopback(args.contract_port.unwrap_or(args.app_port))),
            app_token_file: args.app_token_file,
            state_dir: args.state_dir,
            pod_uid: args.pod_uid,
            worker: args.pod_name,
            measured,
            proc_root: PathBuf::from("/proc"),
            drain_wait: Duration::from_secs(args.drain_grace.saturating_sub(5)),
            list_interval: Duration::from_mins(1),
        }
    }
}

/// The agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The token or the state folder.
    #[error(transparent)]
    State(#[from] FenceFileError),
    /// A port.
    #[error("listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// No random token could be made.
    #[error(transparent)]
    Randomness(#[from] crate::credentials::NoRandomness),
}

/// A running agent: where it listens; it ends when the token given to [`Agent::start`] is cancelled.
#[derive(Debug)]
pub struct Agent {
    /// Traffic port.
    pub traffic: SocketAddr,
    /// Peer port.
    pub peer: SocketAddr,
    /// Loopback port.
    pub loopback: SocketAddr,
    tasks: TaskTracker,
}

impl Agent {
    /// Writes the token, loads the fence, opens the ports and starts the work. Needs a tokio runtime.
    pub async fn start(config: AgentConfig, stop: CancellationToken) -> Result<Self, StartError> {
        fence_file::prepare(&config.state_dir)?;
        let token = app_token(&config)?;
        let traffic = listen(config.listen).await?;
        let peer = listen(config.peer_listen).await?;
        let loopback = listen(config.loopback_listen).await?;
        let address = |listener: &TcpListener, asked| listener.local_addr().unwrap_or(asked);
        let tasks = TaskTracker::new();
        let agent = Self {
            traffic: address(&traffic, config.listen),
            peer: address(&peer, config.peer_listen),
            loopback: address(&loopback, config.loopback_listen),
            tasks: tasks.clone(),
        };
        let shared = Arc::new(Shared::new(config, token)?);
        shared.persist()?;
        tasks.spawn(listen::listen(Arc::clone(&shared), traffic, stop.clone()));
        tasks.spawn(peer::listen(Arc::clone(&shared), peer, stop.clone()));
        tasks.spawn(loopback::listen(Arc::clone(&shared), loopback, stop.clone()));
        tasks.spawn(app::watch(Arc::clone(&shared), stop.clone()));
        tasks.spawn(commander::serve(Arc::clone(&shared), stop.clone()));
        tasks.spawn(report::tick(Arc::clone(&shared), stop.clone()));
        tasks.spawn(shared::keep_file(Arc::clone(&shared), stop));
        tasks.close();
        Ok(agent)
    }

    /// Resolves when every task has ended after `stop` was cancelled.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

/// The token of the contract: the one that a former agent process of this pod wrote, else a new one.
fn app_token(config: &AgentConfig) -> Result<String, StartError> {
    let written = std::fs::read_to_string(&config.app_token_file)
        .ok()
        .map(|text| text.trim().to_owned());
    if let Some(token) =
        written.filter(|token| token.len() == 64 && token.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return Ok(token);
    }
    let token = hex_encode(&random_bytes::<32>()?);
    if let Some(folder) = config.app_token_file.parent() {
        fence_file::prepare(folder)?;
    }
    // The app runs under another user id; the volume is in its container alone.
    fence_file::write_whole(&config.app_token_file, token.as_bytes(), 0o644)?;
    Ok(token)
}

/// Runs the agent until `stop` is cancelled; call it on a current-thread runtime.
pub async fn run(args: AgentArgs, stop: CancellationToken) -> anyhow::Result<()> {
    tracing::info!(
        pod = %args.pod_name, namespace = %args.pod_namespace, ip = %args.pod_ip, container = %args.app_container,
        "agent starts"
    );
    let agent = Agent::start(args.into(), stop).await?;
    let addresses = serde_json::json!({ "agent": { "traffic": agent.traffic, "peer": agent.peer, "loopback": agent.loopback } });
    announce(&addresses);
    agent.stopped().await;
    Ok(())
}

/// One JSON line on stdout: the local vehicle reads the ports from it.
fn announce(line: &serde_json::Value) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
