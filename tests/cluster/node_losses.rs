//! Nodes that go for good: one that is cut off without a word, one whose machine is shut down in order.

use std::collections::BTreeSet;

use elastic_pool::clock::Clock;
use serde_json::Value;

use crate::containers;
use crate::harness::{eventually, get, metrics, sample, term};
use crate::load::{Load, assert_held};
use crate::nodes::Node;
use crate::shop::{Shop, name, spread};

const USERS: u32 = 60;
const MANNER: &str = "--cpu-ms 3 --arrivals 6 --second-browser-share 0";

/// The gateway's address on a node.
fn gateway_on(shop: &Shop, node: &Node) -> String {
    let pods = shop.get("pods -l elasticpool.dev/component=gateway");
    let mut pods = pods["items"].as_array().expect("pods").iter();
    let pod = pods
        .find(|pod| containers::node(pod) == node.0)
        .expect("a gateway on each node");
    format!(
        "http://{}:8080",
        pod["status"]["podIP"].as_str().expect("an address")
    )
}

/// Users of these workers, as the leader counts them.
fn users_of(pods: &[Value]) -> f64 {
    let text = metrics();
    let users = pods.iter().map(|pod| {
        let label = format!("worker=\"{}\"", name(pod));
        sample(&text, "elastic_pool_worker_users", &label).unwrap_or(0.0)
    });
    users.sum()
}

fn lost_so_far() -> f64 {
    sample(&metrics(), "elastic_pool_users_lost_total", "").unwrap_or(0.0)
}

/// A node that is out of reach: its kubelet stands still and nothing passes to or from its pods. Back when it is dropped.
struct CutOff<'a> {
    node: &'a Node,
    wires: Vec<String>,
}

impl<'a> CutOff<'a> {
    fn now(node: &'a Node) -> Self {
        let pods = get("pods --all-namespaces");
        let pods = pods["items"].as_array().expect("pods").iter();
        let there = pods.filter(|pod| pod["spec"]["nodeName"] == node.0.as_str());
        let wires = there.filter_map(containers::wire_of).collect();
        node.signal("kubelet", "-STOP");
        let cut = Self { node, wires };
        for wire in &cut.wires {
            containers::wire(wire, "down").expect("a wire");
        }
        cut
    }
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        for wire in &self.wires {
            // Gone with its pod, perhaps.
            let _ = containers::wire(wire, "up");
        }
        self.node.signal("kubelet", "-CONT");
    }
}

#[test]
#[ignore = "long: a node is called lost after 40 s, its workers after 60 s"]
fn a_lost_node_takes_its_own_users_and_no_others_and_is_replaced() {
    let node = Node::without_dns();
    let shop = Shop::open("lost", &spread(4), 4);
    // The Service goes on sending to a lost gateway until Kubernetes calls its node lost: the users come by the other.
    let url = gateway_on(&shop, &node.other());
    let load = Load::start_at(&url, &format!("{USERS}x900s"), MANNER);
    shop.wait_users(USERS);
    let workers = node.workers(&shop);
    let (there, before, old_term) = (users_of(&workers), lost_so_far(), term());
    assert!(
        (5.0..=55.0).contains(&there),
        "{there} users on {}: not on both nodes",
        node.0
    );
    // The leader goes with the node, or not: a new one counts from nothing.
    let lost = || lost_so_far() - if term() == old_term { before } else { 0.0 };
    let clock = Clock::start();
    let cut = CutOff::now(&node);
    eventually("the workers of the lost node are swept", 180, || match lost() {
        lost if lost >= there => Ok(()),
        lost => Err(format!("{lost} of {there} swept")),
    });
    println!(
        "{there} users swept: {:.1} s after the cut",
        clock.now().as_secs_f64()
    );
    let names: BTreeSet<String> = workers.iter().map(name).collect();
    eventually("four workers elsewhere", 180, || {
        let living = shop.workers();
        let elsewhere = living.iter().filter(|pod| !names.contains(&name(pod))).count();
        let ready = shop.group()["status"]["readyWorkers"].as_u64();
        if elsewhere == 4 && ready == Some(4) {
            Ok(())
        } else {
            Err(format!("{elsewhere} elsewhere, {}", shop.group()["status"]))
        }
    });
    println!("replaced: {:.1} s after the cut", clock.now().as_secs_f64());
    shop.wait_users(USERS);
    drop(cut);
    eventually("the node is back, its old workers are gone", 240, || {
        node.is_ready()?;
        let pods = shop.get("pods -l elasticpool.dev/group=shop-blue");
        let mut pods = pods["items"].as_array().expect("pods").iter().map(name);
        match pods.find(|pod| names.contains(pod)) {
            None => Ok(()),
            Some(pod) => Err(pod),
        }
    });
    println!(
        "the old workers were gone: {:.1} s after the cut",
        clock.now().as_secs_f64()
    );
    let summary = load.end();
    assert!(lost() <= there, "the others' users were swept too");
    assert!(
        summary["lost"].as_f64() <= Some(there),
        "more were lost than lived there: {summary}"
    );
    for worker in summary["harm"].as_object().expect("harm by worker").keys() {
        assert!(
            worker.is_empty() || names.contains(worker),
            "users of {worker} were harmed: {summary}"
        );
    }
    for count in ["back", "forked", "foreign"] {
        assert_eq!(summary[count], 0, "{count} in {summary}");
    }
}

/// A machine that is being shut down. It is not any more when this is dropped.
struct ShutDown<'a>(&'a Node);

impl<'a> ShutDown<'a> {
    fn begin(node: &'a Node) -> Self {
        node.signal("logind", "-USR1");
        Self(node)
    }
}

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        self.0.signal("logind", "-USR2");
    }
}

#[test]
#[ignore = "long"]
fn a_node_that_is_shut_down_in_order_hands_over_its_users_first() {
    let node = Node::without_dns();
    let shop = Shop::open("shutdown", &spread(4), 4);
    let url = gateway_on(&shop, &node.other());
    let load = Load::start_at(&url, &format!("{USERS}x900s"), MANNER);
    shop.wait_users(USERS);
    let workers = node.workers(&shop);
    let (there, before) = (users_of(&workers), lost_so_far());
    assert!(
        (5.0..=55.0).contains(&there),
        "{there} users on {}: not on both nodes",
        node.0
    );
    let clock = Clock::start();
    let going = ShutDown::begin(&node);
    eventually("its users live elsewhere, its workers have ended", 170, || {
        let running = node
            .workers(&shop)
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running")
            .count();
        let status = &shop.group()["status"];
        if running == 0 && status["readyWorkers"].as_u64() >= Some(4) {
            Ok(())
        } else {
            Err(format!("{running} run there, {status}"))
        }
    });
    println!(
        "{there} users handed over: {:.1} s after the shutdown began",
        clock.now().as_secs_f64()
    );
    shop.wait_users(USERS);
    drop(going);
    eventually("the node is back", 60, || node.is_ready());
    assert_held(&load.end());
    assert!(lost_so_far() <= before, "users were lost");
}
