//! What a simulated day came to, as figures; it prints nothing.

use serde::Serialize;

use super::curve::Means;
use super::meter::Overload;
use super::optimum::Optimum;
use super::trace::{Clock, Trace};
use super::{Settings, pool, rival};
use crate::thresholds::Policy;

/// A day served three ways.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The day.
    pub day: DayFigures,
    /// The group's thresholds, and what else was assumed.
    pub assumed: Assumed,
    /// By the elastic pool.
    pub pool: Figures,
    /// By sticky sessions and a CPU autoscaler.
    pub autoscaler: Figures,
    /// The least that could have done.
    pub optimum: OptimumFigures,
    /// Minute by minute.
    pub minutes: Minutes,
}

/// The day as it came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DayFigures {
    /// Time of day of the first minute.
    pub start: String,
    /// Length.
    pub hours: f64,
    /// Users who came; each logs in once.
    pub users: usize,
    /// Users still present at the end.
    pub users_at_end: usize,
    /// Most users at a time.
    pub most_users: f64,
    /// Time that users spent.
    pub user_hours: f64,
    /// What they needed, in hours of a full worker.
    pub load_hours: f64,
}

/// What the simulation stood on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumed {
    /// Of the random numbers.
    pub seed: u64,
    /// From the order of a worker to the routable worker.
    pub spawn_seconds: f64,
    /// From the choice of a user to the switch.
    pub move_seconds: f64,
    /// Moves at a time.
    pub parallelism: usize,
    /// Part of his stay in which a user is active.
    pub active_percent: f64,
    /// CPU utilisation that the autoscaler aims at.
    pub autoscaler_target_percent: f64,
    /// Reception threshold.
    pub reception_percent: f64,
    /// Admission threshold.
    pub admission_percent: f64,
    /// Fewest workers.
    pub min: usize,
    /// Most workers; absent: unbounded.
    pub max: Option<usize>,
}

/// What one way of serving the day came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// From the order of each worker until it was told to go.
    pub worker_hours: f64,
    /// The same as a part of the optimum's.
    pub worker_hours_vs_optimum: f64,
    /// Most workers at a time.
    pub most_workers: f64,
    /// Load over worker-hours.
    pub mean_occupancy: f64,
    /// Logins, those after a kill included.
    pub logins: usize,
    /// Logins that went to a worker whose smoothed occupancy (E2) was not below the admission threshold.
    pub placed_above_admission: usize,
    /// The same, of all logins.
    pub placed_above_admission_percent: f64,
    /// User-hours spent on workers above the admission threshold, in the reports' intervals.
    pub user_hours_above_admission: f64,
    /// User-hours spent on workers that were asked for more than they have: everybody there waits.
    pub user_hours_above_capacity: f64,
    /// Users moved by compaction.
    pub moves: usize,
    /// Logins that the reception passed on, each a move.
    pub passed: usize,
    /// Sessions that died with their pod.
    pub killed: usize,
}

/// The least that could have done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimumFigures {
    /// Per minute the fewest workers, added up.
    pub worker_hours: f64,
    /// Most workers at a time.
    pub most_workers: usize,
    /// Load over worker-hours.
    pub mean_occupancy: f64,
    /// Minutes for which even `max` workers were too few.
    pub short_minutes: usize,
}

/// One entry a minute.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Minutes {
    /// Users present.
    pub users: Vec<f64>,
    /// What they needed, in workers.
    pub load: Vec<f64>,
    /// The elastic pool's workers.
    pub pool_workers: Vec<f64>,
    /// Load over the elastic pool's workers.
    pub pool_occupancy: Vec<f64>,
    /// Moves, those of passed logins included.
    pub pool_moves: Vec<u32>,
    /// The autoscaler's pods.
    pub autoscaler_workers: Vec<f64>,
    /// Load over the autoscaler's pods.
    pub autoscaler_occupancy: Vec<f64>,
    /// Sessions killed.
    pub autoscaler_killed: Vec<u32>,
    /// The fewest workers.
    pub optimum_workers: Vec<usize>,
}

impl Outcome {
    pub(super) fn new(
        trace: &Trace,
        policy: &Policy,
        settings: &Settings,
        optimum: Optimum,
        pool: pool::Served,
        rival: rival::Served,
    ) -> Self {
        let least = least_hours(&optimum, trace);
        let load = optimum.load.hours;
        let by_pool = Served {
            workers: &pool.workers,
            logins: pool.logins,
            placed_above: pool.placed_above,
            overload: pool.overload,
        };
        let by_rival = Served {
            workers: &rival.pods,
            logins: rival.logins,
            placed_above: rival.placed_above,
            overload: rival.overload,
        };
        Self {
            day: DayFigures {
                start: Clock(trace.start).to_string(),
                hours: round(trace.span().as_secs_f64() / 3600.0),
                users: pool.logins,
                users_at_end: pool.users_at_end,
                most_users: optimum.users.highest,
                user_hours: round(optimum.users.hours),
                load_hours: round(load),
            },
            assumed: Assumed::new(policy, settings),
            pool: Figures {
                moves: pool.moves,
                passed: pool.passed,
                ..by_pool.figures(load, least)
            },
            autoscaler: Figures {
                killed: rival.killed,
                ..by_rival.figures(load, least)
            },
            optimum: OptimumFigures {
                worker_hours: round(least),
                most_workers: optimum.workers.iter().copied().max().unwrap_or_default(),
                mean_occupancy: round(ratio(load, least)),
                short_minutes: optimum.short_minutes,
            },
            minutes: Minutes::new(optimum, pool, rival),
        }
    }
}

/// What both ways of serving a day count.
struct Served<'a> {
    workers: &'a Means,
    logins: usize,
    placed_above: usize,
    overload: Overload,
}

impl Served<'_> {
    /// The figures, given the hours of load and the fewest worker-hours.
    fn figures(&self, load: f64, least: f64) -> Figures {
        let hours = self.workers.hours;
        Figures {
            worker_hours: round(hours),
            worker_hours_vs_optimum: round(ratio(hours, least)),
            most_workers: self.workers.highest,
            mean_occupancy: round(ratio(load, hours)),
            logins: self.logins,
            placed_above_admission: self.placed_above,
            placed_above_admission_percent: round(
                ratio(self.placed_above as f64, self.logins as f64) * 100.0,
            ),
            user_hours_above_admission: round(self.overload.above_admission),
            user_hours_above_capacity: round(self.overload.above_capacity),
            moves: 0,
            passed: 0,
            killed: 0,
        }
    }
}

/// The last minute may be short.
fn least_hours(optimum: &Optimum, trace: &Trace) -> f64 {
    let mut left = trace.span().as_secs_f64();
    let mut hours = 0.0;
    for workers in &optimum.workers {
        hours += *workers as f64 * left.min(60.0) / 3600.0;
        left -= 60.0;
    }
    hours
}

impl Assumed {
    fn new(policy: &Policy, settings: &Settings) -> Self {
        Self {
            seed: settings.seed,
            spawn_seconds: settings.spawn.as_secs_f64(),
            move_seconds: settings.move_time.as_secs_f64(),
            parallelism: settings.parallelism,
            active_percent: round(settings.active * 100.0),
            autoscaler_target_percent: round(settings.autoscaler_target * 100.0),
            reception_percent: round(policy.reception.as_f64() * 100.0),
            admission_percent: round(policy.admission.as_f64() * 100.0),
            min: policy.min,
            max: policy.max,
        }
    }
}

impl Minutes {
    fn new(optimum: Optimum, pool: pool::Served, rival: rival::Served) -> Self {
        let rounded = |values: &[f64]| values.iter().copied().map(round).collect::<Vec<f64>>();
        let over = |workers: &[f64]| {
            let pairs = optimum.load.minutes.iter().zip(workers);
            pairs
                .map(|(load, workers)| round(ratio(*load, *workers)))
                .collect()
        };
        Self {
            users: rounded(&optimum.users.minutes),
            load: rounded(&optimum.load.minutes),
            pool_workers: rounded(&pool.workers.minutes),
            pool_occupancy: over(&pool.workers.minutes),
            pool_moves: pool.moves_per_minute,
            autoscaler_workers: rounded(&rival.pods.minutes),
            autoscaler_occupancy: over(&rival.pods.minutes),
            autoscaler_killed: rival.killed_per_minute,
            optimum_workers: optimum.workers,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Four decimals: enough for people, and the same on every machine.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
