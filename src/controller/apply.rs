//! Sends what was planned for a group, each write by itself: one that fails stops no other.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::group::{GroupMemory, Scene};
use super::keep::{self, Kept};
use super::plan::{Made, Plan, Spawn};
use super::writer;
use super::{Context, ReconcileError, refusal};
use crate::api::labels;
use crate::vehicle::{Fact, SpawnFailure};

/// Names tried for one birth before the commander is told that somebody holds them.
const NAMES: u32 = 4;

/// Tries of a delete whose pod changed between the look and the delete.
const LOOKS: u32 = 3;

/// Carries a plan out. The first error comes back after everything was tried.
pub(crate) async fn apply(
    context: &Context,
    scene: &Scene,
    plan: Plan,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    let mut first = Ok(());
    if let Some(wanted) = plan.budget {
        first = budget(context, scene, &wanted, memory).await;
    }
    // No pod is made before the budget counts it: it could be evicted together with another.
    let counted = first.is_ok() && memory.budget.is_some();
    for spawn in plan.spawn {
        if counted {
            first = first.and(self::spawn(context, scene, spawn, memory).await);
        }
    }
    for (name, uid) in plan.release {
        first = first.and(release(context, scene, &name, &uid).await);
    }
    for (name, uid) in plan.retire {
        first = first.and(retire(context, scene, &name, &uid).await);
    }
    first
}

async fn budget(
    context: &Context,
    scene: &Scene,
    wanted: &Value,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    let path = writer::path_of(wanted).ok_or(ReconcileError::Unbuildable)?;
    let got = context.writer.apply(&path, wanted).await?;
    let got: PodDisruptionBudget = serde_json::from_value(got)?;
    memory.budget = Some(Kept {
        wanted: keep::hash(wanted),
        got: keep::fingerprint(&got),
        at: context.clock.now(),
    });
    tracing::debug!(group = %scene.key, "applied the disruption budget");
    Ok(())
}

async fn spawn(
    context: &Context,
    scene: &Scene,
    spawn: Spawn,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    let birth = spawn.birth;
    let pod = match spawn.pod {
        Ok(pod) => pod,
        Err(failure) => return fail(context, scene, birth, failure, memory).await,
    };
    // Noted before it is sent: whatever comes of it, the next try uses the same name.
    memory.made.insert(birth, Made::Asked(spawn.attempt));
    match context
        .writer
        .create(&writer::pods(&scene.key.namespace), &pod)
        .await
    {
        Ok(_) => {
            tracing::info!(group = %scene.key, %birth, pod = %pod["metadata"]["name"], "made a worker");
            memory.made.insert(birth, Made::Exists);
            memory.template.shown(&scene.group);
            Ok(())
        }
        Err(error) if error.is_taken() => taken(context, scene, birth, spawn.attempt, &pod, memory).await,
        Err(error) => match error.status().and_then(refusal::spawn_failure) {
            Some(failure) => fail(context, scene, birth, failure, memory).await,
            None => Err(error.into()),
        },
    }
}

/// The name is held: by the pod of this very birth, which an earlier try made, or by somebody else's, which is
/// neither adopted nor deleted.
async fn taken(
    context: &Context,
    scene: &Scene,
    birth: elastic_pool_engine::ids::Birth,
    attempt: u32,
    pod: &Value,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{name}", writer::pods(&scene.key.namespace));
    let held = context.writer.get(&path).await?.unwrap_or_default();
    let held: k8s_openapi::api::core::v1::Pod = serde_json::from_value(held).unwrap_or_default();
    let ours = super::pods::group_uid_of(&held) == Some(memory.uid.as_str());
    if ours && super::pods::birth_of(&held) == Some(birth) {
        memory.made.insert(birth, Made::Exists);
        return Ok(());
    }
    tracing::warn!(group = %scene.key, pod = name, "somebody else holds a worker's name");
    if attempt + 1 < NAMES {
        memory.made.insert(birth, Made::Asked(attempt + 1));
        return Err(ReconcileError::NameTaken(name.to_owned()));
    }
    memory.taken_name = Some(name.to_owned());
    let text = format!("pod {name} exists and is not this group's");
    fail(context, scene, birth, SpawnFailure::Mistake(text), memory).await
}

async fn fail(
    context: &Context,
    scene: &Scene,
    birth: elastic_pool_engine::ids::Birth,
    failure: SpawnFailure,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    tracing::warn!(group = %scene.key, %birth, ?failure, "could not make a worker");
    memory.made.insert(birth, Made::Failed);
    let fact = Fact::SpawnFailed(scene.key.clone(), birth, failure);
    context
        .facts
        .send(fact)
        .await
        .map_err(|_| ReconcileError::Stopped)
}

/// Takes the budget's label off one pod, if it is still the same pod.
async fn release(context: &Context, scene: &Scene, name: &str, uid: &str) -> Result<(), ReconcileError> {
    let path = format!("{}/{name}", writer::pods(&scene.key.namespace));
    let unlabelled = json!({"metadata": {"uid": uid, "labels": {labels::BUDGET: null}}});
    match context.writer.merge(&path, &unlabelled).await {
        Err(error) if error.is_absent() || error.is_conflict() => Ok(()),
        done => done.map(|_| ()).map_err(ReconcileError::from),
    }
}

/// Deletes one pod: looks at it once more, and deletes exactly what was seen.
async fn retire(context: &Context, scene: &Scene, name: &str, uid: &str) -> Result<(), ReconcileError> {
    let path = format!("{}/{name}", writer::pods(&scene.key.namespace));
    for _ in 0..LOOKS {
        let Some(pod) = context.writer.get(&path).await? else {
            return Ok(());
        };
        let metadata = &pod["metadata"];
        if metadata["uid"] != uid || !metadata["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let version = metadata["resourceVersion"].as_str().unwrap_or_default();
        match context.writer.delete(&path, uid, version).await {
            Err(error) if error.is_conflict() => {}
            Err(error) if error.is_absent() => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => {
                tracing::info!(group = %scene.key, pod = name, "deleted a worker");
                return Ok(());
            }
        }
    }
    Err(ReconcileError::Restless(name.to_owned()))
}
