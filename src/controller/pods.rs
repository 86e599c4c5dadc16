//! Reads pods: whose worker one is, how it is, why it does not start; pure, it never asks the server.

use elastic_pool_engine::ids::Birth;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt;

use crate::api::labels;
use crate::vehicle::{ObjectKey, SpawnFailure, WorkerFact};

/// Longest text taken over from a pod's status.
const LONGEST_TEXT: usize = 300;

/// Reasons of a waiting container that only a person can mend.
const MISTAKES: [&str; 8] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// The birth number that a pod carries, if it is a worker: labelled and owned by a PoolGroup.
pub(crate) fn birth_of(pod: &Pod) -> Option<Birth> {
    group_of(pod)?;
    pod.labels().get(labels::BIRTH)?.parse().ok().map(Birth)
}

/// The PoolGroup that controls this pod.
pub(crate) fn group_of(pod: &Pod) -> Option<ObjectKey> {
    let owner = owner(pod)?;
    Some(ObjectKey {
        namespace: pod.namespace()?,
        name: owner.0.to_owned(),
    })
}

/// UID of the PoolGroup that controls this pod.
pub(crate) fn group_uid_of(pod: &Pod) -> Option<&str> {
    owner(pod).map(|owner| owner.1)
}

fn owner(pod: &Pod) -> Option<(&str, &str)> {
    let group = format!("{}/", crate::api::GROUP);
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true))?;
    let ours = owner.kind == "PoolGroup" && owner.api_version.starts_with(&group);
    ours.then_some((owner.name.as_str(), owner.uid.as_str()))
}

/// Told to stop.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Counted by the group's disruption budget.
pub(crate) fn is_budgeted(pod: &Pod) -> bool {
    pod.labels().contains_key(labels::BUDGET)
}

/// What the commander is told of a worker's pod; `None` for a pod that is no worker.
pub(crate) fn worker_fact(pod: &Pod) -> Option<WorkerFact> {
    let birth = birth_of(pod)?;
    let group = group_of(pod)?;
    let status = pod.status.as_ref();
    let phase = status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default();
    let address = status
        .and_then(|status| status.pod_ip.as_deref())
        .unwrap_or_default();
    let ready = holds(pod, "Ready");
    let app = app_status(pod);
    let id = app
        .and_then(|app| app.container_id.as_deref())
        .unwrap_or_default();
    Some(WorkerFact {
        birth,
        group,
        name: pod.name_any(),
        pod_uid: pod.uid().unwrap_or_default(),
        ready,
        address: authority(address, labels::TRAFFIC_PORT),
        peer: authority(address, labels::PEER_PORT),
        terminating: is_terminating(pod),
        finished: matches!(phase, "Failed" | "Succeeded"),
        app_container_id: id.rsplit("://").next().unwrap_or_default().to_owned(),
        app_restarts: app
            .and_then(|app| u32::try_from(app.restart_count).ok())
            .unwrap_or(0),
        failure: if ready { None } else { failure_of(pod) },
        template_hash: annotation(pod, labels::TEMPLATE_HASH),
        agent_hash: annotation(pod, labels::AGENT_HASH),
        must_go: holds(pod, "DisruptionTarget"),
    })
}

fn annotation(pod: &Pod, name: &str) -> String {
    pod.annotations().get(name).cloned().unwrap_or_default()
}

fn authority(address: &str, port: u16) -> String {
    match address {
        "" => String::new(),
        six if six.contains(':') => format!("[{six}]:{port}"),
        four => format!("{four}:{port}"),
    }
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind)
}

fn holds(pod: &Pod, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition.status == "True")
}

/// The status of the app's container: the one that the builder made kubectl's default, else the first.
fn app_status(pod: &Pod) -> Option<&ContainerStatus> {
    let named = pod.annotations().get(labels::DEFAULT_CONTAINER);
    let containers = &pod.spec.as_ref()?.containers;
    let named = named.filter(|named| containers.iter().any(|container| container.name == **named));
    let name = named.or_else(|| containers.first().map(|container| &container.name))?;
    pod.status
        .as_ref()?
        .container_statuses
        .as_ref()?
        .iter()
        .find(|status| status.name == *name)
}

/// Why a pod that is not ready cannot become so; `None` while it simply has not yet.
fn failure_of(pod: &Pod) -> Option<SpawnFailure> {
    let status = pod.status.as_ref()?;
    if let Some(scheduled) = condition(pod, "PodScheduled")
        && scheduled.status == "False"
        && scheduled.reason.as_deref() == Some("Unschedulable")
    {
        return Some(SpawnFailure::NoCapacity(shortened(
            scheduled.message.as_deref().unwrap_or("unschedulable"),
        )));
    }
    if status.phase.as_deref() == Some("Failed") {
        return Some(failed(status.reason.as_deref(), status.message.as_deref()));
    }
    let of = |statuses: &Option<Vec<ContainerStatus>>| statuses.iter().flatten().find_map(mistake_of);
    of(&status.init_container_statuses)
        .or_else(|| of(&status.container_statuses))
        .map(SpawnFailure::Mistake)
}

/// A pod that ended: a kubelet that had no room says so in the reason.
fn failed(reason: Option<&str>, message: Option<&str>) -> SpawnFailure {
    let reason = reason.unwrap_or("Failed");
    let text = shortened(&format!("{reason}: {}", message.unwrap_or("the pod ended")));
    let no_room = reason.starts_with("OutOf")
        || matches!(
            reason,
            "Evicted" | "NodeAffinity" | "NodeShutdown" | "Preempting" | "Shutdown"
        );
    if no_room {
        SpawnFailure::NoCapacity(text)
    } else {
        SpawnFailure::Mistake(text)
    }
}

fn mistake_of(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|reason| MISTAKES.contains(reason))?;
    let message = waiting.message.as_deref().unwrap_or("no message");
    Some(shortened(&format!(
        "container {}: {reason}: {message}",
        status.name
    )))
}

/// At most 300 characters of `text`, in one line.
pub(crate) fn shortened(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_TEXT)
        .collect();
    line.trim().to_owned()
}

#[cfg(test)]
#[path = "pods_tests.rs"]
mod tests;
