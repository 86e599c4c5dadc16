//! What becomes of pods and Pools when groups are deleted, and whose a Pool is.

use elastic_pool::vehicle::Fact;
use serde_json::{Value, json};

use crate::bench::{Running, births, view};

/// Names of the groups that own the Pool, and whether it is marked as implicit.
fn owners(running: &Running) -> (Vec<String>, bool) {
    let pool = running.json(&["pool", "shop"]);
    let owners = pool["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    let names = owners
        .filter_map(|owner| owner["name"].as_str().map(str::to_owned))
        .collect();
    (
        names,
        pool["metadata"]["annotations"]["elasticpool.dev/implicit"] == "true",
    )
}

fn named(group: &Value, name: &str) -> Value {
    let mut group = group.clone();
    group["metadata"]["name"] = name.into();
    group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_group_is_deleted_at_once_and_a_pool_is_whose_spec_it_is() {
    let mut running = Running::start("ownership").await;
    let blue = running.group("app:1");
    running.apply(&blue);
    running.until(|fact| matches!(fact, Fact::Keys(..))).await;
    running.apply(&named(&blue, "green"));
    let both = |running: &Running| (owners(running).0.len() == 2).then(|| owners(running).1);
    assert!(
        running.eventually("both own it", both).await,
        "it goes with the last of them"
    );

    running.order(births(&[11]), view());
    let worker = running.worker(|worker| worker.birth.0 == 11).await;
    let pod = running.json(&["pod", &worker.name]);
    let remembered = pod["metadata"]["annotations"]["elasticpool.dev/group-spec"].as_str();
    let remembered: Value = serde_json::from_str(remembered.expect("its group's spec")).expect("JSON");
    assert_eq!(remembered["pool"], "shop");
    assert!(pod["metadata"]["finalizers"].is_null());
    let group = running.json(&["poolgroup", "blue"]);
    assert!(group["metadata"]["finalizers"].is_null());
    running.kubectl(&["delete", "poolgroup", "blue", "--timeout=20s"], "");
    running
        .until(|fact| matches!(fact, Fact::GroupGone(gone) if gone.name == "blue"))
        .await;

    // Somebody writes into it what stands there anyway.
    let theirs = json!({"apiVersion": "elasticpool.dev/v1alpha1", "kind": "Pool", "metadata": {"name": "shop"},
        "spec": {"class": running.namespace, "gateway": {"replicas": 2}}});
    running.kubectl(
        &["apply", "--server-side", "--force-conflicts", "-f", "-"],
        &theirs.to_string(),
    );
    let free = |running: &Running| (owners(running) == (Vec::new(), false)).then_some(());
    running.eventually("it is theirs", free).await;
    assert_eq!(running.json(&["pool", "shop"])["spec"]["gateway"]["replicas"], 2);

    // Deleted while a group names it, it is made again, and is the group's.
    running.kubectl(&["delete", "pool", "shop", "--timeout=20s"], "");
    let again = |running: &Running| {
        let pools = running.json(&["pools"]);
        (pools["items"].as_array().map(Vec::len) == Some(1)).then(|| owners(running))
    };
    let made = running.eventually("a Pool is there again", again).await;
    assert_eq!(made, (vec!["green".to_owned()], true));
    running.end().await;
}
