//! A day of arrivals against a group's thresholds, in seconds instead of a day: by the engine's own decisions, by a plain CPU
//! autoscaler, and at the least that could have done. Pure and seeded; reads no file and no clock.
//!
//! `trace` reads the day, `crowd` makes its people, `pool`, `rival` and `optimum` serve the same people, `outcome` holds the
//! figures and `chart` draws them.
//!
//! Assumed: a user's need is CPU and nothing else; it comes in active phases of 30 s on average with idle ones between; users
//! differ (lognormal, deviation of the logarithm 0.5); a worker that is asked for more than it has does not delay anybody's leaving;
//! guests cost nothing; no worker dies, no report is lost, no move fails.

mod agenda;
mod autoscaler;
mod chart;
mod crowd;
mod curve;
mod meter;
mod optimum;
mod outcome;
mod pool;
mod random;
mod rival;
mod trace;

pub use chart::{WIDTH, chart};
pub use outcome::{Assumed, DayFigures, Figures, Minutes, OptimumFigures, Outcome};
pub use trace::{HEADER, LARGEST, LONGEST_LINE, Row, Trace, TraceError};

use std::time::Duration;

use crate::thresholds::Policy;

/// What a simulation assumes beside the group's policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Of the random numbers; the same seed gives the same outcome [1].
    pub seed: u64,
    /// From the order of a worker to the routable worker, and to a ready pod of the autoscaler [20 s].
    pub spawn: Duration,
    /// From the choice of a user to the switch of his move [0.2 s].
    pub move_time: Duration,
    /// Moves of one drain at a time, at least 1 [8].
    pub parallelism: usize,
    /// Part of his stay in which a user is active, above 0 and at most 1 [0.4].
    pub active: f64,
    /// CPU utilisation that the autoscaler aims at, above 0 [0.7].
    pub autoscaler_target: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            spawn: Duration::from_secs(20),
            move_time: Duration::from_millis(200),
            parallelism: 8,
            active: 0.4,
            autoscaler_target: 0.7,
        }
    }
}

/// Serves the trace's day three ways.
pub fn simulate(trace: &Trace, policy: &Policy, settings: &Settings) -> Outcome {
    let end = trace.span();
    let users = crowd::crowd(trace, settings);
    let optimum = optimum::optimum(&users, policy, settings, end);
    let pool = pool::serve(&users, policy, settings, end);
    let rival = rival::serve(&users, policy, settings, end);
    Outcome::new(trace, policy, settings, optimum, pool, rival)
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Settings, Trace, chart, simulate};
    use crate::thresholds::Policy;

    fn trace() -> Trace {
        let rows = "09:00,60,600,3\n09:15,150,600,3\n09:30,40,300,3\n09:45,0,300,3\n";
        Trace::parse(format!("{HEADER}\n{rows}").as_bytes()).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_one_another_day() {
        let bytes = |seed| {
            let settings = Settings {
                seed,
                ..Settings::default()
            };
            let outcome = simulate(&trace(), &Policy::default(), &settings);
            (serde_json::to_string(&outcome).unwrap(), chart(&outcome))
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }

    #[test]
    fn both_ways_serve_the_same_users() {
        let outcome = simulate(&trace(), &Policy::default(), &Settings::default());
        assert_eq!(
            outcome.autoscaler.logins,
            outcome.pool.logins + outcome.autoscaler.killed
        );
        assert_eq!((outcome.pool.killed, outcome.autoscaler.moves), (0, 0));
        let rest = outcome.minutes.users.last().copied().unwrap_or_default();
        assert!((outcome.day.users_at_end as f64 - rest).abs() < 5.0);
        assert!(outcome.optimum.worker_hours <= outcome.pool.worker_hours);
    }

    #[test]
    fn a_day_on_which_nobody_comes_needs_the_reception_alone() {
        let trace = Trace::parse(format!("{HEADER}\n00:00,0,60,1\n12:00,0,60,1\n").as_bytes()).unwrap();
        let outcome = simulate(&trace, &Policy::default(), &Settings::default());
        assert_eq!(outcome.pool.logins, 0);
        for hours in [
            outcome.pool.worker_hours,
            outcome.autoscaler.worker_hours,
            outcome.optimum.worker_hours,
        ] {
            assert!((hours - 24.0).abs() < 1e-9, "{hours}");
        }
        assert!(chart(&outcome).lines().all(|line| line.chars().count() <= 100));
    }
}
