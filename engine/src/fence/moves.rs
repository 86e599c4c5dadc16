//! What each command of the commander makes of a record; repeating one that was done is done.

use std::time::Duration;

use crate::ids::{ClientId, Epoch, UserId};

use super::{Fence, MAX_CLIENTS, MAX_RECORDS, Record, Refusal, Shown, State, Step, Tickets, valid};

impl Fence {
    /// Command Assign: owned here from now on under `shown`.
    pub fn assign(
        &mut self,
        user: &UserId,
        shown: Shown<'_>,
        clients: &[ClientId],
        key: Option<&impl Tickets>,
        now: Duration,
    ) -> Result<Step, Refusal> {
        if !valid(key, user, shown) || (self.records.len() >= MAX_RECORDS && !self.records.contains_key(user))
        {
            return Err(Refusal::Refused);
        }
        let record = self
            .records
            .entry(user.clone())
            .or_insert_with(|| Record::new(State::Provisional, Epoch::PROVISIONAL, now));
        let step = match record.state {
            State::Owned { epoch } if epoch == shown.epoch => Step::Done,
            State::Staged {
                mv, activated: true, ..
            } if mv == shown.epoch => Step::Go,
            State::Owned { .. } | State::Provisional | State::Past { .. }
                if shown.epoch > record.epoch().max(record.floor) =>
            {
                Step::Go
            }
            _ => return Err(Refusal::Refused),
        };
        if step == Step::Go {
            record.own(shown.epoch, shown.ticket, now);
        }
        for client in clients.iter().take(MAX_CLIENTS) {
            self.bind(user, *client);
        }
        Ok(step)
    }

    /// May `mv` be snapshot here? `Done`: he is frozen for it already.
    pub fn may_freeze(&self, user: &UserId, mv: Epoch) -> Result<Step, Refusal> {
        let record = self.records.get(user).ok_or(Refusal::NotHere)?;
        match record.state {
            State::Frozen { mv: open, .. } if open == mv => Ok(Step::Done),
            State::Provisional => Ok(Step::Go),
            State::Owned { epoch } if epoch < mv => Ok(Step::Go),
            State::Past { .. } => Err(Refusal::NotHere),
            State::Owned { .. } | State::Frozen { .. } | State::Staged { .. } => Err(Refusal::Refused),
        }
    }

    /// V3: from now on nothing of the user is served.
    pub fn freeze(&mut self, user: &UserId, mv: Epoch, now: Duration) -> Result<Step, Refusal> {
        let step = self.may_freeze(user, mv)?;
        if let (Step::Go, Some(record)) = (step, self.records.get_mut(user)) {
            let epoch = record.epoch();
            record.enter(State::Frozen { epoch, mv }, now);
        }
        Ok(step)
    }

    /// A snapshot that did not come about: as before it.
    pub fn unfreeze(&mut self, user: &UserId, mv: Epoch, now: Duration) {
        if let Some(record) = self.records.get_mut(user)
            && let State::Frozen { epoch, mv: open } = record.state
            && open == mv
        {
            let provisional = epoch == Epoch::PROVISIONAL;
            record.enter(
                if provisional {
                    State::Provisional
                } else {
                    State::Owned { epoch }
                },
                now,
            );
            record.touch(now);
        }
    }

    /// May he be thawed under `shown`? (V6, or a forward above the frozen epoch.)
    pub fn may_thaw(
        &self,
        user: &UserId,
        mv: Epoch,
        shown: Shown<'_>,
        key: Option<&impl Tickets>,
    ) -> Result<Step, Refusal> {
        let record = self.records.get(user).ok_or(Refusal::NotHere)?;
        if !valid(key, user, shown) {
            return Err(Refusal::Refused);
        }
        match record.state {
            State::Frozen { mv: open, .. } if open == mv && shown.epoch > mv => Ok(Step::Go),
            State::Owned { epoch } if epoch == shown.epoch => Ok(Step::Done),
            State::Owned { .. } | State::Provisional if shown.epoch > record.epoch().max(record.floor) => {
                Ok(Step::Go)
            }
            State::Past { .. } => Err(Refusal::NotHere),
            _ => Err(Refusal::Refused),
        }
    }

    /// The app's copy was thawed: owned under `shown`, which [`Fence::may_thaw`] allowed.
    pub fn thawed(&mut self, user: &UserId, shown: Shown<'_>, now: Duration) {
        if let Some(record) = self.records.get_mut(user) {
            record.own(shown.epoch, shown.ticket, now);
        }
    }

    /// May the package of `mv` be staged? A join is staged beside its resident and leaves his record alone.
    pub fn may_stage(&self, user: &UserId, mv: Epoch, join: bool) -> Result<Step, Refusal> {
        let Some(record) = self.records.get(user) else {
            return if join { Err(Refusal::NotHere) } else { Ok(Step::Go) };
        };
        match record.state {
            State::Owned { .. } if join => Ok(Step::Go),
            _ if join => Err(Refusal::Refused),
            State::Owned { epoch } if epoch == mv => Ok(Step::Done),
            State::Staged {
                mv: open,
                complete: true,
                ..
            } if open == mv => Ok(Step::Done),
            State::Staged { mv: open, .. } if open <= mv => Ok(Step::Go),
            State::Past { epoch } if epoch < mv => Ok(Step::Go),
            _ => Err(Refusal::Refused),
        }
    }

    /// V4 begins (`complete` false) or ended (true).
    pub fn staged(&mut self, user: &UserId, mv: Epoch, complete: bool, now: Duration) {
        let record = self
            .records
            .entry(user.clone())
            .or_insert_with(|| Record::new(State::Provisional, Epoch(0), now));
        record.enter(
            State::Staged {
                mv,
                complete,
                activated: false,
            },
            now,
        );
        record.ticket.clear();
    }

    /// May `mv` be activated? `Done`: it is routed here already.
    pub fn may_activate(&self, user: &UserId, mv: Epoch, join: bool) -> Result<Step, Refusal> {
        match self.records.get(user).ok_or(Refusal::NotHere)?.state {
            State::Owned { .. } if join => Ok(Step::Go),
            State::Owned { epoch } if epoch == mv => Ok(Step::Done),
            State::Staged {
                mv: open,
                complete: true,
                ..
            } if open == mv && !join => Ok(Step::Go),
            _ => Err(Refusal::Refused),
        }
    }

    /// The app serves the copy from now on, the fence once the Route or a forward comes.
    pub fn activated(&mut self, user: &UserId, mv: Epoch, now: Duration) {
        if let Some(record) = self.records.get_mut(user) {
            if let State::Staged {
                mv: open, complete, ..
            } = record.state
                && open == mv
            {
                record.state = State::Staged {
                    mv,
                    complete,
                    activated: true,
                };
            }
            record.touch(now);
        }
    }

    /// May the staged copy of `mv` be dropped? Only a copy that was not routed.
    pub fn may_discard(&self, user: &UserId, mv: Epoch) -> Result<Step, Refusal> {
        match self.records.get(user).map(|record| record.state) {
            Some(State::Owned { epoch }) if epoch == mv => Err(Refusal::Refused),
            _ => Ok(Step::Go),
        }
    }

    /// The staged copy of `mv` is gone.
    pub fn discarded(&mut self, user: &UserId, mv: Epoch, now: Duration) {
        let Some(record) = self.records.get_mut(user) else {
            return;
        };
        let State::Staged {
            mv: open, activated, ..
        } = record.state
        else {
            return;
        };
        if open != mv {
            return;
        }
        // What was turned on may have been routed by a leader that is gone: the ticket must not raise anything here.
        if activated {
            let epoch = record.floor;
            record.leave_past(epoch, mv, now);
        } else if record.floor > Epoch::PROVISIONAL {
            let epoch = record.floor;
            record.leave_past(epoch, epoch, now);
        } else {
            self.remove(user);
        }
    }

    /// May the app's copy be dropped after the commit of `mv` (or a join that failed)?
    pub fn may_forget(&self, user: &UserId, mv: Epoch) -> Result<Step, Refusal> {
        match self.records.get(user).map(|record| record.state) {
            None | Some(State::Past { .. }) => Ok(Step::Done),
            Some(State::Provisional) => Ok(Step::Go),
            Some(State::Frozen { mv: open, .. }) if open <= mv => Ok(Step::Go),
            Some(State::Owned { epoch }) if epoch < mv => Ok(Step::Go),
            Some(_) => Err(Refusal::Refused),
        }
    }

    /// The app's copy is gone: past. `mv` is what it was given away under.
    pub fn forgotten(&mut self, user: &UserId, mv: Epoch, now: Duration) {
        let Some(record) = self.records.get_mut(user) else {
            return;
        };
        for client in std::mem::take(&mut record.clients) {
            self.clients.remove(&client);
        }
        let epoch = record.epoch().max(record.floor);
        record.leave_past(epoch, mv, now);
    }
}
