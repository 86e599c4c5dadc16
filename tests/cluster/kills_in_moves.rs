//! Hard kills of the operator's leader, a gateway, an agent and an app while moves run: a node is emptied, one user at a time, and the part dies
//! in the midst of it.

use std::time::Duration;

use elastic_pool::clock::Clock;
use serde_json::{Value, json};

use crate::containers;
use crate::harness::{SYSTEM, eventually, get, inside, leader, metrics, sample, term};
use crate::load::{Load, assert_nobody_lost};
use crate::nodes::Node;
use crate::shop::{Shop, name, spread};

const USERS: u32 = 60;
/// Users who move at the same time.
const PARALLELISM: u64 = 1;
const DEADLINE: Duration = Duration::from_mins(2);

/// Users on both workers of a shop, and one of its two nodes about to be emptied.
struct Scene {
    shop: Shop,
    node: Node,
    load: Load,
    /// The worker that is emptied.
    source: Value,
    /// The other.
    target: Value,
    /// The leader's metrics, as seen inside the cluster.
    metrics: String,
}

impl Scene {
    fn open(test: &str) -> Self {
        let mut two = spread(2);
        two["spec"]["moves"] = json!({"parallelism": PARALLELISM});
        let shop = Shop::open(test, &two, 2);
        let manner = "--cpu-ms 2 --arrivals 30 --second-browser-share 0";
        let load = Load::start(&shop, &format!("{USERS}x900s"), manner);
        shop.wait_users(USERS);
        let page = metrics();
        let users = |pod: &Value| {
            sample(
                &page,
                "elastic_pool_worker_users",
                &format!("worker=\"{}\"", name(pod)),
            )
        };
        let mut workers = shop.workers();
        workers.sort_by(|one, other| users(one).partial_cmp(&users(other)).expect("numbers"));
        let [target, source] = <[Value; 2]>::try_from(workers).expect("two workers");
        let node = Node::of(&source);
        assert_ne!(node.0, containers::node(&target), "a worker on each node");
        let pod = get(&format!("-n {SYSTEM} pod/{}", leader()));
        let metrics = format!(
            "http://{}:9090/metrics",
            pod["status"]["podIP"].as_str().expect("an address")
        );
        Self {
            shop,
            node,
            load,
            source,
            target,
            metrics,
        }
    }

    /// Users of a worker, as the leader counts them now.
    fn users_of(&self, pod: &Value) -> Option<f64> {
        let output = inside(&["curl", "-sS", "-m", "2", &self.metrics])
            .output()
            .expect("curl");
        let text = String::from_utf8_lossy(&output.stdout);
        let label = format!("worker=\"{}\"", name(pod));
        sample(&text, "elastic_pool_worker_users", &label)
    }

    /// Cordons the node and returns as soon as some of the source's users have moved and most have not: how many are left.
    fn begin(&self) -> f64 {
        let all = self.users_of(&self.source).expect("users on the source");
        assert!(all >= 10.0, "only {all} users on the source");
        self.node.cordon();
        let clock = Clock::start();
        loop {
            // No pause: the moves of a worker take a second.
            let left = self.users_of(&self.source).unwrap_or(all);
            if left < all {
                println!("{left} of {all} users had not moved yet");
                assert!(left >= 3.0, "the moves were over too soon: {left} of {all} left");
                return left;
            }
            assert!(clock.now() < DEADLINE, "nobody moves: {left} of {all}");
        }
    }

    /// Waits until the node is empty; what the load saw.
    fn end(self) -> (Shop, Value) {
        let clock = Clock::start();
        self.node.wait_left(&self.shop, 2);
        println!(
            "the node was empty {:.1} s after the kill",
            clock.now().as_secs_f64()
        );
        self.shop.wait_users(USERS);
        self.node.uncordon();
        (self.shop, self.load.end())
    }
}

/// Users whom a failed request or a loss met, failed requests and losses: at all workers, or at this one alone.
fn harm(summary: &Value, at: Option<&str>) -> (u64, u64, u64) {
    let all = summary["harm"].as_object().expect("harm by worker").iter();
    let all = all.filter(|(worker, _)| at.is_none_or(|at| *worker == at));
    all.fold((0, 0, 0), |(users, failed, lost), (_, harm)| {
        (
            users + harm["users"].as_array().map_or(0, Vec::len) as u64,
            failed + harm["failed"].as_u64().unwrap_or(0),
            lost + harm["lost"].as_u64().unwrap_or(0),
        )
    })
}

/// No user's request failed twice: it was the one that was open in the part that died.
fn assert_one_failure_each(summary: &Value) {
    let (users, failed, _) = harm(summary, None);
    println!(
        "{failed} failed requests of {users} users, {} handshakes",
        summary["ws_failed"]
    );
    assert!(
        failed <= users,
        "{failed} requests of {users} users failed: {summary}"
    );
    assert!(
        summary["ws_failed"].as_u64() <= Some(u64::from(USERS)),
        "more handshakes failed than can have been open: {summary}"
    );
}

fn lost_so_far() -> f64 {
    sample(&metrics(), "elastic_pool_users_lost_total", "").unwrap_or(0.0)
}

#[test]
fn the_leader_dies_in_moves_and_only_who_was_being_moved_has_to_ask_again() {
    let scene = Scene::open("move-leader");
    let (before, operator) = (term(), get(&format!("-n {SYSTEM} pod/{}", leader())));
    scene.begin();
    containers::kill(&operator, "operator");
    eventually("the next term", 60, || match term() {
        now if now > before => Ok(()),
        now => Err(format!("term {now}")),
    });
    let (_, summary) = scene.end();
    assert_nobody_lost(&summary);
    let (users, failed, _) = harm(&summary, None);
    println!("{failed} failed requests of {users} users");
    assert!(
        users <= PARALLELISM,
        "more than were being moved failed: {summary}"
    );
    assert_eq!(
        summary["unavailable"], failed,
        "not all were 503 with Retry-After: {summary}"
    );
}

#[test]
fn a_gateway_dies_in_moves_and_nobody_is_lost() {
    let scene = Scene::open("move-gateway");
    let gateway = scene.shop.gateways().remove(0);
    let gateway = scene.shop.get(&format!("pod/{gateway}"));
    scene.begin();
    containers::kill(&gateway, "gateway");
    let (_, summary) = scene.end();
    assert_nobody_lost(&summary);
    assert_one_failure_each(&summary);
}

#[test]
fn the_agent_that_hands_users_out_dies_in_moves_and_nobody_is_lost() {
    let scene = Scene::open("move-source");
    scene.begin();
    containers::kill(&scene.source, "elastic-pool-agent");
    let (_, summary) = scene.end();
    assert_nobody_lost(&summary);
    assert_one_failure_each(&summary);
}

#[test]
fn the_agent_that_takes_users_in_dies_in_moves_and_nobody_is_lost() {
    let scene = Scene::open("move-target");
    scene.begin();
    containers::kill(&scene.target, "elastic-pool-agent");
    let (_, summary) = scene.end();
    assert_nobody_lost(&summary);
    assert_one_failure_each(&summary);
}

#[test]
#[ignore = "long"]
fn an_app_that_is_being_emptied_dies_and_only_who_was_still_there_is_lost() {
    let scene = Scene::open("move-app");
    let (source, before) = (name(&scene.source), lost_so_far());
    let left = scene.begin();
    containers::kill(&scene.source, "app");
    let (_, summary) = scene.end();
    assert_only_counted_are_lost(&summary, before, left);
    assert_eq!(
        harm(&summary, Some(&source)),
        harm(&summary, None),
        "others were harmed: {summary}"
    );
}

#[test]
#[ignore = "long"]
fn an_app_that_takes_users_in_dies_and_only_who_lived_there_is_lost() {
    let scene = Scene::open("move-app-target");
    let before = lost_so_far();
    let there = f64::from(USERS) - scene.begin();
    containers::kill(&scene.target, "app");
    let (_, summary) = scene.end();
    // Some more came between the last look and the kill.
    assert_only_counted_are_lost(&summary, before, there + 10.0);
}

/// The operator counted every user that the load misses, and not more than `most` were lost.
fn assert_only_counted_are_lost(summary: &Value, before: f64, most: f64) {
    let counted = lost_so_far() - before;
    let (_, failed, lost) = harm(summary, None);
    let lost = lost as f64;
    println!("{lost} lost, {counted} counted by the operator, at most {most}; {failed} failed requests");
    assert!(
        lost > 0.0 && lost <= most,
        "{lost} lost, at most {most} can be: {summary}"
    );
    assert!(lost <= counted, "{lost} lost, the operator counted {counted}");
    for count in ["back", "forked", "foreign"] {
        assert_eq!(summary[count], 0, "{count} in {summary}");
    }
}
