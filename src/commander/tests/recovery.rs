//! A new leader and strangers on the channel (D3).

use std::time::Duration;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, Term};

use super::manifest::{group, pool, spec};
use super::world::World;
use crate::channel::proto::{Claim, Ownership, UserGone, agent_command, agent_message, claim};
use crate::commander::RECOVERY_LIMIT;
use crate::vehicle::{Fact, WorkerFact};

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

/// A worker of an earlier term that never dials, in a pool that became live without it.
fn live_without(birth: Birth) -> World {
    let mut world = World::new(7, spec());
    world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    world.fact(Fact::Synced);
    world.pass(RECOVERY_LIMIT);
    world
}

#[test]
fn a_late_table_tells_who_lives_on_a_worker_that_has_not_spoken_yet() {
    let slow = Birth(Term(3).number(1));
    let mut world = live_without(slow);
    let alice = Ownership {
        user: "alice".into(),
        birth: slow.0,
        epoch: Term(3).number(9),
        ..Ownership::default()
    };
    let gateway = world.gateway_that_knows(vec![alice]);
    let told = &world.full_table(gateway).users;
    assert!(told.iter().any(|user| user.user == "alice"), "she is not gone");
    assert_eq!(world.owner("alice"), Some((slow, Epoch(Term(3).number(9)))));
    world.pass(spec().dead_timeout + Duration::from_secs(2));
    assert_eq!(world.owner("alice"), None, "D1: it never spoke");
}

#[test]
fn a_late_table_does_not_bring_back_who_is_gone_from_a_worker_that_has_spoken() {
    let first = Birth(Term(3).number(1));
    let mut world = live_without(first);
    world.hello(first, Vec::new());
    let alice = Ownership {
        user: "alice".into(),
        birth: first.0,
        epoch: Term(3).number(9),
        ..Ownership::default()
    };
    world.gateway_that_knows(vec![alice]);
    assert_eq!(world.owner("alice"), None);
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

/// A new leader that has heard of two workers of an earlier one, and the agent of the second only.
fn half_heard() -> (World, Birth, Birth) {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    world.gateway();
    world.hello(second, Vec::new());
    (world, first, second)
}

#[test]
fn a_worker_that_has_not_spoken_to_the_new_leader_stays_reachable_and_is_never_given_up_as_a_spawn() {
    let (mut world, first, second) = half_heard();
    let told = world.commander.pools[&pool()].told.workers.keys().copied();
    assert_eq!(
        told.collect::<Vec<_>>(),
        [first, second],
        "D4: gateways go on forwarding"
    );
    for _ in 0..11 {
        world.reports(&[0.0]);
        assert!(world.drained().is_empty(), "E5: not while the other is unknown");
        assert!(world.retired().is_empty());
    }
    assert!(world.wanted(&group()).is_empty(), "nobody is spawned beside it");
    world.hello(first, vec![world.owned("alice", first, Term(3).number(9))]);
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(first));
    world.reports(&[0.0]);
    assert!(world.drained().is_empty(), "E5: one row is no window");
    world.reports(&[0.0]);
    assert_eq!(world.drained().len() + world.retired().len(), 1, "E5: known now");
}

#[test]
fn once_the_silent_one_is_dead_its_group_is_decided_on_without_it() {
    let (mut world, first, second) = half_heard();
    for _ in 0..14 {
        world.reports(&[0.0]);
    }
    assert_eq!(world.births(), [second], "D1: nobody reached it for deadTimeout");
    assert_eq!(world.retired(), [first]);
}

#[test]
fn a_worker_that_is_going_when_the_leader_changes_is_emptied_by_the_new_one() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    let going = WorkerFact {
        terminating: true,
        ..World::fact_of(second)
    };
    world.fact(Fact::Worker(Box::new(World::fact_of(first))));
    world.fact(Fact::Worker(Box::new(going)));
    world.fact(Fact::Synced);
    world.gateway();
    world.hello(first, Vec::new());
    world.pass(Duration::from_secs(6));
    world.hello(second, vec![world.owned("alice", second, Term(3).number(9))]);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(first), "D2");
}

#[test]
fn a_new_leader_grows_on_what_it_knows_without_waiting_for_a_window() {
    let mut world = World::new(7, spec());
    let first = Birth(Term(3).number(1));
    world.fact(Fact::Worker(Box::new(World::fact_of(first))));
    world.fact(Fact::Synced);
    world.hello(first, Vec::new());
    world.reports(&[0.9]);
    assert_eq!(
        world.wanted(&group()).len(),
        1,
        "E5: growth goes on from what is known"
    );
}

/// Found by the simulation: the claim of the Hello outlived the word that he had left.
#[test]
fn a_user_who_leaves_before_the_judgement_is_nobodys() {
    let mut world = World::new(7, spec());
    let (first, second) = (Birth(Term(3).number(1)), Birth(Term(3).number(2)));
    for birth in [first, second] {
        world.fact(Fact::Worker(Box::new(World::fact_of(birth))));
    }
    world.fact(Fact::Synced);
    let epoch = Term(3).number(9);
    world.hello(first, vec![world.owned("alice", first, epoch)]);
    let gone = UserGone {
        user: "alice".into(),
        epoch,
    };
    world.say(first, agent_message::Message::UserGone(gone));
    world.hello(second, Vec::new());
    assert_eq!(world.owner("alice"), None);
}
