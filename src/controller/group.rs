//! Reconciles one PoolGroup: observe, judge its template, plan, apply, publish.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::keep::Kept;
use super::plan::{self, Made, Plan};
use super::publish::Published;
use super::template::Template;
use super::{Context, ReconcileError, apply, publish, template};
use crate::api::{PoolGroup, labels};
use crate::vehicle::{Desired, GroupView, ObjectKey};

/// What a reconcile of one group remembers for the next.
#[derive(Debug, Default)]
pub(crate) struct GroupMemory {
    /// UID of the group that all this is about.
    pub(crate) uid: String,
    /// What was done for each birth that is still wanted.
    pub(crate) made: BTreeMap<Birth, Made>,
    /// Verdicts over its template.
    pub(crate) template: Template,
    /// The disruption budget as it was applied last.
    pub(crate) budget: Option<Kept>,
    /// Status as it was written last, events told.
    pub(crate) published: Published,
    /// The last name that somebody else's pod held.
    pub(crate) taken_name: Option<String>,
}

/// One group as it is seen at the start of a reconcile.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) key: ObjectKey,
    pub(crate) group: Arc<PoolGroup>,
    /// Its pods, terminating ones included.
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) desired: Desired,
    pub(crate) view: Option<Arc<GroupView>>,
    /// The budget as the watch shows it.
    pub(crate) budget: Option<String>,
    /// The group's class is not its pool's.
    pub(crate) foreign_pool: bool,
    /// Nodes may not be read: a cordon is not seen.
    pub(crate) nodes_forbidden: bool,
    pub(crate) now: Duration,
}

/// One pass over a group; returns when it is to be looked at again though nothing happens.
pub(crate) async fn reconcile(
    context: &Context,
    key: &ObjectKey,
    memory: &mut GroupMemory,
) -> Result<Option<Duration>, ReconcileError> {
    let Some(scene) = observe(context, key, memory) else {
        return Ok(None);
    };
    template::judge(context, &scene, memory).await?;
    let plan: Plan = plan::build(&context.config.env, &scene, memory);
    let applied = apply::apply(context, &scene, plan, memory).await;
    let again = publish::publish(context, &scene, memory).await?;
    applied.map(|()| again)
}

/// Reads the world; `None` for a group that is gone, is going, or is another operator's.
fn observe(context: &Context, key: &ObjectKey, memory: &mut GroupMemory) -> Option<Scene> {
    let world = context.world.lock();
    let group = Arc::clone(world.group(key)?);
    let uid = group.uid().unwrap_or_default();
    if memory.uid != uid {
        // Deleted and made again under its name: nothing of the old one holds.
        *memory = GroupMemory {
            uid: uid.clone(),
            ..GroupMemory::default()
        };
    }
    let pool = ObjectKey {
        namespace: key.namespace.clone(),
        name: group.spec.pool.clone(),
    };
    let foreign_pool = world
        .pools
        .get(&pool)
        .is_some_and(|pool| pool.spec.class != world.class);
    let budget = ObjectKey {
        namespace: key.namespace.clone(),
        name: labels::budget_name(&key.name),
    };
    let budget = world
        .budgets
        .get(&budget)
        .map(|budget| super::keep::fingerprint(budget.as_ref()));
    let pods = world.workers_of(key, &uid).cloned().collect();
    let orders = context.orders.borrow().clone();
    Some(Scene {
        key: key.clone(),
        group,
        pods,
        desired: orders.desired.get(key).cloned().unwrap_or_default(),
        view: orders.views.get(key).cloned(),
        budget,
        foreign_pool,
        nodes_forbidden: world.nodes_forbidden,
        now: context.clock.now(),
    })
}
