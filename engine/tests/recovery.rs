//! Row by row: what a new leader does about one user (D3).

use elastic_pool_engine::recovery::{Claim, Heard, Held, Late, Order, Owner, Verdict, resolve, weigh};
use elastic_pool_engine::{Birth, Epoch};
use proptest::prelude::*;
use rstest::rstest;

const A: Birth = Birth(1);
const B: Birth = Birth(2);
const ID: Epoch = Epoch(9);

fn claim(worker: Birth, epoch: u64, held: Held) -> Claim {
    Claim {
        worker,
        epoch: Epoch(epoch),
        held,
    }
}

fn owned(worker: Birth, epoch: u64) -> Claim {
    claim(worker, epoch, Held::Owned)
}

fn frozen(worker: Birth) -> Claim {
    claim(worker, 5, Held::Frozen { id: ID })
}

fn staged(complete: bool) -> Claim {
    claim(B, 0, Held::Staged { id: ID, complete })
}

fn provisional(worker: Birth) -> Claim {
    claim(worker, 0, Held::Provisional)
}

fn past(epoch: u64) -> Claim {
    claim(B, epoch, Held::Past)
}

/// All gateways heard; they saw epoch `saw`, 0 for none.
fn heard(claims: &[Claim], saw: u64, worker_died: bool) -> Heard {
    let gateways_saw = (saw > 0).then_some(Epoch(saw));
    Heard {
        claims: claims.to_vec(),
        gateways_saw,
        gateways_heard: true,
        worker_died,
    }
}

const LOST: Owner = Owner::Nobody { lost: true };
const GONE: Owner = Owner::Nobody { lost: false };
const THAWED: (Owner, &[(Birth, Order)]) = (Owner::Granted(A), &[(A, Order::Thaw { id: ID })]);

#[rstest]
#[case::one_owner_keeps(heard(&[owned(A, 5)], 5, false), Owner::Keeps(A, Epoch(5)), &[])]
#[case::a_committed_move_forgets_the_frozen(
    heard(&[frozen(A), owned(B, 9)], 9, false), Owner::Keeps(B, ID), &[(A, Order::Forget { id: ID })])]
#[case::an_owner_has_the_staged_copy_discarded(
    heard(&[owned(A, 10), staged(true)], 5, false), Owner::Keeps(A, Epoch(10)), &[(B, Order::Discard { id: ID })])]
#[case::frozen_and_staged_abort(
    heard(&[frozen(A), staged(true)], 5, false), Owner::Granted(A),
    &[(A, Order::Thaw { id: ID }), (B, Order::Discard { id: ID })])]
#[case::frozen_and_staged_and_routed_goes_through(
    heard(&[frozen(A), staged(true)], 9, false), Owner::Activated(B, ID),
    &[(A, Order::Forget { id: ID }), (B, Order::Activate { id: ID })])]
#[case::frozen_and_the_fence_knows_the_move(
    heard(&[frozen(A), past(9)], 5, false), GONE, &[(A, Order::Forget { id: ID })])]
#[case::frozen_and_a_gateway_saw_the_move(
    heard(&[frozen(A)], 9, false), GONE, &[(A, Order::Forget { id: ID })])]
#[case::frozen_and_nobody_knows_the_move(heard(&[frozen(A)], 5, false), THAWED.0, THAWED.1)]
#[case::an_older_fence_says_nothing(heard(&[frozen(A), past(4)], 5, false), THAWED.0, THAWED.1)]
#[case::staged_complete_and_the_source_dead(
    heard(&[staged(true)], 5, true), Owner::Activated(B, ID), &[(B, Order::Activate { id: ID })])]
#[case::staged_complete_and_routed_goes_through(
    heard(&[staged(true)], 9, true), Owner::Activated(B, ID), &[(B, Order::Activate { id: ID })])]
#[case::staged_complete_but_a_gateway_is_ahead(
    heard(&[staged(true)], 10, true), LOST, &[(B, Order::Discard { id: ID })])]
#[case::staged_incomplete_and_the_source_dead(
    heard(&[staged(false)], 5, true), LOST, &[(B, Order::Discard { id: ID })])]
#[case::frozen_target_dead_and_routed(
    heard(&[frozen(A)], 9, true), LOST, &[(A, Order::Forget { id: ID })])]
#[case::frozen_target_dead_and_not_routed(heard(&[frozen(A)], 5, true), THAWED.0, THAWED.1)]
#[case::only_provisional_is_granted(
    heard(&[provisional(B)], 0, false), Owner::Granted(B), &[(B, Order::Grant)])]
#[case::several_provisional_are_joined(
    heard(&[provisional(B), provisional(A)], 0, false), Owner::Granted(A), &[(A, Order::Grant), (B, Order::Join)])]
#[case::a_provisional_slice_joins_the_owner(
    heard(&[owned(A, 5), provisional(B)], 5, false), Owner::Keeps(A, Epoch(5)), &[(B, Order::Join)])]
#[case::nobody_holds_him(heard(&[past(5)], 5, false), GONE, &[])]
fn each_row_of_the_table_holds(
    #[case] heard: Heard,
    #[case] owner: Owner,
    #[case] orders: &[(Birth, Order)],
) {
    assert_eq!(
        resolve(&heard),
        Verdict {
            owner,
            orders: orders.to_vec(),
            alarm: false
        }
    );
}

#[test]
fn of_two_owners_the_higher_epoch_wins_with_an_alarm() {
    let verdict = resolve(&heard(&[owned(A, 6), owned(B, 5)], 6, false));
    let orders = vec![(B, Order::Forget { id: Epoch(5) })];
    assert_eq!(
        verdict,
        Verdict {
            owner: Owner::Keeps(A, Epoch(6)),
            orders,
            alarm: true
        }
    );
}

#[rstest]
#[case(&[frozen(A)], true)]
#[case(&[frozen(A)], false)]
#[case(&[staged(true)], true)]
// The last leader may have routed it: the target serves from the next forward on.
#[case(&[frozen(A), staged(true)], false)]
fn what_only_gateways_can_tell_waits_for_them(#[case] claims: &[Claim], #[case] worker_died: bool) {
    let heard = Heard {
        gateways_heard: false,
        ..heard(claims, 5, worker_died)
    };
    let verdict = resolve(&heard);
    assert_eq!(verdict.owner, Owner::Unknown);
    assert_eq!(verdict.orders, vec![]);
}

/// An agent that comes while its user's owner is known; the surface names (worker, epoch).
#[rstest]
#[case::told_again_what_is_his(owned(A, 5), Some((A, 5)), Late::Assign)]
#[case::a_higher_claim_is_believed(owned(B, 6), Some((A, 5)), Late::Take)]
#[case::nobody_else_holds_him(owned(A, 5), None, Late::Take)]
#[case::a_lower_claim_is_stale(owned(B, 4), Some((A, 5)), Late::Order(Order::Forget { id: Epoch(4) }))]
#[case::the_frozen_lives_here(frozen(A), Some((A, 5)), Late::Thaw { id: ID })]
#[case::the_frozen_lives_elsewhere(frozen(A), Some((B, 9)), Late::Order(Order::Forget { id: ID }))]
// Found by the model: the target of a committed move was away when it was told so.
#[case::the_staged_was_routed(staged(true), Some((B, 9)), Late::Order(Order::Activate { id: ID }))]
#[case::the_staged_was_not(staged(true), Some((A, 5)), Late::Order(Order::Discard { id: ID }))]
#[case::a_part_is_of_no_use(staged(false), Some((B, 9)), Late::Order(Order::Discard { id: ID }))]
#[case::who_was_given_away(past(5), Some((A, 9)), Late::Nothing)]
#[case::a_login_that_nobody_placed(provisional(B), Some((A, 9)), Late::Born)]
fn a_late_claim_is_weighed_against_the_surface(
    #[case] claim: Claim,
    #[case] resident: Option<(Birth, u64)>,
    #[case] late: Late,
) {
    let resident = resident.map(|(worker, epoch)| (worker, Epoch(epoch)));
    assert_eq!(weigh(&claim, resident), late);
}

fn any_claim() -> impl Strategy<Value = Claim> {
    (1u64..4, 1u64..12, 0u8..6).prop_map(|(worker, epoch, held)| {
        let id = Epoch(epoch + 1);
        let (epoch, held) = match held {
            0 => (0, Held::Provisional),
            1 => (epoch, Held::Owned),
            2 => (epoch, Held::Frozen { id }),
            3 => (0, Held::Staged { id, complete: true }),
            4 => (0, Held::Staged { id, complete: false }),
            _ => (epoch, Held::Past),
        };
        claim(Birth(worker), epoch, held)
    })
}

proptest! {
    #[test]
    fn at_most_one_worker_serves_afterwards(
        claims in prop::collection::btree_map(1u64..5, any_claim(), 0..5),
        saw in 0u64..14,
        flags in any::<(bool, bool)>(),
    ) {
        let claims = claims.into_iter().map(|(worker, claim)| Claim { worker: Birth(worker), ..claim });
        let claims: Vec<Claim> = claims.collect();
        let mut all = heard(&claims, saw, flags.0);
        all.gateways_heard = flags.1;
        let verdict = resolve(&all);
        let told = |claim: &Claim| verdict.orders.iter().find(|(worker, _)| *worker == claim.worker).map(|(_, o)| *o);
        let serving = |claim: &&Claim| match (claim.held, told(claim)) {
            (Held::Owned, None) => verdict.owner != Owner::Unknown,
            (_, order) => matches!(order, Some(Order::Thaw { .. } | Order::Activate { .. } | Order::Grant)),
        };
        prop_assert!(claims.iter().filter(serving).count() <= 1);
        let has_owner = !matches!(verdict.owner, Owner::Nobody { .. } | Owner::Unknown);
        prop_assert_eq!(claims.iter().filter(serving).count() == 1, has_owner);
        all.claims.reverse();
        prop_assert_eq!(resolve(&all), verdict);
    }
}
