use std::time::Duration;

use elastic_pool_engine::ids::{Birth, Term};
use http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::bench::{BUDGET, Bench, GROUPS, PODS, blue, key};
use super::fake::{FakeApi, status};
use super::group::GroupMemory;
use super::leader::{Elector, LeaderConfig};
use super::plan::worker_name;
use crate::api::remembered::remember;
use crate::api::{PoolGroup, labels};
use crate::clock::Clock;
use crate::vehicle::{ConditionView, DecisionNote, Desired, Fact, GroupView, SpawnFailure};

pub(super) const ONE: Birth = Birth(Term(1).number(1));
pub(super) const TWO: Birth = Birth(Term(1).number(2));

pub(super) fn spawn(births: &[Birth]) -> Desired {
    Desired {
        spawn: births.to_vec(),
        ..Desired::default()
    }
}

pub(super) fn view() -> GroupView {
    let condition = |kind: &str| ConditionView {
        kind: kind.to_owned(),
        status: Some(true),
        reason: "Because".to_owned(),
        message: "so it is".to_owned(),
    };
    GroupView {
        workers: 2,
        desired_workers: 2,
        users: 7,
        headroom_points: 50,
        conditions: vec![condition("Ready"), condition("ReportsFresh")],
        ..GroupView::default()
    }
}

fn creates(api: &FakeApi) -> usize {
    let posts = api
        .writes()
        .into_iter()
        .filter(|call| call.method == Method::POST && call.path == PODS);
    posts.count()
}

fn deletes(api: &FakeApi) -> Vec<Value> {
    let deletes = api
        .calls()
        .into_iter()
        .filter(|call| call.method == Method::DELETE);
    deletes.map(|call| call.body["preconditions"].clone()).collect()
}

pub(super) fn condition(api: &FakeApi, kind: &str) -> Option<Value> {
    let group = api.get(&format!("{GROUPS}/blue")).unwrap();
    group["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
        .cloned()
}

/// A bench whose group has the workers ONE and TWO, seen.
pub(super) async fn two_workers() -> Bench {
    let mut bench = Bench::new();
    bench.order(spawn(&[ONE, TWO]), Some(view()));
    bench.pass().await.unwrap();
    bench.sync();
    bench.order(Desired::default(), Some(view()));
    bench.pass().await.unwrap();
    bench.sync();
    bench
}

pub(super) fn uid_of(bench: &Bench, birth: Birth) -> String {
    let pods = bench.pods();
    let pod = pods
        .iter()
        .find(|pod| pod["metadata"]["labels"]["elasticpool.dev/birth"] == birth.to_string());
    pod.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_birth_is_made_once_however_stale_the_watch_is() {
    let mut bench = Bench::new();
    bench.order(spawn(&[ONE, TWO]), None);
    for _ in 0..50 {
        bench.pass().await.unwrap();
    }
    assert_eq!(creates(&bench.api), 2);
    // Even a controller that forgot everything, and sees no pod yet, makes no second pod of a birth.
    bench.blue = GroupMemory::default();
    bench.pass().await.unwrap();
    assert_eq!(bench.pods().len(), 2);
    assert_eq!(bench.told(), vec![], "a pod that is there is no failure");
}

#[tokio::test]
async fn a_birth_whose_pod_went_is_not_made_again() {
    let mut bench = two_workers().await;
    bench.order(spawn(&[ONE, TWO]), Some(view()));
    bench.pass().await.unwrap();
    for pod in bench.pods() {
        bench
            .api
            .remove(&format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap()));
    }
    bench.sync();
    bench.pass().await.unwrap();
    assert_eq!(creates(&bench.api), 2);
}

#[tokio::test]
async fn a_create_without_an_answer_is_tried_again_under_the_same_name() {
    let mut bench = Bench::new();
    bench.order(spawn(&[ONE]), None);
    bench.api.hook(|call| {
        let create = call.method == Method::POST && call.path == PODS && !call.is_dry_run();
        create.then(|| status(500, "InternalError", "the answer is lost"))
    });
    assert!(bench.pass().await.is_err());
    bench.api.clear_hooks();
    bench.pass().await.unwrap();
    let names: Vec<Value> = bench
        .api
        .writes()
        .into_iter()
        .filter(|call| call.method == Method::POST && call.path == PODS)
        .map(|call| call.body["metadata"]["name"].clone())
        .collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1]);
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changes() {
    let mut bench = two_workers().await;
    bench.pass().await.unwrap();
    bench.sync();
    let before = bench
        .api
        .calls()
        .into_iter()
        .filter(super::fake::Call::is_write)
        .count();
    for round in 0..50 {
        let mut view = view();
        if round % 2 == 0 {
            view.conditions.reverse();
        }
        view.headroom_points += round % 5;
        bench.order(Desired::default(), Some(view));
        bench.pass().await.unwrap();
        bench.sync();
    }
    let after = bench
        .api
        .calls()
        .into_iter()
        .filter(super::fake::Call::is_write)
        .count();
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_worker_is_deleted_by_uid_and_version_and_only_if_it_is_the_one_meant() {
    let mut bench = two_workers().await;
    let uid = uid_of(&bench, ONE);
    bench.order(
        Desired {
            retire: vec![(ONE, "another".to_owned())],
            ..Desired::default()
        },
        Some(view()),
    );
    bench.pass().await.unwrap();
    assert_eq!(deletes(&bench.api), Vec::<Value>::new());
    bench.order(
        Desired {
            retire: vec![(ONE, uid.clone())],
            ..Desired::default()
        },
        Some(view()),
    );
    bench.pass().await.unwrap();
    let deletes = deletes(&bench.api);
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0]["uid"], uid);
    assert!(deletes[0]["resourceVersion"].is_string());
    assert_eq!(bench.pods().len(), 1);
    bench.pass().await.unwrap();
    assert_eq!(bench.pods().len(), 1, "a stale watch deletes nothing twice");
}

#[tokio::test]
async fn a_pod_that_changes_between_look_and_delete_is_looked_at_again() {
    let mut bench = two_workers().await;
    let uid = uid_of(&bench, ONE);
    let conflicts = std::sync::atomic::AtomicU32::new(0);
    bench.api.hook(move |call| {
        let first =
            call.method == Method::DELETE && conflicts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        first.then(|| status(409, "Conflict", "the precondition failed"))
    });
    bench.order(
        Desired {
            retire: vec![(ONE, uid)],
            ..Desired::default()
        },
        Some(view()),
    );
    bench.pass().await.unwrap();
    assert_eq!(deletes(&bench.api).len(), 2);
    assert_eq!(bench.pods().len(), 1);
}

#[tokio::test]
async fn a_name_that_somebody_else_holds_is_left_alone_and_another_is_taken() {
    let mut bench = Bench::new();
    let group: PoolGroup = serde_json::from_value(bench.api.get(&format!("{GROUPS}/blue")).unwrap()).unwrap();
    let path = format!("{PODS}/{}", worker_name(&group, ONE, 0));
    bench
        .api
        .put(&path, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {}}));
    let foreign = bench.api.get(&path);
    bench.order(spawn(&[ONE]), None);
    assert!(bench.pass().await.is_err());
    bench.pass().await.unwrap();
    assert_eq!(bench.api.get(&path), foreign);
    assert!(
        bench
            .api
            .get(&format!("{PODS}/{}", worker_name(&group, ONE, 1)))
            .is_some()
    );
}

#[tokio::test]
async fn the_commander_is_told_once_why_a_worker_could_not_be_made() {
    for (code, text, failure) in [
        (
            403,
            "exceeded quota: small",
            SpawnFailure::NoCapacity("exceeded quota: small".to_owned()),
        ),
        (
            403,
            "admission webhook denied",
            SpawnFailure::Mistake("admission webhook denied".to_owned()),
        ),
    ] {
        let mut bench = Bench::new();
        bench.api.hook(move |call| {
            let create = call.method == Method::POST && call.path == PODS && !call.is_dry_run();
            create.then(|| status(code, "Forbidden", text))
        });
        bench.order(spawn(&[ONE]), None);
        for _ in 0..5 {
            bench.pass().await.unwrap();
        }
        assert_eq!(bench.told(), vec![Fact::SpawnFailed(key("blue"), ONE, failure)]);
        assert_eq!(creates(&bench.api), 1);
    }
}

#[tokio::test]
async fn each_decision_is_told_once_as_an_event() {
    let mut bench = Bench::new();
    let note = |at: u64, action: &str| DecisionNote {
        at,
        action: action.to_owned(),
        because: "G1: no worker is below 0.8".to_owned(),
        warning: at > 1,
    };
    let events = |bench: &Bench| bench.api.list("/apis/events.k8s.io/v1/namespaces/shop/events/");
    let mut seen = GroupView {
        decisions: vec![note(1, "Spawned")],
        decisions_seen: 1,
        ..view()
    };
    for _ in 0..3 {
        bench.order(Desired::default(), Some(seen.clone()));
        bench.pass().await.unwrap();
    }
    assert_eq!(events(&bench).len(), 1);
    seen.decisions.insert(0, note(2, "WorkerRetired"));
    seen.decisions_seen = 2;
    bench.order(Desired::default(), Some(seen.clone()));
    bench.pass().await.unwrap();
    // Another controller of the same term tells the same decisions.
    bench.blue = GroupMemory::default();
    bench.pass().await.unwrap();
    let events = events(&bench);
    let types: Vec<(&str, &str)> = events
        .iter()
        .map(|event| (event["reason"].as_str().unwrap(), event["type"].as_str().unwrap()))
        .collect();
    assert_eq!(types.len(), 2);
    assert!(types.contains(&("Spawned", "Normal")) && types.contains(&("WorkerRetired", "Warning")));
    assert_eq!(events[0]["regarding"]["name"], "blue");
}

#[tokio::test]
async fn no_worker_is_made_before_the_budget_counts_it() {
    let mut bench = two_workers().await;
    bench.api.hook(|call| {
        (call.is_write() && call.path == BUDGET).then(|| status(500, "InternalError", "etcd is away"))
    });
    bench.order(spawn(&[Birth(Term(1).number(3))]), Some(view()));
    assert!(bench.pass().await.is_err());
    assert_eq!(bench.pods().len(), 2);
    bench.api.clear_hooks();
    bench.pass().await.unwrap();
    assert_eq!(bench.pods().len(), 3);
    assert_eq!(bench.api.get(BUDGET).unwrap()["spec"]["minAvailable"], 2);
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let config = LeaderConfig::new("system", "default", "pod", "boot", "here:1");
    let (_elector, follower) = Elector::new(api.client(), config, Clock::start());
    assert!(!follower.valid(Duration::ZERO));
    let mut bench = Bench::over(api, follower);
    bench.sync();
    bench.order(spawn(&[ONE]), Some(view()));
    assert!(bench.pass().await.is_err());
    assert!(bench.pool_pass().await.is_err());
    assert_eq!(bench.api.writes(), vec![]);
}

#[tokio::test]
async fn a_leader_who_comes_after_a_group_was_deleted_knows_it_from_its_pods() {
    let bench = two_workers().await;
    bench.api.remove(&format!("{GROUPS}/blue"));
    for pod in bench.pods() {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        let mut pod = pod;
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        bench.api.put(&path, pod);
    }
    let elector = LeaderConfig::new("system", "default", "pod", "boot", "here:1");
    let (_elector, leadership) = Elector::new(bench.api.client(), elector, Clock::start());
    let mut next = Bench::over(bench.api.clone(), leadership);
    let told = next.sync();
    let kinds: Vec<&str> = told
        .iter()
        .map(|fact| match fact {
            Fact::Group(spec) if spec.key == key("blue") => "group",
            Fact::Worker(worker) if worker.terminating => "worker",
            Fact::GroupGone(gone) if *gone == key("blue") => "gone",
            Fact::Synced => "synced",
            _ => "other",
        })
        .collect();
    assert_eq!(
        kinds,
        ["group", "worker", "gone", "group", "worker", "gone", "synced"]
    );
}

#[tokio::test]
async fn the_default_group_of_a_pool_is_one_that_takes_newcomers() {
    let mut bench = Bench::new();
    let mut green = blue();
    green["metadata"]["name"] = json!("green");
    bench.api.put(&format!("{GROUPS}/green"), green);
    bench.sync();
    let default = |bench: &Bench| bench.context.world.lock().default_group(&key("shop"));
    assert_eq!(default(&bench).as_deref(), Some("blue"));
    let mut retired = bench.api.get(&format!("{GROUPS}/blue")).unwrap();
    retired["spec"]["mode"] = json!("Evacuate");
    bench.api.put(&format!("{GROUPS}/blue"), retired);
    let told = bench.sync();
    assert_eq!(default(&bench).as_deref(), Some("green"));
    let is_default =
        |fact: &Fact| matches!(fact, Fact::Group(spec) if spec.default_group && spec.key == key("green"));
    assert!(told.iter().any(is_default), "{told:?}");
}

#[tokio::test]
async fn a_group_made_again_under_its_name_starts_from_nothing() {
    let mut bench = two_workers().await;
    bench.api.remove(&format!("{GROUPS}/blue"));
    assert_eq!(bench.sync(), vec![Fact::GroupGone(key("blue"))]);
    bench.api.put(&format!("{GROUPS}/blue"), blue());
    let told = bench.sync();
    assert!(matches!(told.as_slice(), [Fact::Group(_)]));
    bench.order(spawn(&[Birth(Term(1).number(9))]), Some(view()));
    bench.pass().await.unwrap();
    assert_eq!(
        bench.pods().len(),
        3,
        "the old group's pods are the garbage collector's"
    );
    assert_eq!(
        bench.api.get(BUDGET).unwrap()["spec"]["minAvailable"],
        1,
        "they do not count either"
    );
}

#[tokio::test]
async fn a_group_of_another_class_is_not_ours() {
    let api = FakeApi::new();
    let mut other = blue();
    other["spec"]["class"] = json!("other");
    api.put(&format!("{GROUPS}/blue"), other);
    let mut bench = Bench::over(api, super::leader::Leadership::permanent(Term(1)));
    assert_eq!(bench.sync(), vec![Fact::Synced]);
    bench.order(spawn(&[ONE]), Some(view()));
    bench.pass().await.unwrap();
    assert_eq!(bench.api.writes(), vec![]);
}

#[rstest]
#[case::of_a_group_that_stands(false)]
#[case::of_a_group_that_is_gone(true)]
#[tokio::test]
async fn a_worker_of_another_class_is_not_told_though_it_carries_the_same_birth(#[case] gone: bool) {
    let mut bench = Bench::new();
    bench.order(spawn(&[ONE]), None);
    bench.pass().await.unwrap();
    bench.sync();
    let ours = uid_of(&bench, ONE);
    let mut theirs = bench.pods()[0].clone();
    let mut green = blue();
    green["metadata"]["name"] = json!("green");
    green["metadata"]["uid"] = json!("green-uid");
    green["spec"]["class"] = json!("other");
    theirs["metadata"]["uid"] = json!("their-uid");
    theirs["metadata"]["ownerReferences"][0]["name"] = json!("green");
    theirs["metadata"]["ownerReferences"][0]["uid"] = json!("green-uid");
    bench.api.remove(&format!(
        "{PODS}/{}",
        theirs["metadata"]["name"].as_str().unwrap()
    ));
    let remembered = remember(&serde_json::from_value(green.clone()).unwrap());
    theirs["metadata"]["annotations"][labels::GROUP_SPEC] = json!(remembered);
    bench.api.put(&format!("{PODS}/green-abcde"), theirs);
    if !gone {
        bench.api.put(&format!("{GROUPS}/green"), green);
    }
    assert_eq!(bench.sync(), vec![Fact::WorkerGone(ONE)]);
    let roster = &bench.context.config.roster;
    assert_eq!(
        (roster.role("shop", &ours), roster.role("shop", "their-uid")),
        (None, None)
    );
}
