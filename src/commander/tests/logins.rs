//! Logins and questions of gateways (P, L).

use std::time::Duration;

use elastic_pool_engine::ids::{ClientId, UserId};

use super::manifest::{group, pool};
use super::world::World;
use crate::channel::proto::{
    UserBorn, agent_command, agent_message, found, gateway_command, gateway_message,
};

#[test]
fn a_login_is_kept_by_the_reception_below_its_threshold() {
    let mut world = World::serving();
    let reception = world.births()[0];
    let placed = world.login("alice", 1, reception);
    assert!(!placed.move_follows);
    assert_eq!(placed.user.unwrap().birth, reception.0);
    assert_eq!(world.owner("alice").unwrap().0, reception);
}

#[test]
fn a_full_reception_spawns_and_passes_the_next_login_live() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    assert_eq!(
        world.orders.desired[&group()].spawn.len(),
        1,
        "growth on measured occupancy"
    );
    let made = world.make_wanted();
    let placed = world.login("alice", 1, reception);
    assert!(placed.move_follows);
    assert_eq!(
        placed.user.unwrap().birth,
        reception.0,
        "he is served where he logged in until his move"
    );
    assert_eq!(world.owner("alice").unwrap().0, made[0]);
    let told = &world.agents[&reception].told;
    assert!(
        told.iter()
            .any(|command| matches!(command, agent_command::Command::Forget(_)))
    );
}

#[test]
fn a_second_browser_is_joined_to_where_its_user_lives() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.saturate();
    let second = world.make_wanted()[0];
    world.login("alice", 1, reception);
    let before = world.owner("alice").unwrap();
    assert_eq!(before.0, second);
    let placed = world.login("alice", 2, reception);
    assert!(placed.join_follows);
    assert_eq!(
        world.owner("alice").unwrap(),
        before,
        "a join changes neither owner nor epoch"
    );
    let user = UserId::new("alice").unwrap();
    assert_eq!(
        world.commander.pools[&pool()].surface.user_of(ClientId([2; 16])),
        Some(&user)
    );
    let forgot = |command: &agent_command::Command| matches!(command, agent_command::Command::Forget(_));
    assert_eq!(
        world.agents[&reception]
            .told
            .iter()
            .filter(|command| forgot(command))
            .count(),
        2
    );
}

#[test]
fn a_user_whom_no_gateway_placed_is_granted_where_he_is() {
    let mut world = World::serving();
    let reception = world.births()[0];
    let client = ClientId([4; 16]).to_string();
    world.say(
        reception,
        agent_message::Message::UserBorn(UserBorn {
            user: "alice".into(),
            client,
        }),
    );
    assert_eq!(world.owner("alice"), None);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.owner("alice").map(|(owner, _)| owner), Some(reception));
}

#[test]
fn a_look_up_says_gone_only_of_those_who_live_nowhere() {
    let mut world = World::serving();
    let reception = world.births()[0];
    world.login("alice", 1, reception);
    for (user, expected) in [("alice", found::Verdict::Owned), ("nobody", found::Verdict::Gone)] {
        world.requests += 1;
        let request = world.requests;
        let question = crate::channel::proto::LookUp {
            request,
            user: user.into(),
            client: String::new(),
            epoch: 1,
        };
        world.gateway_says(0, gateway_message::Message::LookUp(question));
        let verdict = world.gateways[0]
            .told
            .iter()
            .rev()
            .find_map(|command| match command {
                gateway_command::Command::Found(found) if found.request == request => Some(found.verdict()),
                _ => None,
            });
        assert_eq!(verdict, Some(expected), "{user}");
    }
}
