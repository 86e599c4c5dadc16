//! A new leader and moves that the last one had not finished (D3, "a new leader, per user").

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, Term};

use super::manifest::{pool, spec};
use super::world::World;
use crate::channel::proto::{
    Claim, LookUp, Ownership, agent_command, claim, found, gateway_command, gateway_message,
};
use crate::commander::{GATEWAYS_LIMIT, RECOVERY_LIMIT};
use crate::vehicle::Fact;

const BEFORE: u64 = 9;
const MOVE: u64 = 10;

/// Alice is frozen on the first worker and staged, complete, on the second; the leader's term is the next one.
fn in_a_move() -> (World, Birth, Birth) {
    let (mut world, first, second) = frozen();
    let staged = Claim {
        user: "alice".into(),
        state: claim::State::Staged.into(),
        r#move: Term(3).number(MOVE),
        complete: true,
        ..Claim::default()
    };
    world.hello(second, vec![staged]);
    (world, first, second)
}

/// Alice is frozen on the first worker; the second has not spoken.
fn frozen() -> (World, Birth, Birth) {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    let frozen = Claim {
        state: claim::State::Frozen.into(),
        r#move: Term(3).number(MOVE),
        ..world.owned("alice", first, Term(3).number(BEFORE))
    };
    world.hello(first, vec![frozen]);
    (world, first, second)
}

fn seen_at(birth: Birth) -> Ownership {
    Ownership {
        user: "alice".into(),
        birth: birth.0,
        epoch: Term(3).number(MOVE),
        ..Ownership::default()
    }
}

fn told(world: &World, birth: Birth, which: impl Fn(&agent_command::Command) -> bool) -> bool {
    world.agents[&birth].told.iter().any(which)
}

fn thaws(command: &agent_command::Command) -> bool {
    matches!(command, agent_command::Command::Thaw(_))
}

/// Found by the model: both agents were heard, and a gateway that had heard the Route was not.
#[test]
fn a_new_leader_undoes_no_move_before_the_gateways_have_spoken() {
    let (mut world, first, second) = in_a_move();
    assert!(
        world.commander.pools[&pool()].live,
        "nobody else waits for the gateways"
    );
    assert_eq!(world.owner("alice"), None);
    assert!(!told(&world, first, thaws));
    world.gateway();
    world.pass(GATEWAYS_LIMIT);
    assert_eq!(
        world.owner("alice"),
        Some((first, Epoch(Term(7).number(1)))),
        "no gateway saw it: undone"
    );
    assert!(told(&world, first, thaws));
    assert!(told(&world, second, |command| matches!(
        command,
        agent_command::Command::Discard(_)
    )));
}

#[test]
fn a_move_that_a_gateway_saw_goes_through() {
    let (mut world, first, second) = in_a_move();
    world.gateway_that_knows(vec![seen_at(second)]);
    world.pass(RECOVERY_LIMIT);
    assert_eq!(world.owner("alice"), Some((second, Epoch(Term(3).number(MOVE)))));
    assert!(!told(&world, first, thaws));
    assert!(told(&world, first, |command| matches!(
        command,
        agent_command::Command::Forget(_)
    )));
    assert!(told(&world, second, |command| matches!(
        command,
        agent_command::Command::Activate(_)
    )));
}

#[test]
fn a_user_in_a_move_is_not_called_gone_while_his_gateways_are_awaited() {
    let (mut world, ..) = in_a_move();
    let gateway = world.gateway();
    let question = LookUp {
        request: 5,
        user: "alice".into(),
        client: ClientId([1; 16]).to_string(),
        epoch: Term(3).number(BEFORE),
    };
    world.gateway_says(gateway, gateway_message::Message::LookUp(question));
    let found = world.gateways[gateway]
        .told
        .iter()
        .find_map(|command| match command {
            gateway_command::Command::Found(found) => Some(found.verdict()),
            _ => None,
        });
    assert_eq!(found, Some(found::Verdict::Wait));
}

#[test]
fn a_user_whose_new_worker_is_only_silent_lives_there() {
    let (mut world, first, second) = frozen();
    world.gateway_that_knows(vec![seen_at(second)]);
    world.pass(RECOVERY_LIMIT);
    assert_eq!(world.owner("alice"), Some((second, Epoch(Term(3).number(MOVE)))));
    assert!(!told(&world, first, thaws));
    assert!(told(&world, first, |command| matches!(
        command,
        agent_command::Command::Forget(_)
    )));
}

/// Found by the simulation: a live table that did not name him made him a guest (L6).
#[test]
fn a_table_is_not_live_while_it_is_open_where_somebody_lives() {
    let (mut world, first, _) = in_a_move();
    let gateway = world.gateway();
    assert!(!world.full_table(gateway).live);
    world.pass(GATEWAYS_LIMIT);
    let last = world.gateways[gateway]
        .told
        .iter()
        .rev()
        .find_map(|command| match command {
            gateway_command::Command::Table(table) => Some(table.clone()),
            _ => None,
        });
    let last = last.expect("a table");
    assert!(last.live);
    let owners: Vec<u64> = last.users.iter().map(|user| user.birth).collect();
    assert_eq!(owners, [first.0]);
}
