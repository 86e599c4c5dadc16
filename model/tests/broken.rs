//! What keeps the claims is taken away, one thing at a time: the checker finds a way to break a claim each time.

use elastic_pool_model::{Bounds, Broken, Faults, World, claims};

const LEADER: Faults = Faults {
    lost: 0,
    twice: 0,
    altered: 0,
    breaks: 0,
    workers: 0,
    gateways: 0,
    leaders: 1,
};

/// The claims that are broken, and the way to the first of them.
fn broken(world: World) -> Vec<&'static str> {
    let report = world.explore(Bounds {
        threads: 1,
        limit: None,
    });
    println!("{:?}: {report}", world.broken);
    report.broken.into_iter().map(|(claim, _)| claim).collect()
}

/// The world that each of these breaks.
const WHOLE: World = World {
    name: "two requests and a move",
    requests: 2,
    ..World::SMALL
};

fn without(broken: Broken) -> World {
    World {
        broken: Some(broken),
        ..WHOLE
    }
}

#[test]
fn with_everything_in_place_no_claim_is_broken() {
    assert_eq!(broken(WHOLE), Vec::<&str>::new());
}

#[test]
fn without_the_fence_two_copies_are_served() {
    assert!(!broken(without(Broken::Fence)).is_empty());
}

#[test]
fn without_the_commit_rule_two_workers_own_a_user() {
    assert!(!broken(without(Broken::Commit)).is_empty());
}

#[test]
fn a_route_before_the_activation_breaks_a_claim() {
    assert!(!broken(without(Broken::EarlyRoute)).is_empty());
}

#[test]
fn without_the_checksum_an_altered_copy_is_served() {
    let world = World {
        faults: Faults {
            altered: 1,
            ..Faults::default()
        },
        ..without(Broken::Checksum)
    };
    assert!(!broken(world).is_empty());
}

#[test]
fn without_the_look_before_a_retirement_a_user_goes_with_it() {
    let world = World {
        retirements: 1,
        ..without(Broken::Recheck)
    };
    assert!(!broken(world).is_empty());
}

#[test]
fn without_quiescence_what_a_request_did_is_lost() {
    assert!(!broken(without(Broken::Quiesce)).is_empty());
}

#[test]
fn a_frozen_original_that_thaws_alone_is_a_second_owner() {
    assert!(!broken(without(Broken::ThawsAlone)).is_empty());
}

#[test]
fn an_abort_under_the_moves_own_epoch_never_ends() {
    assert_eq!(broken(without(Broken::SameEpoch)), [claims::ENDS]);
}

/// Found by the model: the last leader had routed the move, and only a gateway knew.
#[test]
fn a_leader_that_does_not_wait_for_gateways_makes_a_second_owner() {
    let world = World {
        faults: LEADER,
        ..without(Broken::DeafLeader)
    };
    assert!(!broken(world).is_empty());
}
