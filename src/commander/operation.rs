//! Operations on users, one at a time each (V11): what waits, what runs, what pauses; carrying out is the mover's.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use elastic_pool_engine::Share;
use elastic_pool_engine::backoff::Backoff;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
pub(super) use elastic_pool_engine::moves::Kind;
use elastic_pool_engine::moves::{Cause, Move, Nack};

use crate::vehicle::ObjectKey;

/// A user of a pool.
pub(super) type Subject = (ObjectKey, UserId);

/// One move or join that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operation {
    pub(super) pool: ObjectKey,
    pub(super) user: UserId,
    pub(super) source: Birth,
    pub(super) target: Birth,
    pub(super) kind: Kind,
    /// The part of its worker's occupancy that goes with a drain's user (C4); none for logins.
    pub(super) share: Option<Share>,
}

impl Operation {
    pub(super) fn new(pool: ObjectKey, user: UserId, source: Birth, target: Birth, kind: Kind) -> Self {
        Self {
            pool,
            user,
            source,
            target,
            kind,
            share: None,
        }
    }

    fn subject(&self) -> Subject {
        (self.pool.clone(), self.user.clone())
    }
}

/// An operation under way.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) operation: Operation,
    pub(super) state: Move,
    /// When the user was flagged.
    pub(super) since: Duration,
    /// When the present step began.
    pub(super) step_since: Duration,
}

/// Waits until a login's answer is out (L3).
#[derive(Debug)]
struct Unanswered {
    operation: Operation,
    client: Option<ClientId>,
    until: Duration,
}

/// V6: why and until when a user is not moved again.
#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    until: Duration,
    leaves: bool,
    /// What the last move failed of.
    cause: &'static str,
}

/// All operations of this leader.
#[derive(Debug, Default)]
pub(super) struct Operations {
    waiting: HashMap<Subject, VecDeque<Operation>>,
    pub(super) active: HashMap<Subject, Active>,
    /// Which command belongs to whom.
    pub(super) commands: HashMap<u64, (Subject, Told)>,
    unanswered: Vec<Unanswered>,
    born: HashMap<(ObjectKey, UserId, ClientId), (Birth, Duration)>,
    pauses: HashMap<Subject, Pause>,
}

/// What an agent was told, to know what its Ack means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Snapshot,
    Fetch,
    Activate,
    Assign,
    Forget,
    Discard,
    Thaw,
}

impl Operations {
    /// Queues an operation behind those of its user.
    pub(super) fn enqueue(&mut self, operation: Operation) {
        self.waiting
            .entry(operation.subject())
            .or_default()
            .push_back(operation);
    }

    /// Queues an operation that starts once the login's answer is finished.
    pub(super) fn await_answer(&mut self, operation: Operation, client: Option<ClientId>, until: Duration) {
        self.unanswered.push(Unanswered {
            operation,
            client,
            until,
        });
    }

    /// L3: the answer to this client is out.
    pub(super) fn answered(&mut self, pool: &ObjectKey, user: &UserId, client: ClientId) {
        let of_client = |waiting: &Unanswered| {
            waiting.operation.pool == *pool
                && waiting.operation.user == *user
                && waiting.client.is_none_or(|named| named == client)
        };
        let (ready, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unanswered)
            .into_iter()
            .partition(of_client);
        self.unanswered = rest;
        for waiting in ready {
            self.enqueue(waiting.operation);
        }
    }

    /// Answers that took too long: a join starts all the same (its client waits), a move is left to a later try.
    pub(super) fn overdue_answers(&mut self, now: Duration) -> Vec<Operation> {
        let (late, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unanswered)
            .into_iter()
            .partition(|waiting| waiting.until <= now);
        self.unanswered = rest;
        late.into_iter().map(|waiting| waiting.operation).collect()
    }

    /// A join of this client is expected, waits or runs.
    pub(super) fn expects(&self, pool: &ObjectKey, user: &UserId, client: ClientId) -> bool {
        let join = |operation: &Operation| operation.kind == Kind::Join { client };
        let subject = (pool.clone(), user.clone());
        self.unanswered
            .iter()
            .any(|waiting| waiting.operation.user == *user && join(&waiting.operation))
            || self
                .waiting
                .get(&subject)
                .is_some_and(|queue| queue.iter().any(join))
            || self
                .active
                .get(&subject)
                .is_some_and(|active| join(&active.operation))
    }

    /// Moves that wait or are under way.
    pub(super) fn moves(&self) -> impl Iterator<Item = &Operation> {
        let active = self.active.values().map(|active| &active.operation);
        let all = active.chain(self.waiting.values().flatten());
        all.filter(|operation| operation.kind == Kind::Move)
    }

    /// The next operation of a user who has none under way.
    pub(super) fn next(&mut self, subject: &Subject) -> Option<Operation> {
        if self.active.contains_key(subject) {
            return None;
        }
        let queue = self.waiting.get_mut(subject)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(subject);
        }
        next
    }

    /// The user has an operation under way or waiting.
    pub(super) fn is_busy(&self, pool: &ObjectKey, user: &UserId) -> bool {
        let subject = (pool.clone(), user.clone());
        self.active.contains_key(&subject)
            || self.waiting.contains_key(&subject)
            || self
                .unanswered
                .iter()
                .any(|waiting| waiting.operation.user == *user && waiting.operation.pool == *pool)
    }

    /// A move of the user is under way and not committed.
    pub(super) fn is_open(&self, pool: &ObjectKey, user: &UserId) -> bool {
        let active = self.active.get(&(pool.clone(), user.clone()));
        active.is_some_and(|active| active.operation.kind == Kind::Move && active.state.is_open())
    }

    /// An operation under way has this worker as an end.
    pub(super) fn touches(&self, birth: Birth) -> bool {
        self.active
            .values()
            .any(|active| active.operation.source == birth || active.operation.target == birth)
    }

    /// Operations under way with an end like this.
    pub(super) fn running(&self, is_end: impl Fn(Birth) -> bool) -> usize {
        let touches = |active: &&Active| is_end(active.operation.source) || is_end(active.operation.target);
        self.active.values().filter(touches).count()
    }

    /// The open move with this id.
    pub(super) fn by_move(&self, pool: &ObjectKey, id: Epoch) -> Option<Subject> {
        self.active
            .iter()
            .find(|((of, _), active)| of == pool && active.state.id == id)
            .map(|(subject, _)| subject.clone())
    }

    /// V6: a pause for a user whose move failed.
    ///
    /// One whom his app did not know (`not_here`) has most likely just left: L7 decides about him within this pause,
    /// and only a second such answer in a row makes him one who cannot be moved.
    pub(super) fn pause(&mut self, subject: &Subject, cause: &'static str, now: Duration) {
        let unknown = cause == Cause::Nack(Nack::NotHere).code();
        let pause = self.pauses.entry(subject.clone()).or_default();
        pause.failures = pause.failures.saturating_add(1);
        pause.until = now + Backoff::MOVE.pause(pause.failures);
        pause.leaves = unknown && pause.failures == 1;
        pause.cause = cause;
    }

    /// His move failed, and he is not about to leave by himself.
    pub(super) fn is_stuck(&self, subject: &Subject, now: Duration) -> bool {
        self.pauses
            .get(subject)
            .is_some_and(|pause| pause.until > now && !pause.leaves)
    }

    /// His move went well: no pause any more.
    pub(super) fn clear_pause(&mut self, subject: &Subject) {
        self.pauses.remove(subject);
    }

    pub(super) fn is_paused(&self, subject: &Subject, now: Duration) -> bool {
        self.paused_until(subject, now).is_some()
    }

    /// V6: until when he is left alone, and what his move failed of.
    pub(super) fn paused_until(&self, subject: &Subject, now: Duration) -> Option<(Duration, &'static str)> {
        let pause = self.pauses.get(subject).filter(|pause| pause.until > now)?;
        Some((pause.until, pause.cause))
    }

    /// P6: an agent named a user whom no gateway placed yet.
    pub(super) fn born(
        &mut self,
        pool: ObjectKey,
        user: UserId,
        client: ClientId,
        at: Birth,
        until: Duration,
    ) {
        self.born.entry((pool, user, client)).or_insert((at, until));
    }

    pub(super) fn is_born(&self, pool: &ObjectKey, user: &UserId) -> bool {
        self.born.keys().any(|(of, born, _)| of == pool && born == user)
    }

    /// Those whose gateway did not ask in time.
    pub(super) fn overdue_born(&mut self, now: Duration) -> Vec<(ObjectKey, UserId, ClientId, Birth)> {
        let late: Vec<_> = self
            .born
            .iter()
            .filter(|(_, (_, until))| *until <= now)
            .map(|(key, (at, _))| (key.clone(), *at))
            .collect();
        for (key, _) in &late {
            self.born.remove(key);
        }
        late.into_iter()
            .map(|((pool, user, client), at)| (pool, user, client, at))
            .collect()
    }

    /// Drops what waits from or to a worker that is gone.
    pub(super) fn forget_worker(&mut self, birth: Birth) {
        let other = |operation: &Operation| operation.source != birth && operation.target != birth;
        self.unanswered.retain(|waiting| other(&waiting.operation));
        self.waiting.retain(|_, queue| {
            queue.retain(other);
            !queue.is_empty()
        });
        self.born.retain(|_, (at, _)| *at != birth);
    }

    /// Moves away from this worker that have not started.
    pub(super) fn withdraw_waiting(&mut self, from: Birth) {
        self.waiting.retain(|_, queue| {
            queue.retain(|operation| operation.source != from || operation.kind != Kind::Move);
            !queue.is_empty()
        });
    }
}
