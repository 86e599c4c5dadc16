//! The app's users and guests with their standing in a move (live, frozen, staged); sync, without I/O or clock: `now` is an argument.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;
use thiserror::Error;

use super::identity::{MoveId, UserId};
use super::slice::{Joined, MAX_DEPOSITS, Slice};

/// Bounds and times of a [`Store`]; times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most residents; a further login is refused.
    pub(super) users: usize,
    /// Most guests with a slice; further guests are served without one.
    pub(super) guests: usize,
    /// Most packages staged at once.
    pub(super) staged: usize,
    /// A resident without request or stream for longer leaves.
    pub(super) session_timeout: u64,
    /// A guest without request for longer is forgotten.
    pub(super) guest_timeout: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            users: 100_000,
            guests: 20_000,
            staged: 256,
            session_timeout: 1800,
            guest_timeout: 600,
        }
    }
}

/// Why the store does not do what it was asked.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nobody of that name, or no such package, is here.
    #[error("no such user or package here")]
    Absent,
    /// A move has frozen the user: no request of his runs here (V3).
    #[error("the user is frozen by a move")]
    Frozen,
    /// Another move stands in the way, or this one went too far to be undone.
    #[error("another move of this user stands in the way, or this one can no longer be undone")]
    Conflict,
    /// A bound is reached.
    #[error("a bound of this worker is reached")]
    Full,
}

#[derive(Debug)]
struct Resident {
    slice: Slice,
    frozen: Option<MoveId>,
    activated: Option<Activation>,
    /// Open streams by id: a set, so that a stream which ends late cannot make the number drift.
    streams: HashSet<u64>,
    touched: u64,
}

#[derive(Debug)]
struct Activation {
    id: MoveId,
    undo: Undo,
}

#[derive(Debug)]
enum Undo {
    /// The user came with the package; only while nothing was served is he taken out again.
    Arrival {
        served: bool,
    },
    Join(Joined),
}

#[derive(Debug)]
struct Guest {
    slice: Slice,
    touched: u64,
}

/// One line of the contract's list of users.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Listed {
    /// The user's id, unencoded.
    pub(super) id: String,
    /// `live`, `frozen` or `staged`; a resident with a staged join has two lines.
    pub(super) state: &'static str,
    /// The move, as a decimal string, where the state has one.
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    pub(super) move_id: Option<String>,
}

/// The counts of a report (M1).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Residents, frozen ones included.
    pub(super) users: usize,
    /// Their open pages.
    pub(super) pages: usize,
    /// Their open streams.
    pub(super) connections: usize,
    /// Residents with a request inside the window.
    pub(super) active_users: usize,
    /// Undelivered deposits.
    pub(super) pending: usize,
}

/// All users and guests of this process.
#[derive(Debug)]
pub(super) struct Store {
    limits: Limits,
    residents: HashMap<UserId, Resident>,
    staged: HashMap<UserId, (MoveId, Slice)>,
    guests: HashMap<String, Guest>,
    gone: VecDeque<(UserId, u8)>,
}

const MAX_GONE: usize = 1024;
/// A name is told in this many reports, because one of them may be lost on its way.
const TELL_GONE: u8 = 3;

impl Store {
    /// An empty store.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            residents: HashMap::new(),
            staged: HashMap::new(),
            guests: HashMap::new(),
            gone: VecDeque::new(),
        }
    }

    /// Whether this browser of this user is logged in here, frozen or not; a staged user is not visible.
    pub(super) fn knows(&self, user: &UserId, nonce: &str) -> bool {
        self.residents
            .get(user)
            .is_some_and(|resident| resident.slice.sessions.iter().any(|n| n == nonce))
    }

    /// Whether the user lives here and is not frozen.
    pub(super) fn is_live(&self, user: &UserId) -> bool {
        self.residents
            .get(user)
            .is_some_and(|resident| resident.frozen.is_none())
    }

    /// A live user's counter, without counting as a request of his.
    pub(super) fn counter(&self, user: &UserId) -> Result<u64, Refusal> {
        match self.residents.get(user) {
            None => Err(Refusal::Absent),
            Some(Resident { frozen: Some(_), .. }) => Err(Refusal::Frozen),
            Some(resident) => Ok(resident.slice.counter),
        }
    }

    /// Runs a request of a user on his slice; refused when he is frozen or not here.
    pub(super) fn serve<T>(
        &mut self,
        user: &UserId,
        now: u64,
        act: impl FnOnce(&mut Slice) -> T,
    ) -> Result<T, Refusal> {
        let resident = self.live(user)?;
        resident.touched = now;
        if let Some(Activation {
            undo: Undo::Arrival { served },
            ..
        }) = &mut resident.activated
        {
            *served = true;
        }
        Ok(act(&mut resident.slice))
    }

    /// Runs a request of a guest; above the bound of guests nothing of it is kept.
    pub(super) fn serve_guest<T>(&mut self, id: &str, now: u64, act: impl FnOnce(&mut Slice) -> T) -> T {
        if !self.guests.contains_key(id) && self.guests.len() >= self.limits.guests {
            return act(&mut Slice::default());
        }
        let guest = self.guests.entry(id.to_owned()).or_insert_with(|| Guest {
            slice: Slice::default(),
            touched: now,
        });
        guest.touched = now;
        act(&mut guest.slice)
    }

    /// A guest's counter, 0 without a slice; an open stream that asks keeps him from being forgotten.
    pub(super) fn guest_counter(&mut self, id: &str, now: u64) -> u64 {
        self.guests.get_mut(id).map_or(0, |guest| {
            guest.touched = now;
            guest.slice.counter
        })
    }

    /// Logs a browser in: the guest's slice becomes the user's, or is joined to the resident's; the counter then.
    pub(super) fn login(
        &mut self,
        user: &UserId,
        guest: Option<&str>,
        nonce: String,
        now: u64,
    ) -> Result<u64, Refusal> {
        match self.residents.get(user) {
            Some(Resident { frozen: Some(_), .. }) => return Err(Refusal::Frozen),
            None if self.residents.len() >= self.limits.users => return Err(Refusal::Full),
            _ => {}
        }
        let brought = guest
            .and_then(|id| self.guests.remove(id))
            .map(|guest| guest.slice);
        self.gone.retain(|(name, _)| name != user);
        match self.residents.get_mut(user) {
            Some(resident) => {
                resident.slice.join(brought.unwrap_or_default());
            }
            None => self.settle(user.clone(), brought.unwrap_or_default(), None, now),
        }
        self.serve(user, now, |slice| {
            slice.open_session(nonce);
            slice.counter
        })
    }

    /// Logs one browser out; the user leaves with his last one. True when he left.
    pub(super) fn logout(&mut self, user: &UserId, nonce: &str, now: u64) -> Result<bool, Refusal> {
        let last = self.serve(user, now, |slice| {
            slice.sessions.retain(|held| held != nonce);
            slice.sessions.is_empty()
        })?;
        if last {
            self.residents.remove(user);
            self.tell_gone(user.clone());
        }
        Ok(last)
    }

    /// Notes an open stream of a live user.
    pub(super) fn open_stream(&mut self, user: &UserId, stream: u64) -> Result<(), Refusal> {
        self.live(user)?.streams.insert(stream);
        Ok(())
    }

    /// Notes the end of a stream; nothing when the user has gone meanwhile.
    pub(super) fn close_stream(&mut self, user: &UserId, stream: u64) {
        if let Some(resident) = self.residents.get_mut(user) {
            resident.streams.remove(&stream);
        }
    }

    /// Lets those leave whose time is over; frozen users stay whatever the time.
    pub(super) fn sweep(&mut self, now: u64) {
        let limits = self.limits;
        let over: Vec<UserId> = self
            .residents
            .iter()
            .filter(|(_, r)| r.frozen.is_none() && r.streams.is_empty())
            .filter(|(_, r)| now.saturating_sub(r.touched) > limits.session_timeout)
            .map(|(user, _)| user.clone())
            .collect();
        for user in over {
            self.residents.remove(&user);
            self.tell_gone(user);
        }
        self.guests
            .retain(|_, guest| now.saturating_sub(guest.touched) <= limits.guest_timeout);
    }

    /// Names of users who left lately; each is told a few times.
    pub(super) fn take_gone(&mut self) -> Vec<String> {
        let names = self
            .gone
            .iter()
            .map(|(user, _)| user.as_str().to_owned())
            .collect();
        for (_, told) in &mut self.gone {
            *told += 1;
        }
        self.gone.retain(|(_, told)| *told < TELL_GONE);
        names
    }

    /// Freezes a user for a move and hands out his slice (V3); the same move may ask again.
    pub(super) fn freeze(&mut self, user: &UserId, id: MoveId) -> Result<&Slice, Refusal> {
        let resident = self.residents.get_mut(user).ok_or(Refusal::Absent)?;
        if resident.frozen.is_some_and(|frozen| frozen != id) {
            return Err(Refusal::Conflict);
        }
        resident.frozen = Some(id);
        resident.activated = None;
        Ok(&resident.slice)
    }

    /// Thaws what this move froze (V6); a live user stays as he is.
    pub(super) fn thaw(&mut self, user: &UserId, id: MoveId) -> Result<(), Refusal> {
        let resident = self.residents.get_mut(user).ok_or(Refusal::Absent)?;
        match resident.frozen {
            Some(frozen) if frozen != id => Err(Refusal::Conflict),
            _ => {
                resident.frozen = None;
                Ok(())
            }
        }
    }

    /// Stages a package (V4): invisible. The newest move wins; beside a frozen copy it is refused (V11).
    pub(super) fn stage(&mut self, user: UserId, id: MoveId, slice: Slice) -> Result<(), Refusal> {
        if let Some(resident) = self.residents.get(&user) {
            if resident.activated.as_ref().is_some_and(|done| done.id == id) {
                return Ok(());
            }
            if resident.frozen.is_some() {
                return Err(Refusal::Conflict);
            }
        }
        match self.staged.get(&user) {
            Some((held, _)) if *held > id => return Err(Refusal::Conflict),
            None if self.staged.len() >= self.limits.staged => return Err(Refusal::Full),
            _ => {}
        }
        self.staged.insert(user, (id, slice));
        Ok(())
    }

    /// Makes the staged copy live, or joins it to the resident's slice (P5); the same move may ask again.
    pub(super) fn activate(&mut self, user: &UserId, id: MoveId, now: u64) -> Result<(), Refusal> {
        if let Some(resident) = self.residents.get(user) {
            if resident.activated.as_ref().is_some_and(|done| done.id == id) {
                return Ok(());
            }
            if resident.frozen.is_some() {
                return Err(Refusal::Conflict);
            }
        }
        let (_, slice) = match self.staged.remove(user) {
            Some(held) if held.0 == id => held,
            Some(held) => {
                self.staged.insert(user.clone(), held);
                return Err(Refusal::Absent);
            }
            None => return Err(Refusal::Absent),
        };
        if let Some(resident) = self.residents.get_mut(user) {
            let joined = resident.slice.join(slice);
            resident.activated = Some(Activation {
                id,
                undo: Undo::Join(joined),
            });
        } else {
            let activation = Activation {
                id,
                undo: Undo::Arrival { served: false },
            };
            self.settle(user.clone(), slice, Some(activation), now);
        }
        self.gone.retain(|(name, _)| name != user);
        Ok(())
    }

    /// Discards what this move staged, or undoes its activation unless a request was served under it.
    pub(super) fn discard(&mut self, user: &UserId, id: MoveId) -> Result<(), Refusal> {
        if self.staged.get(user).is_some_and(|(held, _)| *held == id) {
            self.staged.remove(user);
            return Ok(());
        }
        let resident = self.residents.get_mut(user).ok_or(Refusal::Absent)?;
        match resident.activated.take_if(|done| done.id == id) {
            None => Err(Refusal::Absent),
            Some(Activation {
                undo: Undo::Join(joined),
                ..
            }) => {
                resident.slice.undo(&joined);
                Ok(())
            }
            Some(Activation {
                undo: Undo::Arrival { served: false },
                ..
            }) => {
                self.residents.remove(user);
                Ok(())
            }
            kept => {
                resident.activated = kept;
                Err(Refusal::Conflict)
            }
        }
    }

    /// Forgets a user who lives elsewhere now (V5); a staged copy stays.
    pub(super) fn forget(&mut self, user: &UserId) -> Result<(), Refusal> {
        self.residents.remove(user).map(|_| ()).ok_or(Refusal::Absent)
    }

    /// Leaves a message for a live user (V10); one that comes again with the same sender and number changes nothing.
    pub(super) fn deposit(
        &mut self,
        user: &UserId,
        text: String,
        from: Option<(&str, u64)>,
    ) -> Result<(), Refusal> {
        let resident = self.live(user)?;
        if resident.slice.deposits.len() >= MAX_DEPOSITS {
            return Err(Refusal::Full);
        }
        if from.is_none_or(|(sender, sequence)| resident.slice.is_new(sender, sequence)) {
            resident.slice.deposits.push_back(text);
        }
        Ok(())
    }

    /// Everybody here with his standing, by name.
    pub(super) fn list(&self) -> Vec<Listed> {
        let line = |user: &UserId, state, id: Option<MoveId>| Listed {
            id: user.as_str().to_owned(),
            state,
            move_id: id.map(|id| id.to_string()),
        };
        let mut lines: Vec<Listed> = self
            .residents
            .iter()
            .map(|(user, r)| line(user, if r.frozen.is_some() { "frozen" } else { "live" }, r.frozen))
            .chain(
                self.staged
                    .iter()
                    .map(|(user, (id, _))| line(user, "staged", Some(*id))),
            )
            .collect();
        lines.sort_by(|a, b| (&a.id, a.state).cmp(&(&b.id, b.state)));
        lines
    }

    /// The counts of a report; `window` in seconds.
    pub(super) fn counts(&self, now: u64, window: u64) -> Counts {
        self.residents.values().fold(Counts::default(), |sum, r| Counts {
            users: sum.users + 1,
            pages: sum.pages + r.slice.pages.len(),
            connections: sum.connections + r.streams.len(),
            active_users: sum.active_users + usize::from(now.saturating_sub(r.touched) < window),
            pending: sum.pending + r.slice.deposits.len(),
        })
    }

    /// Calls `tell` for up to `most` residents with name, slice, open streams and idle seconds.
    pub(super) fn describe(&self, now: u64, most: usize, mut tell: impl FnMut(&UserId, &Slice, usize, u64)) {
        for (user, r) in self.residents.iter().take(most) {
            tell(user, &r.slice, r.streams.len(), now.saturating_sub(r.touched));
        }
    }

    fn live(&mut self, user: &UserId) -> Result<&mut Resident, Refusal> {
        let resident = self.residents.get_mut(user).ok_or(Refusal::Absent)?;
        if resident.frozen.is_some() {
            Err(Refusal::Frozen)
        } else {
            Ok(resident)
        }
    }

    fn settle(&mut self, user: UserId, slice: Slice, activated: Option<Activation>, now: u64) {
        let resident = Resident {
            slice,
            frozen: None,
            activated,
            streams: HashSet::new(),
            touched: now,
        };
        self.residents.insert(user, resident);
    }

    fn tell_gone(&mut self, user: UserId) {
        if self.gone.len() >= MAX_GONE {
            self.gone.pop_front();
        }
        self.gone.push_back((user, 0));
    }
}
