//! When a group grows (G1-G5); never says who is placed where (G3).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Because;
use crate::backoff::Backoff;
use crate::compaction;
use crate::evacuation;
use crate::group::{Group, SpawnFault, WorkerView};
use crate::ids::Birth;
use crate::placement::Figures;
use crate::thresholds::{Mode, Policy};

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
    /// Spawns failed, the last one for this; the pause is not over (G4).
    BackingOff(SpawnFault),
    /// Spawn: nobody has room (G1).
    CannotPlace,
    /// Nobody is routable; spawn unless one is on its way (G5).
    NoRoutableWorker,
    /// Spawn: fewer than `min` (G5).
    BelowMin,
    /// The group is to be empty: nobody is spawned.
    Evacuating,
}

impl Reason {
    /// The reason as a label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::DrainCancelled => "drain_cancelled",
            Self::SpawnInFlight => "spawn_in_flight",
            Self::MaxWorkers => "max_workers",
            Self::BackingOff(SpawnFault::TimedOut) => "backing_off",
            Self::BackingOff(fault) => fault.code(),
            Self::CannotPlace => "cannot_place",
            Self::NoRoutableWorker => "no_routable_worker",
            Self::BelowMin => "below_min",
            Self::Evacuating => "evacuating",
        }
    }
}

/// Spawns that failed or timed out in a row (G4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpawnHistory {
    /// Failures since the last spawn that became routable. Those of spawns that were made together count once.
    pub failures: u32,
    /// The last of them.
    pub last_failure: Option<Duration>,
    /// What it was.
    pub fault: Option<SpawnFault>,
}

impl SpawnHistory {
    /// Counts a failure, unless the pause of an earlier one runs: nobody is spawned in it, so this one was made together with that one.
    pub fn fail(&mut self, now: Duration, fault: SpawnFault) {
        if self.blocked_until(now).is_none() {
            self.failures = self.failures.saturating_add(1);
            self.last_failure = Some(now);
        }
        self.fault = Some(fault);
    }

    /// This history once the spawns that took too long are given up: their replacements wait like any other's.
    #[must_use]
    pub fn with_given_up(mut self, group: &Group, policy: &Policy, now: Duration) -> Self {
        if let Some(spawn) = group.overdue(policy.spawn_timeout, now).next_back() {
            self.fail(now, spawn.fault());
        }
        self
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
    fn new(spawn: usize, cancel: Vec<Birth>, reason: Reason, why: Why) -> Self {
        Self {
            spawn,
            cancel,
            reason,
            because: Because::new(reason.code(), why),
        }
    }
}

/// Why a group grows or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It can place well.
    Room(Room),
    /// It cannot, and nothing stands in the way of a spawn.
    Need(Need),
    /// It cannot, and something else is done or waited for (G2, G4).
    Hindered(Need, Hindrance),
    /// The group is to be empty; so many users live in it.
    Evacuating(usize),
}

/// How a group can place well (G1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// Start-up load says nothing yet.
    Young(Arc<str>),
    /// One beside the reception is below the admission threshold.
    Below(Figures),
    /// The reception, alone, is below its own.
    Alone(Figures),
    /// Nothing is known of anybody (E5).
    Unknown(Arc<str>),
}

/// How it cannot (G1), or what it lacks (G5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nobody is routable.
    Nobody,
    /// Nobody beside the reception is below the admission threshold; the least occupied.
    Full(Figures),
    /// The reception, alone, is not below its own.
    AloneFull(Figures),
    /// G5: nobody is routable.
    NoneRoutable {
        /// Spawns on the way.
        in_flight: usize,
        /// The floor.
        min: usize,
    },
    /// G5: fewer than `min`.
    BelowMin {
        /// Routable and not draining.
        placeable: usize,
        /// Spawns on the way.
        in_flight: usize,
        /// The floor.
        min: usize,
    },
}

/// What is done, or waited for, instead of a spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// A compaction drain is cancelled; its worker counts as room (G2).
    DrainCancelled(Arc<str>),
    /// A spawn is on its way (G2).
    InFlight(Arc<str>),
    /// As many live as may (G2).
    Max {
        /// Workers, whatever their state.
        living: usize,
        /// The ceiling.
        max: usize,
    },
    /// The pause after failed spawns is not over (G4).
    BackingOff {
        /// In a row.
        failures: u32,
        /// What the last one was.
        fault: SpawnFault,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room(room) => write!(f, "G1: {room}, so nobody is spawned"),
            Self::Need(need) => write!(f, "{}: {need}{}", need.rule(), need.so()),
            Self::Hindered(need, hindrance) => hindrance.after(need, f),
            Self::Evacuating(users) => write!(
                f,
                "Evacuate: {users} users live here and newcomers go to other groups, so nobody is spawned"
            ),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Young(name) => {
                write!(
                    f,
                    "{name} is routable for less than a smoothing window and counts as room"
                )
            }
            Self::Below(of) => write!(
                f,
                "{} at {} is below {} and has room",
                of.name, of.occupancy, of.threshold
            ),
            Self::Alone(of) => {
                write!(
                    f,
                    "{}, alone, at {} is below its threshold of {}",
                    of.name, of.occupancy, of.threshold
                )
            }
            Self::Unknown(name) => write!(
                f,
                "nothing is known of {name} (E5), which is neither room nor full"
            ),
        }
    }
}

impl Need {
    fn rule(&self) -> &'static str {
        match self {
            Self::Nobody | Self::Full(_) | Self::AloneFull(_) => "G1",
            Self::NoneRoutable { .. } | Self::BelowMin { .. } => "G5",
        }
    }

    /// What follows where nothing stands in the way; the figures of G5 speak for themselves.
    fn so(&self) -> &'static str {
        match self {
            Self::Nobody | Self::Full(_) | Self::AloneFull(_) => ", so one is spawned",
            Self::NoneRoutable { .. } | Self::BelowMin { .. } => "",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody is routable"),
            Self::Full(of) => write!(
                f,
                "nobody beside the reception is below {}, the least is {} at {}",
                of.threshold, of.name, of.occupancy
            ),
            Self::AloneFull(of) => {
                write!(
                    f,
                    "{}, alone, at {} is not below its threshold of {}",
                    of.name, of.occupancy, of.threshold
                )
            }
            Self::NoneRoutable { in_flight, min } => {
                write!(f, "nobody takes users, {in_flight} on the way, and min is {min}")
            }
            Self::BelowMin {
                placeable,
                in_flight,
                min,
            } => write!(
                f,
                "{placeable} that take users and {in_flight} on the way are fewer than {min}, which is min"
            ),
        }
    }
}

impl Hindrance {
    fn after(&self, need: &Need, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = need.rule();
        match self {
            Self::DrainCancelled(name) => {
                write!(
                    f,
                    "G2: {need}; the drain of {name} is cancelled, and it counts as room"
                )
            }
            Self::InFlight(name) => write!(f, "G2: {need}; {name} is on its way and waited for"),
            Self::Max { living, max } => {
                write!(f, "{rule}: {need}; but {living} live and max is {max} (G2)")
            }
            Self::BackingOff { failures, fault } => {
                let last = match fault {
                    SpawnFault::TimedOut => "",
                    SpawnFault::NoCapacity => ", the last for want of capacity,",
                    SpawnFault::Mistake => ", the last by a mistake in its template,",
                };
                write!(
                    f,
                    "{rule}: {need}; but {failures} spawns failed{last} and the pause is not over (G4)"
                )
            }
        }
    }
}

/// G1: whether the group can place well, and by what. Stale workers are neither room nor full (E5).
pub fn has_room(group: &Group, policy: &Policy, now: Duration) -> Result<Room, Need> {
    let reception = group.reception().ok_or(Need::Nobody)?;
    let other = |worker: &&WorkerView| worker.birth != reception.birth;
    if let Some(young) = group.young(now).find(other) {
        return Ok(Room::Young(Arc::clone(&young.name)));
    }
    if let Some(lowest) = group.fresh().find(other) {
        let figures = Figures::of(lowest, policy.admission);
        return if lowest.occupancy < policy.admission {
            Ok(Room::Below(figures))
        } else {
            Err(Need::Full(figures))
        };
    }
    if reception.stale {
        Ok(Room::Unknown(Arc::clone(&reception.name)))
    } else if reception.room_until.is_some_and(|until| until > now) {
        Ok(Room::Young(Arc::clone(&reception.name)))
    } else if reception.occupancy < policy.reception {
        Ok(Room::Alone(Figures::of(reception, policy.reception)))
    } else {
        Err(Need::AloneFull(Figures::of(reception, policy.reception)))
    }
}

/// The whole of growth: need, then the guards of G2 in their order, the floor of G5 first.
pub fn growth(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Growth {
    let seen = Seen {
        group,
        policy,
        spawns,
        now,
    };
    let in_flight = group.in_flight_count(policy.spawn_timeout, now);
    let placeable = group.placeable_count();
    if policy.mode == Mode::Evacuate {
        return seen.evacuating(placeable, in_flight);
    }
    let min = policy.floor();
    let missing = min.saturating_sub(placeable + in_flight);
    if placeable == 0 {
        let wanted = missing.max(usize::from(in_flight == 0));
        return seen.replace(
            wanted,
            Reason::NoRoutableWorker,
            Need::NoneRoutable { in_flight, min },
        );
    }
    if missing > 0 {
        let need = Need::BelowMin {
            placeable,
            in_flight,
            min,
        };
        return seen.replace(missing, Reason::BelowMin, need);
    }
    match has_room(group, policy, now) {
        Ok(room) => Growth::new(0, vec![], Reason::Room, Why::Room(room)),
        Err(need) => seen.make_room(need),
    }
}

/// As many of `wanted` as `max` with its surge allows (G2), or what stands in their way.
pub(crate) fn allowed(
    group: &Group,
    policy: &Policy,
    spawns: &SpawnHistory,
    wanted: usize,
    now: Duration,
) -> Result<usize, Hindrance> {
    // Spawns that took too long are given up in the same plan.
    let living = group.living() - group.overdue(policy.spawn_timeout, now).count();
    let allowed = ceiling(group, policy, now).map_or(wanted, |most| most.saturating_sub(living).min(wanted));
    if let (0, Some(max)) = (allowed, policy.max) {
        return Err(Hindrance::Max { living, max });
    }
    if spawns.blocked_until(now).is_some() {
        let fault = spawns.fault.unwrap_or(SpawnFault::TimedOut);
        let failures = spawns.failures;
        return Err(Hindrance::BackingOff { failures, fault });
    }
    Ok(allowed)
}

/// `max` and the surge that replacements may add to it (G2): those who leave have one each, and of an older template as
/// many as there are workers of the new one, the next included.
fn ceiling(group: &Group, policy: &Policy, now: Duration) -> Option<usize> {
    let max = policy.max?;
    let leaving = group.must_go_count() + group.updating().len();
    let staying = compaction::staying(group, policy, now).saturating_add(1);
    let replaced = leaving + compaction::replaced(policy, group.outdated_count(), staying);
    Some(max.saturating_add(policy.max_surge.min(replaced)))
}

/// What growth looks at.
#[derive(Clone, Copy)]
struct Seen<'a> {
    group: &'a Group,
    policy: &'a Policy,
    spawns: &'a SpawnHistory,
    now: Duration,
}

impl<'a> Seen<'a> {
    /// Nobody grows a group that is to be empty; while users live in it, one worker stays to take them and its guests.
    fn evacuating(self, placeable: usize, in_flight: usize) -> Growth {
        let users = evacuation::users(self.group);
        if placeable == 0 && in_flight == 0 && users > 0 {
            let need = Need::NoneRoutable { in_flight, min: 0 };
            return self.replace(1, Reason::NoRoutableWorker, need);
        }
        Growth::new(0, vec![], Reason::Evacuating, Why::Evacuating(users))
    }

    /// G2, in its order: a drain to cancel, a spawn to wait for, `max`; then the pause of G4.
    fn make_room(self, need: Need) -> Growth {
        if let Some(drained) = self.cancellable() {
            let hindrance = Hindrance::DrainCancelled(Arc::clone(&drained.name));
            let why = Why::Hindered(need, hindrance);
            return Growth::new(0, vec![drained.birth], Reason::DrainCancelled, why);
        }
        let mut in_flight = self.group.in_flight(self.policy.spawn_timeout, self.now);
        if let Some(spawn) = in_flight.next() {
            let why = Why::Hindered(need, Hindrance::InFlight(Arc::clone(&spawn.name)));
            return Growth::new(0, vec![], Reason::SpawnInFlight, why);
        }
        self.spawn(1, Reason::CannotPlace, need)
    }

    /// The emptiest compaction drain, unless the group would have too many workers with it: C8 would drain it again, for ever.
    fn cancellable(self) -> Option<&'a WorkerView> {
        let drained = self.group.compacting().next()?;
        let with_it = self.group.placeable_count() + 1;
        let outdated = self.group.outdated_count() + usize::from(drained.outdated);
        (!compaction::is_too_many(self.policy, outdated, with_it)).then_some(drained)
    }

    /// G5: as many drains are cancelled as workers are missing, the emptiest first, before anybody is spawned.
    fn replace(self, wanted: usize, reason: Reason, need: Need) -> Growth {
        let drained = self.group.compacting().take(wanted);
        let cancel: Vec<Birth> = drained.map(|worker| worker.birth).collect();
        match wanted - cancel.len() {
            0 => Growth::new(0, cancel, reason, Why::Need(need)),
            wanted => Growth {
                cancel,
                ..self.spawn(wanted, reason, need)
            },
        }
    }

    /// The last guards: `max` with its surge (G2), then the pause after failures (G4).
    fn spawn(self, wanted: usize, reason: Reason, need: Need) -> Growth {
        match allowed(self.group, self.policy, self.spawns, wanted, self.now) {
            Ok(allowed) => Growth::new(allowed, vec![], reason, Why::Need(need)),
            Err(hindrance) => {
                let reason = match hindrance {
                    Hindrance::BackingOff { fault, .. } => Reason::BackingOff(fault),
                    _ => Reason::MaxWorkers,
                };
                Growth::new(0, vec![], reason, Why::Hindered(need, hindrance))
            }
        }
    }
}
