//! What must hold: always, and once faults stop.

use elastic_pool_engine::fence;
use elastic_pool_engine::moves::Event;

use crate::World;
use crate::state::{Stage, State, bit, gateway_id};

/// V8.
pub const ONE_OWNER: &str = "a user has at most one owner that serves";
/// V8: nothing is repeated.
pub const ONCE: &str = "a request is executed once or not at all";
/// V3, V7: what a user did is in whatever serves him next.
pub const NO_FORK: &str = "a user is served from his one true copy";
/// D1: nobody becomes a guest whose state lives.
pub const NOT_GONE: &str = "nobody is called gone whose worker lives or who can be saved";
/// V1, V6, D3.
pub const ENDS: &str =
    "when faults stop every hold ends, every request is answered and every user is served again";

/// Rounds in which a world without faults comes to rest.
const ROUNDS: usize = 60;

impl State {
    pub(crate) fn owners_are_one(&self) -> bool {
        (0..self.lives.len()).all(|user| {
            let owns = |worker: &&crate::state::Worker| {
                worker.up && matches!(worker.users[user].fence, Some((fence::State::Owned { .. }, _)))
            };
            self.workers.iter().filter(owns).count() <= 1
        })
    }

    /// Faults stop here: does everything come to a good end, for new requests too?
    pub(crate) fn ends_well(&self, world: &World) -> bool {
        if !self.workers.iter().any(|worker| worker.up) || self.wrong.is_some() {
            return true;
        }
        let mut rest = self.clone();
        rest.left.faults = crate::Faults::default();
        if !rest.comes_to_rest(world) {
            return false;
        }
        let gateways: Vec<u8> = (0..world.gateways)
            .filter(|at| rest.gateways[usize::from(*at)].up)
            .collect();
        for user in 0..world.users {
            if rest.lives[usize::from(user)].cookie.is_none() {
                continue;
            }
            for gateway in &gateways {
                rest.send(user, *gateway, None);
                let served = rest.comes_to_rest(world) && rest.is_answered(user);
                if !served || rest.wrong.is_some() {
                    return false;
                }
            }
        }
        rest.owners_are_one()
    }

    fn is_answered(&self, user: u8) -> bool {
        let lost = self.lives[usize::from(user)].lost;
        self.requests.last().is_some_and(|request| match request.stage {
            Stage::Served => true,
            Stage::Guest => lost,
            _ => false,
        })
    }

    fn comes_to_rest(&mut self, world: &World) -> bool {
        for _ in 0..ROUNDS {
            let before = self.clone();
            self.round(world);
            self.tidy();
            if *self == before {
                return self.is_at_rest();
            }
        }
        false
    }

    fn is_at_rest(&self) -> bool {
        let final_stage = |stage| matches!(stage, Stage::Served | Stage::Failed | Stage::Guest);
        let held = |gateway: &crate::state::Gateway| gateway.up && gateway.flags.iter().any(Option::is_some);
        self.requests.iter().all(|request| final_stage(request.stage))
            && !self.gateways.iter().any(held)
            && self
                .leader
                .users
                .iter()
                .all(|resident| resident.active.is_none() && resident.waiting.is_empty())
    }

    /// Everything that can happen without a fault, once, in a fixed order; timeouts only when nothing else is left.
    fn round(&mut self, world: &World) {
        self.peers(world);
        let mut moved = false;
        for at in 0..world.gateways {
            while !self.gateways[usize::from(at)].queue.is_empty() {
                self.hear(at);
                moved = true;
            }
        }
        for mail in std::mem::take(&mut self.mail) {
            self.deliver(world, mail, false);
            self.publish();
            moved = true;
        }
        for number in 0..u8::try_from(self.requests.len()).unwrap_or(0) {
            let stage = self.requests[usize::from(number)].stage;
            match stage {
                Stage::Sent { .. } => self.arrive(world, number),
                Stage::Open { .. } | Stage::Orphan { .. } => self.end(number),
                Stage::Again => self.choose(number),
                _ => continue,
            }
            // An answer "wait" is asked for again, and that alone is no progress.
            moved |= stage != Stage::Again;
        }
        if !moved {
            for number in 0..u8::try_from(self.requests.len()).unwrap_or(0) {
                self.keep(number);
            }
            for user in 0..world.users {
                self.advance(world, user, Event::Tick);
                for at in 0..world.workers {
                    if self.workers[usize::from(at)].up {
                        self.resolve(world, at, user);
                    }
                }
                self.adopt(world, user);
            }
        }
        self.publish();
    }

    /// Everybody who lives is connected, everybody who died is missed.
    fn peers(&mut self, world: &World) {
        for at in 0..world.workers {
            if self.workers[usize::from(at)].up {
                let link = self.workers[usize::from(at)].link;
                if !self.workers[usize::from(at)].linked || self.leader.workers[usize::from(at)] != Some(link)
                {
                    self.connect_worker(world, at);
                }
            } else if self.leader.dead & bit(at) == 0 {
                self.bury(world, at);
            }
        }
        for at in 0..world.gateways {
            let gateway = &self.gateways[usize::from(at)];
            let known = self.leader.gateways[usize::from(at)];
            if gateway.up && (!gateway.linked || known != Some(gateway.link)) {
                self.connect_gateway(world, at);
                self.ask_again(at);
            } else if !gateway.up && known.is_some() {
                self.miss_gateway(world, at);
            }
        }
        if self.may_go_live(world) {
            self.go_live(world);
        }
        self.judge_open(world);
        self.publish();
    }

    pub(crate) fn miss_gateway(&mut self, world: &World, at: u8) {
        self.leader.gateways[usize::from(at)] = None;
        self.each(world, &Event::GatewayGone(gateway_id(at)));
    }

    pub(crate) fn each(&mut self, world: &World, event: &Event) {
        for user in 0..world.users {
            self.advance(world, user, event.clone());
        }
    }
}
