//! Pods that must go, and one that need not: workers deleted under load, a worker whose liveness probe fails.

use crate::harness::{eventually, metrics, sample};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest, name};

#[test]
fn deleted_workers_hand_over_their_users_before_their_app_is_stopped() {
    let mut two = manifest();
    two["spec"]["workers"]["min"] = 2.into();
    let shop = Shop::open("delete", &two, 2);
    let mut load = Load::start(&shop, "40x35s", "--cpu-ms 5 --arrivals 4");
    eventually("users on both workers", 40, || {
        let workers = metrics();
        let users: Vec<Option<f64>> = shop
            .workers()
            .iter()
            .map(|pod| {
                let label = format!("worker=\"{}\"", name(pod));
                sample(&workers, "elastic_pool_worker_users", &label)
            })
            .collect();
        if users.iter().filter(|users| **users >= Some(1.0)).count() >= 2 {
            Ok(())
        } else {
            Err(format!("{users:?}"))
        }
    });
    let reception = shop.group()["status"]["reception"].as_str().map(str::to_owned);
    let reception = reception.expect("a reception");
    delete(&shop, &reception, &mut load);
    let other = shop.workers().iter().map(name).next().expect("another worker");
    assert_ne!(other, reception);
    delete(&shop, &other, &mut load);
    let summary = load.finish();
    assert_held(&summary);
    assert!(
        summary["live_moves"].as_u64() > Some(0),
        "nobody met a move: {summary}"
    );
    let drains = shop
        .events()
        .iter()
        .filter(|(reason, _)| reason == "DrainStarted")
        .count();
    assert!(drains >= 2, "{:#?}", shop.events());
}

fn delete(shop: &Shop, pod: &str, load: &mut Load) {
    shop.kubectl(&format!("delete pod {pod} --wait=false"));
    eventually(&format!("{pod} is gone, two others are ready"), 60, || {
        assert!(load.goes_on(), "the load ended before {pod} was gone");
        let group = shop.group();
        let ready = group["status"]["readyWorkers"].as_u64();
        let all = shop.get("pods -l elasticpool.dev/group=shop-blue");
        let mut all = all["items"].as_array().expect("pods").iter().map(name);
        if all.all(|name| name != pod) && ready >= Some(2) {
            Ok(())
        } else {
            Err(group["status"].to_string())
        }
    });
}

#[test]
fn a_failed_liveness_probe_restarts_the_app_at_once_and_drains_nobody() {
    let mut sick = manifest();
    // Nobody listens on port 1. The preStop that this runs returns long before the grace of 135 s is over.
    sick["spec"]["template"]["spec"]["containers"][0]["livenessProbe"] = serde_json::json!({"tcpSocket": {"port": 1}, "initialDelaySeconds": 20, "periodSeconds": 5, "failureThreshold": 1});
    let shop = Shop::open("liveness", &sick, 1);
    let load = Load::start(&shop, "5x600s", "--cpu-ms 2 --second-browser-share 0");
    let pod = shop.names().remove(0);
    let statuses = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0].clone();
    let event = eventually("the kubelet ends the app", 60, || {
        let events = shop.get("events");
        let events = events["items"].as_array().expect("events").iter();
        let mut killing = events.filter(|event| event["reason"] == "Killing");
        killing
            .next()
            .cloned()
            .ok_or_else(|| "no event Killing".to_owned())
    });
    println!("{}", event["message"]);
    let clock = elastic_pool::clock::Clock::start();
    eventually("the app was started again", 30, || {
        let status = statuses(&shop.get(&format!("pod/{pod}")));
        if status["restartCount"].as_u64() >= Some(1) && status["state"]["running"].is_object() {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    println!(
        "the app runs again {:.1} s after it was to end",
        clock.now().as_secs_f64()
    );
    drop(load);
    assert_eq!(shop.names(), [pod], "the worker was replaced");
    assert_eq!(shop.told("DrainStarted"), 0, "{:#?}", shop.events());
}
