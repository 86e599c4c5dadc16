//! What can happen next, and what it does.

use elastic_pool_engine::fence;
use elastic_pool_engine::moves::{Event, Kind};

use crate::state::{Mail, Order, Stage, State, bit};
use crate::{Broken, World};

/// One step of the world. Users, workers, gateways and requests are named by their numbers.
#[allow(missing_docs, reason = "the fields say who")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client logs in through a gateway, at a worker.
    Login { user: u8, gateway: u8, at: u8 },
    /// A client of a user who is logged in sends a request.
    Send { user: u8, gateway: u8 },
    /// A forward reaches its agent.
    Arrive { request: u8 },
    /// The app answers.
    End { request: u8 },
    /// A request looks for its way again.
    Again { request: u8 },
    /// P6: a gateway waits no longer for the leader's word about a login.
    Keep { request: u8 },
    /// A message arrives.
    Deliver(Mail),
    /// A gateway hears what comes next on its stream.
    Hear { gateway: u8 },
    /// The leader begins a move.
    Move { user: u8, to: u8 },
    /// A deadline is reached.
    Tick { user: u8 },
    /// P6: a login that nobody asked to place is adopted.
    Adopt { user: u8 },
    /// A frozen original asks (Resolve).
    Resolve { worker: u8, user: u8 },
    /// The leader learns of a death (D1), or misses a stream.
    Bury { worker: u8 },
    /// The leader misses a gateway.
    Miss { gateway: u8 },
    /// Hello.
    ConnectWorker { worker: u8 },
    /// Hello.
    ConnectGateway { gateway: u8 },
    /// A new leader has heard everybody.
    GoLive,
    /// A worker is found empty and is to go.
    Condemn { worker: u8 },
    /// Its pod is deleted.
    Retire,
    /// Fault: a message is lost.
    Lose(Mail),
    /// Fault: a message arrives and will arrive again.
    Twice(Mail),
    /// Fault: a package is altered on its way.
    Alter(Mail),
    /// Fault: the connection of a forward breaks.
    Break { request: u8 },
    /// Fault: a stream breaks.
    CutWorker { worker: u8 },
    /// Fault: a stream breaks.
    CutGateway { gateway: u8 },
    /// Fault: a worker dies.
    KillWorker { worker: u8 },
    /// Fault: a gateway dies.
    KillGateway { gateway: u8 },
    /// Fault: the leader dies and another one takes over.
    KillLeader,
    /// What [`Broken::ThawsAlone`] allows.
    ThawAlone { worker: u8, user: u8 },
}

impl State {
    pub(crate) fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        self.client_actions(world, actions);
        self.request_actions(actions);
        self.leader_actions(world, actions);
        self.peer_actions(world, actions);
        self.mail_actions(actions);
    }

    fn client_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let gateways = (0..world.gateways).filter(|at| self.gateways[usize::from(*at)].up);
        for gateway in gateways {
            for user in 0..world.users {
                let life = &self.lives[usize::from(user)];
                let pending = self
                    .requests
                    .iter()
                    .any(|request| request.user == user && request.login);
                let up = |at: u8| self.workers[usize::from(at)].up;
                if life.cookie.is_none() && !pending {
                    actions.extend((0..world.workers).find(|at| up(*at)).map(|at| Action::Login {
                        user,
                        gateway,
                        at,
                    }));
                }
                if life.cookie.is_some() && self.left.requests > 0 {
                    actions.push(Action::Send { user, gateway });
                }
                if life.cookie.is_some() && self.left.joins > 0 {
                    let ats = (0..world.workers).filter(|at| up(*at));
                    actions.extend(ats.map(|at| Action::Login { user, gateway, at }));
                }
            }
        }
    }

    fn request_actions(&self, actions: &mut Vec<Action>) {
        for (request, of) in (0_u8..).zip(&self.requests) {
            match of.stage {
                Stage::Sent { .. } => actions.push(Action::Arrive { request }),
                Stage::Open { .. } | Stage::Orphan { .. } => actions.push(Action::End { request }),
                Stage::Again => actions.push(Action::Again { request }),
                Stage::Placing { .. }
                    if self.left.faults != crate::Faults::default() || self.leader.term.0 > 1 =>
                {
                    actions.push(Action::Keep { request });
                }
                _ => {}
            }
            if self.left.faults.lost > 0 && matches!(of.stage, Stage::Sent { .. } | Stage::Open { .. }) {
                actions.push(Action::Break { request });
            }
        }
    }

    fn leader_actions(&self, world: &World, actions: &mut Vec<Action>) {
        for user in 0..world.users {
            let resident = &self.leader.users[usize::from(user)];
            if let (Some((owner, _)), true, false) = (resident.owner, self.left.moves > 0, self.is_busy(user))
            {
                let others = (0..world.workers).filter(|to| *to != owner && self.leader.dead & bit(*to) == 0);
                actions.extend(others.map(|to| Action::Move { user, to }));
            }
            if resident.active.is_some() {
                actions.push(Action::Tick { user });
            }
            if resident.born.is_some() && self.leader.live {
                actions.push(Action::Adopt { user });
            }
        }
        if self.may_go_live(world) {
            actions.push(Action::GoLive);
        }
        if self.left.retirements > 0 && self.leader.live && self.leader.condemned.is_none() {
            let empty =
                (0..world.workers).filter(|at| self.workers[usize::from(*at)].up && self.is_empty(*at));
            actions.extend(empty.map(|worker| Action::Condemn { worker }));
        }
        if self.leader.condemned.is_some() {
            actions.push(Action::Retire);
        }
        if self.left.faults.leaders > 0 {
            actions.push(Action::KillLeader);
        }
    }

    fn peer_actions(&self, world: &World, actions: &mut Vec<Action>) {
        for worker in 0..world.workers {
            let of = &self.workers[usize::from(worker)];
            let known = self.leader.workers[usize::from(worker)];
            if !of.up {
                if self.leader.dead & bit(worker) == 0 {
                    actions.push(Action::Bury { worker });
                }
                continue;
            }
            if !of.linked || known != Some(of.link) {
                actions.push(Action::ConnectWorker { worker });
            } else if self.left.faults.breaks > 0 {
                actions.push(Action::CutWorker { worker });
            }
            if self.left.faults.workers > 0 {
                actions.push(Action::KillWorker { worker });
            }
            for user in 0..world.users {
                if matches!(
                    of.users[usize::from(user)].fence,
                    Some((fence::State::Frozen { .. }, _))
                ) {
                    let told = |mail: &Mail| matches!(mail, Mail::Order { to, user: of, .. } if (*to, *of) == (worker, user));
                    if self.leader.live && !self.is_busy(user) && !self.mail.iter().any(told) {
                        actions.push(Action::Resolve { worker, user });
                    }
                    if world.broken == Some(Broken::ThawsAlone) {
                        actions.push(Action::ThawAlone { worker, user });
                    }
                }
            }
        }
        for gateway in 0..world.gateways {
            let of = &self.gateways[usize::from(gateway)];
            let known = self.leader.gateways[usize::from(gateway)];
            if !of.queue.is_empty() {
                actions.push(Action::Hear { gateway });
            }
            if known.is_some() && (!of.up || !of.linked) {
                actions.push(Action::Miss { gateway });
            }
            if !of.up {
                continue;
            }
            if !of.linked || known != Some(of.link) {
                actions.push(Action::ConnectGateway { gateway });
            } else if self.left.faults.breaks > 0 {
                actions.push(Action::CutGateway { gateway });
            }
            if self.left.faults.gateways > 0 {
                actions.push(Action::KillGateway { gateway });
            }
        }
    }

    fn mail_actions(&self, actions: &mut Vec<Action>) {
        for mail in &self.mail {
            actions.push(Action::Deliver(*mail));
            let agents = matches!(mail, Mail::Order { .. } | Mail::Answer { .. } | Mail::Born { .. });
            if agents && self.left.faults.lost > 0 {
                actions.push(Action::Lose(*mail));
            }
            if agents && self.left.faults.twice > 0 {
                actions.push(Action::Twice(*mail));
            }
            if self.left.faults.altered > 0
                && matches!(
                    mail,
                    Mail::Order {
                        order: Order::Fetch { .. },
                        ..
                    }
                )
            {
                actions.push(Action::Alter(*mail));
            }
        }
    }

    pub(crate) fn apply(&mut self, world: &World, action: Action) {
        match action {
            Action::Login { user, gateway, at } => {
                if self.lives[usize::from(user)].cookie.is_some() {
                    self.left.joins -= 1;
                }
                self.send(user, gateway, Some(at));
            }
            Action::Send { user, gateway } => {
                self.left.requests -= 1;
                self.send(user, gateway, None);
            }
            Action::Arrive { request } => self.arrive(world, request),
            Action::End { request } => self.end(request),
            Action::Again { request } => self.choose(request),
            Action::Keep { request } => self.keep(request),
            Action::Deliver(mail) => {
                self.mail.remove(&mail);
                self.deliver(world, mail, false);
            }
            Action::Hear { gateway } => self.hear(gateway),
            Action::Move { user, to } => {
                self.left.moves -= 1;
                if let Some((owner, _)) = self.resident(user).owner {
                    self.resident(user).waiting.push_back((owner, to, Kind::Move));
                    self.start_ready(world, user);
                }
            }
            Action::Tick { user } => self.advance(world, user, Event::Tick),
            Action::Adopt { user } => self.adopt(world, user),
            Action::Resolve { worker, user } => self.resolve(world, worker, user),
            Action::Bury { worker } => self.bury(world, worker),
            Action::Miss { gateway } => self.miss_gateway(world, gateway),
            Action::ConnectWorker { worker } => self.connect_worker(world, worker),
            Action::ConnectGateway { gateway } => {
                self.connect_gateway(world, gateway);
                self.ask_again(gateway);
            }
            Action::GoLive => self.go_live(world),
            Action::Condemn { worker } => {
                self.left.retirements -= 1;
                self.leader.condemned = Some(worker);
            }
            Action::Retire => self.retire(world),
            fault => self.fail(world, fault),
        }
        self.judge_open(world);
        self.publish();
    }

    fn fail(&mut self, world: &World, fault: Action) {
        let faults = &mut self.left.faults;
        match fault {
            Action::Lose(mail) => {
                faults.lost -= 1;
                self.mail.remove(&mail);
            }
            Action::Twice(mail) => {
                faults.twice -= 1;
                self.deliver(world, mail, false);
            }
            Action::Alter(mail) => {
                faults.altered -= 1;
                self.mail.remove(&mail);
                self.deliver(world, mail, true);
            }
            Action::Break { request } => {
                faults.lost -= 1;
                let of = &mut self.requests[usize::from(request)];
                of.stage = match of.stage {
                    Stage::Open { worker } => Stage::Orphan { worker },
                    _ => Stage::Failed,
                };
            }
            Action::CutWorker { worker } => {
                faults.breaks -= 1;
                self.workers[usize::from(worker)].linked = false;
                self.leader.workers[usize::from(worker)] = None;
            }
            Action::CutGateway { gateway } => {
                faults.breaks -= 1;
                self.gateways[usize::from(gateway)].linked = false;
            }
            Action::KillWorker { worker } => {
                faults.workers -= 1;
                self.kill_worker(worker);
            }
            Action::KillGateway { gateway } => {
                faults.gateways -= 1;
                self.kill_gateway(gateway);
            }
            Action::KillLeader => {
                faults.leaders -= 1;
                self.change_leader(world);
            }
            Action::ThawAlone { worker, user } => self.thaw_alone(worker, user),
            _ => {}
        }
    }

    pub(crate) fn deliver(&mut self, world: &World, mail: Mail, altered: bool) {
        match mail {
            Mail::Order {
                to,
                link,
                user,
                order,
            } => {
                let worker = &self.workers[usize::from(to)];
                if worker.up && worker.linked && worker.link == link {
                    self.obey(world, (to, link, user), order, altered);
                }
            }
            Mail::Answer {
                from,
                link,
                user,
                mv,
                order,
                failed,
            } => {
                if self.leader.workers[usize::from(from)] == Some(link) {
                    self.answered(world, user, mv, order, failed);
                }
            }
            Mail::Held { from, link, user, mv } => {
                let open = self
                    .resident(user)
                    .active
                    .as_ref()
                    .is_some_and(|state| state.id == mv);
                if open && self.leader.gateways[usize::from(from)] == Some(link) {
                    self.advance(world, user, Event::Held(crate::state::gateway_id(from)));
                }
            }
            Mail::LookUp {
                from,
                link,
                request,
                epoch,
            } => {
                if self.leader.gateways[usize::from(from)] == Some(link) {
                    self.look_up(from, request, epoch);
                }
            }
            Mail::Place {
                from,
                link,
                request,
                at,
            } => {
                if self.leader.gateways[usize::from(from)] == Some(link) {
                    self.place(world, from, request, at);
                }
            }
            Mail::Born { from, link, user } => {
                if self.leader.workers[usize::from(from)] == Some(link) {
                    self.born(user, from);
                }
            }
        }
    }

    fn kill_worker(&mut self, at: u8) {
        self.workers[usize::from(at)].up = false;
        self.workers[usize::from(at)].linked = false;
        for user in 0..self.lives.len() {
            let seat = &self.workers[usize::from(at)].users[user];
            self.lives[user].lost |= seat.live.is_some() || seat.staged.is_some();
        }
        for request in &mut self.requests {
            request.stage = match request.stage {
                Stage::Open { worker } | Stage::Orphan { worker } if worker == at => Stage::Failed,
                Stage::Sent { worker, .. } if worker == at && request.login => Stage::Failed,
                other => other,
            };
        }
    }

    fn kill_gateway(&mut self, at: u8) {
        let gateway = &mut self.gateways[usize::from(at)];
        (gateway.up, gateway.linked) = (false, false);
        gateway.flags.fill(None);
        for request in self.requests.iter_mut().filter(|request| request.gateway == at) {
            request.stage = match request.stage {
                Stage::Open { worker } | Stage::Orphan { worker } => Stage::Orphan { worker },
                done @ (Stage::Served | Stage::Failed | Stage::Guest) => done,
                _ => Stage::Failed,
            };
        }
    }

    /// Invariant 9: what was true when the worker was condemned is looked at again right before.
    fn retire(&mut self, world: &World) {
        let Some(worker) = self.leader.condemned.take() else {
            return;
        };
        if !self.is_empty(worker) && world.broken != Some(Broken::Recheck) {
            return;
        }
        let before: Vec<bool> = self.lives.iter().map(|life| life.lost).collect();
        self.kill_worker(worker);
        // A retirement is no excuse: who was on it is lost by our own hand.
        for (life, lost) in self.lives.iter_mut().zip(before) {
            life.lost = lost;
        }
        self.bury(world, worker);
    }
}
