//! Reconciles one Pool: the Pool itself where nobody wrote one, its keys, its gateway, its status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::keep::{self, Kept, Need};
use super::keys::{self, Keys};
use super::writer::{collection, path_of};
use super::{Context, ReconcileError, build, status};
use crate::api::pool::{PoolSpec, PoolStatus};
use crate::api::{API_VERSION, Pool, PoolGroup, conditions, labels};
use crate::clock::unix_seconds;
use crate::vehicle::{ConditionView, ObjectKey};

/// What a reconcile of one pool remembers for the next.
#[derive(Debug, Default)]
pub(crate) struct PoolMemory {
    uid: String,
    pub(crate) keys: Keys,
    kept: BTreeMap<String, Kept>,
    status: Option<PoolStatus>,
}

/// One pool as it is seen at the start of a reconcile.
struct Scene {
    key: ObjectKey,
    pool: Option<Arc<Pool>>,
    groups: Vec<Arc<PoolGroup>>,
    /// Fingerprints of its objects, by path.
    seen: BTreeMap<String, String>,
    ready_gateways: u32,
    now: Duration,
}

/// One pass over a pool; returns when it is to be looked at again though nothing happens.
pub(crate) async fn reconcile(
    context: &Context,
    key: &ObjectKey,
    memory: &mut PoolMemory,
) -> Result<Option<Duration>, ReconcileError> {
    let scene = observe(context, key);
    let Some(pool) = own(context, &scene).await? else {
        return Ok(None);
    };
    if Some(&memory.uid) != pool.uid().as_ref() {
        *memory = PoolMemory {
            uid: pool.uid().unwrap_or_default(),
            ..PoolMemory::default()
        };
    }
    let kept = keys::keep(context, &pool, &mut memory.keys, scene.now).await;
    let applied = match kept {
        Ok(again) => apply(context, &scene, &pool, memory)
            .await
            .map(|soon| soon.into_iter().chain([again]).min()),
        Err(error) => Err(error),
    };
    publish(context, &scene, &pool, memory, applied.as_ref().err()).await?;
    applied
}

fn observe(context: &Context, key: &ObjectKey) -> Scene {
    let world = context.world.lock();
    let gateway = ObjectKey {
        namespace: key.namespace.clone(),
        name: labels::gateway_name(&key.name),
    };
    let deployment = world.deployments.get(&gateway);
    let ready = deployment
        .and_then(|deployment| deployment.status.as_ref()?.ready_replicas)
        .unwrap_or(0);
    let mut seen = BTreeMap::new();
    let mut see = |version: &str, plural: &str, name: &str, print: Option<String>| {
        let path = format!("{}/{name}", collection(version, &key.namespace, plural));
        print.map(|print| seen.insert(path, print));
    };
    let own = &gateway.name;
    see(
        "apps/v1",
        "deployments",
        own,
        deployment.map(|object| keep::fingerprint(object.as_ref())),
    );
    see(
        "v1",
        "services",
        &key.name,
        world
            .services
            .get(key)
            .map(|object| keep::fingerprint(object.as_ref())),
    );
    let budget = world.budgets.get(&gateway);
    see(
        "policy/v1",
        "poddisruptionbudgets",
        own,
        budget.map(|object| keep::fingerprint(object.as_ref())),
    );
    Scene {
        key: key.clone(),
        pool: world.pools.get(key).cloned(),
        groups: world.groups_of(key).into_iter().cloned().collect(),
        seen,
        ready_gateways: u32::try_from(ready).unwrap_or(0),
        now: context.clock.now(),
    }
}

/// The Pool to serve: the one that somebody wrote, or an implicit one that is kept in step with its groups. `None`
/// for a pool that is going, is another operator's, or was only just made.
async fn own(context: &Context, scene: &Scene) -> Result<Option<Arc<Pool>>, ReconcileError> {
    let groups: Vec<&PoolGroup> = scene.groups.iter().map(AsRef::as_ref).collect();
    let implicit = build::implicit_pool(&groups);
    let Some(pool) = &scene.pool else {
        if let Some(implicit) = implicit {
            let path = collection(API_VERSION, &scene.key.namespace, "pools");
            match context.writer.create(&path, &implicit).await {
                Err(error) if !error.is_taken() => return Err(error.into()),
                _ => tracing::info!(pool = %scene.key, "made an implicit pool"),
            }
        }
        return Ok(None);
    };
    if pool.spec.class != context.config.class || pool.metadata.deletion_timestamp.is_some() {
        return Ok(None);
    }
    if pool.annotations().contains_key(labels::IMPLICIT) {
        let path = format!(
            "{}/{}",
            collection(API_VERSION, &scene.key.namespace, "pools"),
            scene.key.name
        );
        let plain = PoolSpec {
            class: pool.spec.class.clone(),
            ..PoolSpec::default()
        };
        if pool.spec != plain || is_written_by_others(pool) {
            // Somebody set something: from now on it is theirs.
            let disowned = json!({"metadata": {"uid": pool.uid(), "annotations": {labels::IMPLICIT: null},
                "ownerReferences": null}});
            context.writer.merge(&path, &disowned).await?;
        } else if let Some(implicit) = implicit.filter(|implicit| !owned_by_all(pool, implicit)) {
            context.writer.apply(&path, &implicit).await?;
        }
    }
    Ok(Some(Arc::clone(pool)))
}

/// Somebody else set something in its spec, be it what it would be anyway.
fn is_written_by_others(pool: &Pool) -> bool {
    let entries = pool.metadata.managed_fields.iter().flatten();
    let mut others = entries.filter(|entry| entry.manager.as_deref() != Some(labels::FIELD_MANAGER));
    others.any(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.get("f:spec").is_some())
    })
}

fn owned_by_all(pool: &Pool, implicit: &Value) -> bool {
    let wanted = implicit["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    let owners = pool.owner_references();
    wanted
        .into_iter()
        .all(|wanted| owners.iter().any(|owner| wanted["uid"] == owner.uid.as_str()))
}

/// Applies the gateway's objects that need it; returns when to look at one again.
async fn apply(
    context: &Context,
    scene: &Scene,
    pool: &Pool,
    memory: &mut PoolMemory,
) -> Result<Option<Duration>, ReconcileError> {
    let mut again = None;
    for wanted in build::gateway_objects(pool, &context.config.env) {
        let path = path_of(&wanted).ok_or(ReconcileError::Unbuildable)?;
        let kept = memory.kept.get(&path);
        // Service accounts are not watched: one that was applied counts as it was.
        let watched = wanted["kind"] != "ServiceAccount";
        let seen = if watched {
            scene.seen.get(&path)
        } else {
            kept.map(|kept| &kept.got)
        };
        let hash = keep::hash(&wanted);
        match keep::need(kept, &hash, seen.map(String::as_str), scene.now) {
            Need::Nothing => {}
            Need::LookAt(time) => again = Some(again.map_or(time, |first: Duration| first.min(time))),
            Need::Apply => {
                let got = print_of(&wanted, context.writer.apply(&path, &wanted).await?)?;
                tracing::info!(%path, "applied");
                memory.kept.insert(
                    path,
                    Kept {
                        wanted: hash,
                        got,
                        at: context.clock.now(),
                    },
                );
            }
        }
    }
    Ok(again)
}

/// The fingerprint of the server's answer, read as the watch reads it.
fn print_of(wanted: &Value, got: Value) -> Result<String, serde_json::Error> {
    Ok(match wanted["kind"].as_str() {
        Some("Deployment") => keep::fingerprint(&serde_json::from_value::<Deployment>(got)?),
        Some("Service") => keep::fingerprint(&serde_json::from_value::<Service>(got)?),
        Some("PodDisruptionBudget") => {
            keep::fingerprint(&serde_json::from_value::<PodDisruptionBudget>(got)?)
        }
        _ => keep::fingerprint(&serde_json::from_value::<ServiceAccount>(got)?),
    })
}

/// Writes the pool's status where it changed.
async fn publish(
    context: &Context,
    scene: &Scene,
    pool: &Pool,
    memory: &mut PoolMemory,
    fault: Option<&ReconcileError>,
) -> Result<(), ReconcileError> {
    let previous = memory
        .status
        .clone()
        .or_else(|| pool.status.clone())
        .unwrap_or_default();
    let next = pool_status(scene, pool, &previous, fault.map(ToString::to_string));
    if next == previous {
        return Ok(());
    }
    let path = format!(
        "{}/{}/status",
        collection(API_VERSION, &scene.key.namespace, "pools"),
        scene.key.name
    );
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "Pool",
        "metadata": {"name": scene.key.name, "namespace": scene.key.namespace, "uid": pool.uid()},
        "status": next,
    });
    match context.writer.apply(&path, &object).await {
        Err(error) if error.is_absent() || error.is_conflict() => return Ok(()),
        done => done?,
    };
    memory.status = Some(next);
    Ok(())
}

fn no_gateway(pool: &Pool) -> String {
    match &pool.spec.gateway.tls {
        None => "no gateway serves".to_owned(),
        Some(tls) => format!(
            "no gateway serves; spec.gateway.tls.secretName: {}: each waits for a Secret of that name with tls.crt and tls.key \
             that belong together, and says in its log what is wrong",
            tls.secret_name
        ),
    }
}

fn pool_status(scene: &Scene, pool: &Pool, previous: &PoolStatus, fault: Option<String>) -> PoolStatus {
    let view = |kind: &str, status: bool, reason: &str, message: String| ConditionView {
        kind: kind.to_owned(),
        status: Some(status),
        reason: reason.to_owned(),
        message,
    };
    let ready = match scene.ready_gateways {
        0 => view(conditions::READY, false, "NoGateway", no_gateway(pool)),
        _ => view(
            conditions::READY,
            true,
            "GatewaysServe",
            "at least one gateway serves".to_owned(),
        ),
    };
    let degraded = fault.map(|fault| view(conditions::DEGRADED, true, "ApplyFailed", fault));
    let views: Vec<ConditionView> = degraded.into_iter().chain([ready]).collect();
    let generation = pool.metadata.generation;
    let now = status::rfc3339(unix_seconds());
    PoolStatus {
        observed_generation: generation,
        ready_gateways: scene.ready_gateways,
        address: build::gateway_address(pool),
        conditions: status::conditions(&previous.conditions, &views, generation, &now),
    }
}
