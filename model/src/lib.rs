//! Moves, logins and changes of leader as a world that a model checker explores whole (V, L, D3).
//!
//! What decides is production code: [`elastic_pool_engine::moves`], [`fence`](elastic_pool_engine::fence),
//! [`recovery`](elastic_pool_engine::recovery) and [`ownership`](elastic_pool_engine::ownership). What is written
//! here is what carries their decisions about: a leader, workers with agent and app, gateways, clients, and a network.
//! Commands to agents and their answers arrive in any order, late, twice or never. A gateway's stream keeps its
//! order and may break anywhere. Timeouts may strike at any moment. Workers, gateways and the leader may die at any step.

mod action;
pub mod claims;
mod gateway;
mod leader;
mod recovery;
mod state;
mod worker;
pub mod worlds;

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker as _, HasDiscoveries, Model, Property};

pub use action::Action;
pub use state::{Asked, Mail, Order, State};

/// What is left out on purpose, to see that the claims notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// The agent serves whatever reaches it (V8).
    Fence,
    /// A move that was routed is taken back at a timeout.
    Commit,
    /// The Route goes out before the target has turned the copy on.
    EarlyRoute,
    /// A package that was altered on its way is staged.
    Checksum,
    /// A worker is retired on what was true when its drain ended.
    Recheck,
    /// A user is frozen although a request of his runs (V2).
    Quiesce,
    /// A frozen original thaws by itself.
    ThawsAlone,
    /// An abort thaws under the move's own epoch.
    SameEpoch,
    /// A new leader judges before the gateways have spoken (D3).
    DeafLeader,
}

/// How often each fault may happen, at any step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A message on the agents' channel, or a forward on its way, is lost.
    pub lost: u8,
    /// A message on the agents' channel arrives twice.
    pub twice: u8,
    /// A package is altered on its way.
    pub altered: u8,
    /// An agent's or a gateway's stream breaks.
    pub breaks: u8,
    /// A worker dies.
    pub workers: u8,
    /// A gateway dies.
    pub gateways: u8,
    /// The leader dies and another one takes over.
    pub leaders: u8,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        lost: 0,
        twice: 0,
        altered: 0,
        breaks: 0,
        workers: 0,
        gateways: 0,
        leaders: 0,
    };
}

/// The bounds of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Its name in the output.
    pub name: &'static str,
    /// Users, 1 to 2; each logs in once.
    pub users: u8,
    /// Workers, 2 to 3.
    pub workers: u8,
    /// Gateways, 1 to 2.
    pub gateways: u8,
    /// Moves that are begun, over all users.
    pub moves: u8,
    /// Logins of a resident from a second browser.
    pub joins: u8,
    /// Requests after the logins, over all users.
    pub requests: u8,
    /// Retirements of a worker that nobody lives on.
    pub retirements: u8,
    /// Everybody has logged in and rests on the first worker.
    pub settled: bool,
    /// Faults.
    pub faults: Faults,
    /// What is left out.
    pub broken: Option<Broken>,
}

/// What a run of the checker found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Steps taken, those to known states too.
    pub steps: usize,
    /// Longest way from the start.
    pub depth: usize,
    /// False when the run stopped at a bound.
    pub complete: bool,
    /// The broken claim, and the way to it.
    pub broken: Vec<(&'static str, Vec<String>)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.complete { "all" } else { "the first" };
        write!(
            f,
            "{whole} {} states, {} steps, depth {}",
            self.states, self.steps, self.depth
        )?;
        for (claim, way) in &self.broken {
            write!(f, "\nbroken: {claim}")?;
            for step in way {
                write!(f, "\n  {step}")?;
            }
        }
        Ok(())
    }
}

impl World {
    /// A world of one user, two workers and one gateway, without faults.
    pub const SMALL: Self = Self {
        name: "small",
        users: 1,
        workers: 2,
        gateways: 1,
        moves: 1,
        joins: 0,
        requests: 1,
        retirements: 0,
        settled: true,
        faults: Faults::NONE,
        broken: None,
    };

    /// Explores this world, breadth first, until every state was seen, a claim is broken or `bounds` are reached.
    pub fn explore(self, bounds: Bounds) -> Report {
        let mut builder = self.checker().threads(bounds.threads);
        builder = builder.finish_when(HasDiscoveries::Any);
        if let Some(limit) = bounds.limit {
            builder = builder.timeout(limit);
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "how long a run took decides nothing in the world"
        )]
        let began = Instant::now();
        let checker = builder.spawn_bfs().join();
        let late = bounds.limit.is_some_and(|limit| began.elapsed() >= limit);
        let found = checker.discoveries();
        let broken: Vec<_> = found
            .into_iter()
            .map(|(claim, path)| {
                let way = path
                    .into_actions()
                    .iter()
                    .map(|action| format!("{action:?}"))
                    .collect();
                (claim, way)
            })
            .collect();
        Report {
            states: checker.unique_state_count(),
            steps: checker.state_count(),
            depth: checker.max_depth(),
            complete: broken.is_empty() && !late,
            broken,
        }
    }
}

/// When a run stops.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Threads that explore.
    pub threads: usize,
    /// Time at most.
    pub limit: Option<Duration>,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::start(self)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.actions(self, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        next.apply(self, action);
        next.tidy();
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(claims::ONE_OWNER, |_: &Self, state: &State| {
                state.owners_are_one()
            }),
            Property::always(claims::ONCE, |_: &Self, state: &State| {
                state.wrong != Some(claims::ONCE)
            }),
            Property::always(claims::NO_FORK, |_: &Self, state: &State| {
                state.wrong != Some(claims::NO_FORK)
            }),
            Property::always(claims::NOT_GONE, |_: &Self, state: &State| {
                state.wrong != Some(claims::NOT_GONE)
            }),
            Property::always(claims::ENDS, |world: &Self, state: &State| state.ends_well(world)),
        ]
    }
}
