//! The scene of a case: thresholds and workers as the engine's values; asks nothing of the engine.

use std::time::Duration;

use crate::field::{Field, FieldError};
use crate::forward::Forwards;
use crate::group::{Drain, DrainKind, DrainProgress, Group, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::occupancy::{Limits, Reading};
use crate::report::{Executor, Report};
use crate::share::Share;
use crate::thresholds::{MoveMode, Policy};
use crate::window::{Row, Window};

/// The moment at which a case is asked; rows and routable times lie before it.
pub(super) const NOW: Duration = Duration::from_secs(1 << 40);

/// Everything a question may be about.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) policy: Policy,
    pub(super) cast: Cast,
    /// `then.workers_after_moves`.
    pub(super) after: Option<Cast>,
}

/// The workers of a case, and the living ones as a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Cast {
    pub(super) workers: Vec<Actor>,
    pub(super) group: Group,
}

/// One worker of a case.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub(super) birth: Birth,
    pub(super) name: String,
    pub(super) users: Vec<String>,
    pub(super) window: Window,
    pub(super) occupancy: Share,
    /// User and open requests.
    pub(super) busy: Vec<(String, usize)>,
    /// Names of readings that were refused (M2).
    pub(super) rejected: Vec<&'static str>,
}

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
        let cast = Cast::read(&input.get("workers"), &input.get("open_requests"), &policy, clock)?;
        let after = input.get("then").get("workers_after_moves");
        let after = match after.optional() {
            Some(workers) => Some(Cast::read(
                workers,
                &input.get("then").get("open_requests"),
                &policy,
                clock,
            )?),
            None => None,
        };
        Ok(Self { policy, cast, after })
    }
}

impl Cast {
    fn read(
        workers: &Field<'_>,
        open: &Field<'_>,
        policy: &Policy,
        clock: Clock,
    ) -> Result<Self, FieldError> {
        let mut cast = Self::default();
        for (worker, birth) in workers.items()?.iter().zip(1..) {
            let (actor, state) = actor(worker, open, policy, Birth(birth))?;
            if cast.named(&actor.name).is_some() {
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

    /// The living worker on which a user lives (P1).
    pub(super) fn home_of(&self, user: &str) -> Option<&Actor> {
        let lives_on = |actor: &&Actor| actor.users.iter().any(|name| name == user);
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

fn policy(thresholds: &Field<'_>) -> Result<Policy, FieldError> {
    if let Some(thresholds) = thresholds.optional() {
        thresholds.object()?;
    }
    let defaults = Policy::default();
    let share = |name: &str, default: Share, high: f64| -> Result<Share, FieldError> {
        Ok(thresholds
            .get(name)
            .number(0.0, high)?
            .and_then(Share::from_f64)
            .unwrap_or(default))
    };
    let count = |name: &str, low, default| -> Result<usize, FieldError> {
        Ok(thresholds.get(name).count(low)?.unwrap_or(default))
    };
    let admission = share("admission_threshold", defaults.admission, 1.0)?;
    let margin_workers = share("compaction_margin_workers", Share::from_percent(150), 1000.0)?;
    let megabytes = thresholds
        .get("memory_limit_mb")
        .number(0.0, 1e12)?
        .unwrap_or_default();
    let cores = thresholds
        .get("cpu_capacity_cores")
        .number(0.0, 1e6)?
        .unwrap_or(1.0);
    let seconds = thresholds.get("interval_s").number(0.001, 1e6)?;
    let min = count("min_workers", 0, defaults.min)?;
    let max = thresholds.get("max_workers").count(0)?;
    if max.is_some_and(|max| max < min) {
        return thresholds
            .get("max_workers")
            .wrong(&format!("at least min_workers, which is {min}, or null"));
    }
    let moves = match thresholds.get("moves").optional_text()? {
        None | Some("Live") => MoveMode::Live,
        Some("Drain") => MoveMode::Drain,
        Some(_) => return thresholds.get("moves").wrong("Live or Drain"),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to about 10^18"
    )]
    let memory = (megabytes * 1_048_576.0) as u64;
    Ok(Policy {
        reception: share("reception_threshold", defaults.reception, 1.0)?,
        admission,
        margin: margin_workers.times(admission),
        smoothing_rows: count("smoothing_rows", 1, defaults.smoothing_rows)?,
        window_rows: count("metrics_window", 1, defaults.window_rows)?,
        interval: seconds.map_or(defaults.interval, Duration::from_secs_f64),
        min,
        max,
        max_surge: count("max_surge", 0, defaults.max_surge)?,
        limits: Limits {
            memory_bytes: (memory > 0).then_some(memory),
            cpu_cores: cores,
        },
        moves,
        ..defaults
    })
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
    open: &Field<'_>,
    policy: &Policy,
    birth: Birth,
) -> Result<(Actor, Option<WorkerState>), FieldError> {
    worker.object()?;
    let name = worker.get("name").text()?.to_owned();
    let users = worker
        .get("users")
        .items()?
        .iter()
        .map(|user| user.text().map(str::to_owned))
        .collect::<Result<Vec<_>, _>>()?;
    let mut busy = busy_users(open)?;
    busy.extend(busy_users(&worker.get("open_requests"))?);
    let mut rejected = Vec::new();
    let window = window(&worker.get("rows"), policy, &mut rejected)?;
    let reading = Reading::of(&window, policy.smoothing_rows, &policy.limits);
    let occupancy = measured(worker)?.unwrap_or(reading.occupancy);
    let actor = Actor {
        birth,
        name,
        users,
        window,
        occupancy,
        busy,
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

fn busy_users(field: &Field<'_>) -> Result<Vec<(String, usize)>, FieldError> {
    let Some(field) = field.optional() else {
        return Ok(Vec::new());
    };
    let users = field.object()?.keys();
    users
        .map(|user| Ok((user.clone(), field.get(user).count(0)?.unwrap_or_default())))
        .collect()
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
    let last_ts = worker
        .get("rows")
        .items()?
        .last()
        .map(|row| row.get("ts").reading())
        .transpose()?
        .flatten();
    let silent = last_ts
        .zip(clock.now)
        .is_some_and(|(last, now)| now - last >= 3.0 * clock.interval);
    let unmeasured = measured(worker)?.is_none() && reading.is_unmeasured(!actor.users.is_empty());
    Ok(WorkerView {
        state,
        occupancy: actor.occupancy,
        stale: worker.get("stale").flag()? || silent || unmeasured,
        warm: young.is_none(),
        room_until: young.map(|age| NOW.saturating_sub(age) + window),
        users: actor.users.len(),
        transit: worker
            .get("transit")
            .number(0.0, 1e6)?
            .and_then(Share::from_f64)
            .unwrap_or_default(),
        passed_over_until: worker.get("passed_over").flag()?.then_some(Duration::MAX),
        ..WorkerView::new(actor.birth, &actor.name)
    })
}

fn window(rows: &Field<'_>, policy: &Policy, rejected: &mut Vec<&'static str>) -> Result<Window, FieldError> {
    let mut window = Window::new(policy.window_rows, "");
    let mut origin = None;
    for row in rows.items()? {
        row.object()?;
        let ts = row
            .get("ts")
            .number(-1e12, 1e12)?
            .map_or_else(|| row.get("ts").wrong("a time in seconds"), Ok)?;
        let since = (ts - *origin.get_or_insert(ts)).max(0.0);
        let (report, refused) = report(&row.get("report"))?.sanitised();
        rejected.extend(refused);
        window.push(Row {
            at: Duration::from_secs_f64(since),
            report,
            forward: forward(&row.get("forward"))?,
        });
    }
    Ok(window)
}

fn report(field: &Field<'_>) -> Result<Report, FieldError> {
    if let Some(report) = field.optional() {
        report.object()?;
    }
    let (executor, backlog) = (field.get("executor"), field.get("backlog"));
    for part in [&executor, &backlog]
        .into_iter()
        .filter_map(|part| part.optional())
    {
        part.object()?;
    }
    Ok(Report {
        users: field.get("users").reading()?,
        pages: field.get("pages").reading()?,
        connections: field.get("connections").reading()?,
        active_users: field.get("active_users").reading()?,
        executor: Executor {
            busy: executor.get("busy").reading()?,
            total: executor.get("total").reading()?,
            queue_depth: executor.get("queue_depth").reading()?,
        },
        cpu: field.get("cpu").reading()?,
        rss: field.get("rss").reading()?,
        backlog_pending: backlog.get("pending").reading()?,
        backlog_outbox: backlog.get("outbox").reading()?,
        load: field.get("load").reading()?,
    })
}

fn forward(field: &Field<'_>) -> Result<Forwards, FieldError> {
    if let Some(forward) = field.optional() {
        forward.object()?;
    }
    let counter = |name: &str| -> Result<u64, FieldError> {
        let number = field
            .get(name)
            .number(0.0, 9_007_199_254_740_992.0)?
            .unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 2^53"
        )]
        Ok(number as u64)
    };
    Ok(Forwards {
        requests: counter("requests")?,
        errors: counter("errors")?,
        seconds: field.get("seconds").number(0.0, 1e15)?.unwrap_or_default(),
    })
}
