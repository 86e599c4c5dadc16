//! Messages to users (V10, V11): delivered at once, held in a move, in order, refused where nobody is.

use std::time::Duration;

use elastic_pool_engine::ids::Birth;

use super::world::World;
use crate::channel::proto::deposited::Outcome;
use crate::channel::proto::{Deposit, Offer, agent_command, agent_message};

fn offer(world: &mut World, from: Birth, user: &str, number: u64) {
    let offer = Offer {
        number,
        user: user.into(),
        body: format!("message {number}").into_bytes(),
        content_type: String::new(),
        sender: "s".into(),
    };
    world.say(from, agent_message::Message::Offer(offer));
}

/// What the sender's agent was told, in order.
fn answers(world: &World, from: Birth) -> Vec<(u64, Outcome)> {
    let told = world.agents[&from].told.iter();
    told.filter_map(|command| match command {
        agent_command::Command::Deposited(deposited) => Some((deposited.number, deposited.outcome())),
        _ => None,
    })
    .collect()
}

/// Numbers of the deposits that an agent was told, in order.
fn deposits(world: &World, at: Birth) -> Vec<u64> {
    let told = world.agents[&at].told.iter();
    told.filter_map(|command| match command {
        agent_command::Command::Deposit(Deposit { sequence, .. }) => Some(*sequence),
        _ => None,
    })
    .collect()
}

#[test]
fn a_message_goes_to_the_owner_and_its_sender_hears_of_it() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    offer(&mut world, reception, "alice", 1);
    offer(&mut world, reception, "nobody", 2);
    assert_eq!(deposits(&world, reception), [1]);
    assert_eq!(
        answers(&world, reception),
        [(1, Outcome::Delivered), (2, Outcome::Refused)]
    );
}

#[test]
fn a_message_for_a_user_in_a_move_waits_and_is_delivered_where_he_lives_then() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    world.agents.get_mut(&second).unwrap().ignores = |_| true;
    world.login("alice", 1, reception);
    offer(&mut world, reception, "alice", 1);
    offer(&mut world, reception, "alice", 2);
    assert_eq!(
        answers(&world, reception),
        [(1, Outcome::Held), (2, Outcome::Held)]
    );
    assert_eq!(deposits(&world, second), Vec::<u64>::new());
    world.agents.get_mut(&second).unwrap().ignores = |_| false;
    world.pass(Duration::from_secs(10));
    let owner = world.owner("alice").unwrap().0;
    assert_eq!(deposits(&world, owner), [1, 2]);
    assert_eq!(
        answers(&world, reception)[2..],
        [(1, Outcome::Delivered), (2, Outcome::Delivered)]
    );
}

#[test]
fn messages_keep_their_order_over_a_broken_stream_and_an_agent_that_offers_again() {
    let mut world = World::serving();
    let reception = world.births()[0];
    let placed = world.login("alice", 1, reception);
    world.agents.get_mut(&reception).unwrap().ignores = |_| true;
    offer(&mut world, reception, "alice", 1);
    offer(&mut world, reception, "alice", 2);
    assert_eq!(deposits(&world, reception), [1], "one at a time");
    let epoch = placed.user.unwrap().epoch;
    world.hello(reception, vec![world.owned("alice", reception, epoch)]);
    world.agents.get_mut(&reception).unwrap().ignores = |_| true;
    offer(&mut world, reception, "alice", 1);
    offer(&mut world, reception, "alice", 2);
    assert_eq!(deposits(&world, reception), [1], "known by their numbers");
    world.agents.get_mut(&reception).unwrap().ignores = |_| false;
    world.pass(Duration::from_secs(20));
    // The app knows one that comes again by its sender and number.
    assert_eq!(deposits(&world, reception), [1, 1, 2]);
    let delivered: Vec<u64> = answers(&world, reception)
        .into_iter()
        .filter(|(_, outcome)| *outcome == Outcome::Delivered)
        .map(|(number, _)| number)
        .collect();
    assert_eq!(delivered, [1, 2]);
}

#[test]
fn messages_that_nobody_takes_are_refused_in_the_end_and_their_number_is_bounded() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    world.agents.get_mut(&reception).unwrap().ignores = |_| true;
    for number in 1..=65 {
        offer(&mut world, reception, "alice", number);
    }
    assert_eq!(answers(&world, reception), [(65, Outcome::Refused)]);
}
