//! Decisions taken live are kept with what they stood on, and give the same bytes when they are asked again.

use std::sync::Arc;

use elastic_pool_engine::snapshot::Saved;
use tokio::sync::mpsc;

use super::manifest::{group, spec};
use super::world::World;
use crate::vehicle::{Fact, GroupSpec};

/// A group that grows, takes users, and shrinks again.
fn busy_life(mut world: World) -> World {
    world.saturate();
    let second = world.make_wanted()[0];
    let reception = world.births()[0];
    for (number, user) in ["alice", "bob", "carol"].iter().enumerate() {
        world.login(user, u8::try_from(number).unwrap(), reception);
    }
    for _ in 0..8 {
        world.reports(&[0.02, 0.01]);
    }
    assert_eq!(world.retired(), [second]);
    world
}

#[test]
fn every_decision_taken_live_replays_to_the_same_bytes() {
    let world = busy_life(World::serving());
    let decisions = world.commander.decisions("test/shop-blue").unwrap();
    assert!(decisions.len() >= 4, "{}", decisions.len());
    let mut actions = Vec::new();
    for saved in decisions {
        let line = Saved::clone(&saved).answered().to_json();
        let read = Saved::parse(&line).unwrap();
        assert_eq!(read.to_json(), line, "the same snapshot gives the same bytes");
        assert_eq!(
            read.given(),
            Some(read.answer().to_json().as_str()),
            "and the same answer"
        );
        let plan = elastic_pool_engine::plan(&read.snapshot(), read.taken_at());
        actions.extend(plan.actions());
    }
    let kinds: Vec<String> = actions
        .iter()
        .map(|action| {
            format!("{action:?}")
                .split(' ')
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        ["Spawn", "Spawn", "Drain", "Retire"],
        "what was done is what is replayed"
    );
}

#[test]
fn nothing_is_kept_again_while_its_reason_stays() {
    let mut world = World::serving();
    world.reports(&[0.1]);
    let before = world.commander.decisions("shop-blue").unwrap().len();
    for _ in 0..20 {
        world.reports(&[0.2]);
    }
    assert_eq!(world.commander.decisions("shop-blue").unwrap().len(), before);
    world.saturate();
    let after = world.commander.decisions("shop-blue").unwrap();
    assert!(after.len() > before);
    assert!(
        after
            .last()
            .unwrap()
            .answer()
            .to_json()
            .contains("spawn_in_flight"),
        "nothing, for another reason"
    );
}

#[test]
fn the_live_snapshot_names_users_and_answers_like_the_group() {
    let mut world = World::with_workers(spec(), &[0.3, 0.3]);
    let second = world.births()[1];
    world.login("alice", 1, second);
    let saved = world.commander.snapshot("shop-blue").unwrap();
    assert_eq!(saved.name(), "test/shop-blue");
    assert_eq!(saved.users(second).len(), 1);
    assert_eq!(Saved::parse(&saved.to_json()).unwrap(), saved);
    let live = elastic_pool_engine::plan(&world.commander.groups[&group()].snapshot(), world.commander.now);
    let replayed = elastic_pool_engine::plan(&saved.snapshot(), saved.taken_at());
    assert_eq!(live, replayed);
}

#[test]
fn a_name_that_is_no_one_groups_is_answered_with_those_that_could_be_meant() {
    let mut world = World::serving();
    let error = world.commander.snapshot("shop-red").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"shop-red\" is not the name of one PoolGroup: write one of test/shop-blue"
    );
    let mut other = spec();
    other.key.namespace = "prod".into();
    other.pool.namespace = "prod".into();
    world.fact(Fact::Group(Box::new(other)));
    let error = world.commander.decisions("shop-blue").unwrap_err();
    assert_eq!(error.known, ["prod/shop-blue", "test/shop-blue"]);
    assert!(world.commander.snapshot("test/shop-blue").is_ok());
}

#[test]
fn a_group_keeps_a_bounded_number_of_decisions() {
    let mut world = World::serving_with(GroupSpec {
        max: Some(1),
        ..spec()
    });
    for _ in 0..80 {
        world.saturate();
        world.reports(&[0.0]);
        world.reports(&[0.0]);
    }
    assert_eq!(world.commander.decisions("shop-blue").unwrap().len(), 64);
}

#[test]
fn decisions_go_to_the_sink_and_a_full_one_holds_nobody_up() {
    let mut world = World::new(1, spec());
    let (sink, mut saved) = mpsc::channel(2);
    world.commander.sink = Some(sink);
    world.fact(Fact::Synced);
    world.gateway();
    world.make_wanted();
    let world = busy_life(world);
    let kept = world.commander.decisions("shop-blue").unwrap();
    let sent: Vec<Arc<Saved>> = std::iter::from_fn(|| saved.try_recv().ok()).collect();
    assert_eq!(sent, kept[..2], "the first two found room");
}
