//! Nodes that are emptied under load: `kubectl drain`, a cordon alone, the taints of autoscalers; nobody is lost and nothing fails.

use std::time::Duration;

use elastic_pool::clock::Clock;

use crate::containers;
use crate::harness::{SYSTEM, eventually, get, leader, throughout};
use crate::load::{Load, assert_held, assert_held_but_for_second_logins};
use crate::nodes::{Node, TAINTS};
use crate::shop::{Shop, manifest, spread};

/// All users together ask for this much in a second, whatever their number.
const RATE: u32 = 60;

#[test]
fn a_drained_node_hands_over_its_users_and_takes_workers_again() {
    drain(80);
}

#[test]
#[ignore = "long: 300 users"]
fn a_node_with_three_hundred_users_is_drained() {
    drain(300);
}

fn drain(users: u32) {
    let node = Node::without_dns();
    let shop = Shop::open("node", &spread(4), 4);
    assert!(!node.workers(&shop).is_empty(), "no worker on {}", node.0);
    let think = users * 1000 / RATE;
    let manner = format!("--cpu-ms 4 --think-ms {think} --arrivals 20");
    let load = Load::start(&shop, &format!("{users}x900s"), &manner);
    shop.wait_users(users);
    let leads = get(&format!("-n {SYSTEM} pod/{}", leader()));
    let leader_goes = containers::node(&leads) == node.0;
    let clock = Clock::start();
    node.drain();
    println!(
        "kubectl drain with {users} users: {:.1} s",
        clock.now().as_secs_f64()
    );
    node.wait_left(&shop, 4);
    eventually("both gateways serve", 90, || {
        let deployment = shop.get_maybe("deployment/shop-gateway")?;
        if deployment["status"]["availableReplicas"] == 2 {
            Ok(())
        } else {
            Err(deployment["status"].to_string())
        }
    });
    node.uncordon();
    shop.apply(&spread(6));
    shop.wait_ready(6);
    assert!(
        !node.workers(&shop).is_empty(),
        "{} takes no worker again",
        node.0
    );
    let summary = load.end();
    if leader_goes {
        assert_held_but_for_second_logins(&summary);
    } else {
        assert_held(&summary);
    }
    assert!(
        summary["live_moves"].as_u64() > Some(0),
        "nobody met a move: {summary}"
    );
}

#[test]
fn a_cordon_and_the_taints_of_autoscalers_start_a_drain_and_their_end_cancels_it() {
    let node = Node::without_dns();
    let mut one = manifest();
    // Nobody can take the users over, so the drain lasts until it is cancelled.
    one["spec"]["workers"] = serde_json::json!({"min": 1, "max": 1, "maxSurge": 0});
    one["spec"]["template"]["spec"]["nodeSelector"] = serde_json::json!({"kubernetes.io/hostname": node.0});
    let shop = Shop::open("cordon", &one, 1);
    let before = shop.names();
    let load = Load::start(
        &shop,
        "6x600s",
        "--cpu-ms 2 --arrivals 10 --second-browser-share 0",
    );
    shop.wait_users(6);
    let told = |reason: &str, times: u64| {
        eventually(&format!("{reason} {times}"), 30, || match shop.told(reason) {
            told if told == times => Ok(()),
            told => Err(format!("{told}: {:?}", shop.events())),
        });
    };
    node.cordon();
    told("DrainStarted", 1);
    node.uncordon();
    told("DrainCancelled", 1);
    for (number, taint) in (2..).zip(TAINTS) {
        node.taint(taint);
        told("DrainStarted", number);
        node.untaint(taint);
        told("DrainCancelled", number);
    }
    throughout(Duration::from_secs(3), || assert_eq!(shop.names(), before));
    assert_held(&load.end());
}
