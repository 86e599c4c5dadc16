//! Commands of the commander, carried out per user in order and for different users side by side; what a user's record allows is the fence's word.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{ClientId, Epoch, UserId};
use http::{Request, header};
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::contract::ContractError;
use super::fence::{Refusal, Shown, State, Step};
use super::fence_file::FenceFileError;
use super::headers;
use super::http_client::{self, CallError};
use super::packages::{Intake, KeptPackage};
use super::shared::Shared;
use super::streams::APP_END;
use crate::channel::proto::nack::Reason;
use crate::channel::proto::{Ack, Fetch, Nack, Package, agent_message};

/// Commands that carry a package, at once.
const PACKAGES_AT_ONCE: usize = 8;
/// Commands that may wait.
const MAX_WAITING: usize = 4096;
/// The source answers a Fetch's head within this time.
const SOURCE: Duration = Duration::from_secs(5);
/// A forward waits at most this long for its user's thaw.
const THAW: Duration = Duration::from_secs(5);

/// One command, in our words.
#[derive(Debug)]
pub(crate) enum Order {
    Assign {
        epoch: Epoch,
        ticket: String,
        clients: Vec<ClientId>,
    },
    Snapshot {
        mv: Epoch,
    },
    Fetch(Fetch),
    Activate {
        mv: Epoch,
        join: bool,
    },
    Thaw {
        mv: Epoch,
        epoch: Epoch,
        ticket: String,
    },
    Discard {
        mv: Epoch,
    },
    Forget {
        mv: Epoch,
    },
    Deposit {
        body: Bytes,
        kind: String,
    },
    /// A forward above the frozen epoch, not a command.
    ThawByForward {
        epoch: Epoch,
        ticket: String,
        done: oneshot::Sender<bool>,
    },
}

/// A command and whom to answer.
#[derive(Debug)]
pub(crate) struct Job {
    /// Stream that it came on; void when another one is up.
    pub(crate) stream: u64,
    /// The command's id; 0: no answer wanted.
    pub(crate) id: u64,
    pub(crate) order: Order,
}

/// Waiting commands by user.
#[derive(Debug)]
pub(crate) struct Queues {
    waiting: Mutex<HashMap<UserId, VecDeque<Job>>>,
    packages: Semaphore,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            packages: Semaphore::new(PACKAGES_AT_ONCE),
        }
    }
}

/// Why a command was not done.
#[derive(Debug)]
struct Failed {
    reason: Reason,
    message: String,
}

impl Failed {
    fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotHere => Self::new(Reason::NotHere, "no record of this user"),
            Refusal::Refused => Self::new(Reason::Refused, "the record is in another state or newer"),
        }
    }
}

impl From<FenceFileError> for Failed {
    fn from(error: FenceFileError) -> Self {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the fence file is not written"
        );
        Self::new(Reason::Unreachable, "the fence file is not written")
    }
}

impl From<ContractError> for Failed {
    fn from(error: ContractError) -> Self {
        let reason = match &error {
            ContractError::NoContract | ContractError::Unsupported => Reason::Unsupported,
            ContractError::NotHere => Reason::NotHere,
            ContractError::TooLarge => Reason::TooLarge,
            ContractError::BadPackage => Reason::Corrupt,
            ContractError::Conflict => Reason::Refused,
            ContractError::Call(CallError::Timeout) => Reason::Timeout,
            ContractError::Status(_) | ContractError::Malformed(_) | ContractError::Call(_) => {
                Reason::Unreachable
            }
        };
        Self::new(reason, error.to_string())
    }
}

type Outcome = Result<Option<Package>, Failed>;

/// Queues a command of a user; what does not fit is refused at once.
pub(crate) fn enqueue(shared: &Arc<Shared>, user: UserId, job: Job) {
    let mut waiting = shared.queues.waiting.lock();
    if waiting.values().map(VecDeque::len).sum::<usize>() >= MAX_WAITING {
        drop(waiting);
        answer(
            shared,
            &job,
            Err(Failed::new(Reason::Refused, "too many commands wait")),
        );
        return;
    }
    if let Some(queue) = waiting.get_mut(&user) {
        queue.push_back(job);
        return;
    }
    // An entry means that a task works on it.
    waiting.insert(user.clone(), VecDeque::from([job]));
    drop(waiting);
    tokio::spawn(work(Arc::clone(shared), user));
}

async fn work(shared: Arc<Shared>, user: UserId) {
    loop {
        let job = {
            let mut waiting = shared.queues.waiting.lock();
            match waiting.get_mut(&user).and_then(VecDeque::pop_front) {
                Some(job) => job,
                None => {
                    waiting.remove(&user);
                    return;
                }
            }
        };
        run(&shared, &user, job).await;
    }
}

async fn run(shared: &Shared, user: &UserId, job: Job) {
    if let Order::ThawByForward { epoch, ticket, done } = job.order {
        let mv = match shared.lock().fence.get(user).map(|record| record.state) {
            Some(State::Frozen { mv, .. }) => mv,
            // Whoever came first thawed him.
            _ => {
                let _ = done.send(true);
                return;
            }
        };
        let _ = done.send(thaw(shared, user, mv, epoch, &ticket).await.is_ok());
        return;
    }
    // What came on a stream that broke is void: the next Hello says how far it got.
    if shared.is_current(job.stream) {
        let outcome = execute(shared, user, &job).await;
        answer(shared, &job, outcome);
    }
}

async fn execute(shared: &Shared, user: &UserId, job: &Job) -> Outcome {
    match &job.order {
        Order::Assign {
            epoch,
            ticket,
            clients,
        } => assign(shared, user, *epoch, ticket, clients),
        Order::Snapshot { mv } => snapshot(shared, user, *mv, job.stream).await,
        Order::Fetch(order) => fetch(shared, user, order).await,
        Order::Activate { mv, join } => activate(shared, user, *mv, *join).await,
        Order::Thaw { mv, epoch, ticket } => thaw(shared, user, *mv, *epoch, ticket).await,
        Order::Discard { mv } => discard(shared, user, *mv).await,
        Order::Forget { mv } => forget(shared, user, *mv).await,
        Order::Deposit { body, kind } => deposit(shared, user, body.clone(), kind).await,
        Order::ThawByForward { .. } => Ok(None),
    }
}

fn answer(shared: &Shared, job: &Job, outcome: Outcome) {
    if let Err(failed) = &outcome {
        tracing::info!(id = job.id, reason = ?failed.reason, message = %failed.message, "a command was not done");
        shared.counters.commands_refused.add();
    }
    if job.id == 0 {
        return;
    }
    let id = job.id;
    let message = match outcome {
        Ok(package) => agent_message::Message::Ack(Ack { id, package }),
        Err(Failed { reason, message }) => agent_message::Message::Nack(Nack {
            id,
            reason: reason.into(),
            message,
        }),
    };
    shared.tell_stream(job.stream, message);
}

/// Thaws a frozen user for a forward that carries a higher epoch; true when he is served again.
pub(crate) async fn thaw_by_forward(shared: &Arc<Shared>, user: UserId, shown: (Epoch, String)) -> bool {
    let (done, thawed) = oneshot::channel();
    let (epoch, ticket) = shown;
    enqueue(
        shared,
        user,
        Job {
            stream: 0,
            id: 0,
            order: Order::ThawByForward { epoch, ticket, done },
        },
    );
    matches!(tokio::time::timeout(THAW, thawed).await, Ok(Ok(true)))
}

fn assign(shared: &Shared, user: &UserId, epoch: Epoch, ticket: &str, clients: &[ClientId]) -> Outcome {
    let now = shared.now();
    let mut guard = shared.lock();
    let inner = &mut *guard;
    inner
        .fence
        .assign(user, Shown { epoch, ticket }, clients, inner.key.as_ref(), now)?;
    for client in clients {
        inner.open.bind(*client, user);
    }
    shared.mark_dirty(inner);
    Ok(None)
}

async fn snapshot(shared: &Shared, user: &UserId, mv: Epoch, stream: u64) -> Outcome {
    let (step, kept, max) = {
        let inner = shared.lock();
        if !inner.app.contract {
            return Err(Failed::new(Reason::Unsupported, "the app answers no contract"));
        }
        let kept = inner.packages.get(user, mv).map(KeptPackage::describe);
        (inner.fence.may_freeze(user, mv)?, kept, inner.orders.max_package)
    };
    if step == Step::Done && kept.is_some() {
        return Ok(kept);
    }
    if step == Step::Go {
        quiesce(shared, user, mv, stream).await?;
    }
    let taken = take_package(shared, user, mv, max).await;
    if taken.is_err() {
        // What the app froze for nothing; if it does not hear us now, the commander's Thaw repeats it.
        let _ = shared.contract.thaw(user, mv).await;
        unfreeze(shared, user, mv);
    }
    taken
}

async fn take_package(shared: &Shared, user: &UserId, mv: Epoch, max: u64) -> Outcome {
    let package = match shared.contract.snapshot(user, mv, max).await {
        Ok(package) => KeptPackage::new(mv, package.bytes, package.format),
        Err(error) => {
            if matches!(error, ContractError::NotHere) {
                // L7 decides whether he left.
                shared.lock().ask_list = true;
                shared.ask_app.notify_one();
            }
            return Err(error.into());
        }
    };
    let described = package.describe();
    let mut kept = false;
    shared.persist_change(|inner| kept = inner.packages.keep(user, package, max))?;
    if kept {
        Ok(Some(described))
    } else {
        Err(Failed::new(Reason::Busy, "too many packages wait here"))
    }
}

fn unfreeze(shared: &Shared, user: &UserId, mv: Epoch) {
    let now = shared.now();
    let mut inner = shared.lock();
    inner.fence.unfreeze(user, mv, now);
    inner.packages.drop_of(user);
    shared.mark_dirty(&mut inner);
}

/// V2: no open request, then frozen under the same lock, then no stream.
async fn quiesce(shared: &Shared, user: &UserId, mv: Epoch, stream: u64) -> Result<(), Failed> {
    let limit = {
        let inner = shared.lock();
        if !inner.orders.close_streams && !inner.open.streams_of(user).is_empty() {
            return Err(Failed::new(Reason::Stream, "an open stream pins the user"));
        }
        inner.orders.quiesce_timeout
    };
    let now = shared.now();
    let mut frozen = Err(Refusal::Refused);
    let mut ends = Vec::new();
    let quiet = shared
        .wait_until(limit, |inner| {
            if inner.open.requests_of(user) > 0 {
                return false;
            }
            if inner
                .uplink
                .as_ref()
                .is_some_and(|uplink| uplink.stream == stream)
            {
                frozen = inner.fence.freeze(user, mv, now);
                ends = inner.open.streams_of(user);
            }
            true
        })
        .await;
    if !quiet {
        return Err(Failed::new(
            Reason::Busy,
            "an open request outlived the quiesce limit",
        ));
    }
    frozen?;
    if !shared.lock().orders.close_streams && !ends.is_empty() {
        unfreeze(shared, user, mv);
        return Err(Failed::new(Reason::Stream, "an open stream pins the user"));
    }
    for end in &ends {
        end.cancel.cancel();
    }
    let ended = futures::future::join_all(ends.iter().map(|end| end.ended.cancelled()));
    // The relay gives the app its time; a little more for the relay.
    if tokio::time::timeout(APP_END + APP_END / 2, ended).await.is_err() {
        unfreeze(shared, user, mv);
        return Err(Failed::new(Reason::Stream, "the app did not end a stream"));
    }
    Ok(())
}

async fn fetch(shared: &Shared, user: &UserId, order: &Fetch) -> Outcome {
    let mv = Epoch(order.r#move);
    let (step, older) = {
        let inner = shared.lock();
        if !inner.app.contract {
            return Err(Failed::new(Reason::Unsupported, "the app answers no contract"));
        }
        let older = match inner.fence.get(user).map(|record| record.state) {
            Some(State::Staged { mv: older, .. }) if older < mv => Some(older),
            _ => None,
        };
        (inner.fence.may_stage(user, mv, order.join)?, older)
    };
    if step == Step::Done {
        return Ok(None);
    }
    if let Some(older) = older {
        shared.contract.discard(user, older).await?;
    }
    let Ok(_permit) = shared.queues.packages.acquire().await else {
        return Err(Failed::new(Reason::Timeout, "stopped"));
    };
    if !order.join {
        let now = shared.now();
        let mut inner = shared.lock();
        inner.fence.staged(user, mv, false, now);
        shared.mark_dirty(&mut inner);
    }
    match stage(shared, user, order).await {
        Ok(()) => {
            shared.counters.packages_staged.add();
            let now = shared.now();
            if !order.join {
                shared.persist_change(|inner| inner.fence.staged(user, mv, true, now))?;
            }
            Ok(None)
        }
        Err(failed) => {
            // Nothing of a package that did not arrive whole stays in the app.
            let _ = shared.contract.discard(user, mv).await;
            if !order.join {
                let now = shared.now();
                let mut inner = shared.lock();
                inner.fence.discarded(user, mv, now);
                shared.mark_dirty(&mut inner);
            }
            Err(failed)
        }
    }
}

/// From the source's agent into the app, checked on the way.
async fn stage(shared: &Shared, user: &UserId, order: &Fetch) -> Result<(), Failed> {
    let announced = order
        .package
        .as_ref()
        .ok_or_else(|| Failed::new(Reason::Corrupt, "no package was described"))?;
    let max = shared.lock().orders.max_package;
    if announced.bytes > max {
        return Err(Failed::new(
            Reason::TooLarge,
            format!("{} bytes, allowed are {max}", announced.bytes),
        ));
    }
    let path = format!("/packages/{}/{}", headers::encode_user(user), order.r#move);
    let request = Request::get(path)
        .header(header::HOST, &order.source)
        .header(headers::PASS, &order.pass)
        .body(Empty::<Bytes>::new())
        .map_err(|_| Failed::new(Reason::Corrupt, "source or pass is malformed"))?;
    let response = http_client::send(order.source.as_str(), request, SOURCE)
        .await
        .map_err(|error| Failed::new(Reason::Unreachable, format!("the source: {error}")))?;
    if !response.status().is_success() {
        let status = response.status();
        return Err(Failed::new(
            Reason::Unreachable,
            format!("the source answered {status}"),
        ));
    }
    if headers::single(response.headers(), headers::FORMAT).unwrap_or_default() != announced.format {
        return Err(Failed::new(Reason::Corrupt, "the source sent another format"));
    }
    let (body, check) = Intake::new(response.into_body(), announced.bytes);
    let mv = Epoch(order.r#move);
    let staged = shared.contract.stage(user, mv, &announced.format, body).await;
    // The checksum speaks first: an app may have refused what was cut or altered on its way.
    if !check.holds(announced) {
        return Err(Failed::new(
            Reason::Corrupt,
            "the package is not what was announced",
        ));
    }
    Ok(staged?)
}

async fn activate(shared: &Shared, user: &UserId, mv: Epoch, join: bool) -> Outcome {
    if shared.lock().fence.may_activate(user, mv, join)? == Step::Go {
        shared.contract.activate(user, mv).await?;
        let now = shared.now();
        shared.persist_change(|inner| inner.fence.activated(user, mv, now))?;
    }
    Ok(None)
}

async fn thaw(shared: &Shared, user: &UserId, mv: Epoch, epoch: Epoch, ticket: &str) -> Outcome {
    let shown = Shown { epoch, ticket };
    let step = {
        let inner = shared.lock();
        inner.fence.may_thaw(user, mv, shown, inner.key.as_ref())?
    };
    if step == Step::Go {
        shared.contract.thaw(user, mv).await?;
        let now = shared.now();
        shared.persist_change(|inner| {
            inner.fence.thawed(user, shown, now);
            inner.packages.drop_of(user);
        })?;
    }
    Ok(None)
}

async fn discard(shared: &Shared, user: &UserId, mv: Epoch) -> Outcome {
    shared.lock().fence.may_discard(user, mv)?;
    shared.contract.discard(user, mv).await?;
    let now = shared.now();
    shared.persist_change(|inner| inner.fence.discarded(user, mv, now))?;
    Ok(None)
}

async fn forget(shared: &Shared, user: &UserId, mv: Epoch) -> Outcome {
    let (step, contract, ends) = {
        let inner = shared.lock();
        (
            inner.fence.may_forget(user, mv)?,
            inner.app.contract,
            inner.open.streams_of(user),
        )
    };
    if step == Step::Go {
        for end in &ends {
            end.cancel.cancel();
        }
        if contract {
            shared.contract.forget(user).await?;
        }
        let now = shared.now();
        shared.persist_change(|inner| {
            inner.fence.forgotten(user, now);
            inner.packages.drop_of(user);
        })?;
    }
    Ok(None)
}

async fn deposit(shared: &Shared, user: &UserId, body: Bytes, kind: &str) -> Outcome {
    let served = shared
        .lock()
        .fence
        .get(user)
        .is_some_and(super::fence::Record::is_served);
    if !served {
        return Err(Failed::new(Reason::NotHere, "not served here"));
    }
    shared.contract.deposit(user, body, kind).await?;
    Ok(None)
}
