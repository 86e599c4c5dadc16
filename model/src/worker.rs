//! A worker: the agent's fence decides (the engine's), the app holds copies of users.

use std::time::Duration;

use elastic_pool_engine::fence::{self, Fence, Record, Refusal, Shown, Step, Tickets, Verdict};
use elastic_pool_engine::ids::{Epoch, UserId};
use elastic_pool_engine::moves::Nack;

use crate::state::{ALTERED, Asked, Mail, Order, Stage, State, bit, name};
use crate::{Broken, World, claims};

const NOW: Duration = Duration::ZERO;
/// Whatever the leader granted has a true ticket, and nobody else makes epochs here.
struct True;

impl Tickets for True {
    fn is_true(&self, _: &UserId, _: Epoch, _: &str) -> bool {
        true
    }
}

fn shown(epoch: Epoch) -> Shown<'static> {
    Shown { epoch, ticket: "" }
}

fn nack(refusal: Refusal) -> Nack {
    match refusal {
        Refusal::NotHere => Nack::NotHere,
        Refusal::Refused => Nack::Refused,
    }
}

impl State {
    /// The engine's fence, with this user's record alone in it.
    fn fenced<T>(&mut self, at: u8, user: u8, act: impl FnOnce(&mut Fence, &UserId) -> T) -> T {
        let id = name(user);
        let record = self.seat(at, user).fence.map(|(state, floor)| Record {
            state,
            floor,
            ticket: String::new(),
            clients: Vec::new(),
            touched: NOW,
            missing: 0,
            since: NOW,
        });
        let mut fence = Fence::restore(
            record.map(|record| (id.clone(), record)).into_iter().collect(),
            NOW,
        );
        let answer = act(&mut fence, &id);
        self.seat(at, user).fence = fence.get(&id).map(|record| (record.state, record.floor));
        answer
    }

    /// An agent carries out a command and answers.
    pub(crate) fn obey(
        &mut self,
        world: &World,
        (to, link, user): (u8, u8, u8),
        order: Order,
        altered: bool,
    ) {
        let (asked, mv, done) = match order {
            Order::Assign { mv, epoch } => {
                let done = self.fenced(to, user, |fence, id| {
                    fence.assign(id, shown(epoch), &[], Some(&True), NOW).map(|_| ())
                });
                (Asked::Assign, mv, done.map_err(nack))
            }
            Order::Snapshot { mv } => (Asked::Snapshot, mv, self.snapshot(world, to, user, mv)),
            Order::Fetch { mv, source, join } => (
                Asked::Fetch,
                mv,
                self.fetch(world, to, user, (mv, source, join), altered),
            ),
            Order::Activate { mv, join } => (Asked::Activate, mv, self.activate(to, user, mv, join)),
            Order::Thaw { mv, epoch } => (Asked::Thaw, mv, self.thaw(to, user, mv, epoch)),
            Order::Discard { mv } => (Asked::Discard, mv, self.discard(to, user, mv)),
            Order::Forget { mv } => (Asked::Forget, mv, self.forget(to, user, mv)),
        };
        if mv > Epoch::PROVISIONAL {
            self.mail.insert(Mail::Answer {
                from: to,
                link,
                user,
                mv,
                order: asked,
                failed: done.err(),
            });
        }
    }

    /// V2 and V3; while a request is open the quiesce limit is over at once (a later delivery is the longer wait).
    fn snapshot(&mut self, world: &World, at: u8, user: u8, mv: Epoch) -> Result<(), Nack> {
        let step = self
            .fenced(at, user, |fence, id| fence.may_freeze(id, mv))
            .map_err(nack)?;
        if step == Step::Done {
            return Ok(());
        }
        if self.open(at, user) > 0 && world.broken != Some(Broken::Quiesce) {
            return Err(Nack::Busy);
        }
        let Some(seen) = self.seat(at, user).live else {
            return Err(Nack::NotHere);
        };
        self.fenced(at, user, |fence, id| fence.freeze(id, mv, NOW))
            .map_err(nack)?;
        let seat = self.seat(at, user);
        seat.frozen = true;
        seat.package = Some((mv, seen));
        Ok(())
    }

    fn fetch(
        &mut self,
        world: &World,
        at: u8,
        user: u8,
        (mv, source, join): (Epoch, u8, bool),
        altered: bool,
    ) -> Result<(), Nack> {
        let step = self
            .fenced(at, user, |fence, id| fence.may_stage(id, mv, join))
            .map_err(nack)?;
        if step == Step::Done {
            return Ok(());
        }
        self.seat(at, user).staged = None;
        if !join {
            self.fenced(at, user, |fence, id| fence.staged(id, mv, false, NOW));
        }
        let package = self.seat(source, user).package.filter(|(of, _)| *of == mv);
        let checked = match package {
            None => Err(Nack::Unreachable),
            Some(_) if altered && world.broken != Some(Broken::Checksum) => Err(Nack::Corrupt),
            Some((_, seen)) => Ok(if altered { seen | ALTERED } else { seen }),
        };
        match checked {
            Ok(seen) => {
                self.seat(at, user).staged = Some((mv, seen));
                if !join {
                    self.fenced(at, user, |fence, id| fence.staged(id, mv, true, NOW));
                }
                Ok(())
            }
            Err(nack) => {
                if !join {
                    self.fenced(at, user, |fence, id| fence.discarded(id, mv, NOW));
                }
                Err(nack)
            }
        }
    }

    fn activate(&mut self, at: u8, user: u8, mv: Epoch, join: bool) -> Result<(), Nack> {
        let step = self
            .fenced(at, user, |fence, id| fence.may_activate(id, mv, join))
            .map_err(nack)?;
        if step == Step::Go {
            let seat = self.seat(at, user);
            if let Some((_, seen)) = seat.staged.take_if(|(of, _)| *of == mv) {
                let resident = if join { seat.live.unwrap_or_default() } else { 0 };
                seat.live = Some(seen | resident);
                seat.frozen = false;
            }
            self.fenced(at, user, |fence, id| fence.activated(id, mv, NOW));
        }
        Ok(())
    }

    fn thaw(&mut self, at: u8, user: u8, mv: Epoch, epoch: Epoch) -> Result<(), Nack> {
        let may = self.fenced(at, user, |fence, id| {
            fence.may_thaw(id, mv, shown(epoch), Some(&True))
        });
        if may.map_err(nack)? == Step::Go {
            let seat = self.seat(at, user);
            (seat.frozen, seat.package) = (false, None);
            self.fenced(at, user, |fence, id| fence.thawed(id, shown(epoch), NOW));
        }
        Ok(())
    }

    fn discard(&mut self, at: u8, user: u8, mv: Epoch) -> Result<(), Nack> {
        self.fenced(at, user, |fence, id| fence.may_discard(id, mv))
            .map_err(nack)?;
        let seat = self.seat(at, user);
        seat.staged.take_if(|(of, _)| *of == mv);
        let active =
            matches!(seat.fence, Some((fence::State::Staged { mv: of, activated: true, .. }, _)) if of == mv);
        if active {
            seat.live = None;
        }
        self.fenced(at, user, |fence, id| fence.discarded(id, mv, NOW));
        Ok(())
    }

    fn forget(&mut self, at: u8, user: u8, mv: Epoch) -> Result<(), Nack> {
        let may = self.fenced(at, user, |fence, id| fence.may_forget(id, mv));
        if may.map_err(nack)? == Step::Go {
            let seat = self.seat(at, user);
            (seat.live, seat.frozen, seat.package) = (None, false, None);
            self.fenced(at, user, |fence, id| fence.forgotten(id, mv, NOW));
        }
        Ok(())
    }

    /// The wrong that [`Broken::ThawsAlone`] stands for.
    pub(crate) fn thaw_alone(&mut self, at: u8, user: u8) {
        if let Some((fence::State::Frozen { epoch, .. }, floor)) = self.seat(at, user).fence {
            let seat = self.seat(at, user);
            seat.fence = Some((fence::State::Owned { epoch }, floor));
            seat.frozen = false;
        }
    }

    /// A forward reaches the agent: served, or refused and not executed (V8).
    pub(crate) fn arrive(&mut self, world: &World, number: u8) {
        let request = self.requests[usize::from(number)];
        let Stage::Sent { worker, epoch } = request.stage else {
            return;
        };
        if !self.workers[usize::from(worker)].up {
            // No connection: tried again a little later.
            self.requests[usize::from(number)].stage = Stage::Again;
            return;
        }
        let user = request.user;
        if request.login || world.broken == Some(Broken::Fence) {
            self.requests[usize::from(number)].stage = Stage::Open { worker };
            return;
        }
        let check = |state: &mut Self| {
            state.fenced(worker, user, |fence, id| {
                fence.check(id, shown(epoch), Some(&True), false, NOW)
            })
        };
        let mut verdict = check(self);
        if let Verdict::Thaw { mv } = verdict {
            let _ = self.thaw(worker, user, mv, epoch);
            verdict = check(self);
        }
        match verdict {
            Verdict::Accept | Verdict::Raised | Verdict::Born => {
                self.requests[usize::from(number)].stage = Stage::Open { worker };
            }
            Verdict::Thaw { .. } | Verdict::Refuse { .. } => {
                self.requests[usize::from(number)].refused = Some((worker, epoch));
                self.ask(number, epoch);
            }
        }
    }

    /// The app has done it.
    pub(crate) fn end(&mut self, number: u8) {
        let request = self.requests[usize::from(number)];
        let (Stage::Open { worker } | Stage::Orphan { worker }) = request.stage else {
            return;
        };
        if request.login {
            self.log_in(number, worker);
            return;
        }
        self.execute(number, worker);
        let orphan = matches!(request.stage, Stage::Orphan { .. });
        self.requests[usize::from(number)].stage = if orphan { Stage::Failed } else { Stage::Served };
    }

    fn execute(&mut self, number: u8, worker: u8) {
        let user = self.requests[usize::from(number)].user;
        let request = &mut self.requests[usize::from(number)];
        request.ran += 1;
        let twice = request.ran > 1;
        let seat = *self.seat(worker, user);
        let seen = seat.live.unwrap_or_default();
        let mark = bit(number.min(6));
        self.seat(worker, user).live = Some(seen | mark);
        let granted = matches!(
            seat.fence,
            Some((fence::State::Owned { .. } | fence::State::Frozen { .. }, _))
        );
        let life = &mut self.lives[usize::from(user)];
        let mut forked = seen & ALTERED != 0;
        if life.done & !seen != 0 {
            if life.lost && seen == 0 {
                (life.done, life.lost) = (0, false);
            } else {
                forked |= granted;
            }
        }
        if granted {
            life.done |= mark;
        }
        if twice {
            self.note(claims::ONCE);
        }
        if forked {
            self.note(claims::NO_FORK);
        }
    }

    /// L1: the answer names the user; the agent binds him, the gateway asks where he lives.
    fn log_in(&mut self, number: u8, worker: u8) {
        let request = self.requests[usize::from(number)];
        let (user, link) = (request.user, self.workers[usize::from(worker)].link);
        self.fenced(worker, user, |fence, id| fence.login(id, None, NOW));
        let seat = self.seat(worker, user);
        if matches!(
            seat.fence,
            Some((fence::State::Provisional | fence::State::Owned { .. }, _))
        ) {
            seat.live.get_or_insert(0);
        }
        self.mail.insert(Mail::Born {
            from: worker,
            link,
            user,
        });
        self.requests[usize::from(number)].ran += 1;
        if matches!(request.stage, Stage::Orphan { .. }) {
            self.requests[usize::from(number)].stage = Stage::Failed;
        } else {
            self.requests[usize::from(number)].stage = Stage::Placing { worker };
            self.ask_place(number, worker);
        }
    }
}
