//! A new leader and strangers on the channel (D3).

use std::time::Duration;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, Term};

use super::world::{World, group, spec};
use crate::channel::proto::{Claim, agent_command, claim};
use crate::vehicle::Fact;

#[test]
fn a_new_leader_relearns_users_from_agents_and_compacts_nobody_on_empty_windows() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    let epoch = Term(3).number(9);
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    let gateway = world.gateway();
    assert!(!world.full_table(gateway).live);
    world.hello(first, vec![world.owned("alice", first, epoch)]);
    assert!(world.owner("alice").is_none(), "not before every pod has spoken");
    world.hello(second, vec![world.owned("bob", second, epoch + 1)]);
    assert_eq!(world.owner("alice"), Some((first, Epoch(epoch))));
    assert_eq!(world.owner("bob"), Some((second, Epoch(epoch + 1))));
    world.pass(Duration::from_secs(10));
    assert!(
        world.orders.desired[&group()].spawn.is_empty(),
        "nobody is spawned beside living workers"
    );
    assert!(world.retired().is_empty());
    world.reports(&[0.0, 0.0]);
    assert_eq!(
        world.commander.groups[&group()].engine.drains().count(),
        0,
        "E5: one row is no window"
    );
}

#[test]
fn a_forged_ticket_makes_a_claim_provisional() {
    let mut world = World::new(7, spec());
    let first = Birth(Term(3).number(1));
    world.fact(Fact::Worker(Box::new(World::fact_of(first))));
    world.fact(Fact::Synced);
    let mut claim = world.owned("alice", first, Term(3).number(9));
    claim.ticket = "00".repeat(32);
    world.hello(first, vec![claim]);
    let (owner, epoch) = world.owner("alice").unwrap();
    assert_eq!(owner, first);
    assert_eq!(epoch.term(), Term(7), "granted anew by this leader");
}

#[test]
fn a_new_leader_joins_a_slice_that_nobody_granted_to_its_owner() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    world.gateway();
    world.hello(first, vec![world.owned("alice", first, Term(3).number(9))]);
    let slice = Claim {
        user: "alice".into(),
        state: claim::State::Provisional.into(),
        clients: vec![ClientId([8; 16]).to_string()],
        ..Claim::default()
    };
    world.hello(second, vec![slice]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(first));
    let joined = |command: &agent_command::Command| matches!(command, agent_command::Command::Snapshot(snapshot) if snapshot.join);
    assert!(
        world.agents[&second].told.iter().any(joined),
        "the slice is asked for"
    );
}

#[test]
fn an_agent_of_a_foreign_pod_is_refused() {
    let mut world = World::serving();
    let before = world.commander.agents.len();
    world.hello(Birth(999), Vec::new());
    assert_eq!(world.commander.agents.len(), before);
    assert!(world.agents[&Birth(999)].told.is_empty());
}
