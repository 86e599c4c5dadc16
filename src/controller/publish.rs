//! Writes a group's status when it is due, and tells each decision once as an Event.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::group::{GroupMemory, Scene};
use super::status::{self, Due};
use super::writer::collection;
use super::{Context, ReconcileError, keep};
use crate::api::status::PoolGroupStatus;
use crate::api::{API_VERSION, conditions};
use crate::clock::unix_seconds;
use crate::vehicle::{ConditionView, DecisionNote};

/// Name under which events are reported.
const REPORTER: &str = "elasticpool.dev/operator";

/// What was published of a group.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The status that was written last; absent: the manifest's.
    status: Option<PoolGroupStatus>,
    /// When.
    written: Option<Duration>,
    /// Decisions told as events, of the commander's count in this term.
    told: u64,
}

/// Publishes what is due; returns when figures that wait will be.
pub(crate) async fn publish(
    context: &Context,
    scene: &Scene,
    memory: &mut GroupMemory,
) -> Result<Option<Duration>, ReconcileError> {
    tell_decisions(context, scene, &mut memory.published).await?;
    let own = own_conditions(scene, memory);
    let published = &mut memory.published;
    let previous = published
        .status
        .clone()
        .or_else(|| scene.group.status.clone())
        .unwrap_or_default();
    let now = status::rfc3339(unix_seconds());
    let next = status::group_status(
        &previous,
        scene.group.metadata.generation,
        scene.view.as_deref(),
        &own,
        &now,
    );
    match status::due(&previous, published.written, &next, scene.now) {
        Due::Never => Ok(None),
        Due::At(time) => Ok(Some(time)),
        Due::Now => {
            write(context, scene, &next).await?;
            published.status = Some(next);
            published.written = Some(scene.now);
            Ok(None)
        }
    }
}

async fn write(context: &Context, scene: &Scene, next: &PoolGroupStatus) -> Result<(), ReconcileError> {
    let (namespace, name) = (&scene.key.namespace, &scene.key.name);
    let path = format!(
        "{}/{name}/status",
        collection(API_VERSION, namespace, "poolgroups")
    );
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "PoolGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": scene.group.uid()},
        "status": next,
    });
    match context.writer.apply(&path, &object).await {
        // Deleted, or deleted and made again, meanwhile: the watch will say so.
        Err(error) if error.is_absent() || error.is_conflict() => Ok(()),
        done => done.map(|_| ()).map_err(ReconcileError::from),
    }
}

/// The conditions that the controller alone knows.
fn own_conditions(scene: &Scene, memory: &GroupMemory) -> Vec<ConditionView> {
    let wrong = |kind: &str, reason: &str, message: String| ConditionView {
        kind: kind.to_owned(),
        status: Some(true),
        reason: reason.to_owned(),
        message,
    };
    let mut all: Vec<ConditionView> = memory.template.condition().into_iter().collect();
    if scene.foreign_pool {
        let pool = &scene.group.spec.pool;
        let text =
            format!("pool {pool} is of another class than this group; no gateway of this operator serves it");
        all.push(wrong(conditions::POOL_CLASS_MISMATCH, "OtherClass", text));
    }
    if scene.nodes_forbidden {
        let text = "the operator may not read nodes: a worker on a cordoned node is drained only once its pod is told \
                    to stop; allow it with the chart's readNodes";
        all.push(wrong(conditions::NODES_UNREADABLE, "Forbidden", text.to_owned()));
    }
    if let Some(name) = &memory.taken_name {
        let text = format!(
            "pod {name} is not this group's: it is left alone, and no worker was made under its name"
        );
        all.push(wrong(conditions::NAME_CONFLICT, "NameTaken", text));
    }
    all
}

/// Tells the decisions that were noted since the last time. An event that cannot be written is given up.
async fn tell_decisions(
    context: &Context,
    scene: &Scene,
    published: &mut Published,
) -> Result<(), ReconcileError> {
    let Some(view) = &scene.view else { return Ok(()) };
    let fresh = usize::try_from(view.decisions_seen.saturating_sub(published.told)).unwrap_or(usize::MAX);
    for (age, note) in view.decisions.iter().enumerate().take(fresh).rev() {
        let number = view.decisions_seen.saturating_sub(age as u64);
        let event = event(scene, note, number, &context.config.instance);
        let path = collection("events.k8s.io/v1", &scene.key.namespace, "events");
        match context.writer.create(&path, &event).await {
            Err(error) if error.is_taken() => {}
            Err(error) => tracing::warn!(group = %scene.key, %error, "an event is lost"),
            Ok(_) => {}
        }
    }
    published.told = published.told.max(view.decisions_seen);
    Ok(())
}

/// The Event of one decision. Its name follows from the decision, so that it is told once.
fn event(scene: &Scene, note: &DecisionNote, number: u64, instance: &str) -> Value {
    let uid = scene.group.uid().unwrap_or_default();
    let id = keep::hash(&json!([uid, note.at, number, note.action, note.because]));
    let seconds = i64::try_from(note.at).unwrap_or(0);
    let time = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap_or_default();
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{}", scene.key.name, &id[..16]), "namespace": scene.key.namespace},
        "eventTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(time),
        "reportingController": REPORTER,
        "reportingInstance": instance,
        "action": note.action,
        "reason": note.action,
        "type": if note.warning { "Warning" } else { "Normal" },
        "note": note.because.chars().take(250).collect::<String>(),
        "regarding": {"apiVersion": API_VERSION, "kind": "PoolGroup", "name": scene.key.name,
            "namespace": scene.key.namespace, "uid": uid},
    })
}
