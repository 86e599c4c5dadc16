//! The fence (V8): what an agent may serve, one record per user, as a pure table; it sends nothing, stores nothing and reads no clock.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ClientId, Epoch, UserId};

mod moves;

/// A user who was given away is remembered this long.
pub const PAST_KEPT: Duration = Duration::from_mins(10);
/// Most records of users who were given away; the oldest goes first.
const MAX_PAST: usize = 20_000;
/// Most records at all; beyond them a user is refused.
const MAX_RECORDS: usize = 200_000;
/// Most browsers of one user; the oldest is forgotten first.
const MAX_CLIENTS: usize = 64;

/// What the agent holds of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// Logged in here, granted by nobody yet (epoch 0).
    Provisional,
    /// Granted.
    Owned {
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Source of an open move.
    Frozen {
        /// What he was owned under; 0: provisional.
        epoch: Epoch,
        /// The move's id.
        mv: Epoch,
    },
    /// Target of an open move.
    Staged {
        /// The move's id.
        mv: Epoch,
        /// The whole package is in the app.
        complete: bool,
        /// The app turned it on; served from the Route, an Assign or a forward with the move's ticket on.
        activated: bool,
    },
    /// Granted once, given away since.
    Past {
        /// The highest epoch that he was given away under.
        epoch: Epoch,
    },
}

/// One user's record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// How he is held.
    pub state: State,
    /// No epoch up to this one is ever accepted anew: he was given away under it.
    pub floor: Epoch,
    /// Ticket of the epoch held; empty when provisional.
    pub ticket: String,
    /// His browsers (L1), oldest binding first.
    pub clients: Vec<ClientId>,
    /// Last login, activation or request, by the agent's clock; for L7.
    #[serde(skip)]
    pub touched: Duration,
    /// Lists of the app in a row that lacked him (L7).
    #[serde(skip)]
    pub missing: u8,
    /// When the present state began, by the agent's clock.
    #[serde(skip)]
    pub since: Duration,
}

/// What a forward shows of its user.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The ownership that the gateway believes.
    pub epoch: Epoch,
    /// The commander's ticket for it; empty when there is none.
    pub ticket: &'a str,
}

/// Who can tell a true ticket: the pod's own key.
pub trait Tickets {
    /// True when `ticket` is the commander's for this user, epoch and pod.
    fn is_true(&self, user: &UserId, epoch: Epoch, ticket: &str) -> bool;
}

/// Answer of the fence to a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Serve; nothing changed.
    Accept,
    /// Serve; the record was raised.
    Raised,
    /// Serve; a client of session mode was seen a second time (P7): tell the commander.
    Born,
    /// The app's frozen copy must be thawed first, then [`Fence::thawed`].
    Thaw {
        /// The move that is undone.
        mv: Epoch,
    },
    /// Not executed.
    Refuse {
        /// The epoch that this agent knows, if it was granted one.
        known: Option<Epoch>,
    },
}

/// Why a transition is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No record of this user.
    NotHere,
    /// Another state, an older epoch or a ticket that does not hold.
    Refused,
}

/// What a transition found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// To be done now.
    Go,
    /// Was done before.
    Done,
}

impl Record {
    fn new(state: State, floor: Epoch, now: Duration) -> Self {
        Self {
            state,
            floor,
            ticket: String::new(),
            clients: Vec::new(),
            touched: now,
            missing: 0,
            since: now,
        }
    }

    /// The epoch held, 0 for provisional and staged users.
    pub fn epoch(&self) -> Epoch {
        match self.state {
            State::Owned { epoch } | State::Frozen { epoch, .. } | State::Past { epoch } => epoch,
            State::Provisional | State::Staged { .. } => Epoch::PROVISIONAL,
        }
    }

    /// True when he is served here.
    pub fn is_served(&self) -> bool {
        matches!(self.state, State::Provisional | State::Owned { .. })
    }

    /// A request, login or activation: lists asked for before it say nothing (L7).
    pub fn touch(&mut self, now: Duration) {
        (self.touched, self.missing) = (now, 0);
    }

    fn enter(&mut self, state: State, now: Duration) {
        self.state = state;
        self.since = now;
    }

    fn own(&mut self, epoch: Epoch, ticket: &str, now: Duration) {
        self.enter(State::Owned { epoch }, now);
        ticket.clone_into(&mut self.ticket);
        self.touch(now);
    }

    /// Given away: `epoch` is what he was held under, and nothing up to `given` is accepted anew.
    fn leave_past(&mut self, epoch: Epoch, given: Epoch, now: Duration) {
        self.floor = self.floor.max(epoch).max(given);
        self.enter(State::Past { epoch }, now);
        self.ticket.clear();
        self.clients.clear();
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Fence {
    records: HashMap<UserId, Record>,
    clients: HashMap<ClientId, UserId>,
}

fn valid(key: Option<&impl Tickets>, user: &UserId, shown: Shown<'_>) -> bool {
    shown.epoch > Epoch::PROVISIONAL && key.is_some_and(|key| key.is_true(user, shown.epoch, shown.ticket))
}

impl Fence {
    /// Takes over what a file held; all of it counts as seen `now`.
    pub fn restore(records: Vec<(UserId, Record)>, now: Duration) -> Self {
        let mut fence = Self::default();
        for (user, mut record) in records.into_iter().take(MAX_RECORDS) {
            (record.touched, record.since, record.missing) = (now, now, 0);
            for client in &record.clients {
                fence.clients.insert(*client, user.clone());
            }
            fence.records.insert(user, record);
        }
        fence
    }

    /// A user's record.
    pub fn get(&self, user: &UserId) -> Option<&Record> {
        self.records.get(user)
    }

    /// A user's record, to note what the app said of him.
    pub fn get_mut(&mut self, user: &UserId) -> Option<&mut Record> {
        self.records.get_mut(user)
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&UserId, &Record)> {
        self.records.iter()
    }

    /// All records, to note what the app said of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&UserId, &mut Record)> {
        self.records.iter_mut()
    }

    /// Users who live here (served, frozen or staged).
    pub fn living(&self) -> usize {
        self.records
            .values()
            .filter(|record| !matches!(record.state, State::Past { .. }))
            .count()
    }

    /// The user to whom a login at this agent bound the client (L1).
    pub fn user_of(&self, client: &ClientId) -> Option<&UserId> {
        self.clients.get(client)
    }

    /// May this forward be served? `session` is P7. Total; the table of the design, row by row.
    pub fn check(
        &mut self,
        user: &UserId,
        shown: Shown<'_>,
        key: Option<&impl Tickets>,
        session: bool,
        now: Duration,
    ) -> Verdict {
        let Shown { epoch, ticket } = shown;
        let Some(record) = self.records.get_mut(user) else {
            return self.check_unknown(user, shown, key, session, now);
        };
        let refuse = Verdict::Refuse {
            known: Some(record.epoch()).filter(|known| *known > Epoch::PROVISIONAL),
        };
        let verdict = match record.state {
            State::Provisional if epoch == Epoch::PROVISIONAL => Verdict::Accept,
            State::Owned { epoch: owned } if epoch == owned => Verdict::Accept,
            State::Staged { mv, activated, .. } if epoch == mv && activated && valid(key, user, shown) => {
                Verdict::Raised
            }
            State::Frozen { mv, .. } if epoch > mv && valid(key, user, shown) => Verdict::Thaw { mv },
            State::Provisional | State::Owned { .. } | State::Past { .. }
                if epoch > record.epoch().max(record.floor) && valid(key, user, shown) =>
            {
                Verdict::Raised
            }
            _ => refuse,
        };
        match verdict {
            Verdict::Raised => record.own(epoch, ticket, now),
            Verdict::Accept => record.touch(now),
            Verdict::Born | Verdict::Thaw { .. } | Verdict::Refuse { .. } => {}
        }
        verdict
    }

    fn check_unknown(
        &mut self,
        user: &UserId,
        shown: Shown<'_>,
        key: Option<&impl Tickets>,
        session: bool,
        now: Duration,
    ) -> Verdict {
        if self.records.len() >= MAX_RECORDS {
            return Verdict::Refuse { known: None };
        }
        if shown.epoch == Epoch::PROVISIONAL && session {
            self.records.insert(
                user.clone(),
                Record::new(State::Provisional, Epoch::PROVISIONAL, now),
            );
            return Verdict::Born;
        }
        if valid(key, user, shown) {
            let mut record = Record::new(State::Provisional, Epoch::PROVISIONAL, now);
            record.own(shown.epoch, shown.ticket, now);
            self.records.insert(user.clone(), record);
            return Verdict::Raised;
        }
        Verdict::Refuse { known: None }
    }

    /// L1: a login's answer bound `client` to `user`. False when the table is full.
    pub fn login(&mut self, user: &UserId, client: Option<ClientId>, now: Duration) -> bool {
        if self.records.len() >= MAX_RECORDS && !self.records.contains_key(user) {
            return false;
        }
        let record = self
            .records
            .entry(user.clone())
            .or_insert_with(|| Record::new(State::Provisional, Epoch::PROVISIONAL, now));
        if matches!(record.state, State::Past { .. }) {
            record.enter(State::Provisional, now);
        }
        record.touch(now);
        if let Some(client) = client {
            self.bind(user, client);
        }
        true
    }

    fn bind(&mut self, user: &UserId, client: ClientId) {
        self.unbind(&client);
        let Some(record) = self.records.get_mut(user) else {
            return;
        };
        if record.clients.len() >= MAX_CLIENTS {
            self.clients.remove(&record.clients.remove(0));
        }
        record.clients.push(client);
        self.clients.insert(client, user.clone());
    }

    /// This client is a guest again; who it was, if anybody.
    pub fn unbind(&mut self, client: &ClientId) -> Option<UserId> {
        let user = self.clients.remove(client)?;
        if let Some(record) = self.records.get_mut(&user) {
            record.clients.retain(|bound| bound != client);
        }
        Some(user)
    }

    /// D1: the app is another process, and nobody lives here any more. What was granted before stays refused, tickets
    /// or not: gateways go on showing them until they hear of it. What was only staged is not said to have been
    /// granted, else a new leader would forget the frozen original.
    pub fn app_restarted(&mut self, now: Duration) {
        self.clients.clear();
        self.records
            .retain(|_, record| record.state != State::Provisional || record.floor > Epoch::PROVISIONAL);
        for record in self.records.values_mut() {
            let (epoch, given) = match record.state {
                State::Staged { mv, .. } => (record.floor, mv),
                State::Frozen { epoch, mv } => (epoch, epoch.max(mv)),
                State::Provisional | State::Owned { .. } | State::Past { .. } => {
                    (record.epoch(), record.epoch())
                }
            };
            record.leave_past(epoch, given, now);
        }
    }

    /// The user left (L7).
    pub fn remove(&mut self, user: &UserId) -> Option<Record> {
        let record = self.records.remove(user)?;
        for client in &record.clients {
            self.clients.remove(client);
        }
        Some(record)
    }

    /// Drops what was past long enough, and the oldest beyond the bound. True when something went.
    pub fn sweep(&mut self, now: Duration) -> bool {
        let before = self.records.len();
        self.records.retain(|_, record| {
            !matches!(record.state, State::Past { .. }) || now.saturating_sub(record.since) < PAST_KEPT
        });
        let mut past: Vec<(Duration, UserId)> = self
            .records
            .iter()
            .filter(|(_, record)| matches!(record.state, State::Past { .. }))
            .map(|(user, record)| (record.since, user.clone()))
            .collect();
        if past.len() > MAX_PAST {
            past.sort_unstable();
            for (_, user) in past.drain(..past.len() - MAX_PAST) {
                self.records.remove(&user);
            }
        }
        self.records.len() != before
    }
}

#[cfg(test)]
mod tests;
