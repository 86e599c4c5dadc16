//! What all parts of one agent share, behind one lock that no await ever holds; it does no I/O but writing the fence file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::{ClientId, Epoch, Term, UserId};
use http::HeaderValue;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::contract::Contract;
use super::counters::Counters;
use super::fence::Fence;
use super::fence_file::{FenceFile, FenceFileError, Kept};
use super::hop::Hops;
use super::http_client::Connections;
use super::open::OpenRequests;
use super::outbox::Outbox;
use super::packages::Packages;
use super::sensor::Sensor;
use super::transfer::Queues;
use super::unconfirmed::Unconfirmed;
use super::upstream::Upstream;
use super::{AgentConfig, AppProtocol};
use crate::channel::proto::{AgentMessage, AgentWelcome, agent_message};
use crate::clock::Clock;
use crate::credentials::{Key, NoRandomness, hex_encode, random_bytes};

/// A change that no answer depends on reaches the file within this time.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// What Welcome said, within our bounds.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) term: Term,
    pub(crate) birth: u64,
    pub(crate) worker: String,
    /// The worker's name towards the app.
    pub(crate) worker_header: HeaderValue,
    pub(crate) interval: Duration,
    pub(crate) session_users: bool,
    pub(crate) session_timeout: Duration,
    pub(crate) close_streams: bool,
    pub(crate) quiesce_timeout: Duration,
    pub(crate) max_package: u64,
    pub(crate) container: String,
}

impl Orders {
    fn at_start(kept: &Kept, worker: &str) -> Self {
        let worker = if kept.worker.is_empty() {
            worker
        } else {
            &kept.worker
        };
        Self {
            term: kept.term,
            birth: kept.birth,
            worker: worker.to_owned(),
            worker_header: worker_header(worker),
            interval: Duration::from_secs(5),
            session_users: kept.session_users,
            session_timeout: Duration::from_millis(kept.session_timeout_ms.max(1000)),
            close_streams: false,
            quiesce_timeout: Duration::from_secs(2),
            max_package: 16 << 20,
            container: kept.app_container_id.clone(),
        }
    }

    fn take(&mut self, welcome: &AgentWelcome) {
        let bounded = |ms: u64, low: u64, high: u64| Duration::from_millis(ms.clamp(low, high));
        self.term = Term(welcome.term);
        self.birth = welcome.birth;
        if !welcome.worker.is_empty() {
            self.worker.clone_from(&welcome.worker);
            self.worker_header = worker_header(&welcome.worker);
        }
        self.interval = bounded(welcome.interval_ms, 50, 300_000);
        self.session_users = welcome.session_users;
        self.session_timeout = bounded(welcome.session_timeout_ms, 100, 7 * 24 * 3_600_000);
        self.close_streams = welcome.close_streams && !welcome.drain_only;
        self.quiesce_timeout = bounded(welcome.quiesce_timeout_ms, 1, 60_000);
        self.max_package = welcome.max_package_bytes.clamp(1, 1 << 30);
        if !welcome.app_container_id.is_empty() {
            self.container.clone_from(&welcome.app_container_id);
        }
    }
}

fn worker_header(worker: &str) -> HeaderValue {
    HeaderValue::from_str(worker).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What is known of the app.
#[derive(Debug, Default)]
pub(crate) struct AppView {
    /// Instance for which the records hold.
    pub(crate) instance: Option<String>,
    /// The instance was compared with the file's: users may be served.
    pub(crate) compared: bool,
    /// The app may have restarted since: users wait for the next comparison.
    pub(crate) doubt: bool,
    pub(crate) contract: bool,
    pub(crate) capabilities: Vec<String>,
    /// When the last list was asked for, and how many users it named.
    pub(crate) list: Option<(Duration, usize)>,
}

/// The stream to the commander that is up now.
#[derive(Debug, Clone)]
pub(crate) struct Uplink {
    pub(crate) messages: mpsc::Sender<AgentMessage>,
    /// Grows with every stream; what belongs to an older one is void.
    pub(crate) stream: u64,
}

/// What the lock guards.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) fence: Fence,
    pub(crate) open: OpenRequests,
    pub(crate) orders: Orders,
    pub(crate) hops: Hops,
    pub(crate) key: Option<Key>,
    pub(crate) app: AppView,
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) packages: Packages,
    pub(crate) uplink: Option<Uplink>,
    /// Ends the present link, so that the next one says Hello as a new incarnation.
    pub(crate) link_stop: CancellationToken,
    pub(crate) incarnation: String,
    /// When admission was closed; `None`: open.
    pub(crate) closed_since: Option<Duration>,
    /// preStop calls that wait.
    pub(crate) terminating: usize,
    /// Admission commands so far, so that a waiting preStop sees the answer to its report.
    pub(crate) admissions: u64,
    pub(crate) sensor: Sensor,
    /// Users whom the app called gone: the list is asked at once.
    pub(crate) ask_list: bool,
    version: u64,
}

/// One agent.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: AgentConfig,
    pub(crate) clock: Clock,
    pub(crate) contract: Contract,
    /// To the app's contract and to other agents.
    pub(crate) connections: Arc<Connections>,
    pub(crate) upstream: Upstream,
    pub(crate) counters: Counters,
    pub(crate) queues: Queues,
    /// Messages of this app that wait for the commander's word (V10).
    pub(crate) outbox: Mutex<Outbox>,
    inner: Mutex<Inner>,
    /// Something changed that somebody may wait for.
    pub(crate) changed: Notify,
    /// A report is wanted before the next tick.
    pub(crate) report_now: Notify,
    /// The app is to be asked who it is and who lives there.
    pub(crate) ask_app: Notify,
    dirty: Notify,
    streams: AtomicU64,
    file: Mutex<FenceFile>,
    /// Instance in the file at start; compared once.
    kept_instance: Option<String>,
}

/// A random name for this process, or for what follows a restart of the app.
pub(crate) fn new_incarnation() -> Result<String, NoRandomness> {
    Ok(hex_encode(&random_bytes::<8>()?))
}

impl Shared {
    pub(crate) fn new(config: AgentConfig, token: String) -> Result<Self, NoRandomness> {
        let clock = Clock::start();
        let connections = Arc::new(Connections::new(clock));
        let (file, mut kept) = FenceFile::open(&config.state_dir);
        let records = std::mem::take(&mut kept.records);
        let mut sensor = Sensor::new(config.proc_root.clone(), config.measured.clone());
        sensor.set_container(&kept.app_container_id);
        let inner = Inner {
            fence: Fence::restore(records, clock.now()),
            open: OpenRequests::default(),
            orders: Orders::at_start(&kept, &config.worker),
            hops: Hops::new(&kept.hops),
            key: kept.ticket_key.as_deref().and_then(Key::from_hex),
            app: AppView {
                instance: kept.instance.clone(),
                ..AppView::default()
            },
            unconfirmed: Unconfirmed::default(),
            packages: Packages::default(),
            uplink: None,
            link_stop: CancellationToken::new(),
            incarnation: new_incarnation()?,
            closed_since: None,
            terminating: 0,
            admissions: 0,
            sensor,
            ask_list: false,
            version: 1,
        };
        Ok(Self {
            contract: Contract::new(config.contract, token, Arc::clone(&connections)),
            connections,
            upstream: Upstream::new(config.app, config.app_protocol == AppProtocol::H2c),
            counters: Counters::default(),
            queues: Queues::default(),
            outbox: Mutex::new(Outbox::new(new_incarnation()?)),
            inner: Mutex::new(inner),
            changed: Notify::new(),
            report_now: Notify::new(),
            ask_app: Notify::new(),
            dirty: Notify::new(),
            streams: AtomicU64::new(0),
            file: Mutex::new(file),
            kept_instance: kept.instance,
            clock,
            config,
        })
    }

    /// The state; never held over an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Instance that the file named at start.
    pub(crate) fn kept_instance(&self) -> Option<&str> {
        self.kept_instance.as_deref()
    }

    /// The fence changed; the file follows soon.
    pub(crate) fn mark_dirty(&self, inner: &mut Inner) {
        inner.version += 1;
        self.dirty.notify_one();
    }

    /// Writes the file now, unless it holds the present table already.
    pub(crate) fn persist(&self) -> Result<(), FenceFileError> {
        // Held while writing, so that an older table never replaces a newer one.
        let mut file = self.file.lock();
        self.store(&mut file)
    }

    fn store(&self, file: &mut FenceFile) -> Result<(), FenceFileError> {
        let (kept, version) = {
            let inner = self.lock();
            if inner.version == file.version {
                return Ok(());
            }
            (inner.kept(), inner.version)
        };
        file.store(kept, version)
    }

    /// A change of one user's record that the next answer depends on: in the file before this returns.
    pub(crate) fn persist_change(
        &self,
        user: &UserId,
        change: impl FnOnce(&mut Inner),
    ) -> Result<(), FenceFileError> {
        let mut file = self.file.lock();
        let (record, version, was_whole) = {
            let mut inner = self.lock();
            let was_whole = inner.version == file.version;
            change(&mut inner);
            inner.version += 1;
            (inner.fence.get(user).cloned(), inner.version, was_whole)
        };
        self.changed.notify_waiters();
        if file.wants_whole() || file.append(user, record.as_ref()).is_err() {
            return self.store(&mut file);
        }
        if was_whole {
            file.version = version;
        }
        Ok(())
    }

    /// Sends a message to the commander if a stream is up; false when it did not go.
    pub(crate) fn tell(&self, message: agent_message::Message) -> bool {
        let uplink = self.lock().uplink.clone();
        let Some(uplink) = uplink else { return false };
        let sent = uplink
            .messages
            .try_send(AgentMessage {
                message: Some(message),
            })
            .is_ok();
        if !sent {
            self.counters.messages_dropped.add();
        }
        sent
    }

    /// Offers the commander what it has not been offered on this stream.
    pub(crate) fn offer_deposits(&self) {
        // Held over the look at the stream, so that two callers never offer out of order.
        let mut outbox = self.outbox.lock();
        let Some(stream) = self.lock().uplink.as_ref().map(|uplink| uplink.stream) else {
            return;
        };
        outbox.offer(stream, |offer| {
            self.tell_stream(stream, agent_message::Message::Offer(offer))
        });
    }

    /// As [`Shared::tell`], only while the stream that the message belongs to is up.
    pub(crate) fn tell_stream(&self, stream: u64, message: agent_message::Message) -> bool {
        self.is_current(stream) && self.tell(message)
    }

    /// True while this is the stream that is up.
    pub(crate) fn is_current(&self, stream: u64) -> bool {
        self.lock()
            .uplink
            .as_ref()
            .is_some_and(|uplink| uplink.stream == stream)
    }

    /// A Welcome: its orders hold from now on. Returns the stream's number; `None` when its term is lower than one seen.
    pub(crate) fn welcomed(
        &self,
        welcome: &AgentWelcome,
        messages: &mpsc::Sender<AgentMessage>,
    ) -> Option<u64> {
        let stream = self.streams.fetch_add(1, Relaxed) + 1;
        let mut inner = self.lock();
        if Term(welcome.term) < inner.orders.term {
            return None;
        }
        let before = inner.orders.container.clone();
        inner.orders.take(welcome);
        if !before.is_empty() && before != inner.orders.container {
            // D1: its container was started anew; nobody is served before the app has said who it is.
            inner.app.doubt = true;
            self.ask_app.notify_one();
        }
        inner.hops = Hops::new(&welcome.hops);
        if let Some(key) = Key::from_hex(&welcome.ticket_key) {
            inner.key = Some(key);
        }
        inner.uplink = Some(Uplink {
            messages: messages.clone(),
            stream,
        });
        let container = inner.orders.container.clone();
        inner.sensor.set_container(&container);
        self.mark_dirty(&mut inner);
        drop(inner);
        self.changed.notify_waiters();
        Some(stream)
    }

    /// Waits until `ready` holds or `limit` has passed; the last reading.
    pub(crate) async fn wait_until(
        &self,
        limit: Duration,
        mut ready: impl FnMut(&mut Inner) -> bool,
    ) -> bool {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if ready(&mut self.lock()) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(limit, waiting).await.is_ok()
    }
}

impl Inner {
    fn kept(&self) -> Kept {
        Kept {
            generation: 0,
            instance: self.app.instance.clone(),
            term: self.orders.term,
            ticket_key: self.key.as_ref().map(Key::to_hex),
            hops: self.hops.values().to_vec(),
            worker: self.orders.worker.clone(),
            birth: self.orders.birth,
            session_users: self.orders.session_users,
            session_timeout_ms: u64::try_from(self.orders.session_timeout.as_millis()).unwrap_or(u64::MAX),
            app_container_id: self.orders.container.clone(),
            records: self
                .fence
                .iter()
                .map(|(user, record)| (user.clone(), record.clone()))
                .collect(),
        }
    }

    /// Session mode and apps without a contract tell users by their requests alone (L7, P7).
    pub(crate) fn users_by_traffic(&self) -> bool {
        self.orders.session_users || !self.app.contract
    }

    /// Nobody lives here and nothing is open, as far as this agent can see (L7).
    pub(crate) fn is_empty(&mut self, now: Duration) -> bool {
        let listed = if self.app.contract {
            let after = self.closed_since.unwrap_or_default();
            self.app
                .list
                .is_some_and(|(asked, users)| users == 0 && asked >= after)
        } else {
            self.open.counts() == (0, 0) && self.unconfirmed.read(now).0 == 0
        };
        listed && self.fence.living() == 0
    }

    /// L1 for open requests and the table.
    pub(crate) fn bind(&mut self, user: &UserId, client: Option<ClientId>, now: Duration) -> bool {
        if let Some(client) = client {
            self.open.bind(client, user);
        }
        self.fence.login(user, client, now)
    }

    /// Epoch of a user's present life here, for a UserGone.
    pub(crate) fn epoch_of(&self, user: &UserId) -> Option<Epoch> {
        self.fence
            .get(user)
            .filter(|record| record.is_served())
            .map(super::fence::Record::epoch)
    }
}

/// Writes the file a little after each change that nobody waits for.
pub(crate) async fn keep_file(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = shared.dirty.notified() => {}
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(DEBOUNCE) => {}
        }
        if let Err(error) = shared.persist() {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the fence file is not written"
            );
        }
    }
    if let Err(error) = shared.persist() {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the fence file is not written"
        );
    }
}
