//! What there is in the world: a leader, workers, gateways, clients, and what is on its way between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elastic_pool_engine::fence;
use elastic_pool_engine::ids::{Birth, Epoch, GatewayId, Term, UserId};
use elastic_pool_engine::moves::{Kind, Move, Nack};
use elastic_pool_engine::ownership::Answer;
use elastic_pool_engine::recovery::Claim;

use crate::World;

/// Worker and epoch; `None`: nobody.
pub(crate) type Owner = Option<(u8, Epoch)>;
/// The requests that a copy of a user has seen, one bit each.
pub(crate) type Seen = u8;
/// In a copy that was altered on its way.
pub(crate) const ALTERED: Seen = 0x80;

/// One state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) left: Left,
    pub(crate) leader: Leader,
    pub(crate) workers: Vec<Worker>,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) mail: BTreeSet<Mail>,
    pub(crate) requests: Vec<Request>,
    pub(crate) lives: Vec<Life>,
    /// The first claim that a step broke.
    pub(crate) wrong: Option<&'static str>,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) moves: u8,
    pub(crate) joins: u8,
    pub(crate) requests: u8,
    pub(crate) retirements: u8,
    pub(crate) faults: crate::Faults,
}

/// The leader of the present term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    pub(crate) term: Term,
    pub(crate) sequence: u64,
    /// Everybody was heard (D3).
    pub(crate) live: bool,
    pub(crate) users: Vec<Resident>,
    /// The streams it knows of; one that broke is known until it is missed.
    pub(crate) workers: Vec<Option<u8>>,
    pub(crate) gateways: Vec<Option<u8>>,
    /// Workers that it holds for dead, one bit each.
    pub(crate) dead: u8,
    /// Workers and gateways heard in this term, one bit each.
    pub(crate) heard: u8,
    pub(crate) gateways_heard: u8,
    /// Highest epoch granted: the table's version.
    pub(crate) version: Epoch,
    /// What the gateways were told last of the dead, and whether the table is live.
    pub(crate) told: (u8, bool),
    /// A worker that was found empty and is to be retired.
    pub(crate) condemned: Option<u8>,
}

/// What the leader holds of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Resident {
    pub(crate) owner: Owner,
    pub(crate) active: Option<Move>,
    pub(crate) waiting: VecDeque<(u8, u8, Kind)>,
    pub(crate) claims: BTreeMap<u8, ClaimKey>,
    pub(crate) table: Owner,
    /// Whether he lives here or there only the gateways can tell (D3).
    pub(crate) open: bool,
    /// A login that no gateway has asked to place yet.
    pub(crate) born: Option<u8>,
    /// The browser of the first login is his (L4).
    pub(crate) bound: bool,
    /// To be told to the gateways.
    pub(crate) changed: bool,
}

/// A claim with the engine's meaning, in a form that can be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimKey(pub(crate) Claim);

/// One worker: its agent's fence and its app, by user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub(crate) up: bool,
    pub(crate) link: u8,
    pub(crate) linked: bool,
    pub(crate) users: Vec<Seat>,
}

/// What a worker holds of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    /// The agent's record: state and floor.
    pub(crate) fence: Option<(fence::State, Epoch)>,
    pub(crate) live: Option<Seen>,
    pub(crate) frozen: bool,
    pub(crate) staged: Option<(Epoch, Seen)>,
    /// The package that the agent keeps for a Fetch.
    pub(crate) package: Option<(Epoch, Seen)>,
}

/// One gateway: its table, its flags, its stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Gateway {
    pub(crate) up: bool,
    pub(crate) link: u8,
    pub(crate) linked: bool,
    pub(crate) users: Vec<Owner>,
    /// The move that holds a user, and the stream on which the Hold came.
    pub(crate) flags: Vec<Option<(Epoch, u8)>>,
    /// Users and workers not named by the present leader yet, one bit each.
    pub(crate) doubted: u8,
    pub(crate) dead: u8,
    pub(crate) live: bool,
    pub(crate) version: Epoch,
    /// What the leader told it, in order.
    pub(crate) queue: VecDeque<Told>,
}

/// From the leader to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Table {
        users: Vec<Owner>,
        dead: u8,
        live: bool,
        version: Epoch,
    },
    Delta {
        users: Vec<(u8, Owner)>,
        dead: u8,
        live: bool,
        version: Epoch,
    },
    Hold {
        user: u8,
        mv: Epoch,
    },
    Settle {
        user: u8,
        mv: Epoch,
        owner: Owner,
    },
    Found {
        request: u8,
        answer: Answer,
        owner: Owner,
    },
    Placed {
        request: u8,
        owner: Owner,
    },
}

#[allow(missing_docs, reason = "the fields say who")]
/// On the agents' channel, and from gateways to the leader: any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mail {
    /// The leader tells an agent.
    Order {
        to: u8,
        link: u8,
        user: u8,
        order: Order,
    },
    /// An agent answers.
    Answer {
        from: u8,
        link: u8,
        user: u8,
        mv: Epoch,
        order: Asked,
        failed: Option<Nack>,
    },
    /// A gateway flagged a user.
    Held { from: u8, link: u8, user: u8, mv: Epoch },
    /// A gateway asks who owns a request's user.
    LookUp {
        from: u8,
        link: u8,
        request: u8,
        epoch: Epoch,
    },
    /// A gateway asks where a login lives.
    Place { from: u8, link: u8, request: u8, at: u8 },
    /// An agent saw a login.
    Born { from: u8, link: u8, user: u8 },
}

/// A command to an agent.
#[allow(missing_docs, reason = "the fields say for which move")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Owned here under this epoch.
    Assign { mv: Epoch, epoch: Epoch },
    /// Quiesce, freeze, package.
    Snapshot { mv: Epoch },
    /// Get the package and stage it.
    Fetch { mv: Epoch, source: u8, join: bool },
    /// Turn it on.
    Activate { mv: Epoch, join: bool },
    /// Serve again.
    Thaw { mv: Epoch, epoch: Epoch },
    /// Drop the staged copy.
    Discard { mv: Epoch },
    /// Drop the copy.
    Forget { mv: Epoch },
}

/// Which command an answer belongs to.
#[allow(missing_docs, reason = "the commands' own names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asked {
    Assign,
    Snapshot,
    Fetch,
    Activate,
    Thaw,
    Discard,
    Forget,
}

/// One client's request at one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) user: u8,
    pub(crate) gateway: u8,
    pub(crate) login: bool,
    pub(crate) stage: Stage,
    /// How often an app has executed it.
    pub(crate) ran: u8,
    /// What an agent refused last.
    pub(crate) refused: Owner,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Nobody to send it to; the table's next change wakes it.
    Waiting,
    /// The user is held.
    Held,
    /// On its way to an agent.
    Sent {
        worker: u8,
        epoch: Epoch,
    },
    /// The app is at it.
    Open {
        worker: u8,
    },
    /// The same, and its client has been given an error.
    Orphan {
        worker: u8,
    },
    /// The leader is asked; `epoch` is what was refused.
    Asking {
        epoch: Epoch,
    },
    /// It was answered "wait": ask again.
    Again,
    /// The app has answered a login; the leader is asked to place him.
    Placing {
        worker: u8,
    },
    Served,
    Failed,
    /// Its user is gone: a guest from now on.
    Guest,
}

/// What is true of a user, whoever knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Life {
    /// Epoch in the client's cookie; `None` before the login.
    pub(crate) cookie: Option<Epoch>,
    /// The worker that took him in while he is provisional.
    pub(crate) reception: Option<u8>,
    /// Requests that were executed in this life.
    pub(crate) done: Seen,
    /// A worker that held his only valid copy has died.
    pub(crate) lost: bool,
}

pub(crate) fn birth(worker: u8) -> Birth {
    Birth(u64::from(worker) + 1)
}

pub(crate) fn index(birth: Birth) -> u8 {
    u8::try_from(birth.0).unwrap_or(u8::MAX) - 1
}

pub(crate) fn gateway_id(gateway: u8) -> GatewayId {
    GatewayId(u64::from(gateway))
}

pub(crate) fn name(user: u8) -> UserId {
    UserId::new(["alice", "bob"][usize::from(user)]).unwrap_or_else(|_| unreachable!("names are short"))
}

/// A set of small numbers, one bit each.
pub(crate) fn bit(number: u8) -> u8 {
    1 << number
}

impl State {
    pub(crate) fn start(world: &World) -> Self {
        let (users, workers, gateways) = (world.users, world.workers, world.gateways);
        let seat = Seat::default();
        let mut state = Self {
            left: Left {
                moves: world.moves,
                joins: world.joins,
                requests: world.requests,
                retirements: world.retirements,
                faults: world.faults,
            },
            leader: Leader::new(Term(1), world),
            workers: (0..workers)
                .map(|_| Worker {
                    up: true,
                    link: 1,
                    linked: true,
                    users: vec![seat; usize::from(users)],
                })
                .collect(),
            gateways: (0..gateways)
                .map(|_| Gateway {
                    up: true,
                    link: 1,
                    linked: true,
                    users: vec![None; usize::from(users)],
                    flags: vec![None; usize::from(users)],
                    doubted: 0,
                    dead: 0,
                    live: true,
                    version: Epoch::PROVISIONAL,
                    queue: VecDeque::new(),
                })
                .collect(),
            mail: BTreeSet::new(),
            requests: Vec::new(),
            lives: vec![Life::default(); usize::from(users)],
            wrong: None,
        };
        state.leader.live = true;
        state.leader.told = (0, true);
        state.leader.workers = vec![Some(1); usize::from(workers)];
        state.leader.gateways = vec![Some(1); usize::from(gateways)];
        if world.settled {
            (0..users).for_each(|user| state.settled(user));
        }
        state
    }

    /// As after a login at the first worker.
    fn settled(&mut self, user: u8) {
        let epoch = self.leader.next_epoch();
        let at = usize::from(user);
        self.leader.users[at].owner = Some((0, epoch));
        self.leader.version = epoch;
        for gateway in &mut self.gateways {
            gateway.users[at] = Some((0, epoch));
            gateway.version = epoch;
        }
        let seat = &mut self.workers[0].users[at];
        seat.fence = Some((fence::State::Owned { epoch }, Epoch::PROVISIONAL));
        seat.live = Some(0);
        self.lives[at].cookie = Some(epoch);
    }

    pub(crate) fn seat(&mut self, worker: u8, user: u8) -> &mut Seat {
        &mut self.workers[usize::from(worker)].users[usize::from(user)]
    }

    pub(crate) fn resident(&mut self, user: u8) -> &mut Resident {
        &mut self.leader.users[usize::from(user)]
    }

    /// Requests of the user that the app of `worker` is at (V2).
    pub(crate) fn open(&self, worker: u8, user: u8) -> usize {
        let here = |request: &&Request| {
            request.user == user
                && matches!(request.stage, Stage::Open { worker: at } | Stage::Orphan { worker: at } if at == worker)
        };
        self.requests.iter().filter(here).count()
    }

    /// Drops what can have no effect any more, so that equal worlds are equal states.
    pub(crate) fn tidy(&mut self) {
        let (workers, leader) = (&self.workers, &self.leader);
        self.mail.retain(|mail| match *mail {
            Mail::Order { to, link, .. } => {
                let worker = &workers[usize::from(to)];
                worker.up && worker.linked && worker.link == link
            }
            Mail::Answer { from, link, .. } | Mail::Born { from, link, .. } => {
                leader.workers[usize::from(from)] == Some(link)
            }
            Mail::Held { from, link, .. }
            | Mail::LookUp { from, link, .. }
            | Mail::Place { from, link, .. } => leader.gateways[usize::from(from)] == Some(link),
        });
        for gateway in &mut self.gateways {
            if !gateway.up || !gateway.linked {
                gateway.queue.clear();
            }
        }
        for worker in self.workers.iter_mut().filter(|worker| !worker.up) {
            worker.users.fill(Seat::default());
        }
    }
}

impl Leader {
    pub(crate) fn new(term: Term, world: &World) -> Self {
        Self {
            term,
            sequence: 0,
            live: false,
            users: vec![Resident::default(); usize::from(world.users)],
            workers: vec![None; usize::from(world.workers)],
            gateways: vec![None; usize::from(world.gateways)],
            dead: 0,
            heard: 0,
            gateways_heard: 0,
            version: Epoch::PROVISIONAL,
            told: (0, false),
            condemned: None,
        }
    }

    pub(crate) fn next_epoch(&mut self) -> Epoch {
        self.sequence += 1;
        Epoch(self.term.number(self.sequence))
    }
}
