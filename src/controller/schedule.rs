//! Runs reconciles: each target by itself, one at a time, soon after something happened, with growing pauses after
//! failures; it knows nothing of what a reconcile does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::group::{self, GroupMemory};
use super::pool::{self, PoolMemory};
use super::world::Target;
use super::{Context, ControllerError, HEARTBEAT_EVERY, Heartbeat, ReconcileError};

/// Reconciles at once.
const AT_ONCE: usize = 16;

/// Pause after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Memory {
    Group(Box<GroupMemory>),
    Pool(Box<PoolMemory>),
}

/// One target between its reconciles.
#[derive(Debug, Default)]
struct Slot {
    /// Away while a reconcile runs.
    memory: Option<Memory>,
    running: bool,
    due: Option<Duration>,
    not_before: Duration,
    failures: u32,
}

type Done = (Target, Memory, Result<Option<Duration>, ReconcileError>);

/// All targets.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    slots: BTreeMap<Target, Slot>,
    running: JoinSet<Done>,
}

impl Schedule {
    /// Reconciles until `stop`.
    pub(crate) async fn run(
        mut self,
        context: Arc<Context>,
        heartbeat: Heartbeat,
        stop: CancellationToken,
    ) -> Result<(), ControllerError> {
        let mut orders = context.orders.clone();
        let mut last = Arc::clone(&orders.borrow_and_update());
        loop {
            heartbeat.scheduled();
            let now = context.clock.now();
            for target in context.dirty.take() {
                self.slots.entry(target).or_default().due = Some(now);
            }
            self.start(&context, now);
            let pause = self.pause(now);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = context.dirty.wait() => {}
                changed = orders.changed() => {
                    changed.map_err(|_| ControllerError::CommanderGone)?;
                    let new = Arc::clone(&orders.borrow_and_update());
                    mark_changed(&context, &last, &new);
                    last = new;
                }
                Some(done) = self.running.join_next() => self.finish(&context, done.map_err(ControllerError::Broken)?)?,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn start(&mut self, context: &Arc<Context>, now: Duration) {
        for (target, slot) in &mut self.slots {
            let due = slot.due.is_some_and(|due| due.max(slot.not_before) <= now);
            if !due || slot.running || self.running.len() >= AT_ONCE {
                continue;
            }
            let memory = slot.memory.take().unwrap_or_else(|| match target {
                Target::Group(_) => Memory::Group(Box::default()),
                Target::Pool(_) => Memory::Pool(Box::default()),
            });
            slot.due = None;
            slot.running = true;
            self.running
                .spawn(reconcile(Arc::clone(context), target.clone(), memory));
        }
    }

    fn finish(&mut self, context: &Context, done: Done) -> Result<(), ControllerError> {
        let (target, memory, result) = done;
        let now = context.clock.now();
        let slot = self.slots.entry(target.clone()).or_default();
        slot.running = false;
        slot.memory = Some(memory);
        match result {
            Ok(again) => {
                slot.failures = 0;
                slot.not_before = Duration::ZERO;
                slot.due = [slot.due, again].into_iter().flatten().min();
                if slot.due.is_none() && !context.knows(&target) {
                    self.slots.remove(&target);
                    context.forget(&target);
                }
            }
            Err(ReconcileError::Stopped) => return Err(ControllerError::CommanderGone),
            Err(error) => {
                let pause = FIRST_PAUSE
                    .saturating_mul(1 << slot.failures.min(10))
                    .min(LONGEST_PAUSE);
                tracing::warn!(?target, %error, ?pause, "reconcile failed, it is tried again");
                slot.failures = slot.failures.saturating_add(1);
                slot.not_before = now + pause;
                slot.due = Some(slot.not_before);
            }
        }
        Ok(())
    }

    /// How long nothing is due, at most until the next heartbeat.
    fn pause(&self, now: Duration) -> Duration {
        let idle = self.slots.values().filter(|slot| !slot.running);
        let next = idle
            .filter_map(|slot| slot.due.map(|due| due.max(slot.not_before)))
            .min();
        // What is due but finds no free place is started when a reconcile ends.
        let free = self.running.len() < AT_ONCE;
        let pause = next
            .filter(|_| free)
            .map_or(HEARTBEAT_EVERY, |next| next.saturating_sub(now));
        pause.min(HEARTBEAT_EVERY)
    }
}

async fn reconcile(context: Arc<Context>, target: Target, mut memory: Memory) -> Done {
    let result = match (&target, &mut memory) {
        (Target::Group(key), Memory::Group(memory)) => group::reconcile(&context, key, memory).await,
        (Target::Pool(key), Memory::Pool(memory)) => pool::reconcile(&context, key, memory).await,
        _ => Ok(None),
    };
    (target, memory, result)
}

/// Marks the groups of which the commander wants or shows something else than before.
fn mark_changed(context: &Context, last: &crate::vehicle::Orders, new: &crate::vehicle::Orders) {
    let wanted = new
        .desired
        .iter()
        .filter(|(key, desired)| last.desired.get(*key) != Some(*desired));
    let shown = new
        .views
        .iter()
        .filter(|(key, view)| last.views.get(*key) != Some(*view));
    for key in wanted.map(|(key, _)| key).chain(shown.map(|(key, _)| key)) {
        context.dirty.mark(Target::Group(key.clone()));
    }
}
