//! From what is seen and wanted of a group to the writes that are due; pure, it sends nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use elastic_pool_engine::ids::Birth;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use ring::digest;
use serde_json::Value;

use super::build::{self, OperatorEnv};
use super::group::{GroupMemory, Scene};
use super::keep::{self, Need};
use super::pods;
use crate::api::PoolGroup;
use crate::vehicle::SpawnFailure;

/// What was done for one birth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    /// A create was sent under the name of this attempt, and nobody knows yet whether it was done.
    Asked(u32),
    /// Its pod exists, or existed.
    Exists,
    /// It failed, and the commander was told.
    Failed,
}

/// A worker to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spawn {
    pub(crate) birth: Birth,
    pub(crate) attempt: u32,
    /// The pod, or why there can be none.
    pub(crate) pod: Result<Value, SpawnFailure>,
}

/// The writes that are due, in the order in which they are sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// The disruption budget: raised before a pod is made, lowered after one is gone.
    pub(crate) budget: Option<Value>,
    /// Workers to make.
    pub(crate) spawn: Vec<Spawn>,
    /// Names of pods that lose the budget's label, with their UIDs.
    pub(crate) release: Vec<(String, String)>,
    /// Names of pods to delete, with their UIDs.
    pub(crate) retire: Vec<(String, String)>,
}

/// Plans one pass. Forgets births in `memory` that are not wanted any more.
pub(crate) fn build(env: &OperatorEnv, scene: &Scene, memory: &mut GroupMemory) -> Plan {
    let living: BTreeMap<Birth, &Arc<Pod>> = scene
        .pods
        .iter()
        .filter_map(|pod| Some((pods::birth_of(pod)?, pod)))
        .collect();
    let wanted: BTreeSet<Birth> = scene.desired.spawn.iter().copied().collect();
    memory.made.retain(|birth, _| wanted.contains(birth));
    for birth in living.keys().filter(|birth| wanted.contains(birth)) {
        memory.made.insert(*birth, Made::Exists);
    }
    let spawn: Vec<Spawn> = wanted
        .iter()
        .filter_map(|birth| spawn(env, scene, memory, *birth))
        .collect();
    Plan {
        budget: budget(scene, memory, &living, spawn.len()),
        spawn,
        release: released(scene, &living),
        retire: retired(scene, &living),
    }
}

fn spawn(env: &OperatorEnv, scene: &Scene, memory: &GroupMemory, birth: Birth) -> Option<Spawn> {
    let attempt = match memory.made.get(&birth) {
        None => 0,
        Some(Made::Asked(attempt)) => *attempt,
        Some(Made::Exists | Made::Failed) => return None,
    };
    let name = worker_name(&scene.group, birth, attempt);
    let pod = match memory.template.usable(&scene.group) {
        Ok(group) => build::worker_pod(group, birth, &name, env).map_err(|fault| fault.to_string()),
        Err(fault) => Err(fault.to_owned()),
    };
    Some(Spawn {
        birth,
        attempt,
        pod: pod.map_err(SpawnFailure::Mistake),
    })
}

/// The name of a birth's pod: the same whenever it is tried again, so that no birth ever has two pods, and another
/// for each `attempt`, for a name that somebody else holds.
pub(crate) fn worker_name(group: &PoolGroup, birth: Birth, attempt: u32) -> String {
    // The letters and digits of Kubernetes' own generated names: no vowels, nothing that looks alike.
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = format!("{}/{birth}/{attempt}", group.uid().unwrap_or_default());
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let suffix: String = hash
        .as_ref()
        .iter()
        .take(5)
        .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
        .collect();
    format!("{}-{suffix}", group.name_any())
}

/// The budget that is due: one less than the pods that carry its label, and never fewer than the workers that are
/// wanted, so that one worker at a time may be evicted.
fn budget(
    scene: &Scene,
    memory: &GroupMemory,
    living: &BTreeMap<Birth, &Arc<Pod>>,
    spawning: usize,
) -> Option<Value> {
    let labelled = scene.pods.iter().filter(|pod| pods::is_budgeted(pod)).count();
    let unseen = |(birth, made): &(&Birth, &Made)| **made == Made::Exists && !living.contains_key(birth);
    let unseen = memory.made.iter().filter(unseen).count();
    let desired = scene.view.as_ref().map_or(0, |view| view.desired_workers);
    let workers = u32::try_from(labelled + unseen + spawning)
        .unwrap_or(u32::MAX)
        .max(desired);
    let wanted = build::group_budget(&scene.group, workers.saturating_sub(1));
    let hash = keep::hash(&wanted);
    let need = keep::need(memory.budget.as_ref(), &hash, scene.budget.as_deref(), scene.now);
    (need == Need::Apply).then_some(wanted)
}

fn released(scene: &Scene, living: &BTreeMap<Birth, &Arc<Pod>>) -> Vec<(String, String)> {
    let pods = scene
        .desired
        .released
        .iter()
        .filter_map(|birth| living.get(birth));
    let labelled = pods.filter(|pod| pods::is_budgeted(pod));
    labelled
        .map(|pod| (pod.name_any(), pod.uid().unwrap_or_default()))
        .collect()
}

/// Pods to delete: the commander names birth and UID, and only where both are the pod's it is touched.
fn retired(scene: &Scene, living: &BTreeMap<Birth, &Arc<Pod>>) -> Vec<(String, String)> {
    let named = scene.desired.retire.iter();
    let pods =
        named.filter_map(|(birth, uid)| living.get(birth).filter(|pod| pod.uid().as_deref() == Some(uid)));
    let staying = pods.filter(|pod| !pods::is_terminating(pod));
    staying
        .map(|pod| (pod.name_any(), pod.uid().unwrap_or_default()))
        .collect()
}
