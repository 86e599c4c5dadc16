//! Watches the cluster, keeps the [`World`] up to date and tells the commander what changed; it writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastic_pool_engine::ids::Birth;
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::nodes::Fate;
use super::pods;
use super::roster::{Role, Roster};
use super::shelf::{Seen, Shelf, key_of};
use super::watches::News;
use super::world::{Dirty, Target, World};
use super::{ControllerError, Heartbeat};
use crate::api::labels;
use crate::vehicle::{Fact, GroupSpec, ObjectKey, WorkerFact};

/// Turns events into the world's changes, facts for the commander and work for the reconcilers.
#[derive(Debug)]
pub(crate) struct Observer {
    world: Arc<Mutex<World>>,
    dirty: Arc<Dirty>,
    roster: Roster,
    facts: mpsc::Sender<Fact>,
    groups: BTreeMap<ObjectKey, GroupSpec>,
    workers: BTreeMap<ObjectKey, WorkerFact>,
    births: BTreeMap<Birth, ObjectKey>,
    synced: bool,
}

impl Observer {
    pub(crate) fn new(
        world: Arc<Mutex<World>>,
        dirty: Arc<Dirty>,
        roster: Roster,
        facts: mpsc::Sender<Fact>,
    ) -> Self {
        let (groups, workers, births) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            world,
            dirty,
            roster,
            facts,
            groups,
            workers,
            births,
            synced: false,
        }
    }

    /// Observes until `stop`; `retell` names groups whose template was judged anew.
    pub(crate) async fn run(
        mut self,
        mut news: SelectAll<BoxStream<'static, News>>,
        mut retell: mpsc::Receiver<ObjectKey>,
        heartbeat: Heartbeat,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let mut tick = tokio::time::interval(super::HEARTBEAT_EVERY);
        loop {
            heartbeat.observed();
            let facts = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(event) = news.next() => self.take(event),
                Some(key) = retell.recv() => self.group_facts(&key),
                _ = tick.tick() => Vec::new(),
            };
            for fact in facts {
                let sent = tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    sent = self.facts.send(fact) => sent,
                };
                sent.map_err(|_| ControllerError::CommanderGone)?;
            }
        }
    }

    /// Takes one event in and returns what the commander is to be told.
    pub(crate) fn take(&mut self, news: News) -> Vec<Fact> {
        let touched = self.shelve(news);
        if self.synced {
            return touched
                .into_iter()
                .flat_map(|touched| self.tell(touched))
                .collect();
        }
        if self.world.lock().synced() {
            self.tell_all()
        } else {
            Vec::new()
        }
    }

    fn shelve(&mut self, news: News) -> Vec<Touched> {
        let mut world = self.world.lock();
        let keys = match news {
            News::Group(watch, event) => {
                return world
                    .groups
                    .take(watch, event)
                    .into_iter()
                    .map(Touched::Group)
                    .collect();
            }
            News::Pool(watch, event) => {
                return world
                    .pools
                    .take(watch, event)
                    .into_iter()
                    .map(Touched::Pool)
                    .collect();
            }
            News::Worker(watch, event) => {
                return world
                    .workers
                    .take(watch, event)
                    .into_iter()
                    .map(Touched::Worker)
                    .collect();
            }
            News::Gateway(watch, event) => {
                enrol(&self.roster, &mut world.gateways, watch, event);
                return Vec::new();
            }
            News::Node(watch, event) => {
                let workers = world.take_node(watch, event).into_iter();
                return workers.map(Touched::Worker).collect();
            }
            News::NodesForbidden => {
                if !std::mem::replace(&mut world.nodes_forbidden, true) {
                    tracing::warn!("nodes may not be read: a cordon drains nobody early");
                    return world
                        .groups
                        .iter()
                        .map(|(key, _)| Touched::Owner(Target::Group(key.clone())))
                        .collect();
                }
                return Vec::new();
            }
            News::Deployment(watch, event) => owners(&mut world.deployments, watch, event),
            News::Service(watch, event) => owners(&mut world.services, watch, event),
            News::Budget(watch, event) => owners(&mut world.budgets, watch, event),
        };
        keys.into_iter().map(Touched::Owner).collect()
    }

    fn tell(&mut self, touched: Touched) -> Vec<Fact> {
        match touched {
            Touched::Group(key) => self.group(&key),
            Touched::Pool(key) => {
                self.dirty.mark(Target::Pool(key.clone()));
                self.pool_facts(&key)
            }
            Touched::Worker(key) => self.worker_facts(&key),
            Touched::Owner(target) => {
                self.dirty.mark(target);
                Vec::new()
            }
        }
    }

    /// The first telling: groups, then workers, then that this is all.
    fn tell_all(&mut self) -> Vec<Fact> {
        self.synced = true;
        let (groups, pools, pods) = {
            let world = self.world.lock();
            let groups: Vec<ObjectKey> = world.groups.iter().map(|(key, _)| key.clone()).collect();
            let pools: Vec<ObjectKey> = world.pools.iter().map(|(key, _)| key.clone()).collect();
            let pods: Vec<ObjectKey> = world.workers.iter().map(|(key, _)| key.clone()).collect();
            (groups, pools, pods)
        };
        let mut facts: Vec<Fact> = groups.iter().flat_map(|key| self.group_facts(key)).collect();
        facts.extend(pods.iter().flat_map(|key| self.worker_facts(key)));
        facts.push(Fact::Synced);
        for key in pools {
            self.dirty.mark(Target::Pool(key));
        }
        for key in groups {
            self.mark_group(&key);
        }
        facts
    }

    fn group(&mut self, key: &ObjectKey) -> Vec<Fact> {
        let before = self.groups.get(key).map(|spec| spec.pool.clone());
        let mut facts = self.group_facts(key);
        self.mark_group(key);
        // Its siblings: which group is the default may have changed.
        let after = self.groups.get(key).map(|spec| spec.pool.clone());
        if let Some(pool) = after.or(before) {
            facts.extend(self.pool_facts(&pool));
        }
        // Its pods may have been seen before it: only now is it known whose they are.
        for pod in self.pods_of(key) {
            facts.extend(self.worker_facts(&pod));
        }
        facts
    }

    fn pods_of(&self, group: &ObjectKey) -> Vec<ObjectKey> {
        let world = self.world.lock();
        let all = world.workers.in_namespace(&group.namespace);
        all.filter(|(_, pod)| pods::group_of(pod).as_ref() == Some(group))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn mark_group(&self, key: &ObjectKey) {
        let pool = self
            .world
            .lock()
            .groups
            .get(key)
            .map(|group| group.spec.pool.clone());
        let pool = pool.or_else(|| self.groups.get(key).map(|spec| spec.pool.name.clone()));
        if let Some(name) = pool {
            self.dirty.mark(Target::Pool(ObjectKey {
                namespace: key.namespace.clone(),
                name,
            }));
        }
        self.dirty.mark(Target::Group(key.clone()));
    }

    /// News of all groups of a pool.
    fn pool_facts(&mut self, pool: &ObjectKey) -> Vec<Fact> {
        let groups: Vec<ObjectKey> = self
            .world
            .lock()
            .groups_of(pool)
            .iter()
            .map(|group| key_of(group.as_ref()))
            .collect();
        groups.iter().flat_map(|key| self.group_facts(key)).collect()
    }

    /// News of one group.
    fn group_facts(&mut self, key: &ObjectKey) -> Vec<Fact> {
        let (there, spec) = {
            let world = self.world.lock();
            (world.group(key).is_some(), world.group_spec(key))
        };
        if !there {
            let pool = self.groups.remove(key).map(|spec| spec.pool);
            if let Some(pool) = &pool {
                self.dirty.mark(Target::Pool(pool.clone()));
            }
            return pool.map(|_| Fact::GroupGone(key.clone())).into_iter().collect();
        }
        match spec {
            Some(spec) if self.groups.get(key) != Some(&spec) => {
                self.groups.insert(key.clone(), spec.clone());
                self.dirty.mark(Target::Group(key.clone()));
                vec![Fact::Group(Box::new(spec))]
            }
            _ => Vec::new(),
        }
    }

    /// News of one worker's pod.
    fn worker_facts(&mut self, key: &ObjectKey) -> Vec<Fact> {
        let fact = {
            let world = self.world.lock();
            let pod = world.workers.get(key).filter(|pod| !world.is_foreign(pod));
            pod.and_then(|pod| {
                let fact = pods::worker_fact(pod)?;
                let fate = world.fate_of(pod);
                Some(WorkerFact {
                    must_go: fact.must_go || fate != Fate::Stay,
                    terminating: fact.terminating || fate == Fate::Stop,
                    ..fact
                })
            })
        };
        let fact = fact.filter(|fact| {
            let first = self.births.get(&fact.birth).is_none_or(|first| first == key);
            if !first {
                tracing::warn!(pod = %key, birth = %fact.birth, "a second pod claims this birth, it is ignored");
            }
            first
        });
        let before = self.workers.get(key).cloned();
        if fact == before {
            return Vec::new();
        }
        let mut facts = Vec::new();
        let before_uid = before.as_ref().map(|before| before.pod_uid.clone());
        let replaced = |before: &WorkerFact| fact.as_ref().is_none_or(|fact| fact.pod_uid != before.pod_uid);
        if let Some(before) = before.filter(replaced) {
            self.workers.remove(key);
            self.births.remove(&before.birth);
            self.roster.remove(&before.pod_uid);
            self.dirty.mark(Target::Group(before.group.clone()));
            facts.push(Fact::WorkerGone(before.birth));
        }
        // A group that was deleted before this leader came is told, and that it is gone, around its worker's news.
        let orphan = fact.as_ref().filter(|_| before_uid.is_none()).and_then(|fact| {
            let world = self.world.lock();
            let known = self.groups.contains_key(&fact.group);
            world
                .workers
                .get(key)
                .filter(|_| !known)
                .and_then(|pod| world.recalled(pod))
        });
        let gone = orphan.as_ref().map(|spec| Fact::GroupGone(spec.key.clone()));
        facts.extend(orphan.map(|spec| Fact::Group(Box::new(spec))));
        if let Some(fact) = fact {
            self.births.insert(fact.birth, key.clone());
            self.roster
                .set(&fact.pod_uid, Role::Worker(fact.group.clone(), fact.birth));
            self.dirty.mark(Target::Group(fact.group.clone()));
            self.workers.insert(key.clone(), fact.clone());
            facts.push(Fact::Worker(Box::new(fact)));
        }
        facts.extend(gone);
        facts
    }
}

/// What an event touched.
#[derive(Debug)]
enum Touched {
    Group(ObjectKey),
    Pool(ObjectKey),
    Worker(ObjectKey),
    /// The owner of an object that was applied.
    Owner(Target),
}

/// Takes an event of a gateway's pod in and keeps the roster.
fn enrol(roster: &Roster, gateways: &mut Shelf<Pod>, watch: usize, event: Seen<Pod>) {
    let before: BTreeMap<ObjectKey, String> = known(gateways, &event)
        .filter_map(|(key, pod)| Some((key.clone(), pod.uid()?)))
        .collect();
    for key in gateways.take(watch, event) {
        if let Some(uid) = before.get(&key) {
            roster.remove(uid);
        }
        if let Some(pod) = gateways.get(&key)
            && let (Some(pool), Some(uid)) = (gateway_pool(pod), pod.uid())
        {
            roster.set(&uid, Role::Gateway(pool));
        }
    }
}

/// Takes an event of an object that was applied in and returns what it belongs to.
fn owners<K: Resource<DynamicType = ()>>(shelf: &mut Shelf<K>, watch: usize, event: Seen<K>) -> Vec<Target> {
    let mut of: BTreeMap<ObjectKey, Vec<Target>> = known(shelf, &event)
        .map(|(key, object)| (key.clone(), targets(object.as_ref())))
        .collect();
    if let Event::Apply(object) | Event::InitApply(object) = &event {
        of.entry(key_of(object)).or_default().extend(targets(object));
    }
    shelf
        .take(watch, event)
        .iter()
        .flat_map(|key| of.remove(key).unwrap_or_default())
        .collect()
}

/// What is known, before `event` is taken in, of the objects that it may touch.
fn known<'a, K: Resource<DynamicType = ()>>(
    shelf: &'a Shelf<K>,
    event: &Seen<K>,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<K>)> {
    let (all, one) = match event {
        Event::InitDone => (true, None),
        Event::Apply(object) | Event::Delete(object) | Event::InitApply(object) => {
            (false, Some(key_of(object)))
        }
        Event::Init => (false, None),
    };
    shelf
        .iter()
        .filter(move |(key, _)| all || one.as_ref() == Some(*key))
}

fn targets<K: ResourceExt>(object: &K) -> Vec<Target> {
    let named = |label: &str| {
        let name = object.labels().get(label)?.clone();
        Some(ObjectKey {
            namespace: object.namespace()?,
            name,
        })
    };
    let group = named(labels::GROUP).map(Target::Group);
    group
        .into_iter()
        .chain(named(labels::POOL).map(Target::Pool))
        .collect()
}

/// The pool whose gateway a pod is: labelled, run under the gateway's account, and made by a ReplicaSet of the
/// gateway's Deployment, whose name ends in the hash that the pod carries.
fn gateway_pool(pod: &Pod) -> Option<ObjectKey> {
    let pool = pod.labels().get(labels::POOL)?;
    let hash = pod.labels().get("pod-template-hash")?;
    let name = labels::gateway_name(pool);
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    let account = pod.spec.as_ref()?.service_account_name.as_ref()?;
    let ours = owner.kind == "ReplicaSet" && owner.name == format!("{name}-{hash}") && *account == name;
    ours.then(|| ObjectKey {
        namespace: pod.namespace().unwrap_or_default(),
        name: pool.clone(),
    })
}
