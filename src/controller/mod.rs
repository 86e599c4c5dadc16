//! The Kubernetes vehicle: observes groups, pools and pods, builds what is wanted, applies it, publishes status; it
//! judges nothing about load.
//!
//! A pass over a group reads as [`group`]'s `reconcile`: observe, judge the template, plan, apply, publish. Facts go
//! up from [`observe`] as the watches bring them and never wait for a write.

mod apply;
pub mod auth;
#[cfg(test)]
pub(crate) mod bench;
pub mod build;
mod elector;
#[cfg(test)]
pub(crate) mod fake;
mod group;
mod keep;
mod keys;
pub mod leader;
mod nodes;
mod observe;
mod plan;
mod pods;
mod pool;
mod publish;
mod refusal;
pub mod roster;
mod schedule;
mod shelf;
mod status;
mod template;
mod watches;
mod world;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::build::OperatorEnv;
use self::leader::Leadership;
use self::observe::Observer;
use self::roster::Roster;
use self::schedule::Schedule;
use self::world::{Dirty, Target, World};
use self::writer::Writer;
use crate::clock::Clock;
use crate::vehicle::{Fact, ObjectKey, Orders};

/// How often the loops show that they live, at least.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);

/// Groups that may wait to be told anew.
const RETELL_QUEUE: usize = 64;

/// What the controller is told at its start.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Only objects of this class are served.
    pub class: String,
    /// Namespaces to watch; empty: all.
    pub namespaces: Vec<String>,
    /// What agents and gateways are made of.
    pub env: OperatorEnv,
    /// Name of this operator's pod, for events.
    pub instance: String,
    /// Kept up to date with the pods that are ours.
    pub roster: Roster,
    /// Shows that the loops live.
    pub heartbeat: Heartbeat,
}

/// Shows that the controller's loops live: for a liveness probe, which must not depend on the API server.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    clock: Clock,
    observed: Arc<AtomicU64>,
    scheduled: Arc<AtomicU64>,
}

impl Heartbeat {
    /// A heart that beat just now.
    pub fn new(clock: Clock) -> Self {
        let heartbeat = Self {
            clock,
            observed: Arc::default(),
            scheduled: Arc::default(),
        };
        heartbeat.observed();
        heartbeat.scheduled();
        heartbeat
    }

    fn observed(&self) {
        self.observed.store(self.now(), Ordering::Relaxed);
    }

    fn scheduled(&self) {
        self.scheduled.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long the slower loop has shown nothing; above a minute it hangs. Only while the controller runs.
    pub fn silence(&self) -> Duration {
        let last = self
            .observed
            .load(Ordering::Relaxed)
            .min(self.scheduled.load(Ordering::Relaxed));
        Duration::from_millis(self.now().saturating_sub(last))
    }
}

/// Why the controller ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Nobody takes facts or gives orders any more.
    #[error("the commander is gone")]
    CommanderGone,
    /// A reconcile broke off.
    #[error("a reconcile broke off")]
    Broken(#[source] tokio::task::JoinError),
}

/// Why one reconcile failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error(transparent)]
    Call(#[from] writer::CallError),
    #[error("the API server's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("no random bytes for a new key")]
    Randomness(#[from] crate::credentials::NoRandomness),
    #[error("an object of a kind that is not applied was built")]
    Unbuildable,
    #[error("the name {0} is somebody else's")]
    NameTaken(String),
    #[error("pod {0} changes faster than it can be looked at")]
    Restless(String),
    #[error("secret {secret}: {key} must be 64 hex digits; it is not overwritten")]
    BadKey { secret: String, key: String },
    #[error("the controller stops")]
    Stopped,
}

/// What all reconciles share.
pub(crate) struct Context {
    pub(crate) config: ControllerConfig,
    pub(crate) clock: Clock,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) writer: Writer,
    pub(crate) dirty: Arc<Dirty>,
    pub(crate) facts: mpsc::Sender<Fact>,
    pub(crate) orders: watch::Receiver<Arc<Orders>>,
    pub(crate) retell: mpsc::Sender<ObjectKey>,
}

impl Context {
    /// True while the target, or for a pool a group that names it, exists.
    fn knows(&self, target: &Target) -> bool {
        let world = self.world.lock();
        match target {
            Target::Group(key) => world.groups.get(key).is_some(),
            Target::Pool(key) => world.pools.get(key).is_some() || !world.groups_of(key).is_empty(),
        }
    }

    fn forget(&self, target: &Target) {
        if let Target::Group(key) = target {
            self.world.lock().judged.remove(key);
        }
    }
}

/// Runs the controller until `stop`. Only the leader runs it; each write asks `leadership` first.
///
/// Facts go up in this order: all groups, all workers, [`Fact::Synced`], then changes as they come.
///
/// # Errors
/// When the commander's ends of the channels are closed, or a reconcile panicked.
pub async fn run(
    client: Client,
    config: ControllerConfig,
    facts: mpsc::Sender<Fact>,
    orders: watch::Receiver<Arc<Orders>>,
    leadership: Leadership,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), ControllerError> {
    let scopes: Vec<Option<String>> = match config.namespaces.as_slice() {
        [] => vec![None],
        named => named.iter().cloned().map(Some).collect(),
    };
    let world = Arc::new(Mutex::new(World::new(&config.class, &scopes, config.env.clone())));
    let dirty = Arc::new(Dirty::default());
    let (retell, retold) = mpsc::channel(RETELL_QUEUE);
    let heartbeat = config.heartbeat.clone();
    let observer = Observer::new(
        Arc::clone(&world),
        Arc::clone(&dirty),
        config.roster.clone(),
        facts.clone(),
    );
    let news = watches::all(&client, &scopes);
    let writer = Writer::new(client, leadership, clock);
    let context = Arc::new(Context {
        config,
        clock,
        world,
        writer,
        dirty,
        facts,
        orders,
        retell,
    });
    let ended = stop.child_token();
    let _end = ended.clone().drop_guard();
    let observing = observer.run(news, retold, heartbeat.clone(), ended.clone());
    let reconciling = Schedule::default().run(context, heartbeat, ended.clone());
    // Each in a task of its own: watches go on while reconciles are computed.
    let mut both = tokio::task::JoinSet::new();
    both.spawn(observing);
    both.spawn(reconciling);
    match both.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(broken)) => Err(ControllerError::Broken(broken)),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod group_tests;
#[cfg(test)]
#[path = "pool_tests.rs"]
mod pool_tests;
#[cfg(test)]
#[path = "run_tests.rs"]
mod run_tests;
#[cfg(test)]
#[path = "template_tests.rs"]
mod template_tests;
