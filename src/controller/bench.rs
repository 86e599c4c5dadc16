//! A controller without its loops, over the fake API server, for tests: each step is made by hand.

use std::sync::Arc;

use elastic_pool_engine::ids::Term;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::build::OperatorEnv;
use super::fake::FakeApi;
use super::group::{self, GroupMemory};
use super::leader::Leadership;
use super::observe::Observer;
use super::pool::{self, PoolMemory};
use super::roster::Roster;
use super::shelf::Seen;
use super::watches::News;
use super::world::{Dirty, World};
use super::writer::Writer;
use super::{Context, ControllerConfig, Heartbeat, ReconcileError};
use crate::clock::Clock;
use crate::vehicle::{Desired, Fact, GroupView, ObjectKey, Orders};

pub(crate) const GROUPS: &str = "/apis/elasticpool.dev/v1alpha1/namespaces/shop/poolgroups";
pub(crate) const POOLS: &str = "/apis/elasticpool.dev/v1alpha1/namespaces/shop/pools";
pub(crate) const PODS: &str = "/api/v1/namespaces/shop/pods";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
pub(crate) const BUDGET: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/blue-workers";

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

/// A group `blue` of the pool `shop`, as a person writes it.
pub(crate) fn blue() -> Value {
    json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": {"name": "blue", "namespace": "shop"},
        "spec": {"pool": "shop", "template": {"spec": {"containers": [
            {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8000}]}]}}},
    })
}

pub(crate) fn config(clock: Clock) -> ControllerConfig {
    ControllerConfig {
        class: "default".to_owned(),
        namespaces: Vec::new(),
        env: OperatorEnv {
            image: "elastic-pool:1".to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            pull_secrets: Vec::new(),
            channel: "channel:7443".to_owned(),
            agent_resources: None,
            gateway_resources: None,
        },
        instance: "operator-0".to_owned(),
        roster: Roster::default(),
        heartbeat: Heartbeat::new(clock),
    }
}

pub(crate) struct Bench {
    pub(crate) api: FakeApi,
    pub(crate) context: Context,
    pub(crate) orders: watch::Sender<Arc<Orders>>,
    pub(crate) facts: mpsc::Receiver<Fact>,
    pub(crate) blue: GroupMemory,
    pub(crate) shop: PoolMemory,
    observer: Observer,
    retold: mpsc::Receiver<ObjectKey>,
}

impl Bench {
    /// A server with the group `blue`, seen and told.
    pub(crate) fn new() -> Self {
        let api = FakeApi::new();
        api.put(&format!("{GROUPS}/blue"), blue());
        let mut bench = Self::over(api, Leadership::permanent(Term(1)));
        bench.sync();
        bench
    }

    pub(crate) fn over(api: FakeApi, leadership: Leadership) -> Self {
        let clock = Clock::start();
        let dirty = Arc::new(Dirty::default());
        let (facts, told) = mpsc::channel(1000);
        let (orders, ordered) = watch::channel(Arc::default());
        let (retell, retold) = mpsc::channel(1000);
        let config = config(clock);
        let world = Arc::new(Mutex::new(World::new("default", &[None], config.env.clone())));
        let observer = Observer::new(
            Arc::clone(&world),
            Arc::clone(&dirty),
            config.roster.clone(),
            facts.clone(),
        );
        let writer = Writer::new(api.client(), leadership, clock);
        let context = Context {
            config,
            clock,
            world,
            writer,
            dirty,
            facts,
            orders: ordered,
            retell,
        };
        let (blue, shop) = (GroupMemory::default(), PoolMemory::default());
        Self {
            api,
            context,
            orders,
            facts: told,
            blue,
            shop,
            observer,
            retold,
        }
    }

    /// Shows the server's objects to the controller, as a list does; between two calls its watches are stale.
    pub(crate) fn sync(&mut self) -> Vec<Fact> {
        let mut facts = self.feed("/apis/elasticpool.dev/", "/poolgroups/", "", News::Group);
        facts.extend(self.feed("/apis/elasticpool.dev/", "/pools/", "", News::Pool));
        facts.extend(self.feed("/api/v1/", "/pods/", "elasticpool.dev/birth", News::Worker));
        facts.extend(self.feed("/api/v1/", "/pods/", "pod-template-hash", News::Gateway));
        facts.extend(self.feed("/apis/apps/v1/", "/deployments/", "", News::Deployment));
        facts.extend(self.feed("/api/v1/", "/services/", "", News::Service));
        facts.extend(self.feed("/apis/policy/v1/", "/poddisruptionbudgets/", "", News::Budget));
        facts.extend(self.feed("/api/v1/nodes", "/nodes/", "", News::Node));
        facts
    }

    fn feed<K: DeserializeOwned>(
        &mut self,
        prefix: &str,
        kind: &str,
        label: &str,
        wrap: fn(usize, Seen<K>) -> News,
    ) -> Vec<Fact> {
        let mut facts = self.observer.take(wrap(0, Event::Init));
        for object in self.api.matching(prefix, kind) {
            if label.is_empty() || !object["metadata"]["labels"][label].is_null() {
                let object = DeserializeGuard(Ok(serde_json::from_value(object).unwrap()));
                facts.extend(self.observer.take(wrap(0, Event::InitApply(object))));
            }
        }
        facts.extend(self.observer.take(wrap(0, Event::InitDone)));
        facts
    }

    pub(crate) fn order(&self, desired: Desired, view: Option<GroupView>) {
        let mut orders = Orders::default();
        orders.desired.insert(key("blue"), desired);
        if let Some(view) = view {
            orders.views.insert(key("blue"), Arc::new(view));
        }
        self.orders.send_replace(Arc::new(orders));
    }

    /// One pass over the group.
    pub(crate) async fn pass(&mut self) -> Result<(), ReconcileError> {
        group::reconcile(&self.context, &key("blue"), &mut self.blue)
            .await
            .map(|_| ())
    }

    /// One pass over the pool.
    pub(crate) async fn pool_pass(&mut self) -> Result<(), ReconcileError> {
        pool::reconcile(&self.context, &key("shop"), &mut self.shop)
            .await
            .map(|_| ())
    }

    /// What was told by reconciles since the last call.
    pub(crate) fn told(&mut self) -> Vec<Fact> {
        std::iter::from_fn(|| self.facts.try_recv().ok()).collect()
    }

    /// Groups that a verdict asks to be told anew.
    pub(crate) fn retold(&mut self) -> Vec<ObjectKey> {
        std::iter::from_fn(|| self.retold.try_recv().ok()).collect()
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        self.api.list(&format!("{PODS}/"))
    }
}
