//! The leader: carries the engine's moves about, places logins, answers gateways, sweeps the dead.

use elastic_pool_engine::ids::{Epoch, GatewayId};
use elastic_pool_engine::moves::{self, Back, Effect, Event, Kind, Move, Nack, Outcome, Package, Timeouts};
use elastic_pool_engine::ownership::{self, Answer, Known};
use std::collections::VecDeque;
use std::time::Duration;

use crate::state::{Asked, Mail, Order, Owner, State, Told, birth, bit, gateway_id, index, name};
use crate::{Broken, World, claims};

/// Every deadline is reached at once, so that a timeout may strike before any answer.
const AT_ONCE: Timeouts = Timeouts {
    held: Duration::ZERO,
    snapshot: Duration::ZERO,
    fetch: Duration::ZERO,
    activate: Duration::ZERO,
    whole: Duration::ZERO,
    resend: Duration::ZERO,
};

impl State {
    /// A command to an agent, if the leader knows a stream to it.
    pub(crate) fn order(&mut self, to: u8, user: u8, order: Order) {
        if let Some(link) = self.leader.workers[usize::from(to)] {
            self.mail.insert(Mail::Order {
                to,
                link,
                user,
                order,
            });
        }
    }

    pub(crate) fn tell(&mut self, gateway: u8, told: Told) -> bool {
        let known = self.leader.gateways[usize::from(gateway)];
        let to = &mut self.gateways[usize::from(gateway)];
        if known == Some(to.link) && to.linked && to.up {
            to.queue.push_back(told);
        }
        known.is_some()
    }

    pub(crate) fn broadcast(&mut self, told: &Told) {
        for gateway in 0..self.gateways.len() {
            self.tell(u8::try_from(gateway).unwrap_or(0), told.clone());
        }
    }

    /// Names an owner, as the surface does.
    pub(crate) fn settle(&mut self, user: u8, worker: u8, epoch: Epoch) {
        let resident = self.resident(user);
        if ownership::supersedes(resident.owner.map(|(_, present)| present), epoch) {
            resident.owner = Some((worker, epoch));
            resident.changed = true;
            self.leader.version = self.leader.version.max(epoch);
        }
    }

    pub(crate) fn unsettle(&mut self, user: u8) {
        let resident = self.resident(user);
        (resident.owner, resident.bound) = (None, false);
        resident.changed = true;
    }

    /// What changed goes to the gateways in one message, after each event.
    pub(crate) fn publish(&mut self) {
        let (dead, live, version) = (self.leader.dead, self.leader.live, self.leader.version);
        let mut users = Vec::new();
        for (user, resident) in (0_u8..).zip(&mut self.leader.users) {
            if std::mem::take(&mut resident.changed) {
                users.push((user, resident.owner));
            }
        }
        let before = std::mem::replace(&mut self.leader.told, (dead, live));
        if !users.is_empty() || before != (dead, live) {
            self.broadcast(&Told::Delta {
                users,
                dead,
                live,
                version,
            });
        }
    }

    pub(crate) fn assign(&mut self, user: u8) {
        if let Some((worker, epoch)) = self.resident(user).owner {
            self.order(
                worker,
                user,
                Order::Assign {
                    mv: Epoch::PROVISIONAL,
                    epoch,
                },
            );
        }
    }

    pub(crate) fn is_busy(&self, user: u8) -> bool {
        let resident = &self.leader.users[usize::from(user)];
        resident.active.is_some() || !resident.waiting.is_empty()
    }

    /// Starts what waits for a user, when it is still wanted (V11).
    pub(crate) fn start_ready(&mut self, world: &World, user: u8) {
        while self.resident(user).active.is_none() {
            let Some((source, mut target, kind)) = self.resident(user).waiting.pop_front() else {
                return;
            };
            let Some((owner, _)) = self.resident(user).owner else {
                continue;
            };
            let connected = |leader: &crate::state::Leader, worker: u8| {
                leader.workers[usize::from(worker)].is_some() && leader.dead & bit(worker) == 0
            };
            let wanted = match kind {
                Kind::Move => {
                    owner == source && connected(&self.leader, source) && connected(&self.leader, target)
                }
                Kind::Join { .. } => {
                    target = owner;
                    owner != source && connected(&self.leader, source)
                }
            };
            if wanted {
                self.begin(world, user, source, target, kind);
            }
        }
    }

    fn begin(&mut self, world: &World, user: u8, source: u8, target: u8, kind: Kind) {
        let (id, back) = (self.leader.next_epoch(), self.leader.next_epoch());
        let back = if world.broken == Some(Broken::SameEpoch) {
            id
        } else {
            back
        };
        let order = moves::Order {
            user: name(user),
            id,
            back,
            source: birth(source),
            target: birth(target),
            kind,
        };
        let gateways: Vec<GatewayId> = (0..self.gateways.len())
            .filter(|gateway| self.leader.gateways[*gateway].is_some())
            .map(|gateway| gateway_id(u8::try_from(gateway).unwrap_or(0)))
            .collect();
        let (state, effects) = Move::start(order, gateways, AT_ONCE, Duration::ZERO);
        self.resident(user).active = Some(state);
        self.perform(world, user, effects);
    }

    /// One event of a user's open operation.
    pub(crate) fn advance(&mut self, world: &World, user: u8, event: Event) {
        let Some(state) = self.resident(user).active.clone() else {
            return;
        };
        let (next, effects) = step(world, state, event);
        self.resident(user).active = Some(next);
        self.perform(world, user, effects);
    }

    fn perform(&mut self, world: &World, user: u8, effects: Vec<Effect>) {
        let mut queue: VecDeque<Effect> = effects.into();
        while let Some(effect) = queue.pop_front() {
            let Some(state) = self.resident(user).active.clone() else {
                return;
            };
            match effect {
                Effect::Hold(gateway) => {
                    let to = u8::try_from(gateway.0).unwrap_or(0);
                    if !self.tell(to, Told::Hold { user, mv: state.id }) {
                        let (next, more) = step(world, state, Event::GatewayGone(gateway));
                        self.resident(user).active = Some(next);
                        queue.extend(more);
                    }
                }
                Effect::Route => {
                    if state.kind == Kind::Move {
                        self.settle(user, index(state.target), state.id);
                    }
                    let owner = self.resident(user).owner;
                    self.broadcast(&Told::Settle {
                        user,
                        mv: state.id,
                        owner,
                    });
                }
                Effect::Cancel(back) => self.cancel(user, &state, back),
                Effect::Finish(outcome) => self.finish(world, user, &state, outcome),
                command => self.command(user, &state, &command),
            }
        }
    }

    fn command(&mut self, user: u8, state: &Move, effect: &Effect) {
        let (source, target, mv) = (index(state.source), index(state.target), state.id);
        let join = state.kind != Kind::Move;
        match effect {
            Effect::Snapshot => self.order(source, user, Order::Snapshot { mv }),
            Effect::Fetch(_) => self.order(target, user, Order::Fetch { mv, source, join }),
            Effect::Activate => self.order(target, user, Order::Activate { mv, join }),
            Effect::Assign => {
                let epoch = self.resident(user).owner.map_or(mv, |(_, epoch)| epoch);
                self.order(target, user, Order::Assign { mv, epoch });
            }
            Effect::Forget => self.order(source, user, Order::Forget { mv }),
            Effect::Discard => self.order(target, user, Order::Discard { mv }),
            Effect::Thaw(epoch) => self.order(source, user, Order::Thaw { mv, epoch: *epoch }),
            Effect::Hold(_) | Effect::Route | Effect::Cancel(_) | Effect::Finish(_) => {}
        }
    }

    fn cancel(&mut self, user: u8, state: &Move, back: Back) {
        if let Back::Source(epoch) = back {
            self.settle(user, index(state.source), epoch);
        }
        let owner = match (back, state.kind) {
            (Back::Nobody, Kind::Move) => None,
            // A join that failed leaves the resident where he is.
            (Back::Nobody, Kind::Join { .. }) | (Back::Unchanged | Back::Source(_), _) => {
                self.resident(user).owner
            }
        };
        self.broadcast(&Told::Settle {
            user,
            mv: state.id,
            owner,
        });
    }

    fn finish(&mut self, world: &World, user: u8, state: &Move, outcome: Outcome) {
        self.resident(user).active = None;
        if let Outcome::Lost(_) = outcome
            && state.kind == Kind::Move
            && self
                .resident(user)
                .owner
                .is_some_and(|(owner, _)| birth(owner) == state.source)
        {
            self.unsettle(user);
        }
        self.start_ready(world, user);
    }

    /// An agent's answer to a command.
    pub(crate) fn answered(
        &mut self,
        world: &World,
        user: u8,
        mv: Epoch,
        asked: Asked,
        failed: Option<Nack>,
    ) {
        let open = self
            .resident(user)
            .active
            .as_ref()
            .is_some_and(|state| state.id == mv);
        if !open {
            return;
        }
        let event = match (asked, failed) {
            (Asked::Forget, None | Some(Nack::NotHere)) => Event::Forgotten,
            (Asked::Discard, None | Some(Nack::NotHere)) => Event::Discarded,
            (_, Some(nack)) => Event::Failed(nack),
            (Asked::Snapshot, None) => Event::Snapshotted(Package::default()),
            (Asked::Fetch, None) => Event::Fetched,
            (Asked::Activate, None) => Event::Activated,
            (Asked::Assign, None) => Event::Assigned,
            (Asked::Thaw, None) => Event::Thawed,
        };
        self.advance(world, user, event);
    }

    /// D1: the leader holds a worker for dead; what can be saved of its moves is saved.
    pub(crate) fn bury(&mut self, world: &World, worker: u8) {
        self.leader.dead |= bit(worker);
        self.leader.workers[usize::from(worker)] = None;
        for user in 0..world.users {
            let resident = self.resident(user);
            resident
                .waiting
                .retain(|(source, target, _)| *source != worker && *target != worker);
            resident.born = resident.born.filter(|at| *at != worker);
            resident.claims.remove(&worker);
            let event = resident.active.as_ref().and_then(|state| {
                if state.source == birth(worker) {
                    Some(Event::SourceDied)
                } else {
                    (state.target == birth(worker)).then_some(Event::TargetDied)
                }
            });
            if let Some(event) = event {
                self.advance(world, user, event);
            }
            let resident = self.resident(user);
            let saved = resident
                .active
                .as_ref()
                .is_some_and(|state| state.kind == Kind::Move && state.is_open());
            if resident.owner.is_some_and(|(owner, _)| owner == worker) && !saved {
                self.unsettle(user);
            }
        }
    }

    /// L2: where a login that `at` has answered lives.
    pub(crate) fn place(&mut self, world: &World, gateway: u8, request: u8, at: u8) {
        let user = self.requests[usize::from(request)].user;
        if !self.leader.live || self.leader.dead & bit(at) != 0 || self.resident(user).open {
            return;
        }
        let resident = self.resident(user);
        resident.born = None;
        match resident.owner {
            None => {
                let epoch = self.leader.next_epoch();
                self.settle(user, at, epoch);
                self.assign(user);
                self.resident(user).bound = true;
            }
            Some((owner, _)) if owner != at => self.join(world, user, at, owner),
            Some(_) => {}
        }
        let owner = self.resident(user).owner;
        self.tell(gateway, Told::Placed { request, owner });
    }

    /// P5: the slice at `at` is joined to where he lives.
    pub(crate) fn join(&mut self, world: &World, user: u8, at: u8, owner: u8) {
        let kind = Kind::Join {
            client: elastic_pool_engine::ids::ClientId([1; 16]),
        };
        self.resident(user).waiting.push_back((at, owner, kind));
        self.start_ready(world, user);
    }

    /// L6, V8: a gateway does not know, or was refused.
    pub(crate) fn look_up(&mut self, gateway: u8, request: u8, refused: Epoch) {
        let user = self.requests[usize::from(request)].user;
        let resident = &self.leader.users[usize::from(user)];
        let known = Known {
            resident: resident.owner.map(|(_, epoch)| epoch),
            live: self.leader.live,
            born: resident.born.is_some(),
            busy: self.is_busy(user) || resident.open,
        };
        let answer = ownership::answer(known, refused);
        if answer == (Answer::Owned { tell_agent: true }) {
            self.assign(user);
        }
        let owner: Owner = self.resident(user).owner;
        self.tell(
            gateway,
            Told::Found {
                request,
                answer,
                owner,
            },
        );
    }

    /// P6: a login that no gateway asked to place is granted where it is, or joined to where he lives.
    pub(crate) fn adopt(&mut self, world: &World, user: u8) {
        if self.resident(user).open {
            return;
        }
        let Some(at) = self.resident(user).born.take() else {
            return;
        };
        let bound = self.resident(user).bound;
        match self.resident(user).owner {
            Some((owner, _)) if owner != at && !bound => self.join(world, user, at, owner),
            Some(_) => {}
            None => {
                let epoch = self.leader.next_epoch();
                self.settle(user, at, epoch);
                self.assign(user);
                self.resident(user).bound = true;
            }
        }
    }

    /// An agent names a login (L1).
    pub(crate) fn born(&mut self, user: u8, at: u8) {
        match self.resident(user).owner {
            Some((owner, _)) if owner == at => self.assign(user),
            _ => {
                self.resident(user).born.get_or_insert(at);
            }
        }
    }

    /// Nobody lives on `worker`, by the surface, the operations and the agent.
    pub(crate) fn is_empty(&self, worker: u8) -> bool {
        let touches = |state: &Move| state.source == birth(worker) || state.target == birth(worker);
        let lives = |resident: &crate::state::Resident| {
            resident.owner.is_some_and(|(owner, _)| owner == worker)
                || resident.active.as_ref().is_some_and(touches)
                || resident.born == Some(worker)
        };
        let seats = &self.workers[usize::from(worker)].users;
        !self.leader.users.iter().any(lives)
            && seats
                .iter()
                .all(|seat| seat.live.is_none() && seat.staged.is_none())
    }

    pub(crate) fn note(&mut self, claim: &'static str) {
        self.wrong.get_or_insert(claim);
    }

    /// The client is told that its user is gone.
    pub(crate) fn say_gone(&mut self, user: u8) {
        let can_be_saved = self.leader.users[usize::from(user)]
            .active
            .as_ref()
            .is_some_and(Move::is_open);
        if !self.lives[usize::from(user)].lost || can_be_saved {
            self.note(claims::NOT_GONE);
        }
    }
}

/// The engine's step, or what is left of it.
fn step(world: &World, state: Move, event: Event) -> (Move, Vec<Effect>) {
    let now = Duration::ZERO;
    match (world.broken, &event) {
        (Some(Broken::Commit), Event::Tick) if state.is_committed() && state.step_name() == "assigning" => {
            let effects = vec![
                Effect::Thaw(state.back),
                Effect::Cancel(Back::Source(state.back)),
                Effect::Finish(Outcome::Aborted(moves::Cause::ActivateTimeout)),
            ];
            (state, effects)
        }
        (Some(Broken::EarlyRoute), Event::Fetched) => {
            let (next, mut effects) = moves::step(state, event, now);
            effects.insert(0, Effect::Route);
            (next, effects)
        }
        _ => moves::step(state, event, now),
    }
}
