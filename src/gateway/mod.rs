//! The sticky front that clients talk to: knows who lives where, relays, holds while somebody is moved; it never places anybody itself.

mod access;
mod admin;
mod answer;
mod args;
mod bearer;
mod body;
mod clients;
mod clock;
mod commander;
mod cookie;
mod fetch;
mod forward;
mod forwarded;
mod front;
mod hold;
mod hygiene;
mod identity;
mod jar;
mod jwks;
mod login;
mod metrics;
mod named;
mod open;
mod resident;
mod screen;
mod serve;
mod server;
mod set_cookie;
mod shards;
mod spread;
mod streams;
mod table;
mod tls;
mod upstream;
mod websocket;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::access::AccessLogError;
pub use self::args::GatewayArgs;
pub use self::cookie::{Cookie, Seal, SealError};
pub use self::fetch::FetchError;
pub use self::front::Limits;
pub use self::hygiene::Network;
pub use self::jwks::{JwksError, JwksUrl, KeySource};
pub use self::named::IdentityConfig;
pub use self::set_cookie::{CookieConfig, CookieError, CookieSameSite, CookieSecure};
pub use self::tls::{TlsConfig, TlsError};
use crate::channel::link::{LinkConfig, Token};
use crate::clock::Clock;
use crate::credentials::{Key, NoRandomness, hex_encode, random_bytes};
use crate::net::TcpListener;

/// All that a gateway needs to know before it starts.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Namespace of the pool.
    pub namespace: String,
    /// Name of the pool.
    pub pool: String,
    /// This pod's UID, as its token says.
    pub pod_uid: String,
    /// The operator's channel.
    pub link: LinkConfig,
    /// Key that cookies are sealed with.
    pub cookie_key: Key,
    /// Key before the last rotation, still accepted.
    pub cookie_key_previous: Option<Key>,
    /// Key of the pool's hop proofs.
    pub pool_key: Key,
    /// The affinity cookie.
    pub cookie: CookieConfig,
    /// What tells clients apart besides it.
    pub identity: IdentityConfig,
    /// Networks of proxies whose X-Forwarded-* headers are believed.
    pub trusted_proxies: Vec<Network>,
    /// TLS from clients; absent: cleartext.
    pub tls: Option<TlsConfig>,
    /// Client connections at once.
    pub max_connections: usize,
    /// What a client may take.
    pub limits: Limits,
    /// File of the access log; - is standard output.
    pub access_log: Option<PathBuf>,
    /// Between turning unready and taking no more connections.
    pub drain_delay: Duration,
    /// For open requests and streams to finish after that.
    pub drain_timeout: Duration,
}

impl GatewayConfig {
    /// A configuration with the defaults of [`GatewayArgs`].
    pub fn new(
        namespace: &str,
        pool: &str,
        pod_uid: &str,
        link: LinkConfig,
        cookie_key: Key,
        pool_key: Key,
    ) -> Self {
        Self {
            namespace: namespace.to_owned(),
            pool: pool.to_owned(),
            pod_uid: pod_uid.to_owned(),
            link,
            cookie_key,
            cookie_key_previous: None,
            pool_key,
            cookie: CookieConfig::default(),
            identity: IdentityConfig::Cookie,
            trusted_proxies: Vec::new(),
            tls: None,
            max_connections: 10_000,
            limits: Limits::default(),
            access_log: None,
            drain_delay: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Bound listeners.
#[derive(Debug)]
pub struct Listeners {
    /// Clients.
    pub traffic: TcpListener,
    /// Probes and metrics.
    pub admin: TcpListener,
    /// /_commander/open, when wanted.
    pub monitor: Option<TcpListener>,
}

/// A gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener has no address.
    #[error("read the address of a listener")]
    Address(#[source] std::io::Error),
    /// The cookie keys cannot be used.
    #[error("make the cookie's seal")]
    Seal(#[from] SealError),
    /// A cookie that no browser would take.
    #[error(transparent)]
    Cookie(#[from] CookieError),
    /// No access log.
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No keys of bearer tokens.
    #[error(transparent)]
    Jwks(#[from] JwksError),
    /// No incarnation.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// Two metrics of one name.
    #[error("register metrics")]
    Metrics(#[from] prometheus::Error),
}

/// A gateway that runs in this process.
#[derive(Debug)]
pub struct Gateway {
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where probes and metrics are served.
    pub admin_address: SocketAddr,
    /// Where /_commander/open is served.
    pub monitor_address: Option<SocketAddr>,
    ended: tokio::task::JoinHandle<()>,
}

impl Gateway {
    /// Starts a gateway on `listeners`; it runs until `stop` is cancelled and what is open has finished.
    pub fn start(
        config: GatewayConfig,
        listeners: Listeners,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let address = listeners.traffic.local_addr().map_err(StartError::Address)?;
        let admin_address = listeners.admin.local_addr().map_err(StartError::Address)?;
        let monitor_address = listeners
            .monitor
            .as_ref()
            .map(TcpListener::local_addr)
            .transpose()
            .map_err(StartError::Address)?;
        // The channel outlives `stop`: logins of the last requests are still placed.
        let over = CancellationToken::new();
        let drain = Drain {
            delay: config.drain_delay,
            timeout: config.drain_timeout,
            connections: config.max_connections,
        };
        let front = Arc::new(front(config, over.clone())?);
        let ended = tokio::spawn(run_until(front, listeners, drain, stop, over));
        Ok(Self {
            address,
            admin_address,
            monitor_address,
            ended,
        })
    }

    /// Waits until the gateway has stopped.
    pub async fn ended(self) {
        // A panic was logged by the runtime; there is nothing left to stop.
        let _ = self.ended.await;
    }
}

struct Drain {
    delay: Duration,
    timeout: Duration,
    connections: usize,
}

fn front(config: GatewayConfig, over: CancellationToken) -> Result<front::Front, StartError> {
    let style = set_cookie::Style::new(&config.cookie)?;
    let named = named::Named::new(&config.identity, &config.pool_key)?;
    let tls = config.tls.as_ref().map(tls::Tls::new).transpose()?;
    if let Some(tls) = &tls {
        tokio::spawn(tls.clone().keep_fresh(over.clone()));
    }
    let clocks = Arc::new(clock::Clocks::default());
    let effects = commander::Effects {
        table: Arc::new(table::Table::new(config.pool_key, Arc::clone(&clocks))),
        holds: Arc::new(hold::Holds::default()),
        streams: Arc::new(streams::Streams::default()),
        clocks,
        metrics: Arc::new(metrics::Metrics::new()?),
        clock: Clock::start(),
    };
    if let Some(verifier) = named.verifier() {
        let counters = effects.metrics.renewals.clone();
        tokio::spawn(Arc::clone(verifier).keep_fresh(over.clone(), counters));
    }
    let access = match &config.access_log {
        Some(path) => Some(access::AccessLog::open(
            path,
            effects.metrics.access_lines_dropped.clone(),
        )?),
        None => None,
    };
    let identity = commander::Identity {
        pod_uid: config.pod_uid,
        incarnation: hex_encode(&random_bytes::<16>()?),
        pool: config.pool,
        namespace: config.namespace,
    };
    let seal = Seal::new(&config.cookie_key, config.cookie_key_previous.as_ref())?;
    let commander = commander::connect(config.link, identity, effects.clone(), over);
    let commander::Effects {
        table,
        holds,
        streams,
        metrics,
        clock,
        clocks: _,
    } = effects;
    Ok(front::Front {
        table,
        holds,
        streams,
        commander,
        metrics,
        clock,
        seal,
        opened: jar::Opened::default(),
        style,
        named,
        open: Arc::default(),
        trusted: config.trusted_proxies,
        tls,
        limits: config.limits,
        access,
        tunnels: TaskTracker::new(),
    })
}

async fn run_until(
    front: Arc<front::Front>,
    listeners: Listeners,
    drain: Drain,
    stop: CancellationToken,
    over: CancellationToken,
) {
    let stopping = Arc::new(AtomicBool::new(false));
    let admin = admin::Admin {
        front: Arc::clone(&front),
        stopping: Arc::clone(&stopping),
    };
    let serve_admin = |listener: TcpListener, router: axum::Router| {
        let over = over.clone();
        tokio::spawn(async move {
            let served = axum::serve(listener, router)
                .with_graceful_shutdown(over.cancelled_owned())
                .await;
            if let Err(error) = served {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "serve probes and metrics"
                );
            }
        })
    };
    serve_admin(listeners.admin, admin::probes(admin.clone()));
    if let Some(monitor) = listeners.monitor {
        serve_admin(monitor, admin::monitor(admin));
    }
    let (closed, connections) = (CancellationToken::new(), TaskTracker::new());
    let accepting = server::accept(
        Arc::clone(&front),
        listeners.traffic,
        drain.connections,
        connections.clone(),
        closed.clone(),
    );
    let accepting = tokio::spawn(accepting);
    stop.cancelled().await;
    stopping.store(true, Ordering::Relaxed);
    // Endpoints take a moment to leave this pod out; until then it serves as before.
    tokio::time::sleep(drain.delay).await;
    closed.cancel();
    let _ = accepting.await;
    connections.close();
    front.tunnels.close();
    let finished = async {
        connections.wait().await;
        front.tunnels.wait().await;
    };
    if tokio::time::timeout(drain.timeout, finished).await.is_err() {
        front.streams.close_all(streams::GOING_AWAY);
        // Streams are cut by then; whatever else is open ends with the process.
        let _ = tokio::time::timeout(STREAM_END, front.tunnels.wait()).await;
    }
    over.cancel();
}

/// For streams to end politely after the drain timeout.
const STREAM_END: Duration = Duration::from_secs(2);

/// Runs `elastic-pool gateway` until `stop` is cancelled and what is open has finished.
pub async fn run(args: GatewayArgs, stop: CancellationToken) -> anyhow::Result<()> {
    let (namespace, pool) = args
        .pool
        .split_once('/')
        .context("--pool is not namespace/name")?;
    let secret = |name: &str| read_key(&args.secret_dir, name);
    let required = |name: &str| secret(name)?.with_context(|| format!("{name} is missing in --secret-dir"));
    let link = LinkConfig {
        address: args.channel.clone(),
        token: Token::File(args.token_file.clone()),
    };
    let config = GatewayConfig {
        cookie_key_previous: secret("cookie-key-previous")?,
        cookie: args.cookie(),
        identity: args.identity(),
        trusted_proxies: args.trusted_proxies.clone(),
        tls: args.tls_dir.clone().map(TlsConfig::new),
        max_connections: args.max_connections,
        access_log: args.access_log.clone(),
        limits: args.limits(),
        drain_delay: args.drain_delay,
        drain_timeout: args.drain_timeout,
        ..GatewayConfig::new(
            namespace,
            pool,
            &args.pod_uid,
            link,
            required("cookie-key")?,
            required("pool-key")?,
        )
    };
    let bind = async |address: SocketAddr| {
        TcpListener::bind(address)
            .await
            .with_context(|| format!("listen on {address}"))
    };
    let listeners = Listeners {
        traffic: bind(args.listen).await?,
        admin: bind(args.admin_listen).await?,
        monitor: Some(bind(args.monitor_listen).await?),
    };
    let gateway = Gateway::start(config, listeners, stop)?;
    tracing::info!(pool = %args.pool, pod = %args.pod_name, address = %gateway.address, "gateway listens");
    let ports = serde_json::json!({
        "part": "gateway",
        "listen": gateway.address.to_string(),
        "admin": gateway.admin_address.to_string(),
        "monitor": gateway.monitor_address.map(|address| address.to_string()),
    });
    // The local vehicle reads the ports here when they were asked for as 0.
    println!("{ports}");
    gateway.ended().await;
    Ok(())
}

fn read_key(folder: &Path, name: &str) -> anyhow::Result<Option<Key>> {
    let path = folder.join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => text,
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    Key::from_hex(&text)
        .map(Some)
        .with_context(|| format!("{} does not hold 64 hex digits", path.display()))
}
