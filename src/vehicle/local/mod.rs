//! Worker processes instead of pods, on loopback: the same commander, gateway and agent, no Kubernetes.
//!
//! Every part is a process of its own, as in a cluster, so that each can be killed and measured. All of them are
//! children of this one and end with it.

mod auth;
mod gateway;
mod groups;
mod process;
mod worker;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elastic_pool_engine::ids::Term;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Fact, ObjectKey, Orders};
use crate::api::manifest::{self, Manifests};
use crate::channel::LeaderState;
use crate::channel::server::Server;
use crate::credentials::{hex_encode, random_bytes};
use crate::decisions;
use crate::metrics::Metrics;
use crate::monitor::{self, Monitor};
use crate::net::TcpListener;
use auth::LocalTokens;
use gateway::Gateways;
use groups::Groups;
use worker::Workers;

/// Facts and channel events that may wait.
const QUEUE: usize = 1024;
/// How often children are looked after.
const TICK: Duration = Duration::from_millis(100);

/// Runs a manifest's groups as processes on loopback.
#[derive(Debug, Clone, clap::Args)]
pub struct LocalArgs {
    /// Manifest with PoolGroups and Pools; other objects in it are skipped.
    #[arg(short = 'f', long = "file")]
    pub file: PathBuf,
    /// Where the first pool's gateway listens; further pools take the ports after it. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Gateways per pool; each takes a port of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub gateways: u16,
    /// Folder with tls.crt and tls.key in PEM: clients then speak TLS with the gateways.
    #[arg(long)]
    pub tls_dir: Option<PathBuf>,
    /// Where the monitor's state and the metrics are served.
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub monitor: SocketAddr,
    /// Folder in which every decision is saved as JSON lines, a file for each group, at most 80 MiB of them.
    #[arg(long)]
    pub save_decisions: Option<PathBuf>,
    /// Writes the addresses and process ids of all parts into this file as JSON, whenever they change.
    #[arg(long)]
    pub state_file: Option<PathBuf>,
}

/// A process table for people and tests.
#[derive(Debug, Clone, Default, serde::Serialize)]
struct StateFile {
    monitor: String,
    gateways: Vec<PartRow>,
    workers: Vec<WorkerRow>,
}

#[derive(Debug, Clone, serde::Serialize)]
struct PartRow {
    pool: String,
    address: String,
    pid: u32,
}

#[derive(Debug, Clone, serde::Serialize)]
struct WorkerRow {
    name: String,
    birth: String,
    agent_pid: u32,
    app_pid: u32,
    agent: String,
    peer: String,
    app: String,
}

/// Runs until Ctrl-C, SIGTERM or `stop`.
pub async fn run(args: LocalArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let text = tokio::fs::read_to_string(&args.file)
        .await
        .with_context(|| format!("read {}", args.file.display()))?;
    let manifests = manifest::read(&text).with_context(|| args.file.display().to_string())?;
    if manifests.groups.is_empty() {
        bail!(
            "{} holds no PoolGroup: there is nothing to run",
            args.file.display()
        );
    }
    let folder = tempfolder()?;
    let result = serve(&args, &manifests, &folder, &stop).await;
    let _ = tokio::fs::remove_dir_all(&folder).await;
    result
}

async fn serve(
    args: &LocalArgs,
    manifests: &Manifests,
    folder: &Path,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let channel = TcpListener::bind("127.0.0.1:0")
        .await
        .context("bind the channel's port")?;
    let channel_address = channel.local_addr()?.to_string();
    let monitor = TcpListener::bind(args.monitor)
        .await
        .with_context(|| format!("bind {}", args.monitor))?;
    let monitor_address = monitor.local_addr()?;

    let term = Term(1);
    let metrics = Arc::new(Metrics::new()?);
    metrics.set_leader(true);
    let tokens = Arc::new(LocalTokens::default());
    let (events, channel_events) = mpsc::channel(QUEUE);
    let (_leader, leading) = watch::channel(LeaderState::Leading { term });
    let counted = Arc::clone(&metrics);
    let server =
        Server::new(tokens.clone(), leading, events).on_refused(move |reason| counted.peer_refused(reason));
    tokio::spawn(server.serve(channel, stop.clone()));

    let sink = match args.save_decisions.clone() {
        Some(folder) => Some(decisions::save_in(folder, Arc::clone(&metrics)).context("save decisions")?),
        None => None,
    };
    let (facts, fact_events) = mpsc::channel(QUEUE);
    let (orders, wanted) = watch::channel(Arc::new(Orders::default()));
    let commander = crate::commander::start(
        term,
        channel_events,
        fact_events,
        orders,
        sink,
        Arc::clone(&metrics),
        stop.clone(),
    );
    let (_lead, commander) = watch::channel(Some(commander));
    let monitored = Monitor { metrics, commander };
    let (leave, leavers) = mpsc::channel(QUEUE);
    tokio::spawn(monitor::serve_all(
        monitor,
        monitored,
        routes(leave),
        stop.clone(),
    ));

    let mut groups = Groups::new(&args.file);
    let apps = groups.tell(manifests, &facts).await?.apps;
    let mut gateways = Gateways::new(
        folder.to_owned(),
        channel_address.clone(),
        Arc::clone(&tokens),
        args.tls_dir.clone(),
    );
    let pools: BTreeSet<ObjectKey> = apps.values().map(|app| app.pool.clone()).collect();
    for pool in &pools {
        facts
            .send(Fact::Keys(pool.clone(), gateways.secrets(pool).await?))
            .await?;
    }
    facts.send(Fact::Synced).await?;
    gateways.start(&pools, args.listen, args.gateways).await?;
    for line in gateways.lines() {
        println!("{line}");
    }
    println!(
        "monitor   http://{monitor_address}/_commander/state   metrics http://{monitor_address}/metrics"
    );
    println!("drain     curl -X POST http://{monitor_address}/_local/drain/WORKER");
    println!("change    edit {}: it is read again", args.file.display());
    println!("Ctrl-C ends all of it");
    let workers = Workers::new(apps, folder.to_owned(), channel_address, tokens, facts.clone());
    Running {
        monitor: monitor_address.to_string(),
        file: args.state_file.clone(),
        gateways,
        workers,
        leavers,
        groups,
        facts,
    }
    .keep(wanted, stop)
    .await
}

/// All child processes.
struct Running {
    monitor: String,
    file: Option<PathBuf>,
    gateways: Gateways,
    workers: Workers,
    /// Names of workers that must go.
    leavers: mpsc::Receiver<String>,
    groups: Groups,
    facts: mpsc::Sender<Fact>,
}

impl Running {
    /// Converges on the orders and replaces what died, until told to stop.
    async fn keep(
        mut self,
        mut wanted: watch::Receiver<Arc<Orders>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tick = tokio::time::interval(TICK);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut written = String::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = tokio::signal::ctrl_c() => break,
                _ = terminate.recv() => break,
                changed = wanted.changed() => if changed.is_err() { break },
                Some(name) = self.leavers.recv() => self.workers.must_go(&name).await?,
                _ = tick.tick() => {}
            }
            if let Some(change) = self.groups.news(&self.facts).await {
                self.workers.change(change).await?;
            }
            let orders = wanted.borrow_and_update().clone();
            self.workers.converge(&orders).await?;
            self.workers.look_after().await?;
            self.gateways.look_after().await?;
            self.write(&mut written).await?;
        }
        println!("stopping");
        self.workers.end().await;
        self.gateways.end().await;
        Ok(())
    }

    async fn write(&self, written: &mut String) -> anyhow::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let state = StateFile {
            monitor: self.monitor.clone(),
            gateways: self.gateways.rows(),
            workers: self.workers.rows(),
        };
        let text = serde_json::to_string_pretty(&state)?;
        if text != *written {
            let fresh = path.with_extension("new");
            tokio::fs::write(&fresh, &text)
                .await
                .with_context(|| format!("write {}", fresh.display()))?;
            tokio::fs::rename(&fresh, path).await?;
            *written = text;
        }
        Ok(())
    }
}

/// What a person can ask of the local vehicle: that a worker goes, as after a `kubectl cordon` of its node (D2).
fn routes(leave: mpsc::Sender<String>) -> axum::Router {
    use axum::extract::{Path, State};
    use axum::http::StatusCode;
    let drain = |State(leave): State<mpsc::Sender<String>>, Path(name): Path<String>| async move {
        match leave.try_send(name) {
            Ok(()) => StatusCode::ACCEPTED,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    };
    axum::Router::new()
        .route("/_local/drain/{worker}", axum::routing::post(drain))
        .with_state(leave)
}

/// A folder of this run's own, for tokens, secrets and state; readable by nobody else.
fn tempfolder() -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let path = std::env::temp_dir().join(format!("elastic-pool-{}", hex_encode(&random_bytes::<8>()?)));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("create {}", path.display()))?;
    Ok(path)
}
