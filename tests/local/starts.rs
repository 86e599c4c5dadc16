//! Apps that do not come up: the group says which and why, waits longer and longer (G4), and keeps what it has.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::run::{PROGRAM, Run, condition, group, shop};

/// The first pauses of G4 are 10 and 20 s.
const THREE_STARTS: Duration = Duration::from_secs(50);

fn failing(name: &str, flag: &str) -> Value {
    let mut failing = group(name, &["elastic-pool", "worker", flag]);
    failing["spec"]["workers"] = json!({ "min": 1, "max": 1, "spawnTimeout": "2s" });
    failing
}

/// By group, the seconds at which workers were asked for: the view keeps the last decisions only.
type Starts = BTreeMap<String, BTreeSet<u64>>;

fn note(starts: &mut Starts, state: &Value) {
    for group in state["groups"].as_array().unwrap() {
        let decisions = group["view"]["decisions"].as_array().unwrap();
        let spawned = decisions.iter().filter(|note| note["action"] == "Spawned");
        let seconds = spawned.map(|note| note["at"].as_u64().unwrap());
        let name = group["name"].as_str().unwrap().to_owned();
        starts.entry(name).or_default().extend(seconds);
    }
}

/// Each pause between two tries is longer than the one before it.
fn growing(starts: &BTreeSet<u64>) {
    let times: Vec<u64> = starts.iter().copied().collect();
    let mut pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A worker that comes up ends the pause of one that failed beside it, once.
    if pauses[0] <= 2 {
        pauses.remove(0);
    }
    assert!(pauses.iter().all(|pause| *pause >= 9), "{pauses:?}");
    assert!(pauses.is_sorted_by(|before, after| before < after), "{pauses:?}");
}

#[tokio::test]
async fn apps_that_never_come_up_are_named_and_tried_ever_more_rarely() {
    let mut half = group(
        "half",
        &[
            "sh",
            "-c",
            // The first to start stays, every other ends at once.
            "mkdir \"$FIRST\" && exec \"$POOL\" worker; exit 1",
        ],
    );
    half["spec"]["workers"] = json!({ "min": 2, "max": 2 });
    let first = tempfile::tempdir().unwrap();
    half["spec"]["template"]["spec"]["containers"][0]["env"] = json!([
        { "name": "FIRST", "value": first.path().join("first").to_str().unwrap() },
        { "name": "POOL", "value": PROGRAM },
        { "name": "SESSION_KEY", "value": "for-tests-on-loopback-only" },
    ]);
    let run = Run::start(
        &[
            failing("crash", "--crash-at-start"),
            half,
            failing("mute", "--never-listen"),
        ],
        1,
    )
    .await;
    let starts = RefCell::new(Starts::new());
    run.within(THREE_STARTS, "each has been tried three times", |state| {
        let mut starts = starts.borrow_mut();
        note(&mut starts, state);
        starts.len() == 3 && starts.values().all(|times| times.len() >= 3)
    })
    .await;
    let starts = starts.into_inner();
    for times in starts.values() {
        growing(times);
    }
    let state = run.state().await;
    for name in ["crash", "mute"] {
        let group = find(&state, name);
        let (ready, reason, _) = condition(group, "Ready");
        assert_eq!((ready, reason.as_str()), (false, "NoRoutableWorker"), "{group:#}");
        let (degraded, _, message) = condition(group, "Degraded");
        assert!(degraded && !message.is_empty(), "{group:#}");
    }
    let half = find(&state, "half");
    assert_eq!(half["view"]["ready_workers"], 1, "{half:#}");
    let (ready, reason, _) = condition(half, "Ready");
    assert_eq!((ready, reason.as_str()), (false, "BelowMin"), "{half:#}");
    assert!(condition(half, "Degraded").0, "{half:#}");
    // What came up serves all the while; gateways stand in the order of their pools' names.
    let mut alice = Browser::logged_in(run.gateway(1), "alice").await;
    assert_eq!(alice.count().await["counter"], 1);
}

fn find<'a>(state: &'a Value, name: &str) -> &'a Value {
    let groups = state["groups"].as_array().unwrap();
    groups.iter().find(|group| group["name"] == name).unwrap()
}

#[tokio::test]
async fn an_app_without_the_contract_serves_and_is_said_not_to_be_movable() {
    let mut shop = shop();
    shop["spec"]["template"]["spec"]["containers"][0]["command"] =
        json!(["elastic-pool", "worker", "--no-contract"]);
    let run = Run::ready(shop, 1).await;
    run.until("its moves are said to be unsupported", |state| {
        condition(&state["groups"][0], "MovesUnsupported").0
    })
    .await;
    let mut alice = Browser::logged_in(run.gateway(0), "alice").await;
    assert_eq!(alice.count().await["counter"], 1);
    run.until("she is counted, and what the agent itself measures", |state| {
        let group = &state["groups"][0];
        group["view"]["users"] == 1 && group["workers"][0]["components"]["memory"].is_number()
    })
    .await;
}
