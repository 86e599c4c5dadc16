//! When a group grows (G1-G5); never says who is placed where (G3).

use std::time::Duration;

use crate::Because;
use crate::backoff::Backoff;
use crate::group::Group;
use crate::ids::Birth;
use crate::thresholds::Policy;

/// What growth came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The group can place well (G1).
    Room,
    /// It could not, so a compaction drain is cancelled; its worker counts as room (G2).
    DrainCancelled,
    /// A spawn is on its way (G2).
    SpawnInFlight,
    /// As many live as may (G2).
    MaxWorkers,
    /// Spawns failed; the pause is not over (G4).
    BackingOff,
    /// Spawn: nobody has room (G1).
    CannotPlace,
    /// Nobody is routable; spawn unless one is on its way (G5).
    NoRoutableWorker,
    /// Spawn: fewer than `min` (G5).
    BelowMin,
}

impl Reason {
    /// The reason as a label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::DrainCancelled => "drain_cancelled",
            Self::SpawnInFlight => "spawn_in_flight",
            Self::MaxWorkers => "max_workers",
            Self::BackingOff => "backing_off",
            Self::CannotPlace => "cannot_place",
            Self::NoRoutableWorker => "no_routable_worker",
            Self::BelowMin => "below_min",
        }
    }
}

/// Spawns that failed or timed out in a row (G4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpawnHistory {
    /// Failures since the last spawn that became routable.
    pub failures: u32,
    /// The last of them.
    pub last_failure: Option<Duration>,
}

impl SpawnHistory {
    /// Counts a failure.
    pub fn fail(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(now);
    }

    /// This history with `more` failures at `now`.
    #[must_use]
    pub fn failed_now(&self, more: usize, now: Duration) -> Self {
        let mut history = *self;
        (0..more).for_each(|_| history.fail(now));
        history
    }

    /// A spawn became routable, or the template changed: no pause any more.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// When the next spawn may start; `None` when now.
    pub fn blocked_until(&self, now: Duration) -> Option<Duration> {
        let until = self
            .last_failure?
            .saturating_add(Backoff::SPAWN.pause(self.failures));
        (until > now).then_some(until)
    }
}

/// What to do about growth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Workers to spawn.
    pub spawn: usize,
    /// Compaction drains to cancel.
    pub cancel: Vec<Birth>,
    /// What it came to.
    pub reason: Reason,
    /// Why, in a sentence.
    pub because: Because,
}

impl Growth {
    fn new(spawn: usize, cancel: Vec<Birth>, reason: Reason, text: String) -> Self {
        Self {
            spawn,
            cancel,
            reason,
            because: Because::new(reason.code(), text),
        }
    }
}

/// G1: whether the group can place well, and the sentence that says so. Stale workers are neither room nor full (E5).
pub fn has_room(group: &Group, policy: &Policy, now: Duration) -> Result<String, String> {
    let Some(reception) = group.reception() else {
        return Err("nobody is routable".into());
    };
    if let Some(young) = group.young(now).find(|worker| worker.birth != reception.birth) {
        return Ok(format!(
            "{} is routable for less than a smoothing window and counts as room",
            young.name
        ));
    }
    if let Some(lowest) = group.fresh().find(|worker| worker.birth != reception.birth) {
        let (name, load, limit) = (&lowest.name, lowest.occupancy, policy.admission);
        return if load < limit {
            Ok(format!("{name} at {load} is below {limit}"))
        } else {
            Err(format!(
                "nobody but the reception is below {limit}, the least is {name} at {load}"
            ))
        };
    }
    let (name, load, limit) = (&reception.name, reception.occupancy, policy.reception);
    if reception.stale {
        Ok(format!("nothing is known of {name} (E5)"))
    } else if reception.room_until.is_some_and(|until| until > now) {
        Ok(format!(
            "{name} is routable for less than a smoothing window and counts as room"
        ))
    } else if load < limit {
        Ok(format!("{name} alone at {load} is below {limit}"))
    } else {
        Err(format!("{name} alone at {load} is not below {limit}"))
    }
}

/// The whole of growth: need, then the guards of G2 in their order, the floor of G5 first.
pub fn growth(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Growth {
    let in_flight = group.in_flight(policy.spawn_timeout, now).count();
    let placeable = group.placeable_count();
    let missing = policy.min.saturating_sub(placeable + in_flight);
    if placeable == 0 {
        let wanted = if in_flight == 0 { missing.max(1) } else { missing };
        let text = format!(
            "G5: nobody is routable, {in_flight} on the way, min {}",
            policy.min
        );
        return replace(group, policy, spawns, now, wanted, Reason::NoRoutableWorker, text);
    }
    if missing > 0 {
        let text = format!(
            "G5: {placeable} routable and {in_flight} on the way are fewer than {}",
            policy.min
        );
        return replace(group, policy, spawns, now, missing, Reason::BelowMin, text);
    }
    let need = match has_room(group, policy, now) {
        Ok(room) => return Growth::new(0, vec![], Reason::Room, format!("G1: {room}")),
        Err(need) => need,
    };
    if let Some(drained) = roomiest_drain(group) {
        let text = format!(
            "G2: {need}; the drain of {} is cancelled, it counts as room",
            group.name(drained)
        );
        return Growth::new(0, vec![drained], Reason::DrainCancelled, text);
    }
    if let Some(spawn) = group.in_flight(policy.spawn_timeout, now).next() {
        let text = format!("G2: {need}; {} is on its way", spawn.name);
        return Growth::new(0, vec![], Reason::SpawnInFlight, text);
    }
    spawn(
        group,
        policy,
        spawns,
        now,
        1,
        Reason::CannotPlace,
        format!("G1: {need}"),
    )
}

fn roomiest_drain(group: &Group) -> Option<Birth> {
    group
        .compacting()
        .min_by_key(|worker| (worker.occupancy, worker.birth))
        .map(|worker| worker.birth)
}

/// G5: drains are cancelled before anybody is spawned.
fn replace(
    group: &Group,
    policy: &Policy,
    spawns: &SpawnHistory,
    now: Duration,
    wanted: usize,
    reason: Reason,
    text: String,
) -> Growth {
    let cancel: Vec<Birth> = group
        .compacting()
        .take(wanted)
        .map(|worker| worker.birth)
        .collect();
    match wanted - cancel.len() {
        0 => Growth::new(0, cancel, reason, text),
        wanted => Growth {
            cancel,
            ..spawn(group, policy, spawns, now, wanted, reason, text)
        },
    }
}

/// The last guards: `max` with its surge (G2), then the pause after failures (G4).
fn spawn(
    group: &Group,
    policy: &Policy,
    spawns: &SpawnHistory,
    now: Duration,
    wanted: usize,
    reason: Reason,
    text: String,
) -> Growth {
    let living = group.living() - group.overdue(policy.spawn_timeout, now).count();
    let surge = policy.max_surge.min(group.must_go_count());
    let allowed = policy.max.map_or(wanted, |max| {
        max.saturating_add(surge).saturating_sub(living).min(wanted)
    });
    if allowed == 0 {
        let max = policy.max.unwrap_or_default();
        let text = format!("{text}; but {living} live and max is {max} (G2)");
        return Growth::new(0, vec![], Reason::MaxWorkers, text);
    }
    if spawns.blocked_until(now).is_some() {
        let text = format!(
            "{text}; but {} spawns failed and the pause is not over (G4)",
            spawns.failures
        );
        return Growth::new(0, vec![], Reason::BackingOff, text);
    }
    Growth::new(allowed, vec![], reason, text)
}
