//! The controller's copy of what it watches, and what it can be asked; it is fed by watch events alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::build::{self, OperatorEnv};
use super::nodes::{self, Fate};
use super::pods;
use super::shelf::{Seen, Shelf};
use crate::api::pool_group::Mode;
use crate::api::update::AgentUpdate;
use crate::api::{Pool, PoolGroup, labels, remembered, resolve};
use crate::vehicle::{GroupSpec, ObjectKey};

/// What is reconciled by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A PoolGroup.
    Group(ObjectKey),
    /// A Pool, which need not exist while a group names it.
    Pool(ObjectKey),
}

/// Targets that something happened to; each is in it once, however much happened.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    targets: Mutex<BTreeSet<Target>>,
    news: Notify,
}

impl Dirty {
    pub(crate) fn mark(&self, target: Target) {
        self.targets.lock().insert(target);
        self.news.notify_one();
    }

    /// Waits until something is dirty.
    pub(crate) async fn wait(&self) {
        self.news.notified().await;
    }

    pub(crate) fn take(&self) -> BTreeSet<Target> {
        std::mem::take(&mut *self.targets.lock())
    }
}

/// The verdict over a group's template that counts for what the commander is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Hash that the API server refused.
    pub(crate) refused: Option<String>,
    /// Hash that it took last.
    pub(crate) taken: Option<String>,
}

/// A node on its shelf: it is in no namespace.
fn node_key(name: &str) -> ObjectKey {
    ObjectKey {
        namespace: String::new(),
        name: name.to_owned(),
    }
}

/// Everything watched.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) class: String,
    pub(crate) groups: Shelf<PoolGroup>,
    pub(crate) pools: Shelf<Pool>,
    pub(crate) workers: Shelf<Pod>,
    pub(crate) gateways: Shelf<Pod>,
    pub(crate) deployments: Shelf<Deployment>,
    pub(crate) services: Shelf<Service>,
    pub(crate) budgets: Shelf<PodDisruptionBudget>,
    /// All nodes, in the one scope there is.
    pub(crate) nodes: Shelf<Node>,
    /// The operator may not read nodes.
    pub(crate) nodes_forbidden: bool,
    pub(crate) judged: BTreeMap<ObjectKey, Judged>,
    /// What agents are made of now.
    pub(crate) env: OperatorEnv,
}

impl World {
    pub(crate) fn new(class: &str, scopes: &[Option<String>], env: OperatorEnv) -> Self {
        let scopes = || scopes.to_vec();
        Self {
            class: class.to_owned(),
            groups: Shelf::new(scopes()),
            pools: Shelf::new(scopes()),
            workers: Shelf::new(scopes()),
            gateways: Shelf::new(scopes()),
            deployments: Shelf::new(scopes()),
            services: Shelf::new(scopes()),
            budgets: Shelf::new(scopes()),
            nodes: Shelf::new(vec![None]),
            nodes_forbidden: false,
            judged: BTreeMap::new(),
            env,
        }
    }

    /// True once the first full list of everything was told.
    pub(crate) fn synced(&self) -> bool {
        self.groups.synced()
            && self.pools.synced()
            && self.workers.synced()
            && self.gateways.synced()
            && self.deployments.synced()
            && self.services.synced()
            && self.budgets.synced()
            && (self.nodes.synced() || self.nodes_forbidden)
    }

    /// What the pod's node says of it; that it stays, while nodes may not be read.
    pub(crate) fn fate_of(&self, pod: &Pod) -> Fate {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map(|name| self.fate_on(&node_key(name))).unwrap_or_default()
    }

    fn fate_on(&self, node: &ObjectKey) -> Fate {
        self.nodes
            .get(node)
            .map(|node| nodes::fate(node))
            .unwrap_or_default()
    }

    /// Takes an event of a node in and returns the workers for which it matters.
    pub(crate) fn take_node(&mut self, watch: usize, event: Seen<Node>) -> Vec<ObjectKey> {
        self.nodes_forbidden = false;
        let all = self.nodes.iter();
        let before: BTreeMap<ObjectKey, Fate> =
            all.map(|(key, node)| (key.clone(), nodes::fate(node))).collect();
        let touched = self.nodes.take(watch, event);
        let was = |key: &ObjectKey| before.get(key).copied().unwrap_or_default();
        let changed = touched.iter().filter(|key| self.fate_on(key) != was(key));
        changed.flat_map(|node| self.workers_on(&node.name)).collect()
    }

    /// The workers on a node.
    fn workers_on(&self, node: &str) -> Vec<ObjectKey> {
        let there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let workers = self.workers.iter().filter(|(_, pod)| there(pod));
        workers.map(|(key, _)| key.clone()).collect()
    }

    /// A living group of this operator's class.
    pub(crate) fn group(&self, key: &ObjectKey) -> Option<&Arc<PoolGroup>> {
        self.groups.get(key).filter(|group| self.is_ours(group))
    }

    fn is_ours(&self, group: &PoolGroup) -> bool {
        group.spec.class == self.class && group.metadata.deletion_timestamp.is_none()
    }

    /// The living groups of a pool, oldest first.
    pub(crate) fn groups_of(&self, pool: &ObjectKey) -> Vec<&Arc<PoolGroup>> {
        let all = self.groups.in_namespace(&pool.namespace).map(|(_, group)| group);
        let mut groups: Vec<_> = all
            .filter(|group| group.spec.pool == pool.name && self.is_ours(group))
            .collect();
        groups.sort_by_key(|group| (group.metadata.creation_timestamp.clone(), group.name_any()));
        groups
    }

    /// The group that takes a pool's newcomers: the one that the Pool names, else the oldest; of those that take any, if
    /// there is one.
    pub(crate) fn default_group(&self, pool: &ObjectKey) -> Option<String> {
        let all = self.groups_of(pool);
        let open = all
            .iter()
            .copied()
            .filter(|group| group.spec.mode != Mode::Evacuate);
        let open: Vec<_> = open.collect();
        let groups = if open.is_empty() { all } else { open };
        let named = self
            .pools
            .get(pool)
            .and_then(|pool| pool.spec.default_group.clone());
        let named = named.filter(|named| groups.iter().any(|group| group.name_any() == *named));
        named.or_else(|| groups.first().map(|group| group.name_any()))
    }

    /// What the commander is told of a group. A manifest that cannot be used tells nothing; a template that the
    /// API server refused is told under the hash of the last good one, so that nobody is moved for it.
    pub(crate) fn group_spec(&self, key: &ObjectKey) -> Option<GroupSpec> {
        let group = self.group(key)?;
        let pool = ObjectKey {
            namespace: key.namespace.clone(),
            name: group.spec.pool.clone(),
        };
        let default = self.default_group(&pool).as_deref() == Some(key.name.as_str());
        let mut spec = resolve::group_spec(group, default).ok()?;
        if let Some(Judged {
            refused: Some(refused),
            taken: Some(taken),
        }) = self.judged.get(key)
            && *refused == spec.template_hash
        {
            spec.template_hash.clone_from(taken);
        }
        if group.spec.agent_update == AgentUpdate::Move {
            spec.agent_hash = build::agent_hash(group, &self.env).ok()?;
        }
        Some(spec)
    }

    /// The group of a pod that is going, where the group is gone already, as the pod remembers it.
    pub(crate) fn recalled(&self, pod: &Pod) -> Option<GroupSpec> {
        let key = pods::group_of(pod).filter(|key| self.group(key).is_none() && pods::is_terminating(pod))?;
        let text = pod.annotations().get(labels::GROUP_SPEC)?;
        remembered::recall(&key, text, &self.class)
    }

    /// True for a worker whose group another operator serves, or served: births are unique within one class only. The
    /// pods of a group that is gone count as ours unless they remember another class.
    pub(crate) fn is_foreign(&self, pod: &Pod) -> bool {
        let group = pods::group_of(pod).and_then(|key| self.groups.get(&key));
        let group = group.filter(|group| group.uid().as_deref() == pods::group_uid_of(pod));
        if let Some(group) = group {
            return group.spec.class != self.class;
        }
        let text = pod.annotations().get(labels::GROUP_SPEC);
        let class = text.and_then(|text| remembered::class(text));
        class.is_some_and(|class| class != self.class)
    }

    /// The pods of a group, terminating ones included.
    pub(crate) fn workers_of<'a>(
        &'a self,
        key: &'a ObjectKey,
        uid: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Pod>> {
        let all = self.workers.in_namespace(&key.namespace).map(|(_, pod)| pod);
        all.filter(move |pod| pods::group_uid_of(pod) == Some(uid) && pods::birth_of(pod).is_some())
    }
}
