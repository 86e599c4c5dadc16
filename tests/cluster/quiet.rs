//! A settled group under ordinary load writes nothing to the API but the lease and its figures at their stated rate.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::harness::{SYSTEM, attempt, eventually, get, kubectl, metrics, sample, throughout};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest};

const WATCHED: Duration = Duration::from_mins(2);
/// Figures are written at most every 30 s.
const STATUS_WRITES: f64 = 5.0;
/// Everything that the operator writes, except leases, statuses and events.
const OURS: &str = "deployments,services,serviceaccounts,poddisruptionbudgets,secrets,configmaps,pods,pools";

/// Kind, name and resource version of each of our objects.
fn versions(shop: &Shop) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for namespace in [shop.ns(), SYSTEM] {
        let list = get(&format!("-n {namespace} {OURS}"));
        for object in list["items"].as_array().expect("objects") {
            let text = |path: &str| {
                object
                    .pointer(path)
                    .and_then(|text| text.as_str())
                    .unwrap_or_default()
            };
            let key = format!("{namespace} {} {}", text("/kind"), text("/metadata/name"));
            all.insert(key, text("/metadata/resourceVersion").to_owned());
        }
    }
    all
}

/// Writes that the API server has counted, by resource; those of the kubelet's and the controllers' own kinds are not asked for.
fn writes() -> BTreeMap<&'static str, f64> {
    let text = kubectl("get --raw /metrics");
    let kinds = [
        "poolgroups",
        "pools",
        "poddisruptionbudgets",
        "deployments",
        "services",
        "secrets",
        "tokenreviews",
    ];
    let count = |kind: &str| {
        let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"];
        let lines = text.lines().filter(|line| {
            line.contains(&format!("resource=\"{kind}\""))
                && verbs
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        });
        let lines: Vec<&str> = lines.collect();
        sample(&lines.join("\n"), "apiserver_request_total", "").unwrap_or(0.0)
    };
    kinds.into_iter().map(|kind| (kind, count(kind))).collect()
}

#[test]
fn a_settled_group_writes_nothing_but_the_lease_and_its_figures() {
    let shop = Shop::open("quiet", &manifest(), 1);
    let load = Load::start(
        &shop,
        "8x145s",
        "--cpu-ms 2 --arrivals 8 --second-browser-share 0",
    );
    let namespace = format!("namespace=\"{}\"", shop.ns());
    eventually("everybody is logged in, the status says so", 60, || {
        let users = sample(&metrics(), "elastic_pool_group_users", &namespace);
        let told = shop.group()["status"]["users"].as_u64();
        if users == Some(8.0) && told == Some(8) {
            Ok(())
        } else {
            Err(format!("{users:?}, status {told:?}"))
        }
    });
    // The end of a namespace is a write of each kind, and the API server counts it with ours.
    eventually("what earlier tests made is gone", 180, || {
        let ending = kubectl("get namespaces --field-selector status.phase=Terminating -o name");
        if ending.trim().is_empty() {
            Ok(())
        } else {
            Err(ending)
        }
    });
    let (before, counted, events) = (versions(&shop), writes(), shop.events());
    throughout(WATCHED, || {
        let now = versions(&shop);
        let changed: Vec<&String> = before
            .keys()
            .chain(now.keys())
            .filter(|key| before.get(*key) != now.get(*key))
            .collect();
        assert!(changed.is_empty(), "written: {changed:?}");
    });
    let after = writes();
    println!("writes before {counted:?}, after {after:?}");
    for (kind, now) in &after {
        let written = now - counted[kind];
        let allowed = match *kind {
            "poolgroups" => STATUS_WRITES,
            // A channel that is opened anew; agents and gateways stay connected.
            "tokenreviews" => 2.0,
            _ => 0.0,
        };
        assert!(written <= allowed, "{written} writes of {kind}");
    }
    assert_eq!(events, shop.events(), "an event without a decision");
    let lease = attempt("kubectl", &["-n", SYSTEM, "get", "lease", "-o", "name"], "");
    assert!(
        lease.is_ok_and(|names| !names.is_empty()),
        "the lease is what is written"
    );
    assert_held(&load.finish());
}
