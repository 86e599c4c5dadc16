//! A change of leader (D3): Hello of agents and gateways, the judgement once everybody was heard, late claims.

use elastic_pool_engine::fence;
use elastic_pool_engine::ids::{Epoch, Term};
use elastic_pool_engine::recovery::{self, Claim, Heard, Held, Late};

use crate::state::{ClaimKey, Leader, Order, State, Told, birth, bit, index};
use crate::{Broken, World};

impl State {
    /// The leader dies; the next one knows nothing.
    pub(crate) fn change_leader(&mut self, world: &World) {
        self.leader = Leader::new(Term(self.leader.term.0 + 1), world);
    }

    /// An agent dials the leader and says Hello.
    pub(crate) fn connect_worker(&mut self, world: &World, at: u8) {
        let worker = &mut self.workers[usize::from(at)];
        worker.link += 1;
        worker.linked = true;
        self.leader.workers[usize::from(at)] = Some(worker.link);
        self.leader.heard |= bit(at);
        for user in 0..world.users {
            let Some((state, _)) = self.seat(at, user).fence else {
                continue;
            };
            let claim = claim(at, state);
            if !self.leader.live || self.resident(user).open {
                self.resident(user).claims.insert(at, ClaimKey(claim));
            } else if !self.is_busy(user) {
                self.weigh(world, user, claim);
            }
        }
    }

    pub(crate) fn connect_gateway(&mut self, world: &World, at: u8) {
        let number = usize::from(at);
        for user in 0..world.users {
            if !self.leader.live || self.resident(user).open {
                let seen = self.gateways[number].users[usize::from(user)];
                let table = &mut self.resident(user).table;
                *table = (*table).max_by_epoch(seen);
            }
        }
        self.leader.gateways_heard |= bit(at);
        let gateway = &mut self.gateways[number];
        gateway.link += 1;
        gateway.linked = true;
        gateway.queue.clear();
        self.leader.gateways[number] = Some(gateway.link);
        self.publish();
        let told = Told::Table {
            users: self.leader.users.iter().map(|resident| resident.owner).collect(),
            dead: self.leader.dead,
            live: self.leader.live,
            version: self.leader.version,
        };
        self.tell(at, told);
        self.each(
            world,
            &elastic_pool_engine::moves::Event::GatewayJoined(crate::state::gateway_id(at)),
        );
    }

    /// Every pod that may hold users has spoken or is dead.
    pub(crate) fn may_go_live(&self, world: &World) -> bool {
        let workers = (0..world.workers).all(|at| (self.leader.heard | self.leader.dead) & bit(at) != 0);
        !self.leader.live && workers
    }

    /// Every gateway that lives has spoken.
    pub(crate) fn gateways_heard(&self, world: &World) -> bool {
        let heard = |at: u8| self.leader.gateways_heard & bit(at) != 0 || !self.gateways[usize::from(at)].up;
        world.broken == Some(Broken::DeafLeader) || (0..world.gateways).all(heard)
    }

    /// Users whose moves only gateways could tell about.
    pub(crate) fn judge_open(&mut self, world: &World) {
        if self.gateways_heard(world) {
            for user in 0..world.users {
                if self.resident(user).open {
                    self.judge(world, user);
                }
            }
        }
    }

    pub(crate) fn go_live(&mut self, world: &World) {
        for user in 0..world.users {
            self.judge(world, user);
        }
        self.leader.live = true;
    }

    fn judge(&mut self, world: &World, user: u8) {
        let (dead, gateways_heard) = (self.leader.dead, self.gateways_heard(world));
        let resident = self.resident(user);
        resident.open = false;
        let spoken = std::mem::take(&mut resident.claims);
        let claims: Vec<Claim> = spoken.values().map(|key| key.0).collect();
        let table = resident.table.take();
        if claims.is_empty() {
            return;
        }
        let heard = Heard {
            claims,
            gateways_saw: table.map(|(_, epoch)| epoch),
            gateways_heard,
            worker_died: table.is_some_and(|(worker, _)| dead & bit(worker) != 0),
        };
        let verdict = recovery::resolve(&heard);
        if verdict.owner == recovery::Owner::Unknown {
            let resident = self.resident(user);
            (resident.claims, resident.table, resident.open) = (spoken, table, true);
            return;
        }
        let mut granted = None;
        match verdict.owner {
            recovery::Owner::Keeps(worker, epoch) | recovery::Owner::Activated(worker, epoch) => {
                self.settle(user, index(worker), epoch);
            }
            recovery::Owner::Granted(worker) => {
                let epoch = self.leader.next_epoch();
                self.settle(user, index(worker), epoch);
                granted = Some(epoch);
            }
            recovery::Owner::Nobody { .. } | recovery::Owner::Unknown => {}
        }
        for (worker, order) in verdict.orders {
            self.enact(world, user, index(worker), order, granted);
        }
    }

    fn enact(&mut self, world: &World, user: u8, at: u8, order: recovery::Order, granted: Option<Epoch>) {
        match order {
            recovery::Order::Thaw { id } => {
                let epoch = granted.unwrap_or_default();
                self.order(at, user, Order::Thaw { mv: id, epoch });
            }
            recovery::Order::Activate { id } => {
                self.order(at, user, Order::Activate { mv: id, join: false });
                self.assign(user);
            }
            recovery::Order::Discard { id } => self.order(at, user, Order::Discard { mv: id }),
            recovery::Order::Forget { id } => self.order(at, user, Order::Forget { mv: id }),
            recovery::Order::Grant => self.assign(user),
            recovery::Order::Join => {
                if let Some((owner, _)) = self.resident(user).owner {
                    self.join(world, user, at, owner);
                }
            }
        }
    }

    /// A claim that comes after the judgement.
    pub(crate) fn weigh(&mut self, world: &World, user: u8, claim: Claim) {
        let at = index(claim.worker);
        let owner = self.resident(user).owner;
        match recovery::weigh(&claim, owner.map(|(worker, epoch)| (birth(worker), epoch))) {
            Late::Assign => self.assign(user),
            Late::Take => self.settle(user, at, claim.epoch),
            Late::Thaw { id } => {
                let epoch = self.leader.next_epoch();
                self.settle(user, at, epoch);
                self.order(at, user, Order::Thaw { mv: id, epoch });
            }
            Late::Order(order) => self.enact(world, user, at, order, None),
            Late::Born => self.born(user, at),
            Late::Nothing => {}
        }
    }

    /// A frozen original asks what became of its move.
    pub(crate) fn resolve(&mut self, world: &World, at: u8, user: u8) {
        let Some((fence::State::Frozen { mv, .. }, _)) = self.seat(at, user).fence else {
            return;
        };
        let known = self.leader.workers[usize::from(at)] == Some(self.workers[usize::from(at)].link);
        if !known || !self.leader.live || self.is_busy(user) || self.resident(user).open {
            return;
        }
        let epoch = self
            .resident(user)
            .owner
            .map(|(_, epoch)| epoch)
            .unwrap_or_default();
        let claim = Claim {
            worker: birth(at),
            epoch,
            held: Held::Frozen { id: mv },
        };
        self.weigh(world, user, claim);
    }
}

/// What Hello says of a record; a frozen slice that nobody granted is provisional.
fn claim(at: u8, state: fence::State) -> Claim {
    let (epoch, held) = match state {
        fence::State::Provisional => (Epoch::PROVISIONAL, Held::Provisional),
        fence::State::Frozen { epoch, .. } if epoch == Epoch::PROVISIONAL => (epoch, Held::Provisional),
        fence::State::Owned { epoch } => (epoch, Held::Owned),
        fence::State::Frozen { epoch, mv } => (epoch, Held::Frozen { id: mv }),
        fence::State::Staged { mv, complete, .. } => (Epoch::PROVISIONAL, Held::Staged { id: mv, complete }),
        fence::State::Past { epoch } => (epoch, Held::Past),
    };
    Claim {
        worker: birth(at),
        epoch,
        held,
    }
}

trait Newer {
    fn max_by_epoch(self, other: Self) -> Self;
}

impl Newer for crate::state::Owner {
    fn max_by_epoch(self, other: Self) -> Self {
        match (self, other) {
            (Some((_, mine)), Some((_, theirs))) if theirs > mine => other,
            (None, _) => other,
            _ => self,
        }
    }
}
