//! The reference app: a small stateful web app that keeps its users in memory and knows the worker contract; it knows nothing of pools, epochs or placement.

mod app;
mod contract;
mod executor;
mod identity;
mod live;
mod page;
mod post;
mod routes;
mod slice;
mod store;
#[cfg(test)]
mod tests;
mod token;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::serve::{Listener, ListenerExt as _};
use clap::Args;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::app::App;
use self::executor::Executor;
use self::identity::{Sessions, random_id};
use self::post::Post;
use self::store::{Limits, Store};
use self::token::TokenFile;
use crate::clock::Clock;

const DEV_KEY: &str = "elastic-pool development key: set SESSION_KEY";
/// Open requests get this long to end after the signal.
const GRACE: Duration = Duration::from_secs(10);

/// What the reference app is started with.
// Each flag is one independent switch of the command line.
#[allow(clippy::struct_excessive_bools)]
#[derive(Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Port of the app, on all addresses
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Serves the worker contract on this loopback port instead of the app's own
    #[arg(long)]
    pub contract_port: Option<u16>,
    /// File with the token that the agent proves itself by
    #[arg(long, env = "POOL_TOKEN_FILE", default_value = "/var/run/elastic-pool/token")]
    pub token_file: PathBuf,
    /// Base URL of the agent's loopback port, for messages to users elsewhere
    #[arg(long, env = "POOL_AGENT", default_value = "http://127.0.0.1:15082")]
    pub agent: String,
    /// Name to show where no Pool-Worker header names the worker
    #[arg(long, env = "HOSTNAME", default_value = "worker")]
    pub name: String,
    /// Secret that signs session cookies; the same on every worker of a pool
    #[arg(long, env = "SESSION_KEY", default_value = DEV_KEY, hide_default_value = true, hide_env_values = true)]
    pub session_key: String,
    /// Slots of the executor
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub executor: u16,
    /// Seconds without a request or stream after which a user leaves
    #[arg(long, env = "SESSION_TIMEOUT", default_value_t = 1800)]
    pub session_timeout: u64,
    /// Largest package in bytes, handed out or taken in
    #[arg(long, default_value_t = 16 * 1024 * 1024)]
    pub max_package: usize,
    /// An app that knows nothing of pools: one counter per browser, by a cookie
    #[arg(long)]
    pub plain: bool,
    /// Logs users in but answers 404 to the contract
    #[arg(long)]
    pub no_contract: bool,
    /// For tests: ends at once with an error
    #[arg(long)]
    pub crash_at_start: bool,
    /// For tests: runs but never opens its port
    #[arg(long)]
    pub never_listen: bool,
}

impl WorkerArgs {
    fn build(&self, stop: CancellationToken) -> App {
        let contract = !self.plain && !self.no_contract;
        // A plain app's browsers are guests to it, so its session timeout is the guests'.
        let guest_timeout = if self.plain {
            self.session_timeout
        } else {
            self.session_timeout.min(600)
        };
        let limits = Limits {
            session_timeout: self.session_timeout,
            guest_timeout,
            ..Limits::default()
        };
        App {
            store: Mutex::new(Store::new(limits)),
            sessions: Sessions::new(self.session_key.as_bytes()),
            token: contract.then(|| TokenFile::new(self.token_file.clone())),
            executor: Executor::new(usize::from(self.executor), 1024),
            post: Post::new(self.agent.clone()),
            name: self.name.clone(),
            instance: random_id(),
            plain: self.plain,
            max_package: self.max_package,
            stop,
            clock: Clock::start(),
            streams: AtomicU64::new(0),
        }
    }
}

/// Runs the reference app until SIGTERM or SIGINT, then lets open requests end for at most 10 s.
pub async fn run(args: WorkerArgs) -> anyhow::Result<()> {
    if args.crash_at_start {
        bail!("told to crash at start");
    }
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("install the handler of SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("install the handler of SIGINT")?;
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        told.cancel();
    });
    if args.never_listen {
        info!("told never to listen");
        stop.cancelled().await;
        return Ok(());
    }
    if args.session_key == DEV_KEY && !args.plain {
        warn!("SESSION_KEY is not set: session cookies are signed with the development key");
    }
    let listener = listen(args.port).await?;
    let contract = match args.contract_port {
        Some(port) => Some(
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .await
                .context("bind contract port")?,
        ),
        None => None,
    };
    info!(address = ?listener.local_addr().ok(), plain = args.plain, "the reference app serves");
    serve(&args, listener, contract, stop).await
}

/// Dual-stack where the machine has IPv6, else IPv4.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
            .await
            .with_context(|| format!("bind port {port}")),
    }
}

/// Serves the app on these listeners until `stop`; for [`run`] and for tests, which bring their own.
pub async fn serve(
    args: &WorkerArgs,
    listener: TcpListener,
    contract: Option<TcpListener>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let app = Arc::new(args.build(stop.clone()));
    let on_main = app.token.is_some() && contract.is_none();
    let sweeper = tokio::spawn(sweep(app.clone()));
    let main = axum::serve(at_once(listener), routes::router(app.clone(), on_main))
        .with_graceful_shutdown(stop.clone().cancelled_owned());
    let side = async {
        if let (Some(listener), true) = (contract, app.token.is_some()) {
            axum::serve(at_once(listener), contract::router(app.clone()))
                .with_graceful_shutdown(stop.clone().cancelled_owned())
                .await?;
        }
        Ok(())
    };
    let both = async { tokio::try_join!(async { main.await }, side) };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let served = tokio::select! {
        result = both => result.map(|_| ()).context("serve"),
        () = overdue => {
            warn!("open requests did not end in time");
            Ok(())
        }
    };
    sweeper.abort();
    served
}

/// Without Nagle's algorithm: the end of a long answer would wait for a delayed acknowledgement, 40 ms.
fn at_once(listener: TcpListener) -> impl Listener<Io = tokio::net::TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    })
}

/// Each second: those leave whose time is over, and a changed token is taken up.
async fn sweep(app: Arc<App>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        app.store.lock().sweep(app.seconds());
        if let Some(token) = &app.token {
            token.reload();
        }
    }
}

#[cfg(test)]
pub(crate) fn testing(args: &WorkerArgs) -> axum::Router {
    let app = Arc::new(args.build(CancellationToken::new()));
    let contract = app.token.is_some() && args.contract_port.is_none();
    routes::router(app, contract)
}
