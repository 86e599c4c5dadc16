//! Answers about where somebody goes: logins, requests, and the users of a worker that is drained (P, L5, C6).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::{Answer, name, object};
use super::input::{Actor, Scene};
use super::question::{Login, Request};
use crate::compaction::{self, Survivors};
use crate::group::Group;
use crate::placement::{PlaceError, Placement, place};
use crate::share::Share;

/// The fields that a placement is told by.
pub(super) fn placed(group: &Group, placement: Result<&Placement, &PlaceError>) -> Answer {
    match placement {
        Ok(placement) => object(json!({
            "decision": placement.verdict.code(),
            "worker": name(group, placement.worker),
            "warning": placement.warning,
        })),
        Err(PlaceError::NoRoutableWorker) => object(json!({"error": "no_routable_worker"})),
    }
}

pub(super) fn because(placement: &Result<Placement, PlaceError>) -> String {
    placement.as_ref().map_or_else(
        |PlaceError::NoRoutableWorker| {
            "P3: no worker is routable and takes newcomers, so nobody can be placed".to_owned()
        },
        |placement| placement.because.to_string(),
    )
}

pub(super) fn login(scene: &Scene, login: &Login) -> Answer {
    let cast = &scene.cast;
    let named = login.currently_on.as_deref().and_then(|name| cast.named(name));
    if let Some(home) = named
        .filter(|worker| cast.lives(worker))
        .or_else(|| cast.home_of(&login.user))
    {
        return object(json!({
            "worker": home.name,
            "placement_evaluated": false,
            "because": at_home(home),
        }));
    }
    let at = login
        .arriving_on
        .as_deref()
        .and_then(|name| cast.named(name))
        .map(|worker| worker.birth);
    let placement = place(&cast.group, &scene.policy, at);
    let mut answer = placed(&cast.group, placement.as_ref());
    answer.insert("placement_evaluated".to_owned(), true.into());
    answer.insert("because".to_owned(), because(&placement).into());
    answer
}

fn at_home(home: &Actor) -> String {
    format!(
        "P1: the user lives on {} and goes there, whatever its load, which is {}",
        home.name, home.occupancy
    )
}

pub(super) fn request(scene: &Scene, request: &Request) -> Answer {
    let cast = &scene.cast;
    let taken_in = request
        .currently_on
        .as_deref()
        .and_then(|name| cast.named(name))
        .filter(|worker| cast.lives(worker));
    let home = cast.home_of(&request.user).filter(|_| !request.guest);
    let (worker, because) = if let Some(home) = home {
        (&*home.name, at_home(home))
    } else if let Some(home) = taken_in {
        let name = &home.name;
        (
            &**name,
            format!("P1: {name} took him in and lives, so he stays there"),
        )
    } else if let Some(home) = cast.group.guest_home() {
        let name = &home.name;
        (
            &**name,
            format!("P1: he lives nowhere, and a guest goes to the reception, {name}"),
        )
    } else {
        let because = "P1: a guest goes to the reception, and no worker is routable";
        return object(json!({"error": "no_routable_worker", "because": because}));
    };
    object(json!({"worker": worker, "placement_evaluated": false, "because": because}))
}

pub(super) fn drain(scene: &Scene, drained: &Actor) -> Answer {
    let group = &scene.cast.group;
    let users = drained.users.names.iter();
    let order = compaction::move_order(users.map(|user| (user, scene.cast.open_requests(drained, user))));
    let mut survivors = Survivors::without(group, &scene.policy, drained.birth, &BTreeMap::new());
    let share = drained.occupancy.divided(drained.users.count);
    let mut target = Answer::new();
    for user in &order {
        if let Some(birth) = survivors.take(share) {
            target.insert((*user).clone(), name(group, birth));
        }
    }
    let nowhere = target.len() < order.len();
    let because = emptied(drained, share, nowhere);
    let mut answer = object(json!({"move_order": order, "target": target, "because": because}));
    if nowhere {
        answer.insert("error".to_owned(), Value::from("no_routable_worker"));
    }
    answer
}

fn emptied(drained: &Actor, share: Share, nowhere: bool) -> String {
    let (name, load, users) = (&drained.name, drained.occupancy, drained.users.count);
    if users == 0 {
        return format!("C6: nobody lives on {name}");
    }
    if drained.users.names.is_empty() {
        return format!("C6: the case names none of the {users} users of {name}, so none has a target");
    }
    if nowhere {
        return format!("C6: no other worker is routable, so the {users} users of {name} have nowhere to go");
    }
    if users == 1 {
        return format!(
            "C6: the only user of {name} stands for all of its {load} and goes to the worker that is the lowest below its threshold, or, where none is below, to the lowest"
        );
    }
    format!(
        "C6: each of the {users} users of {name} stands for {share} of its {load}; the idle go first, then the busy, \
         each to the worker that is then the lowest below its threshold, or, where none is below, to the lowest"
    )
}
