//! Decisions with what they stood on, so that each can be asked again: the last ones of a group, and a group as it is now.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::plan::Plan;
use elastic_pool_engine::snapshot::{Saved, SavedUser, Stays};
use tokio::sync::mpsc;

use super::Commander;
use super::group::{GroupState, Reason};
use crate::vehicle::ObjectKey;

/// Decisions kept of a group.
const KEPT: usize = 64;
/// Workers in all kept decisions of a group together, so that large groups keep fewer: about 4 MiB.
const WORKERS: usize = 10_000;

/// Where decisions go to be saved; a full one loses them, and they are counted.
pub type DecisionSink = mpsc::Sender<Arc<Saved>>;

/// No one group has the name that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGroup {
    /// As it was asked for.
    pub asked: String,
    /// `namespace/name` of the groups that could be meant: those of that name, else all.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self.known.as_slice() {
            [] => "there are none".to_owned(),
            known => format!("write one of {}", known.join(", ")),
        };
        write!(f, "{:?} is not the name of one PoolGroup: {known}", self.asked)
    }
}

impl std::error::Error for UnknownGroup {}

/// The last decisions of one group, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    kept: VecDeque<Arc<Saved>>,
    workers: usize,
}

impl History {
    fn keep(&mut self, saved: Arc<Saved>) {
        self.workers += saved.group().living();
        self.kept.push_back(saved);
        while self.kept.len() > KEPT || (self.workers > WORKERS && self.kept.len() > 1) {
            if let Some(oldest) = self.kept.pop_front() {
                self.workers -= oldest.group().living();
            }
        }
    }
}

/// Why a user whose move failed stays until then.
fn stays(until: Duration, cause: &str) -> Stays {
    match cause {
        "stream" => Stays::PinnedStream,
        "too_large" => Stays::PackageTooLarge,
        _ => Stays::BackingOff { until },
    }
}

impl Commander {
    /// Keeps what a plan stands on, where it acts or its reasons are others than last time. Call before carrying it out.
    pub(super) fn remember(&mut self, key: &ObjectKey, plan: &Plan) {
        let Some(group) = self.groups.get_mut(key) else {
            return;
        };
        let decisions = plan.decisions.iter().chain(&plan.advice);
        let reasons = decisions.map(|decision| -> Reason { (decision.action, decision.because.code) });
        if reasons.clone().eq(group.reasons.iter().copied()) {
            return;
        }
        group.reasons = reasons.collect();
        let saved = Arc::new(Saved::of(&key.to_string(), &group.snapshot(), self.now, []));
        group.history.keep(Arc::clone(&saved));
        if let Some(sink) = &self.sink
            && sink.try_send(saved).is_err()
        {
            self.metrics.decision_unsaved("queue_full");
        }
    }

    /// The group as it is now, with its users. `name` is `namespace/name`, or the name alone where it is the only one.
    pub fn snapshot(&mut self, name: &str) -> Result<Saved, UnknownGroup> {
        let key = self.named(name)?;
        let now = self.now;
        let unknown = || UnknownGroup {
            asked: name.to_owned(),
            known: Vec::new(),
        };
        let group = self.groups.get_mut(&key).ok_or_else(unknown)?;
        group.engine.expire(now);
        let group = self.groups.get(&key).ok_or_else(unknown)?;
        let users = self.users_of(group);
        Ok(Saved::of(&key.to_string(), &group.snapshot(), now, users))
    }

    /// The last decisions of a group, oldest first; `name` as for [`Self::snapshot`].
    pub fn decisions(&self, name: &str) -> Result<Vec<Arc<Saved>>, UnknownGroup> {
        let key = self.named(name)?;
        let kept = self.groups.get(&key).map(|group| &group.history.kept);
        Ok(kept.into_iter().flatten().cloned().collect())
    }

    /// Every user of a group, by worker, in the order in which a drain would ask them.
    fn users_of<'a>(&'a self, group: &'a GroupState) -> impl Iterator<Item = SavedUser> + 'a {
        let surface = self.pools.get(&group.spec.pool).map(|pool| &pool.surface);
        group.engine.workers().flat_map(move |view| {
            let users = surface
                .into_iter()
                .flat_map(move |surface| surface.of_worker(view.birth));
            users.map(move |user| {
                let subject = (group.spec.pool.clone(), user.clone());
                let until = self.operations.paused_until(&subject, self.now);
                SavedUser {
                    worker: view.birth,
                    user: user.clone(),
                    open_requests: usize::from(self.is_active(&group.spec.pool, user)),
                    stays: until.map(|(until, cause)| stays(until, cause)),
                }
            })
        })
    }

    fn named(&self, name: &str) -> Result<ObjectKey, UnknownGroup> {
        let full: Vec<&ObjectKey> = self.groups.keys().filter(|key| key.to_string() == name).collect();
        let short: Vec<&ObjectKey> = self.groups.keys().filter(|key| key.name == name).collect();
        let known = match (full.as_slice(), short.as_slice()) {
            ([one], _) | (_, [one]) => return Ok((*one).clone()),
            (_, []) => self.groups.keys().collect(),
            (_, several) => several.to_vec(),
        };
        Err(UnknownGroup {
            asked: name.to_owned(),
            known: known.into_iter().map(ToString::to_string).collect(),
        })
    }
}
