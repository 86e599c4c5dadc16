//! Bounded worlds, explored whole: every claim holds in every state that any order of events leads to.

use elastic_pool_model::{Bounds, World, worlds};

/// Explores the worlds `of` whole and says how large they are.
fn hold(of: &[World]) {
    for world in of {
        let report = world.explore(Bounds {
            threads: 1,
            limit: None,
        });
        println!("{}: {report}", world.name);
        assert!(
            report.complete && report.broken.is_empty(),
            "{}: {report}",
            world.name
        );
    }
}

// One test each, so that they run side by side and a red one names its world.
macro_rules! worlds {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let of: Vec<World> = worlds::SMALL.into_iter().filter(|world| world.name == $name).collect();
                assert_eq!(of.len(), 1, "no world of this name");
                hold(&of);
            }
        )*

        #[test]
        fn every_small_world_has_its_test() {
            let tested = [$($name),*];
            assert!(worlds::SMALL.iter().all(|world| tested.contains(&world.name)));
        }
    };
}

worlds! {
    a_move_with_two_gateways_keeps_every_claim: "a move, two gateways",
    lost_messages_break_no_claim: "a move, two messages are lost",
    messages_lost_and_repeated_break_no_claim: "a move, a message is lost and one comes twice",
    an_altered_package_breaks_no_claim: "a move, a package is altered and a message lost",
    the_death_of_a_worker_breaks_no_claim: "a move, a worker dies and a message is lost",
    a_broken_stream_breaks_no_claim: "a move, a stream breaks",
    a_change_of_leader_breaks_no_claim: "a move, the leader changes",
    a_change_of_leader_and_the_death_of_a_worker_break_no_claim: "a move, the leader changes and a worker dies",
    the_death_of_a_gateway_breaks_no_claim: "a move, two gateways, one dies",
    two_moves_in_a_row_keep_every_claim: "two moves between two workers",
    a_login_that_is_moved_keeps_every_claim: "a login and a move",
    a_login_at_a_change_of_leader_breaks_no_claim: "a login, the leader changes",
    a_join_keeps_every_claim: "a login from a second browser",
    a_retirement_takes_nobody_with_it: "a move and a retirement",
}
