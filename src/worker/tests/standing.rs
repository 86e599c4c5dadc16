//! The store alone: who leaves when, what is told of it, and where the bounds are.

use rstest::rstest;

use crate::worker::identity::{MoveId, UserId};
use crate::worker::slice::Slice;
use crate::worker::store::{Limits, Refusal, Store};

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn id(text: &str) -> MoveId {
    MoveId::parse(text).unwrap()
}

fn store() -> Store {
    Store::new(Limits {
        users: 2,
        guests: 1,
        staged: 1,
        session_timeout: 100,
        guest_timeout: 50,
    })
}

fn names(store: &Store) -> Vec<String> {
    store.list().into_iter().map(|line| line.id).collect()
}

#[test]
fn who_is_idle_too_long_leaves_and_is_told_gone_three_times() {
    let mut store = store();
    store.login(&user("alice"), None, "n1".into(), 0).unwrap();
    store.login(&user("bob"), None, "n2".into(), 0).unwrap();
    store.serve(&user("bob"), 60, |_| ()).unwrap();
    store.sweep(100);
    assert_eq!(names(&store), ["alice", "bob"]);
    store.sweep(101);
    assert_eq!(names(&store), ["bob"]);
    for told in [1, 1, 1, 0] {
        assert_eq!(store.take_gone().len(), told);
    }
}

#[test]
fn a_frozen_user_and_one_with_a_stream_do_not_time_out() {
    let mut store = store();
    store.login(&user("alice"), None, "n1".into(), 0).unwrap();
    store.login(&user("bob"), None, "n2".into(), 0).unwrap();
    store.freeze(&user("alice"), id("1")).unwrap();
    store.open_stream(&user("bob"), 7).unwrap();
    store.sweep(1000);
    assert_eq!(names(&store), ["alice", "bob"]);
    store.close_stream(&user("bob"), 7);
    store.thaw(&user("alice"), id("1")).unwrap();
    store.sweep(1000);
    assert!(names(&store).is_empty());
}

#[test]
fn a_login_takes_a_name_back_from_the_gone() {
    let mut store = store();
    store.login(&user("alice"), None, "n1".into(), 0).unwrap();
    assert!(store.logout(&user("alice"), "n1", 1).unwrap());
    store.login(&user("alice"), None, "n2".into(), 2).unwrap();
    assert!(store.take_gone().is_empty());
}

#[test]
fn above_its_bounds_the_store_refuses_users_and_packages_and_keeps_no_guests() {
    let mut store = store();
    store.login(&user("alice"), None, "n".into(), 0).unwrap();
    store.login(&user("bob"), None, "n".into(), 0).unwrap();
    assert_eq!(
        store.login(&user("carol"), None, "n".into(), 0),
        Err(Refusal::Full)
    );
    store.stage(user("dora"), id("1"), Slice::default()).unwrap();
    assert_eq!(
        store.stage(user("emil"), id("1"), Slice::default()),
        Err(Refusal::Full)
    );
    let count = |store: &mut Store, guest: &str| {
        store.serve_guest(guest, 0, |slice| {
            slice.counter += 1;
            slice.counter
        })
    };
    assert_eq!([count(&mut store, "g1"), count(&mut store, "g1")], [1, 2]);
    assert_eq!([count(&mut store, "g2"), count(&mut store, "g2")], [1, 1]);
    store.sweep(51);
    assert_eq!(count(&mut store, "g1"), 1, "an idle guest is forgotten");
}

#[rstest]
#[case::newer_wins("5", "6", Ok(()), "6")]
#[case::same_again("5", "5", Ok(()), "5")]
#[case::older_is_refused("5", "4", Err(Refusal::Conflict), "5")]
fn of_two_moves_that_stage_a_user_the_newer_wins(
    #[case] first: &str,
    #[case] second: &str,
    #[case] expected: Result<(), Refusal>,
    #[case] kept: &str,
) {
    let mut store = store();
    store.stage(user("alice"), id(first), Slice::default()).unwrap();
    assert_eq!(store.stage(user("alice"), id(second), Slice::default()), expected);
    assert_eq!(store.list()[0].move_id.as_deref(), Some(kept));
}

#[test]
fn nothing_is_staged_beside_a_frozen_copy() {
    let mut store = store();
    store.login(&user("alice"), None, "n".into(), 0).unwrap();
    store.freeze(&user("alice"), id("1")).unwrap();
    assert_eq!(
        store.stage(user("alice"), id("2"), Slice::default()),
        Err(Refusal::Conflict)
    );
    store.forget(&user("alice")).unwrap();
    assert_eq!(store.stage(user("alice"), id("2"), Slice::default()), Ok(()));
    assert_eq!(
        store.forget(&user("alice")),
        Err(Refusal::Absent),
        "forget leaves what is staged"
    );
    assert_eq!(store.list().len(), 1);
}

#[test]
fn what_a_join_added_can_be_taken_out_and_the_residents_own_stays() {
    let mut store = store();
    store.login(&user("alice"), None, "n1".into(), 0).unwrap();
    let fill = |slice: &mut Slice, name: &str| {
        slice.counter = 9;
        slice.notes.insert(name.into(), name.into());
        slice.open_page(name.into());
        slice.deposits.push_back(name.into());
    };
    store
        .serve(&user("alice"), 0, |slice| fill(slice, "own"))
        .unwrap();
    let before = store.serve(&user("alice"), 0, |slice| slice.clone()).unwrap();
    let mut visitor = Slice {
        counter: 40,
        ballast: "b".into(),
        ..Slice::default()
    };
    fill(&mut visitor, "visit");
    store.stage(user("alice"), id("1"), visitor).unwrap();
    store.activate(&user("alice"), id("1"), 0).unwrap();
    let joined = store.serve(&user("alice"), 0, |slice| slice.clone()).unwrap();
    assert_eq!(
        (
            joined.counter,
            joined.notes.len(),
            joined.pages.len(),
            joined.deposits.len()
        ),
        (9, 2, 2, 2)
    );
    store.discard(&user("alice"), id("1")).unwrap();
    assert_eq!(
        store.serve(&user("alice"), 0, |slice| slice.clone()).unwrap(),
        before
    );
}
