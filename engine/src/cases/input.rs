//! The scene of a case: its workers as the engine's values; asks nothing of the engine.

use std::collections::BTreeSet;
use std::time::Duration;

use super::rows;
use super::thresholds::{self, policy};
use super::users::Users;
use crate::field::{Field, FieldError};
use crate::group::{Drain, DrainKind, DrainProgress, Group, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::occupancy::Reading;
use crate::share::Share;
use crate::thresholds::Policy;
use crate::window::Window;

/// The moment at which a case is asked; rows and routable times lie before it.
pub(super) const NOW: Duration = Duration::from_secs(1 << 40);

/// Everything a question may be about.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) policy: Policy,
    pub(super) cast: Cast,
    /// `then.workers_after_moves`.
    pub(super) after: Option<Cast>,
    /// Paths of fields that nothing is known of: read by nobody, and said so in the answer.
    pub(super) ignored: Vec<String>,
}

/// The workers of a case, and the living ones as a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Cast {
    pub(super) workers: Vec<Actor>,
    pub(super) group: Group,
    /// Open requests that the case gives beside the workers; of users whom no worker names too.
    open: Users,
}

/// One worker of a case.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) birth: Birth,
    pub(super) name: String,
    pub(super) users: Users,
    pub(super) window: Window,
    /// Rows of the case, also those that the window does not keep (M4).
    pub(super) rows_given: usize,
    pub(super) occupancy: Share,
    /// Names of readings that were refused (M2).
    pub(super) rejected: Vec<&'static str>,
}

const INPUT: [&str; 6] = ["thresholds", "workers", "open_requests", "event", "now", "then"];
const EVENT: [&str; 8] = [
    "type",
    "user",
    "guest",
    "currently_on",
    "arriving_on",
    "worker",
    "open_requests",
    "note",
];
const WORKER: [&str; 12] = [
    "name",
    "state",
    "reception",
    "users",
    "occupancy",
    "rows",
    "open_requests",
    "routable_for_s",
    "stale",
    "transit",
    "passed_over",
    "outdated",
];

impl Scene {
    pub(super) fn read(input: &Field<'_>) -> Result<Self, FieldError> {
        input.object()?;
        let thresholds = input.get("thresholds");
        let policy = policy(&thresholds)?;
        let now = input.get("now").number(0.0, f64::MAX)?;
        let clock = Clock {
            now,
            interval: policy.interval.as_secs_f64(),
        };
        let (workers, then) = (input.get("workers"), input.get("then"));
        let open = [
            input.get("open_requests"),
            input.get("event").get("open_requests"),
        ];
        let cast = Cast::read(&workers, &open, &policy, clock)?;
        let after = then.get("workers_after_moves");
        let after = match after.optional() {
            Some(workers) => Some(Cast::read(workers, &[then.get("open_requests")], &policy, clock)?),
            None => None,
        };
        let mut ignored = input.others(&INPUT);
        ignored.extend(thresholds.others(&thresholds::FIELDS));
        ignored.extend(input.get("event").others(&EVENT));
        for worker in workers.items()? {
            ignored.extend(worker.others(&WORKER));
        }
        Ok(Self {
            policy,
            cast,
            after,
            ignored,
        })
    }
}

impl Cast {
    fn read(
        workers: &Field<'_>,
        open: &[Field<'_>],
        policy: &Policy,
        clock: Clock,
    ) -> Result<Self, FieldError> {
        let mut cast = Self::default();
        for open in open {
            cast.open.add_open_requests(open)?;
        }
        let mut names = BTreeSet::new();
        for (worker, birth) in workers.items()?.iter().zip(1..) {
            let (actor, state) = actor(worker, policy, Birth(birth))?;
            if !names.insert(actor.name.clone()) {
                return worker.get("name").wrong("a name that no other worker has");
            }
            if let Some(state) = state {
                cast.group.put(view(worker, &actor, state, policy, clock)?);
            }
            cast.workers.push(actor);
        }
        Ok(cast)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Actor> {
        self.workers.iter().find(|actor| actor.name == name)
    }

    /// Open requests of a user of `actor`.
    pub(super) fn open_requests(&self, actor: &Actor, user: &str) -> usize {
        [&actor.users, &self.open]
            .iter()
            .filter_map(|users| users.open.get(user))
            .fold(0, |sum, open| sum.saturating_add(*open))
    }

    /// The living worker on which a user lives (P1).
    pub(super) fn home_of(&self, user: &str) -> Option<&Actor> {
        let lives_on = |actor: &&Actor| actor.users.names.iter().any(|name| name == user);
        self.workers
            .iter()
            .filter(|actor| self.lives(actor))
            .find(lives_on)
    }

    /// Whether a worker can still serve those who live on it.
    pub(super) fn lives(&self, actor: &Actor) -> bool {
        self.group
            .get(actor.birth)
            .is_some_and(|worker| !matches!(worker.state, WorkerState::Nascent { .. }))
    }
}

#[derive(Clone, Copy)]
struct Clock {
    now: Option<f64>,
    interval: f64,
}

const STATES: &str = "routable, nascent, draining, evacuating, retiring, dead, quitting, quitted or aborted";

/// `None` for a worker that is gone.
fn state(field: &Field<'_>) -> Result<Option<WorkerState>, FieldError> {
    let drain = |kind| {
        Some(WorkerState::Draining(Drain {
            kind,
            since: NOW,
            progress: DrainProgress::Running,
        }))
    };
    match field.optional_text()? {
        None | Some("routable") => Ok(Some(WorkerState::Routable)),
        Some("nascent") => Ok(Some(WorkerState::Nascent { since: NOW })),
        Some("draining") => Ok(drain(DrainKind::MustGo)),
        Some("evacuating") => Ok(drain(DrainKind::Compaction)),
        Some("retiring" | "quitting") => Ok(Some(WorkerState::Retiring { must_go: false })),
        Some("dead" | "quitted" | "aborted") => Ok(None),
        Some(_) => field.wrong(STATES),
    }
}

fn actor(
    worker: &Field<'_>,
    policy: &Policy,
    birth: Birth,
) -> Result<(Actor, Option<WorkerState>), FieldError> {
    worker.object()?;
    let name = worker.get("name").text()?.to_owned();
    let mut users = Users::read(&worker.get("users"))?;
    users.add_open_requests(&worker.get("open_requests"))?;
    let rows = worker.get("rows");
    let (window, rejected) = rows::window(&rows, policy)?;
    let reading = Reading::of(&window, policy.smoothing_rows, &policy.limits);
    let actor = Actor {
        birth,
        name,
        users,
        window,
        rows_given: rows.items()?.len(),
        occupancy: measured(worker)?.unwrap_or(reading.occupancy),
        rejected,
    };
    Ok((actor, state(&worker.get("state"))?))
}

fn measured(worker: &Field<'_>) -> Result<Option<Share>, FieldError> {
    Ok(worker
        .get("occupancy")
        .number(0.0, 1.0)?
        .and_then(Share::from_f64))
}

fn view(
    worker: &Field<'_>,
    actor: &Actor,
    state: WorkerState,
    policy: &Policy,
    clock: Clock,
) -> Result<WorkerView, FieldError> {
    let reading = Reading::of(&actor.window, policy.smoothing_rows, &policy.limits);
    let rows = actor.window.rows().len();
    let window = policy.smoothing_window();
    // Without the figure the worker has been routable for long and is warm.
    let routable_for = worker
        .get("routable_for_s")
        .number(0.0, 1e9)?
        .map(Duration::from_secs_f64);
    let young = routable_for.filter(|age| *age < window && rows < policy.smoothing_rows);
    let unmeasured = measured(worker)?.is_none() && reading.is_unmeasured(actor.users.count > 0);
    Ok(WorkerView {
        state,
        occupancy: actor.occupancy,
        stale: worker.get("stale").flag()? || silent(worker, clock)? || unmeasured,
        warm: young.is_none(),
        room_until: young.map(|age| NOW.saturating_sub(age) + window),
        users: actor.users.count,
        transit: worker
            .get("transit")
            .number(0.0, 100.0)?
            .and_then(Share::from_f64)
            .unwrap_or_default(),
        passed_over_until: worker.get("passed_over").flag()?.then_some(Duration::MAX),
        outdated: worker.get("outdated").flag()?,
        ..WorkerView::new(actor.birth, &actor.name)
    })
}

/// E5: three intervals since the last row, where the case says what time it is.
fn silent(worker: &Field<'_>, clock: Clock) -> Result<bool, FieldError> {
    let last = worker.get("rows").items()?.pop();
    let last_ts = last.map(|row| row.get("ts").reading()).transpose()?.flatten();
    let silence = last_ts.zip(clock.now).map(|(last, now)| now - last);
    Ok(silence.is_some_and(|silence| silence >= 3.0 * clock.interval))
}
