use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Birth, Term};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::bench::{GROUPS, PODS, blue, config, key};
use super::fake::FakeApi;
use super::leader::Leadership;
use super::{ControllerError, run};
use crate::clock::Clock;
use crate::vehicle::{Desired, Fact, Orders};

struct Running {
    api: FakeApi,
    facts: mpsc::Receiver<Fact>,
    orders: watch::Sender<Arc<Orders>>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    fn over(api: FakeApi) -> Self {
        let clock = Clock::start();
        let (facts, told) = mpsc::channel(4);
        let (orders, ordered) = watch::channel(Arc::default());
        let stop = CancellationToken::new();
        let leads = Leadership::permanent(Term(1));
        let task = tokio::spawn(run(
            api.client(),
            config(clock),
            facts,
            ordered,
            leads,
            clock,
            stop.clone(),
        ));
        Self {
            api,
            facts: told,
            orders,
            stop,
            task,
        }
    }

    async fn fact(&mut self) -> Fact {
        let fact = tokio::time::timeout(Duration::from_secs(10), self.facts.recv()).await;
        fact.expect("no fact came").expect("the controller ended")
    }

    /// The next fact of the kind that `is`.
    async fn until(&mut self, is: impl Fn(&Fact) -> bool) -> Fact {
        loop {
            let fact = self.fact().await;
            if is(&fact) {
                return fact;
            }
        }
    }

    fn spawn(&self, birth: Birth) {
        let mut orders = Orders::default();
        orders.desired.insert(
            key("blue"),
            Desired {
                spawn: vec![birth],
                ..Desired::default()
            },
        );
        self.orders.send_replace(Arc::new(orders));
    }
}

#[tokio::test]
async fn groups_and_workers_are_told_before_synced_and_changes_after_it() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let mut running = Running::over(api);
    assert!(
        matches!(running.fact().await, Fact::Group(spec) if spec.key == key("blue") && spec.default_group)
    );
    assert_eq!(running.fact().await, Fact::Synced);
    assert!(
        matches!(running.until(|fact| matches!(fact, Fact::Keys(..))).await, Fact::Keys(pool, _) if pool == key("shop"))
    );
    running.spawn(Birth(7));
    let told = running.until(|fact| matches!(fact, Fact::Worker(_))).await;
    assert!(matches!(told, Fact::Worker(worker) if worker.birth == Birth(7) && !worker.ready));
    let name = running.api.list(&format!("{PODS}/"))[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    running.api.remove(&format!("{PODS}/{name}"));
    assert_eq!(
        running.until(|fact| matches!(fact, Fact::WorkerGone(_))).await,
        Fact::WorkerGone(Birth(7))
    );
    running.api.remove(&format!("{GROUPS}/blue"));
    assert_eq!(
        running.until(|fact| matches!(fact, Fact::GroupGone(_))).await,
        Fact::GroupGone(key("blue"))
    );
    running.stop.cancel();
    assert!(running.task.await.unwrap().is_ok());
}

#[tokio::test]
async fn workers_that_live_when_the_controller_starts_are_told_before_synced() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let mut first = Running::over(api.clone());
    first.until(|fact| *fact == Fact::Synced).await;
    first.spawn(Birth(7));
    first.until(|fact| matches!(fact, Fact::Worker(_))).await;
    first.stop.cancel();
    assert!(first.task.await.unwrap().is_ok());
    let mut second = Running::over(api);
    assert!(matches!(second.fact().await, Fact::Group(_)));
    assert!(matches!(second.fact().await, Fact::Worker(worker) if worker.birth == Birth(7)));
    assert_eq!(second.fact().await, Fact::Synced);
    second.stop.cancel();
}

#[tokio::test]
async fn a_birth_is_made_though_the_watches_tell_nothing_and_only_once() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let mut running = Running::over(api);
    running.until(|fact| *fact == Fact::Synced).await;
    running.api.freeze_watches(true);
    for births in 1..=3 {
        running.spawn(Birth(births));
        running
            .api
            .until(|api| api.list(&format!("{PODS}/")).len() == usize::try_from(births).unwrap())
            .await;
    }
    running.api.freeze_watches(false);
    running
        .until(|fact| matches!(fact, Fact::Worker(worker) if worker.birth == Birth(3)))
        .await;
    assert_eq!(running.api.list(&format!("{PODS}/")).len(), 3);
    running.stop.cancel();
}

#[tokio::test]
async fn a_pool_that_a_person_changes_moves_the_default_group() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let mut green = blue();
    green["metadata"]["name"] = json!("green");
    api.put(&format!("{GROUPS}/green"), green);
    let mut running = Running::over(api);
    running.until(|fact| *fact == Fact::Synced).await;
    let path = format!("{}/shop", super::bench::POOLS);
    running.api.put(
        &path,
        json!({"apiVersion": "elasticpool.dev/v1alpha1", "kind": "Pool", "metadata": {},
        "spec": {"class": "default", "defaultGroup": "green"}}),
    );
    let told = running
        .until(|fact| matches!(fact, Fact::Group(spec) if spec.key == key("green")))
        .await;
    assert!(matches!(told, Fact::Group(spec) if spec.default_group));
    running.stop.cancel();
}

#[tokio::test]
async fn the_controller_ends_when_the_commander_is_gone() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    let running = Running::over(api);
    drop(running.facts);
    let ended = tokio::time::timeout(Duration::from_secs(10), running.task)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(ended, Err(ControllerError::CommanderGone)));
}

const NODE: &str = "/api/v1/nodes/n1";

fn node(cordoned: bool) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"unschedulable": cordoned}})
}

/// A worker on node n1.
async fn on_a_node() -> Running {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    api.put(NODE, node(false));
    let mut running = Running::over(api);
    running.until(|fact| *fact == Fact::Synced).await;
    running.spawn(Birth(7));
    running.until(|fact| matches!(fact, Fact::Worker(_))).await;
    let mut pod = running.api.list(&format!("{PODS}/"))[0].clone();
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    pod["spec"]["nodeName"] = json!("n1");
    running.api.put(&path, pod);
    running
}

#[tokio::test]
async fn a_node_that_shuts_down_tells_its_workers_to_stop_though_nobody_deletes_them() {
    let mut running = on_a_node().await;
    let mut going = node(false);
    going["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady",
        "message": "node is shutting down", "lastHeartbeatTime": null, "lastTransitionTime": null}]);
    running.api.put(NODE, going);
    running
        .until(|fact| matches!(fact, Fact::Worker(worker) if worker.terminating && worker.must_go))
        .await;
    running.stop.cancel();
}

#[tokio::test]
async fn a_cordon_makes_the_workers_of_its_node_leave_and_an_uncordon_lets_them_stay() {
    let mut running = on_a_node().await;
    running.api.put(NODE, node(true));
    running
        .until(|fact| matches!(fact, Fact::Worker(worker) if worker.must_go))
        .await;
    running.api.put(NODE, node(false));
    let told = running.until(|fact| matches!(fact, Fact::Worker(_))).await;
    assert!(matches!(told, Fact::Worker(worker) if !worker.must_go));
    running.stop.cancel();
}

#[tokio::test]
async fn without_the_right_to_read_nodes_everything_else_goes_on_and_a_condition_says_so() {
    let api = FakeApi::new();
    api.put(&format!("{GROUPS}/blue"), blue());
    api.hook(|call| {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
            "reason": "Forbidden", "message": "nodes is forbidden"});
        (call.path == "/api/v1/nodes").then_some((403, body))
    });
    let mut running = Running::over(api);
    running.until(|fact| *fact == Fact::Synced).await;
    let said = |api: &FakeApi| {
        let group = api.get(&format!("{GROUPS}/blue"));
        let conditions = group
            .map(|group| group["status"]["conditions"].clone())
            .unwrap_or_default();
        conditions
            .as_array()
            .is_some_and(|all| all.iter().any(|condition| condition["type"] == "NodesUnreadable"))
    };
    running.api.until(said).await;
    running.stop.cancel();
}
