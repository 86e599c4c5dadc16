//! Asks the API server once per template whether it makes a pod; a refused one changes nothing that runs.

use std::sync::Arc;

use kube::ResourceExt;

use super::group::{GroupMemory, Scene};
use super::writer::{self, CallError};
use super::{Context, ReconcileError, build, refusal};
use crate::api::{PoolGroup, conditions, resolve};
use crate::vehicle::ConditionView;

/// Name suffix of the pod that is only asked about.
const DRY_RUN_SUFFIX: &str = "asked";

/// What is known of one template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It makes a pod.
    Taken,
    /// It does not; the text names the field.
    Refused(String),
    /// The server would not say: the first real create decides.
    Open,
}

/// The verdicts over a group's templates.
#[derive(Debug, Default)]
pub(crate) struct Template {
    /// The newest manifest that was judged: its hash and the verdict.
    judged: Option<(String, Verdict)>,
    /// The manifest that made pods last.
    good: Option<Arc<PoolGroup>>,
}

impl Template {
    /// The manifest to make pods from: this one, or while its template is refused the last good one.
    pub(crate) fn usable<'a>(&'a self, group: &'a PoolGroup) -> Result<&'a PoolGroup, &'a str> {
        match (&self.judged, &self.good) {
            (Some((_, Verdict::Refused(_))), Some(good)) => Ok(good),
            (Some((_, Verdict::Refused(fault))), None) => Err(fault),
            _ => Ok(group),
        }
    }

    /// TemplateInvalid, once there is a verdict.
    pub(crate) fn condition(&self) -> Option<ConditionView> {
        let (status, reason, message) = match &self.judged.as_ref()?.1 {
            Verdict::Refused(fault) => (Some(true), "Refused", fault.as_str()),
            Verdict::Taken => (Some(false), "Accepted", "the template makes a pod"),
            Verdict::Open => (
                None,
                "NoVerdict",
                "the API server judged no dry run; the first worker will show",
            ),
        };
        Some(ConditionView {
            kind: conditions::TEMPLATE_INVALID.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    }

    /// A real create showed what no dry run would say.
    pub(crate) fn shown(&mut self, group: &Arc<PoolGroup>) {
        if let Some((_, verdict)) = &mut self.judged
            && *verdict == Verdict::Open
        {
            *verdict = Verdict::Taken;
            self.good = Some(Arc::clone(group));
        }
    }
}

/// Judges the template of the group's manifest, where that was not done yet.
pub(crate) async fn judge(
    context: &Context,
    scene: &Scene,
    memory: &mut GroupMemory,
) -> Result<(), ReconcileError> {
    // Together with what the builder adds: a field of the app that cannot be used is a verdict as well.
    let hash = format!(
        "{}/{}",
        resolve::template_hash(&scene.group),
        scene.group.metadata.generation.unwrap_or(0)
    );
    if memory
        .template
        .judged
        .as_ref()
        .is_some_and(|(judged, _)| *judged == hash)
    {
        return Ok(());
    }
    let verdict = verdict(context, scene).await?;
    if verdict == Verdict::Taken {
        memory.template.good = Some(Arc::clone(&scene.group));
    }
    memory.template.judged = Some((hash, verdict.clone()));
    record(context, scene, &verdict).await
}

async fn verdict(context: &Context, scene: &Scene) -> Result<Verdict, ReconcileError> {
    if let Err(fault) = resolve::group_spec(&scene.group, false) {
        return Ok(Verdict::Refused(fault.to_string()));
    }
    let name = format!("{}-{DRY_RUN_SUFFIX}", scene.group.name_any());
    let birth = elastic_pool_engine::ids::Birth(0);
    let pod = match build::worker_pod(&scene.group, birth, &name, &context.config.env) {
        Ok(pod) => pod,
        Err(fault) => return Ok(Verdict::Refused(fault.to_string())),
    };
    match context
        .writer
        .dry_run(&writer::pods(&scene.key.namespace), &pod)
        .await
    {
        Ok(_) => Ok(Verdict::Taken),
        Err(error @ CallError::NotLeading(_)) => Err(error.into()),
        Err(error) => Ok(error.status().and_then(refusal::template_fault).map_or_else(
            || {
                tracing::warn!(group = %scene.key, %error, "no verdict over the template");
                Verdict::Open
            },
            Verdict::Refused,
        )),
    }
}

/// Leaves the verdict where the observer reads it, and has the group told again.
async fn record(context: &Context, scene: &Scene, verdict: &Verdict) -> Result<(), ReconcileError> {
    let hash = resolve::template_hash(&scene.group);
    {
        let mut world = context.world.lock();
        let judged = world.judged.entry(scene.key.clone()).or_default();
        match verdict {
            Verdict::Refused(_) => judged.refused = Some(hash),
            Verdict::Taken | Verdict::Open => {
                judged.refused = None;
                judged.taken = Some(hash);
            }
        }
    }
    context
        .retell
        .send(scene.key.clone())
        .await
        .map_err(|_| ReconcileError::Stopped)
}
