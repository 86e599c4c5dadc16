use http::Method;
use serde_json::json;

use super::*;
use crate::controller::fake::{FakeApi, status};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases/elastic-pool-default";
const SECOND: Duration = Duration::from_secs(1);

fn config(pod: &str) -> LeaderConfig {
    let mut config = LeaderConfig::new("system", "default", pod, "boot", "10.0.0.1:7443");
    config.retry_every = Duration::from_millis(1);
    config.renew_every = Duration::from_millis(1);
    config
}

fn elector(api: &FakeApi, pod: &str) -> (Elector, Leadership) {
    Elector::new(api.client(), config(pod), Clock::start())
}

fn lease(holder: &str, transitions: i32, version: &str) -> Lease {
    serde_json::from_value(json!({
        "metadata": {"name": "elastic-pool-default", "resourceVersion": version,
            "annotations": {ADDRESS_ANNOTATION: "10.0.0.9:7443"}},
        "spec": {"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_lease_that_does_not_change_for_its_duration_is_taken_under_a_higher_term() {
    let (mut elector, _) = elector(&FakeApi::new(), "b");
    let held = lease("a/1", 4, "7");
    let follow = Look::Follow {
        address: "10.0.0.9:7443".to_owned(),
        term: 4,
    };
    assert_eq!(elector.look(Some(&held), SECOND).unwrap(), follow);
    assert_eq!(elector.look(Some(&held), SECOND * 15).unwrap(), follow);
    // A renewal starts the wait anew.
    assert_eq!(
        elector.look(Some(&lease("a/1", 4, "8")), SECOND * 16).unwrap(),
        follow
    );
    assert_eq!(
        elector.look(Some(&lease("a/1", 4, "8")), SECOND * 30).unwrap(),
        follow
    );
    assert_eq!(
        elector.look(Some(&lease("a/1", 4, "8")), SECOND * 31).unwrap(),
        Look::Acquire(5)
    );
}

#[tokio::test]
async fn a_released_lease_and_one_of_a_dead_process_of_this_pod_are_taken_at_once() {
    let (mut elector, _) = elector(&FakeApi::new(), "b");
    assert_eq!(
        elector.look(Some(&lease("", 4, "7")), SECOND).unwrap(),
        Look::Acquire(5)
    );
    assert_eq!(
        elector
            .look(Some(&lease("b/other-boot", 9, "8")), SECOND)
            .unwrap(),
        Look::Acquire(10)
    );
    assert_eq!(
        elector.look(None, SECOND).unwrap(),
        Look::Acquire(10),
        "a deleted lease does not lower the term"
    );
}

#[tokio::test]
async fn impossible_leases_are_survived() {
    let (mut elector, _) = elector(&FakeApi::new(), "b");
    assert_eq!(
        elector.look(Some(&lease("a/1", -5, "7")), SECOND).unwrap(),
        Look::Follow {
            address: "10.0.0.9:7443".to_owned(),
            term: 0
        }
    );
    assert!(elector.look(Some(&lease("", i32::MAX, "7")), SECOND).is_err());
}

#[tokio::test]
async fn the_first_operator_leads_in_term_one_and_tells_its_address() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    assert_eq!(
        *leadership.watch().borrow(),
        LeaderState::Leading { term: Term(1) }
    );
    let written = api.get(LEASE).unwrap();
    assert_eq!(written["spec"]["holderIdentity"], "a/boot");
    assert_eq!(
        written["metadata"]["annotations"][ADDRESS_ANNOTATION],
        "10.0.0.1:7443"
    );
    assert!(leadership.valid(elector.clock.now()));
}

#[tokio::test]
async fn of_two_that_take_one_lease_only_one_leads() {
    let api = FakeApi::new();
    api.put(LEASE, serde_json::to_value(lease("", 3, "1")).unwrap());
    let (mut first, first_leads) = elector(&api, "a");
    let (mut second, second_leads) = elector(&api, "b");
    // Both have read the released lease before either writes.
    let read = second.fetch().await.unwrap();
    first.campaign().await.unwrap();
    let wanted = second.lease_of(read, 4);
    assert!(
        !second.write(wanted).await,
        "the second write compares an old version"
    );
    assert_eq!(first_leads.term(), Some(Term(4)));
    assert_eq!(second_leads.term(), None);
    assert!(!second_leads.valid(Duration::ZERO));
}

#[tokio::test]
async fn a_leader_without_a_confirmed_renewal_is_not_valid_after_the_deadline() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    let until = Duration::from_millis(elector.valid_until.load(Ordering::Acquire));
    api.hook(|_| Some(status(403, "Forbidden", "quota")));
    elector.renew().await.unwrap();
    assert!(leadership.valid(until.saturating_sub(Duration::from_millis(1))));
    assert!(!leadership.valid(until), "a refused renewal prolongs nothing");
    assert!(
        until < elector.clock.now() + elector.config.lease_duration,
        "it ends before another may take over"
    );
}

#[tokio::test]
async fn a_leader_that_missed_its_deadline_ends() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.config.lease_duration = Duration::ZERO;
    elector.write(lease("a/boot", 1, "")).await;
    elector.held = Some(lease("a/boot", 1, "1"));
    elector.config.lease_duration = SECOND;
    api.hook(|_| Some(status(500, "InternalError", "no")));
    assert!(matches!(elector.renew().await, Err(LeaderError::Expired)));
    assert!(!leadership.valid(elector.clock.now()));
}

#[tokio::test]
async fn a_leader_whose_lease_was_taken_ends_at_once() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    api.put(LEASE, serde_json::to_value(lease("b/boot", 2, "1")).unwrap());
    assert!(matches!(elector.renew().await, Err(LeaderError::Taken(holder)) if holder == "b/boot"));
    assert!(!leadership.valid(Duration::ZERO));
}

#[tokio::test]
async fn a_conflict_by_a_harmless_writer_is_renewed_from_the_version_read_again() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    let mut touched = api.get(LEASE).unwrap();
    touched["metadata"]["labels"] = json!({"touched": "yes"});
    api.put(LEASE, touched);
    elector.renew().await.unwrap();
    elector.renew().await.unwrap();
    assert_eq!(leadership.term(), Some(Term(1)));
    let puts = api
        .calls()
        .into_iter()
        .filter(|call| call.method == Method::PUT)
        .count();
    assert_eq!(puts, 2, "one conflict, one renewal");
}

#[tokio::test]
async fn a_higher_term_that_a_peer_knows_is_overtaken() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    leadership.raise_term(Term(41));
    elector.renew().await.unwrap();
    assert_eq!(leadership.term(), Some(Term(42)));
    assert_eq!(api.get(LEASE).unwrap()["spec"]["leaseTransitions"], 42);
    leadership.raise_term(Term(7));
    leadership.raise_term(Term(u64::MAX));
    elector.renew().await.unwrap();
    assert_eq!(leadership.term(), Some(Term(42)), "an absurd term raises nothing");
}

#[tokio::test]
async fn a_stopped_leader_releases_and_the_next_leads_at_once() {
    let api = FakeApi::new();
    let (first, leadership) = elector(&api, "a");
    let stop = CancellationToken::new();
    let running = tokio::spawn(first.run(stop.clone()));
    leadership
        .watch()
        .wait_for(|state| matches!(state, LeaderState::Leading { .. }))
        .await
        .unwrap();
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(!leadership.valid(Duration::ZERO));
    let (mut second, follows) = elector(&api, "b");
    second.campaign().await.unwrap();
    assert_eq!(follows.term(), Some(Term(2)));
}

#[tokio::test]
async fn the_lease_is_free_before_anybody_sees_that_the_leadership_ended() {
    let api = FakeApi::new();
    let (first, leadership) = elector(&api, "a");
    let stop = CancellationToken::new();
    let running = tokio::spawn(first.run(stop.clone()));
    let mut state = leadership.watch();
    let leads = |state: &LeaderState| matches!(state, LeaderState::Leading { .. });
    state.wait_for(leads).await.unwrap();
    stop.cancel();
    state.wait_for(|state| !leads(state)).await.unwrap();
    running.abort();
    assert_eq!(
        api.get(LEASE).unwrap()["spec"]["holderIdentity"],
        serde_json::Value::Null
    );
}

#[tokio::test]
async fn a_deleted_lease_is_made_again_under_a_higher_term() {
    let api = FakeApi::new();
    let (mut elector, leadership) = elector(&api, "a");
    elector.campaign().await.unwrap();
    api.remove(LEASE);
    elector.renew().await.unwrap();
    assert_eq!(leadership.term(), Some(Term(2)));
}
