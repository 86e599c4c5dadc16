//! A gateway: where a request goes, what holds it, what the leader says; a copy of the surface.

use elastic_pool_engine::ids::Epoch;
use elastic_pool_engine::ownership::{self, Answer};

use crate::state::{Mail, Owner, Request, Stage, State, Told, bit};

impl State {
    /// A client sends a request, or the login at worker `at`.
    pub(crate) fn send(&mut self, user: u8, gateway: u8, login: Option<u8>) {
        let number = u8::try_from(self.requests.len()).unwrap_or(u8::MAX);
        self.requests.push(Request {
            user,
            gateway,
            login: login.is_some(),
            stage: Stage::Waiting,
            ran: 0,
            refused: None,
        });
        match login {
            Some(worker) => {
                self.requests[usize::from(number)].stage = Stage::Sent {
                    worker,
                    epoch: Epoch::PROVISIONAL,
                };
            }
            None => self.choose(number),
        }
    }

    /// P1, L6, V1: to the owner, to the reception of a provisional user, or to whoever knows.
    pub(crate) fn choose(&mut self, number: u8) {
        let request = self.requests[usize::from(number)];
        let gateway = &self.gateways[usize::from(request.gateway)];
        let (user, life) = (usize::from(request.user), self.lives[usize::from(request.user)]);
        let dead = |worker: u8| gateway.dead & bit(worker) != 0;
        let stage = match (gateway.users[user], life.cookie) {
            (Some((worker, _)), _) if dead(worker) => Stage::Waiting,
            _ if gateway.flags[user].is_some() => Stage::Held,
            (Some((worker, epoch)), _) if request.refused == Some((worker, epoch)) => {
                return self.ask(number, epoch);
            }
            (Some((worker, epoch)), _) => Stage::Sent { worker, epoch },
            (None, Some(Epoch::PROVISIONAL)) => match life.reception.filter(|worker| !dead(*worker)) {
                Some(worker) if request.refused.is_none() => Stage::Sent {
                    worker,
                    epoch: Epoch::PROVISIONAL,
                },
                Some(_) => return self.ask(number, Epoch::PROVISIONAL),
                None => Stage::Guest,
            },
            (None, Some(born)) if gateway.live && born <= gateway.version => {
                self.say_gone(request.user);
                Stage::Guest
            }
            (None, Some(born)) => return self.ask(number, born),
            (None, None) => Stage::Guest,
        };
        self.requests[usize::from(number)].stage = stage;
    }

    /// L6, V8.
    pub(crate) fn ask(&mut self, number: u8, epoch: Epoch) {
        let from = self.requests[usize::from(number)].gateway;
        let link = self.gateways[usize::from(from)].link;
        self.requests[usize::from(number)].stage = Stage::Asking { epoch };
        self.mail.insert(Mail::LookUp {
            from,
            link,
            request: number,
            epoch,
        });
    }

    /// L2.
    pub(crate) fn ask_place(&mut self, number: u8, at: u8) {
        let from = self.requests[usize::from(number)].gateway;
        let link = self.gateways[usize::from(from)].link;
        self.mail.insert(Mail::Place {
            from,
            link,
            request: number,
            at,
        });
    }

    /// What was asked on a stream that broke is asked again on the next.
    pub(crate) fn ask_again(&mut self, gateway: u8) {
        for number in 0..u8::try_from(self.requests.len()).unwrap_or(0) {
            let request = self.requests[usize::from(number)];
            if request.gateway == gateway {
                match request.stage {
                    Stage::Asking { epoch } => self.ask(number, epoch),
                    Stage::Placing { worker } => self.ask_place(number, worker),
                    _ => {}
                }
            }
        }
    }

    /// P6: the leader did not answer a login in time; a stranger is kept where he is.
    pub(crate) fn keep(&mut self, number: u8) {
        let request = self.requests[usize::from(number)];
        let Stage::Placing { worker } = request.stage else {
            return;
        };
        let known = self.gateways[usize::from(request.gateway)].users[usize::from(request.user)].is_some();
        let life = &mut self.lives[usize::from(request.user)];
        if known || life.cookie.is_some() {
            self.requests[usize::from(number)].stage = Stage::Failed;
        } else {
            (life.cookie, life.reception) = (Some(Epoch::PROVISIONAL), Some(worker));
            self.requests[usize::from(number)].stage = Stage::Served;
        }
    }

    fn put(&mut self, gateway: u8, user: u8, owner: Owner, anyway: bool) {
        let gateway = &mut self.gateways[usize::from(gateway)];
        gateway.doubted &= !bit(user);
        let present = &mut gateway.users[usize::from(user)];
        match owner {
            None => *present = None,
            Some((_, epoch)) => {
                if anyway || ownership::is_news(present.map(|(_, known)| known), epoch) {
                    *present = owner;
                }
            }
        }
    }

    fn learn(&mut self, gateway: u8, dead: u8, live: bool, version: Epoch) {
        let gateway = &mut self.gateways[usize::from(gateway)];
        for user in 0..gateway.users.len() {
            let doubted = gateway.doubted & bit(u8::try_from(user).unwrap_or(0)) != 0;
            let swept =
                gateway.users[user].is_some_and(|(worker, _)| dead & !gateway.dead & bit(worker) != 0);
            if swept || (live && doubted) {
                gateway.users[user] = None;
            }
        }
        if live {
            gateway.doubted = 0;
        }
        gateway.dead |= dead;
        (gateway.live, gateway.version) = (live, version);
    }

    /// The oldest of what the leader told this gateway.
    pub(crate) fn hear(&mut self, at: u8) {
        let Some(told) = self.gateways[usize::from(at)].queue.pop_front() else {
            return;
        };
        let link = self.gateways[usize::from(at)].link;
        match told {
            Told::Table {
                users,
                dead,
                live,
                version,
            } => {
                let gateway = &mut self.gateways[usize::from(at)];
                // A whole table names no dead: workers and users that it does not name go.
                (gateway.doubted, gateway.dead) = (u8::MAX, gateway.dead | dead);
                for (user, owner) in (0_u8..).zip(users) {
                    if owner.is_some() {
                        self.put(at, user, owner, live);
                    }
                }
                self.learn(at, dead, live, version);
                for flag in &mut self.gateways[usize::from(at)].flags {
                    *flag = flag.filter(|(_, raised)| *raised >= link);
                }
            }
            Told::Delta {
                users,
                dead,
                live,
                version,
            } => {
                for (user, owner) in users {
                    self.put(at, user, owner, false);
                }
                self.learn(at, dead, live, version);
            }
            Told::Hold { user, mv } => {
                self.gateways[usize::from(at)].flags[usize::from(user)] = Some((mv, link));
                self.mail.insert(Mail::Held {
                    from: at,
                    link,
                    user,
                    mv,
                });
            }
            Told::Settle { user, mv, owner } => {
                self.put(at, user, owner, false);
                let flag = &mut self.gateways[usize::from(at)].flags[usize::from(user)];
                flag.take_if(|(of, _)| *of == mv);
            }
            Told::Found {
                request,
                answer,
                owner,
            } => self.found(at, request, answer, owner),
            Told::Placed { request, owner } => self.placed(at, request, owner),
        }
        self.wake(at);
    }

    /// Requests that waited for the table, or for a flag, look again in their order.
    fn wake(&mut self, gateway: u8) {
        for number in 0..u8::try_from(self.requests.len()).unwrap_or(0) {
            let request = self.requests[usize::from(number)];
            if request.gateway == gateway && matches!(request.stage, Stage::Waiting | Stage::Held) {
                if request.login {
                    self.requests[usize::from(number)].stage = Stage::Failed;
                } else {
                    self.choose(number);
                }
            }
        }
    }

    fn found(&mut self, gateway: u8, number: u8, answer: Answer, owner: Owner) {
        let request = self.requests[usize::from(number)];
        if !matches!(request.stage, Stage::Asking { .. }) {
            return;
        }
        match answer {
            Answer::Owned { .. } => {
                self.put(gateway, request.user, owner, false);
                let again = request.refused == owner;
                self.requests[usize::from(number)].refused = None;
                if again {
                    self.requests[usize::from(number)].stage = Stage::Again;
                } else {
                    self.choose(number);
                }
            }
            Answer::Wait => self.requests[usize::from(number)].stage = Stage::Again,
            Answer::Gone => {
                self.say_gone(request.user);
                self.requests[usize::from(number)].stage = Stage::Guest;
            }
            Answer::Provisional => {
                let reception = self.lives[usize::from(request.user)].reception;
                let stage = match reception.filter(|_| request.refused.is_none()) {
                    Some(worker) => Stage::Sent {
                        worker,
                        epoch: Epoch::PROVISIONAL,
                    },
                    None => Stage::Guest,
                };
                self.requests[usize::from(number)].stage = stage;
            }
        }
    }

    fn placed(&mut self, gateway: u8, number: u8, owner: Owner) {
        let request = self.requests[usize::from(number)];
        if owner.is_some() {
            self.put(gateway, request.user, owner, false);
        }
        if !matches!(request.stage, Stage::Placing { .. }) {
            return;
        }
        let life = &mut self.lives[usize::from(request.user)];
        life.cookie = owner.map(|(_, epoch)| epoch).or(life.cookie);
        life.reception = None;
        self.requests[usize::from(number)].stage = Stage::Served;
    }
}
