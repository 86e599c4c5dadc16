//! The gateways of one pool: they agree on where a user lives, and are restarted without a failed request.

use serde_json::Value;

use crate::harness::{eventually, inside, metrics, sample};
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest};

/// A request of the browser whose cookies stand in `jar`, sent to the gateway at `address`; the app's JSON answer.
fn ask(jar: &str, address: &str, path: &str, more: &[&str]) -> Value {
    // One host for all gateways, as clients see them: its cookies go to each.
    let (to, url) = (
        format!("shop.test:80:{address}"),
        format!("http://shop.test{path}"),
    );
    let fixed = [
        "curl",
        "-sS",
        "-m",
        "10",
        "-c",
        jar,
        "-b",
        jar,
        "--connect-to",
        &to,
    ];
    let output = inside(&[&fixed[..], more, &[&url]].concat())
        .output()
        .expect("curl");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let (said, errors) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        panic!("{path} at {address}: {error}: {said}{errors}")
    })
}

#[test]
fn two_gateways_agree_on_where_a_user_lives() {
    let mut two = manifest();
    two["spec"]["workers"]["min"] = 2.into();
    let shop = Shop::open("agree", &two, 2);
    let pods = shop.gateways();
    let address = |pod: &String| {
        let pod = shop.get(&format!("pod/{pod}"));
        format!("{}:8080", pod["status"]["podIP"].as_str().expect("an address"))
    };
    let (one, other) = (address(&pods[0]), address(&pods[1]));
    let folder = tempfile::tempdir().expect("a folder");
    let mut workers = Vec::new();
    for user in 0..6 {
        let jar = folder.path().join(user.to_string());
        let jar = jar.to_str().expect("UTF-8");
        let body = format!("{{\"user\":\"user-{user}\"}}");
        ask(
            jar,
            &one,
            "/login",
            &["-H", "content-type: application/json", "-d", &body],
        );
        // Straight after the answer, and by turns: whoever is asked knows him.
        for (turn, gateway) in [&other, &one, &other, &one].into_iter().enumerate() {
            let answer = ask(jar, gateway, "/work", &[]);
            assert_eq!(answer["user"], format!("user-{user}"), "{gateway}: {answer}");
            assert_eq!(answer["counter"], turn + 1, "{gateway}: {answer}");
            workers.push((user, answer["worker"].clone()));
        }
    }
    workers.dedup();
    assert_eq!(workers.len(), 6, "one worker per user: {workers:?}");
}

#[test]
fn gateways_restart_one_by_one_without_a_failed_request() {
    let shop = Shop::open("rolling", &manifest(), 1);
    let mut load = Load::start(
        &shop,
        "15x35s",
        "--cpu-ms 2 --arrivals 15 --second-browser-share 0",
    );
    eventually("everybody is logged in", 30, || {
        let metrics = metrics();
        let label = format!("namespace=\"{}\"", shop.ns());
        let users = sample(&metrics, "elastic_pool_group_users", &label);
        if users == Some(15.0) {
            Ok(())
        } else {
            Err(format!("{users:?}"))
        }
    });
    let before = shop.gateways();
    shop.kubectl("rollout restart deployment/shop-gateway");
    shop.kubectl("rollout status deployment/shop-gateway --timeout=60s");
    eventually("the old gateways are gone", 60, || {
        let now = shop.gateways();
        if now.len() == 2 && now.iter().all(|name| !before.contains(name)) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    assert!(
        load.goes_on(),
        "the load ended before the gateways were restarted"
    );
    assert_held(&load.finish());
}
