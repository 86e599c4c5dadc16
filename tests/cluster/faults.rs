//! Templates and apps that do not work: the conditions name what is wrong, the workers that serve go on, and nothing is tried in a busy loop.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{eventually, throughout};
use crate::shop::{Shop, manifest, name};

/// What is changed in the template of group `name`, and what its condition then says.
struct Fault {
    name: &'static str,
    path: &'static str,
    value: Value,
    says: &'static [&'static str],
}

fn faults() -> [Fault; 3] {
    [
        Fault {
            name: "no-image",
            path: "/spec/template/spec/containers/0/image",
            value: "registry.invalid/no-such-image:dev".into(),
            says: &["container app", "no-such-image"],
        },
        Fault {
            name: "crash",
            path: "/spec/template/spec/containers/0/args",
            value: serde_json::json!(["worker", "--crash-at-start"]),
            says: &["container app", "CrashLoopBackOff"],
        },
        Fault {
            name: "deaf",
            path: "/spec/template/spec/containers/0/args",
            value: serde_json::json!(["worker", "--never-listen"]),
            says: &["is not routable after 8 s"],
        },
    ]
}

fn named(name: &str) -> Value {
    let mut group = manifest();
    group["metadata"]["name"] = name.into();
    group["spec"]["workers"]["spawnTimeout"] = "8s".into();
    group
}

#[test]
fn a_group_says_what_is_wrong_with_its_new_workers_while_the_old_ones_go_on() {
    let shop = Shop::open("faults", &manifest(), 1);
    for fault in faults() {
        shop.apply(&named(fault.name));
    }
    let mut bare = named("bare");
    bare["spec"]["template"]["spec"]["containers"][0]["args"] =
        serde_json::json!(["worker", "--no-contract"]);
    shop.apply(&bare);
    for group in ["no-image", "crash", "deaf", "bare"] {
        eventually(&format!("{group} serves"), 60, || {
            let ready = shop.condition(group, "Ready")?;
            if ready["status"] == "True" {
                Ok(())
            } else {
                Err(ready.to_string())
            }
        });
    }
    let unmovable = eventually("the app without contract is found out", 30, || {
        let condition = shop.condition("bare", "MovesUnsupported")?;
        if condition["status"] == "True" {
            Ok(condition)
        } else {
            Err(condition.to_string())
        }
    });
    assert_eq!(unmovable["reason"], "NoSnapshot");
    let good: Vec<(String, String)> = faults()
        .iter()
        .map(|fault| only_worker(&shop, fault.name))
        .collect();
    for fault in faults() {
        let mut broken = named(fault.name);
        *broken.pointer_mut(fault.path).expect("a field") = fault.value;
        broken["spec"]["workers"]["min"] = 2.into();
        shop.apply(&broken);
    }
    for fault in faults() {
        eventually(&format!("{} says why", fault.name), 90, || {
            let degraded = shop.condition(fault.name, "Degraded")?;
            let text = degraded["message"].as_str().unwrap_or_default();
            if degraded["status"] == "True" && fault.says.iter().all(|part| text.contains(part)) {
                println!("{degraded}");
                Ok(())
            } else {
                Err(degraded.to_string())
            }
        });
    }
    // Long enough for a loop without backoff to make dozens.
    throughout(Duration::from_secs(15), || {});
    for (fault, (pod, uid)) in faults().iter().zip(good) {
        let now = shop.get(&format!("pod/{pod}"));
        assert_eq!(now["metadata"]["uid"], uid.as_str(), "{}", fault.name);
        assert!(
            now["metadata"]["deletionTimestamp"].is_null(),
            "{}: its worker was taken",
            fault.name
        );
        let tried = shop.spawned(fault.name);
        assert!(tried <= 5, "{}: {tried} workers were made", fault.name);
        assert_eq!(
            shop.get(&format!("pgrp/{}", fault.name))["status"]["readyWorkers"],
            1
        );
    }
    assert_eq!(shop.workers().len(), 1, "the group beside them");
}

fn only_worker(shop: &Shop, group: &str) -> (String, String) {
    let pods = shop.get(&format!("pods -l elasticpool.dev/group={group}"));
    let pod = &pods["items"][0];
    (
        name(pod),
        pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
    )
}

impl Shop {
    /// Workers that were made for a group so far, by its events.
    fn spawned(&self, group: &str) -> usize {
        let events = self.get("events.events.k8s.io");
        let events = events["items"].as_array().expect("events").iter();
        events
            .filter(|event| event["regarding"]["name"] == group && event["reason"] == "Spawned")
            .count()
    }
}
