use rstest::rstest;

use super::*;

const NOW: Duration = Duration::from_secs(5);

fn alice() -> UserId {
    UserId::new("alice").unwrap()
}

/// Tickets that anybody could read.
struct Seal(&'static str);

impl Seal {
    fn ticket(&self, user: &str, epoch: Epoch) -> String {
        format!("{} {epoch} {user}", self.0)
    }
}

impl Tickets for Seal {
    fn is_true(&self, user: &UserId, epoch: Epoch, ticket: &str) -> bool {
        self.ticket(user.as_str(), epoch) == ticket
    }
}

fn key() -> Seal {
    Seal("ticket")
}

fn fence(state: Option<State>, floor: u64) -> Fence {
    let record = state.map(|state| (alice(), Record::new(state, Epoch(floor), Duration::ZERO)));
    Fence::restore(record.into_iter().collect(), Duration::ZERO)
}

const OWNED: State = State::Owned { epoch: Epoch(10) };
const FROZEN: State = State::Frozen {
    epoch: Epoch(10),
    mv: Epoch(20),
};
const STAGED: State = State::Staged {
    mv: Epoch(20),
    complete: true,
    activated: false,
};
const ACTIVE: State = State::Staged {
    mv: Epoch(20),
    complete: true,
    activated: true,
};
const PAST: State = State::Past { epoch: Epoch(10) };
const TELL: Verdict = Verdict::Refuse {
    known: Some(Epoch(10)),
};
const NO: Verdict = Verdict::Refuse { known: None };

/// (state, epoch shown, ticket holds, session mode) -> verdict: every row of the table.
#[rstest]
#[case(None, 5, true, false, Verdict::Raised)]
#[case(None, 5, false, false, NO)]
#[case(None, 5, false, true, NO)]
#[case(None, 0, false, false, NO)]
#[case(None, 0, true, false, NO)]
#[case(None, 0, false, true, Verdict::Born)]
#[case(Some(PAST), 11, true, false, Verdict::Raised)]
#[case(Some(PAST), 10, true, false, TELL)]
#[case(Some(PAST), 9, true, false, TELL)]
#[case(Some(PAST), 11, false, false, TELL)]
#[case(Some(PAST), 0, false, true, TELL)]
#[case(Some(State::Provisional), 0, false, false, Verdict::Accept)]
#[case(Some(State::Provisional), 1, true, false, Verdict::Raised)]
#[case(Some(State::Provisional), 1, false, false, NO)]
#[case(Some(OWNED), 10, false, false, Verdict::Accept)]
#[case(Some(OWNED), 11, true, false, Verdict::Raised)]
#[case(Some(OWNED), 11, false, false, TELL)]
#[case(Some(OWNED), 9, true, false, TELL)]
#[case(Some(OWNED), 0, true, true, TELL)]
#[case(Some(FROZEN), 10, true, false, TELL)]
#[case(Some(FROZEN), 20, true, false, TELL)]
#[case(Some(FROZEN), 21, false, false, TELL)]
#[case(Some(FROZEN), 21, true, false, Verdict::Thaw { mv: Epoch(20) })]
#[case(Some(FROZEN), 0, false, true, TELL)]
#[case(Some(STAGED), 20, true, false, NO)]
#[case(Some(ACTIVE), 20, true, false, Verdict::Raised)]
#[case(Some(ACTIVE), 20, false, false, NO)]
#[case(Some(ACTIVE), 21, true, false, NO)]
#[case(Some(ACTIVE), 0, false, true, NO)]
fn a_forward_gets_the_verdict_of_its_row(
    #[case] state: Option<State>,
    #[case] epoch: u64,
    #[case] holds: bool,
    #[case] session: bool,
    #[case] verdict: Verdict,
) {
    let mut fence = fence(state, if state == Some(PAST) { 10 } else { 0 });
    let ticket = if holds {
        key().ticket("alice", Epoch(epoch))
    } else {
        "00".repeat(32)
    };
    let shown = Shown {
        epoch: Epoch(epoch),
        ticket: &ticket,
    };
    assert_eq!(fence.check(&alice(), shown, Some(&key()), session, NOW), verdict);
    let after = fence.get(&alice()).map(|record| record.state);
    match verdict {
        Verdict::Raised => assert_eq!(after, Some(State::Owned { epoch: Epoch(epoch) })),
        Verdict::Born => assert_eq!(after, Some(State::Provisional)),
        Verdict::Accept | Verdict::Thaw { .. } | Verdict::Refuse { .. } => assert_eq!(after, state),
    }
}

#[test]
fn without_a_key_no_new_epoch_is_accepted() {
    let mut fence = fence(None, 0);
    let ticket = key().ticket("alice", Epoch(5));
    assert_eq!(
        fence.check(
            &alice(),
            Shown {
                epoch: Epoch(5),
                ticket: &ticket
            },
            None::<&Seal>,
            false,
            NOW
        ),
        NO
    );
}

fn shown(epoch: u64, ticket: &str) -> Shown<'_> {
    Shown {
        epoch: Epoch(epoch),
        ticket,
    }
}

#[rstest]
#[case(None, 11, Ok(Step::Go))]
#[case(Some(State::Provisional), 11, Ok(Step::Go))]
#[case(Some(OWNED), 11, Ok(Step::Go))]
#[case(Some(OWNED), 10, Ok(Step::Done))]
#[case(Some(OWNED), 9, Err(Refusal::Refused))]
#[case(Some(FROZEN), 21, Err(Refusal::Refused))]
#[case(Some(STAGED), 20, Err(Refusal::Refused))]
#[case(Some(ACTIVE), 20, Ok(Step::Go))]
#[case(Some(ACTIVE), 21, Err(Refusal::Refused))]
#[case(Some(PAST), 10, Err(Refusal::Refused))]
#[case(Some(PAST), 11, Ok(Step::Go))]
fn assign_raises_and_never_lowers(
    #[case] state: Option<State>,
    #[case] epoch: u64,
    #[case] step: Result<Step, Refusal>,
) {
    let mut fence = fence(state, if state == Some(PAST) { 10 } else { 0 });
    let ticket = key().ticket("alice", Epoch(epoch));
    assert_eq!(
        fence.assign(&alice(), shown(epoch, &ticket), &[], Some(&key()), NOW),
        step
    );
    if step.is_ok() {
        assert_eq!(
            fence.get(&alice()).unwrap().state,
            State::Owned { epoch: Epoch(epoch) }
        );
    }
}

#[test]
fn an_assign_with_a_ticket_of_another_pod_is_refused() {
    let mut fence = fence(None, 0);
    let step = fence.assign(&alice(), shown(5, &"00".repeat(32)), &[], Some(&key()), NOW);
    assert_eq!(step, Err(Refusal::Refused));
}

#[rstest]
#[case(None, Err(Refusal::NotHere))]
#[case(Some(State::Provisional), Ok(Step::Go))]
#[case(Some(OWNED), Ok(Step::Go))]
#[case(Some(FROZEN), Ok(Step::Done))]
#[case(Some(State::Frozen { epoch: Epoch(1), mv: Epoch(19) }), Err(Refusal::Refused))]
#[case(Some(State::Owned { epoch: Epoch(20) }), Err(Refusal::Refused))]
#[case(Some(STAGED), Err(Refusal::Refused))]
#[case(Some(PAST), Err(Refusal::NotHere))]
fn only_a_served_user_freezes(#[case] state: Option<State>, #[case] step: Result<Step, Refusal>) {
    assert_eq!(fence(state, 0).freeze(&alice(), Epoch(20), NOW), step);
}

#[rstest]
#[case(None, false, Ok(Step::Go))]
#[case(None, true, Err(Refusal::NotHere))]
#[case(Some(State::Provisional), false, Err(Refusal::Refused))]
#[case(Some(OWNED), false, Err(Refusal::Refused))]
#[case(Some(OWNED), true, Ok(Step::Go))]
#[case(Some(State::Owned { epoch: Epoch(20) }), false, Ok(Step::Done))]
#[case(Some(FROZEN), false, Err(Refusal::Refused))]
#[case(Some(STAGED), false, Ok(Step::Done))]
#[case(Some(State::Staged { mv: Epoch(20), complete: false, activated: false }), false, Ok(Step::Go))]
#[case(Some(State::Staged { mv: Epoch(21), complete: true, activated: false }), false, Err(Refusal::Refused))]
#[case(Some(PAST), false, Ok(Step::Go))]
#[case(Some(State::Past { epoch: Epoch(20) }), false, Err(Refusal::Refused))]
fn nothing_is_staged_over_a_living_copy(
    #[case] state: Option<State>,
    #[case] join: bool,
    #[case] step: Result<Step, Refusal>,
) {
    assert_eq!(fence(state, 0).may_stage(&alice(), Epoch(20), join), step);
}

#[rstest]
#[case(None, Ok(Step::Done))]
#[case(Some(PAST), Ok(Step::Done))]
#[case(Some(State::Provisional), Ok(Step::Go))]
#[case(Some(FROZEN), Ok(Step::Go))]
#[case(Some(OWNED), Ok(Step::Go))]
#[case(Some(State::Owned { epoch: Epoch(21) }), Err(Refusal::Refused))]
#[case(Some(STAGED), Err(Refusal::Refused))]
fn forget_takes_only_what_an_older_epoch_holds(
    #[case] state: Option<State>,
    #[case] step: Result<Step, Refusal>,
) {
    assert_eq!(fence(state, 0).may_forget(&alice(), Epoch(20)), step);
}

#[test]
fn a_thaw_needs_a_higher_epoch_than_the_move() {
    let fence = fence(Some(FROZEN), 0);
    let (at, above) = (key().ticket("alice", Epoch(20)), key().ticket("alice", Epoch(21)));
    let thaw = |epoch, ticket| fence.may_thaw(&alice(), Epoch(20), shown(epoch, ticket), Some(&key()));
    assert_eq!(thaw(20, &at), Err(Refusal::Refused));
    assert_eq!(thaw(21, &above), Ok(Step::Go));
    assert_eq!(
        fence.may_thaw(&alice(), Epoch(19), shown(21, &above), Some(&key())),
        Err(Refusal::Refused)
    );
}

#[test]
fn a_routed_copy_is_not_discarded() {
    assert_eq!(
        fence(Some(State::Owned { epoch: Epoch(20) }), 0).may_discard(&alice(), Epoch(20)),
        Err(Refusal::Refused)
    );
    let mut fence = fence(Some(ACTIVE), 7);
    assert_eq!(fence.may_discard(&alice(), Epoch(20)), Ok(Step::Go));
    fence.discarded(&alice(), Epoch(20), NOW);
    assert_eq!(
        fence.get(&alice()).unwrap().state,
        State::Past { epoch: Epoch(7) }
    );
}

#[test]
fn who_was_given_away_stays_refused_through_a_new_login() {
    let mut fence = fence(Some(FROZEN), 0);
    fence.forgotten(&alice(), Epoch(20), NOW);
    assert!(fence.login(&alice(), None, NOW));
    let old = key().ticket("alice", Epoch(10));
    assert!(matches!(
        fence.check(&alice(), shown(10, &old), Some(&key()), false, NOW),
        Verdict::Refuse { .. }
    ));
}

#[test]
fn the_past_is_kept_ten_minutes_and_no_longer() {
    let mut fence = fence(Some(PAST), 10);
    fence.sweep(PAST_KEPT.checked_sub(Duration::from_millis(1)).unwrap());
    assert!(fence.get(&alice()).is_some());
    assert!(fence.sweep(PAST_KEPT));
    assert!(fence.get(&alice()).is_none());
}

#[test]
fn a_client_belongs_to_one_user_only() {
    let mut fence = fence(None, 0);
    let (client, bob) = (ClientId([1; 16]), UserId::new("bob").unwrap());
    fence.login(&alice(), Some(client), NOW);
    fence.login(&bob, Some(client), NOW);
    assert_eq!(fence.user_of(&client), Some(&bob));
    assert!(fence.get(&alice()).unwrap().clients.is_empty());
    assert_eq!(fence.unbind(&client), Some(bob));
    assert_eq!(fence.user_of(&client), None);
}

/// Found by the model: the Assign of a login comes late, or a gateway still names it, when the user has long moved on.
#[test]
fn who_moved_away_before_his_grant_arrived_is_not_owned_by_it() {
    let mut fence = fence(Some(State::Provisional), 0);
    fence.freeze(&alice(), Epoch(20), NOW).unwrap();
    fence.forgotten(&alice(), Epoch(20), NOW);
    let late = key().ticket("alice", Epoch(10));
    assert_eq!(
        fence.assign(&alice(), shown(10, &late), &[], Some(&key()), NOW),
        Err(Refusal::Refused)
    );
    assert_eq!(
        fence.check(&alice(), shown(10, &late), Some(&key()), false, NOW),
        NO
    );
    let next = key().ticket("alice", Epoch(21));
    assert_eq!(
        fence.check(&alice(), shown(21, &next), Some(&key()), false, NOW),
        Verdict::Raised
    );
}

/// Found by the model: a gateway heard the old leader's Route, and the next one took the move back.
#[test]
fn a_discarded_move_raises_nothing_any_more() {
    let mut fence = fence(Some(ACTIVE), 0);
    fence.discarded(&alice(), Epoch(20), NOW);
    let routed = key().ticket("alice", Epoch(20));
    assert_eq!(
        fence.check(&alice(), shown(20, &routed), Some(&key()), false, NOW),
        NO
    );
    // It is no sign that the move was committed: a frozen source must still be thawed.
    assert_eq!(fence.get(&alice()).unwrap().epoch(), Epoch::PROVISIONAL);
}

#[test]
fn a_fetch_that_failed_may_be_repeated() {
    let mut fence = fence(None, 0);
    for _ in 0..3 {
        assert_eq!(fence.may_stage(&alice(), Epoch(20), false), Ok(Step::Go));
        fence.staged(&alice(), Epoch(20), false, NOW);
        fence.discarded(&alice(), Epoch(20), NOW);
    }
    assert!(fence.get(&alice()).is_none());
}

/// Found by the simulation: gateways showed tickets of the process before, the fence believed them, and the next Hello
/// claimed users of whom the new process knew nothing.
#[rstest]
#[case(OWNED, 10)]
#[case(FROZEN, 20)]
#[case(ACTIVE, 20)]
#[case(PAST, 10)]
fn what_a_restarted_app_held_is_refused_until_it_is_granted_anew(#[case] state: State, #[case] granted: u64) {
    let mut fence = fence(Some(state), 0);
    fence.app_restarted(NOW);
    let mut check = |epoch| {
        let ticket = key().ticket("alice", Epoch(epoch));
        let shown = Shown {
            epoch: Epoch(epoch),
            ticket: &ticket,
        };
        fence.check(&alice(), shown, Some(&key()), false, NOW)
    };
    assert!(matches!(check(granted), Verdict::Refuse { .. }));
    assert_eq!(check(granted + 1), Verdict::Raised);
}

/// A new leader that hears of the move's epoch from the target forgets the frozen original.
#[rstest]
#[case(STAGED)]
#[case(ACTIVE)]
fn what_was_only_staged_in_a_restarted_app_is_not_said_to_have_been_granted(#[case] state: State) {
    let mut fence = fence(Some(state), 7);
    fence.app_restarted(NOW);
    assert_eq!(
        fence.get(&alice()).unwrap().state,
        State::Past { epoch: Epoch(7) }
    );
}
