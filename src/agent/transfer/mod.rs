//! Commands of the commander, carried out per user in order and for different users side by side; what a user's record allows is the fence's word.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{ClientId, Epoch, UserId};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::contract::ContractError;
use super::fence::{Refusal, Shown, State};
use super::fence_file::FenceFileError;
use super::forward::COMPARE;
use super::http_client::CallError;
use super::shared::{Inner, Shared};
use crate::channel::proto::nack::Reason;
use crate::channel::proto::{Ack, Fetch, Nack, Package, agent_message};

mod source;
mod target;

/// Commands that carry a package, at once.
const PACKAGES_AT_ONCE: usize = 8;
/// Commands that may wait.
const MAX_WAITING: usize = 4096;
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
        sender: String,
        sequence: u64,
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
            let Some(job) = waiting.get_mut(&user).and_then(VecDeque::pop_front) else {
                waiting.remove(&user);
                return;
            };
            job
        };
        run(&shared, &user, job).await;
    }
}

async fn run(shared: &Shared, user: &UserId, job: Job) {
    if let Order::ThawByForward { epoch, ticket, done } = job.order {
        let state = shared.lock().fence.get(user).map(|record| record.state);
        let Some(State::Frozen { mv, .. }) = state else {
            // Whoever came first thawed him.
            let _ = done.send(true);
            return;
        };
        let _ = done.send(source::thaw(shared, user, mv, epoch, &ticket).await.is_ok());
        return;
    }
    // D1: nobody is moved into a process, or out of one, that may be another than before.
    let is_same = |inner: &mut Inner| inner.app.compared && !inner.app.doubt;
    if !shared.wait_until(COMPARE, is_same).await {
        let failed = Failed::new(Reason::Unreachable, "the app is not known to be the same");
        answer(shared, &job, Err(failed));
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
        Order::Snapshot { mv } => source::snapshot(shared, user, *mv, job.stream).await,
        Order::Fetch(order) => target::fetch(shared, user, order).await,
        Order::Activate { mv, join } => target::activate(shared, user, *mv, *join).await,
        Order::Thaw { mv, epoch, ticket } => source::thaw(shared, user, *mv, *epoch, ticket).await,
        Order::Discard { mv } => target::discard(shared, user, *mv).await,
        Order::Forget { mv } => source::forget(shared, user, *mv).await,
        Order::Deposit {
            body,
            kind,
            sender,
            sequence,
        } => {
            deposit(
                shared,
                user,
                body.clone(),
                (kind.as_str(), sender.as_str(), *sequence),
            )
            .await
        }
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

/// V10: the app gets it with the sender and the sequence by which it knows one that comes again.
async fn deposit(shared: &Shared, user: &UserId, body: Bytes, from: (&str, &str, u64)) -> Outcome {
    let served = shared
        .lock()
        .fence
        .get(user)
        .is_some_and(super::fence::Record::is_served);
    if !served {
        return Err(Failed::new(Reason::NotHere, "not served here"));
    }
    let (kind, sender, sequence) = from;
    shared
        .contract
        .deposit(user, body, kind, (sender, sequence))
        .await?;
    Ok(None)
}
