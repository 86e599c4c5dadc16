//! A group that is to be empty, beside another of its pool, under users who must not notice.

use std::time::Duration;

use serde_json::{Value, json};

use crate::load::{Load, count};
use crate::run::{Run, condition, shop};

const SOON: Duration = Duration::from_mins(1);

/// A group of pool `shop` whose users the other one takes.
fn coloured(colour: &str, mode: &str) -> Value {
    let mut group = shop();
    group["metadata"]["name"] = format!("shop-{colour}").into();
    group["spec"]["runtime"] = json!({ "version": colour, "snapshotFormat": "shop/1" });
    group["spec"]["updateStrategy"] = json!({ "guestTimeout": "2s" });
    group["spec"]["mode"] = mode.into();
    group
}

fn of<'a>(state: &'a Value, group: &str) -> &'a Value {
    let groups = state["groups"].as_array().unwrap();
    groups
        .iter()
        .find(|row| row["name"] == group)
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_group_is_evacuated_into_another_under_load_and_may_be_deleted() {
    let groups = |mode| [coloured("blue", mode), coloured("green", "Active")];
    let run = Run::start(&groups("Active"), 1).await;
    run.settled(1).await;
    run.until("green is there too", |state| {
        of(state, "shop-green")["view"]["ready_workers"] == 1
    })
    .await;
    let flags = [
        "--think-ms=100",
        "--cpu-ms=1",
        "--websocket-share=0.3",
        "--arrivals=5",
    ];
    let mut load = Load::start(run.gateway(0), "20x90s", &flags);
    run.within(SOON, "the users live in blue", |state| {
        of(state, "shop-blue")["view"]["users"] == 20
    })
    .await;
    run.write(&groups("Evacuate"));
    run.within(SOON, "blue is empty, and gone", |state| {
        let (blue, green) = (&of(state, "shop-blue")["view"], &of(state, "shop-green")["view"]);
        blue["workers"] == 0 && green["users"] == 20
    })
    .await;
    assert!(load.runs(), "nobody was moved while users worked");
    let state = run.state().await;
    assert_eq!(condition(of(&state, "shop-blue"), "Evacuating").1, "Evacuated");
    run.write(&groups("Evacuate")[1..]);
    run.within(SOON, "blue is forgotten", |state| {
        of(state, "shop-blue").is_null()
    })
    .await;
    load.leave();
    let summary = load.held().await;
    assert!(count(&summary, "live_moves") > 0, "{summary:#}");
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}

#[tokio::test]
async fn the_users_of_a_deleted_group_go_on_in_another() {
    let groups = [coloured("blue", "Active"), coloured("green", "Active")];
    let run = Run::start(&groups, 1).await;
    run.settled(1).await;
    run.until("green is there too", |state| {
        of(state, "shop-green")["view"]["ready_workers"] == 1
    })
    .await;
    let mut load = Load::start(run.gateway(0), "10x60s", &["--think-ms=100", "--arrivals=5"]);
    run.within(SOON, "the users live in blue", |state| {
        of(state, "shop-blue")["view"]["users"] == 10
    })
    .await;
    run.write(&groups[1..]);
    run.within(SOON, "blue is gone", |state| of(state, "shop-blue").is_null())
        .await;
    assert!(load.runs());
    assert_eq!(of(&run.state().await, "shop-green")["view"]["users"], 10);
    load.leave();
    load.held().await;
    assert!(run.metric("elastic_pool_users_lost_total").await == 0.0);
}
