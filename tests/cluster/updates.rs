//! A changed template under load: every worker is replaced and nobody notices; one that cannot start moves nobody.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest, name, spread};

/// The manifest with another environment in its template.
fn released(mut group: Value, release: &str) -> Value {
    group["spec"]["updateStrategy"] = json!({"guestTimeout": "5s"});
    group["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "RELEASE", "value": release}]);
    group
}

fn release(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["env"][0]["value"]
        .as_str()
        .unwrap_or_default()
}

/// Waits until every worker, those that are going included, is of this release.
fn wait_released(shop: &Shop, wanted: &str, load: &mut Load) {
    eventually(&format!("every worker is of release {wanted}"), 180, || {
        assert!(load.goes_on(), "the load ended in the middle of the update");
        let pods = shop.get("pods -l elasticpool.dev/group=shop-blue");
        let pods = pods["items"].as_array().expect("pods");
        let releases: Vec<&str> = pods.iter().map(release).collect();
        let group = shop.group();
        let outdated = &group["status"]["outdatedWorkers"];
        if releases.iter().all(|release| *release == wanted) && *outdated == 0 {
            Ok(())
        } else {
            let progressing = shop.condition("shop-blue", "Progressing");
            Err(format!("{releases:?}, {outdated} outdated, {progressing:?}"))
        }
    });
}

#[test]
fn an_update_replaces_every_worker_under_load_and_nobody_is_lost() {
    let group = released(spread(3), "1");
    let shop = Shop::open("update", &group, 3);
    let mut load = Load::start(
        &shop,
        "30x600s",
        "--cpu-ms 2 --arrivals 8 --second-browser-share 0",
    );
    shop.wait_users(30);
    let old = shop.names();
    shop.apply(&released(group, "2"));
    wait_released(&shop, "2", &mut load);
    let now = shop.names();
    assert!(
        now.iter().all(|name| !old.contains(name)),
        "{old:?}, then {now:?}"
    );
    let summary = load.end();
    assert_held(&summary);
    assert!(
        summary["live_moves"].as_u64() > Some(0),
        "nobody met a move: {summary}"
    );
    let events = shop.events();
    let replaced = events.iter().filter(|(reason, _)| reason == "ReplacementStarted");
    assert_eq!(replaced.count(), 3, "each of the old ones once: {events:#?}");
    let first = |reason: &str| events.iter().position(|(of, _)| of == reason);
    let last_ready = events.iter().rposition(|(of, _)| of == "WorkerReady");
    assert!(
        first("ReplacementStarted") < last_ready,
        "one after the other: {events:#?}"
    );
}

#[test]
fn a_template_that_cannot_start_moves_nobody_until_it_is_mended() {
    let mut group = released(manifest(), "1");
    group["spec"]["workers"] = json!({"min": 2, "max": 2, "spawnTimeout": "15s"});
    group["spec"]["thresholds"]["receptionPercent"] = 5.into();
    let shop = Shop::open("update-broken", &group, 2);
    let mut load = Load::start(
        &shop,
        "10x600s",
        "--cpu-ms 2 --arrivals 8 --second-browser-share 0",
    );
    shop.wait_users(10);
    let old = shop.names();
    let mut broken = released(group.clone(), "2");
    broken["spec"]["template"]["spec"]["containers"][0]["image"] =
        "registry.invalid/no-such-image:dev".into();
    shop.apply(&broken);
    eventually(
        "the update is stopped, and the pod's own words say why",
        90,
        || {
            let progressing = shop.condition("shop-blue", "Progressing")?;
            let text = progressing["message"].as_str().unwrap_or_default();
            if progressing["reason"] == "UpdateStopped" && text.contains("no-such-image") {
                println!("{progressing}");
                Ok(())
            } else {
                Err(progressing.to_string())
            }
        },
    );
    eventually("it was given up at least once", 90, || {
        let given_up = shop.told("SpawnAbandoned");
        if given_up > 0 {
            Ok(())
        } else {
            Err(format!("{:#?}", shop.events()))
        }
    });
    assert_eq!(shop.told("ReplacementStarted"), 0, "{:#?}", shop.events());
    let serving: Vec<String> = shop
        .workers()
        .iter()
        .filter(|pod| release(pod) == "1")
        .map(name)
        .collect();
    assert_eq!(serving, old);
    assert_eq!(shop.group()["status"]["outdatedWorkers"], 2);
    shop.apply(&released(group, "3"));
    wait_released(&shop, "3", &mut load);
    let summary = load.end();
    assert_held(&summary);
}
