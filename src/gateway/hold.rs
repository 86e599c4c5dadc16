//! Requests that wait: per user in order of arrival while he is moved (V1), bounded; it forwards nothing itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::{ClientId, UserId};
use tokio::sync::oneshot;

use super::shards::Sharded;

/// Requests of one user that may wait.
pub(crate) const PER_USER: usize = 64;
/// Requests that may wait in one gateway.
pub(crate) const PER_GATEWAY: usize = 1000;
/// Released requests of one user that run at once until they are under way.
const AT_ONCE: usize = 4;
/// A flag that nobody lowered for this long is lowered here: the agents' fence decides from then on (V8).
const FLAG_LIMIT: Duration = Duration::from_mins(1);
/// The move of a flag raised by Placed{join_follows}, before its Hold names it.
pub(crate) const JOIN_ANNOUNCED: u64 = 0;

#[derive(Clone, Copy)]
struct Flag {
    id: u64,
    since: Duration,
}

struct Waiter {
    id: u64,
    client: ClientId,
    since: Duration,
    wake: oneshot::Sender<Permit>,
}

#[derive(Default)]
struct UserHold {
    whole: Option<Flag>,
    clients: HashMap<ClientId, Flag>,
    queue: VecDeque<Waiter>,
    running: usize,
}

impl UserHold {
    fn holds(&self, client: &ClientId) -> bool {
        self.whole.is_some() || self.clients.contains_key(client)
    }

    fn is_over(&self) -> bool {
        self.whole.is_none() && self.clients.is_empty() && self.queue.is_empty() && self.running == 0
    }
}

/// All users that are held, and the number of waiting requests of any kind.
#[derive(Default)]
pub(crate) struct Holds {
    users: Sharded<UserId, UserHold>,
    /// Users with a record; 0 is the fast path.
    held_users: AtomicUsize,
    waiting: AtomicUsize,
    next: AtomicU64,
}

/// What becomes of a request.
pub(crate) enum Entry {
    /// Nothing holds it.
    Pass,
    /// It waits its turn.
    Wait(Waiting),
    /// Too many wait.
    Full,
}

/// A place in a user's queue; dropping it frees the place.
pub(crate) struct Waiting {
    holds: Arc<Holds>,
    user: UserId,
    id: u64,
    turn: oneshot::Receiver<Permit>,
    _slot: Slot,
}

/// A released request on its start; dropping it lets the next one go.
pub(crate) struct Permit {
    holds: Arc<Holds>,
    user: UserId,
    armed: bool,
}

/// One waiting request of the gateway's bound.
pub(crate) struct Slot {
    holds: Arc<Holds>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.holds.waiting.fetch_sub(1, Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.armed {
            Holds::finish(&self.holds, &self.user);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let id = self.id;
        self.holds
            .change(&self.user, |hold| hold.queue.retain(|waiter| waiter.id != id));
    }
}

impl Waiting {
    /// Waits for this request's turn; `None` after `limit`.
    pub(crate) async fn turn(mut self, limit: Duration) -> Option<Permit> {
        tokio::time::timeout(limit, &mut self.turn).await.ok()?.ok()
    }
}

impl Holds {
    /// Requests that wait, for whatever reason.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// A place among the gateway's waiting requests, for one that waits for something else than a user's turn.
    pub(crate) fn slot(self: &Arc<Self>) -> Option<Slot> {
        if self.waiting.fetch_add(1, Relaxed) >= PER_GATEWAY {
            self.waiting.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Slot {
            holds: Arc::clone(self),
        })
    }

    /// Raises the flag of a user, or of one client id of his (P5). A client's flag that was only announced takes
    /// the move's number.
    pub(crate) fn flag(&self, user: &UserId, client: Option<ClientId>, id: u64, now: Duration) {
        let flag = Flag { id, since: now };
        self.users.change(user, |users| {
            let hold = users.entry(user.clone()).or_insert_with(|| {
                self.held_users.fetch_add(1, Relaxed);
                UserHold::default()
            });
            match client {
                None => hold.whole = Some(flag),
                // An announcement that comes after its own Hold must not take the number away again.
                Some(client) if id == JOIN_ANNOUNCED => drop(hold.clients.entry(client).or_insert(flag)),
                Some(client) => drop(hold.clients.insert(client, flag)),
            }
        });
    }

    /// True while nobody is held, so that no request has to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.held_users.load(Relaxed) == 0
    }

    /// Passes, or takes a place in the user's queue.
    pub(crate) fn enter(self: &Arc<Self>, user: &UserId, client: ClientId, now: Duration) -> Entry {
        if self.is_empty() {
            return Entry::Pass;
        }
        self.users.change(user, |users| {
            let Some(hold) = users.get_mut(user) else {
                return Entry::Pass;
            };
            // While a queue is being released, newcomers go behind it.
            let overtakes =
                hold.whole.is_none() && hold.queue.iter().any(|waiter| !hold.holds(&waiter.client));
            if !hold.holds(&client) && !overtakes {
                return Entry::Pass;
            }
            if hold.queue.len() >= PER_USER {
                return Entry::Full;
            }
            let Some(slot) = self.slot() else {
                return Entry::Full;
            };
            let (wake, turn) = oneshot::channel();
            let id = self.next.fetch_add(1, Relaxed);
            hold.queue.push_back(Waiter {
                id,
                client,
                since: now,
                wake,
            });
            Entry::Wait(Waiting {
                holds: Arc::clone(self),
                user: user.clone(),
                id,
                turn,
                _slot: slot,
            })
        })
    }

    /// Lowers the flags of move `id`; the requests that waited for it start in order, a few at a time.
    pub(crate) fn release(self: &Arc<Self>, user: &UserId, id: u64) {
        self.change(user, |hold| {
            if hold.whole.is_some_and(|flag| flag.id == id) {
                hold.whole = None;
            }
            hold.clients.retain(|_, flag| flag.id != id);
        });
    }

    /// Lowers an announced flag, when no join will come.
    pub(crate) fn release_client(self: &Arc<Self>, user: &UserId, client: &ClientId) {
        self.change(user, |hold| {
            hold.clients.remove(client);
        });
    }

    /// Lowers every flag that is older than `since`: a new commander's holds replace its predecessor's.
    pub(crate) fn release_older(self: &Arc<Self>, since: Duration) {
        let mut old = Vec::new();
        self.users.each(|user, hold| {
            let stale = |flag: &Flag| flag.since < since;
            if hold.whole.as_ref().is_some_and(stale) || hold.clients.values().any(stale) {
                old.push(user.clone());
            }
        });
        for user in old {
            self.change(&user, |hold| {
                hold.whole = hold.whole.filter(|flag| flag.since >= since);
                hold.clients.retain(|_, flag| flag.since >= since);
            });
        }
    }

    /// Lowers flags that nobody lowered; called each second.
    pub(crate) fn expire(self: &Arc<Self>, now: Duration) {
        if self.held_users.load(Relaxed) > 0 {
            self.release_older(now.saturating_sub(FLAG_LIMIT));
        }
    }

    /// Waiting requests by user and arrival, for the monitor.
    pub(crate) fn list(&self) -> Vec<(UserId, ClientId, Duration)> {
        let mut all = Vec::new();
        self.users.each(|user, hold| {
            all.extend(
                hold.queue
                    .iter()
                    .map(|waiter| (user.clone(), waiter.client, waiter.since)),
            );
        });
        all
    }

    fn finish(holds: &Arc<Self>, user: &UserId) {
        holds.change(user, |hold| hold.running = hold.running.saturating_sub(1));
    }

    /// Changes a user's record, starts who may start, drops the record when nothing is left in it.
    fn change(self: &Arc<Self>, user: &UserId, act: impl FnOnce(&mut UserHold)) {
        self.users.change(user, |users| {
            let Some(hold) = users.get_mut(user) else { return };
            act(hold);
            self.start(user, hold);
            if hold.is_over() {
                users.remove(user);
                self.held_users.fetch_sub(1, Relaxed);
            }
        });
    }

    fn start(self: &Arc<Self>, user: &UserId, hold: &mut UserHold) {
        while hold.running < AT_ONCE {
            let Some(next) = hold.queue.iter().position(|waiter| !hold.holds(&waiter.client)) else {
                return;
            };
            let Some(waiter) = hold.queue.remove(next) else {
                return;
            };
            let permit = Permit {
                holds: Arc::clone(self),
                user: user.clone(),
                armed: true,
            };
            match waiter.wake.send(permit) {
                Ok(()) => hold.running += 1,
                // Hung up: its permit must not come back here, under the lock.
                Err(mut permit) => permit.armed = false,
            }
        }
    }
}
