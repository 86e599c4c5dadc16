//! The eviction API against the group's disruption budget: all workers are evicted at once, again and again, until each has gone.

use std::collections::BTreeSet;
use std::thread;

use elastic_pool::clock::Clock;

use crate::harness::{attempt, eventually};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, name, spread};

/// Workers that are evicted at once.
const WORKERS: usize = 8;
const USERS: u32 = 48;

#[test]
fn of_eight_evictions_at_once_one_passes_and_all_pass_one_by_one() {
    let mut eight = spread(8);
    // The kubelets' and the scheduler's part is not what is measured: no worker is made above the eight.
    eight["spec"]["workers"] = serde_json::json!({"min": WORKERS, "max": WORKERS});
    let shop = Shop::open("evictions", &eight, WORKERS);
    let load = Load::start(&shop, &format!("{USERS}x900s"), "--cpu-ms 2 --arrivals 16");
    shop.wait_users(USERS);
    wait_budget(&shop);
    let all: BTreeSet<String> = shop.names().into_iter().collect();
    let clock = Clock::start();
    let passed = evict(&shop, &all);
    assert_eq!(passed.len(), 1, "of {WORKERS} evictions at once: {passed:?}");
    let mut left: BTreeSet<String> = &all - &passed;
    // `kubectl drain` tries again every 5 s; so does this, without a pause while somebody leaves.
    eventually("all eight have been evicted", 420, || {
        assert_one_leaves(&shop);
        let passed = evict(&shop, &left);
        assert!(passed.len() <= 1, "{passed:?} passed at once");
        left.retain(|pod| !passed.contains(pod));
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} left, {}", left.len(), shop.group()["status"]))
        }
    });
    println!(
        "{WORKERS} workers evicted one by one: {:.1} s",
        clock.now().as_secs_f64()
    );
    eventually("the evicted are gone, eight others are ready", 120, || {
        let now = shop.get("pods -l elasticpool.dev/group=shop-blue");
        let mut now = now["items"].as_array().expect("pods").iter().map(name);
        let ready = shop.group()["status"]["readyWorkers"].as_u64();
        if now.all(|pod| !all.contains(&pod)) && ready >= Some(WORKERS as u64) {
            Ok(())
        } else {
            Err(shop.group()["status"].to_string())
        }
    });
    let summary = load.end();
    assert_held(&summary);
    assert!(
        summary["live_moves"].as_u64() > Some(0),
        "nobody met a move: {summary}"
    );
}

/// Waits until the budget counts all workers and lets one go.
fn wait_budget(shop: &Shop) {
    eventually("the budget lets one of eight go", 60, || {
        let budget = shop.get("poddisruptionbudget -l elasticpool.dev/group=shop-blue");
        let status = &budget["items"][0]["status"];
        if status["currentHealthy"] == WORKERS && status["disruptionsAllowed"] == 1 {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
}

/// Asks for the eviction of all these pods at once; those that the API server let pass.
fn evict(shop: &Shop, pods: &BTreeSet<String>) -> BTreeSet<String> {
    thread::scope(|scope| {
        let asked: Vec<_> = pods
            .iter()
            .map(|pod| (pod, scope.spawn(|| ask(shop.ns(), pod))))
            .collect();
        let passed = asked.into_iter().filter_map(|(pod, asked)| {
            let passed = asked.join().expect("an answer");
            passed.then(|| pod.clone())
        });
        passed.collect()
    })
}

fn ask(namespace: &str, pod: &str) -> bool {
    let eviction = serde_json::json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace}
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
    let answer = attempt(
        "kubectl",
        &["create", "--raw", &path, "-f", "-"],
        &eviction.to_string(),
    );
    match answer {
        Ok(_) => true,
        Err(said) if said.contains("disruption budget") => false,
        Err(said) => panic!("{said}"),
    }
}

/// No two workers that the budget counts are on their way out at once: who is empty counts no more.
fn assert_one_leaves(shop: &Shop) {
    let pods = shop.get("pods -l elasticpool.dev/budget=shop-blue");
    let pods = pods["items"].as_array().expect("pods").iter();
    let going = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    let going: Vec<String> = going.map(name).collect();
    assert!(going.len() <= 1, "{going:?} leave at once");
}
