//! How fast live users move and what it costs anybody: on two workers, one of which must go, again and again.
//!
//! `pauses`: what a moved user notices. `crowd`: ten thousand moves of users at work. `drain`: how soon a full worker is empty.

mod crowd;
mod drain;
mod pauses;
mod user;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use elastic_pool::clock::Clock;

use crate::stats::{Histogram, sum};
use crate::vehicle::Vehicle;

pub(crate) use crowd::measure as crowd;
pub(crate) use drain::measure as drain;
pub(crate) use pauses::measure as pauses;

/// Emptying a worker takes at most this long.
const ROUND_LIMIT: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(10);
const STEPS: [&str; 6] = [
    "holding",
    "snapshotting",
    "fetching",
    "activating",
    "assigning",
    "forgetting",
];

/// Measures on two workers of their own, which end with it.
async fn on_two_workers(
    binary: &Path,
    measure: impl AsyncFnOnce(&Vehicle) -> anyhow::Result<Histogram>,
) -> anyhow::Result<Histogram> {
    let vehicle = Vehicle::start(binary, 2, "1s").await?;
    let result = measure(&vehicle).await;
    vehicle.end().await;
    result
}

/// Waits until both workers stand and says which of them everybody lives on.
async fn ready(vehicle: &Vehicle) -> anyhow::Result<String> {
    vehicle.until_ready(2).await?;
    let workers = vehicle.routable().await?;
    let fullest = workers.into_iter().max_by_key(|worker| worker.1);
    Ok(fullest.context("no worker")?.0)
}

/// Says that a worker must go and waits until nobody lives there; how long that took.
async fn empty(vehicle: &Vehicle, worker: &str) -> anyhow::Result<Duration> {
    let clock = Clock::start();
    vehicle.drain(worker).await?;
    let emptied = async {
        while vehicle.users_on(worker).await?.is_some_and(|users| users > 0) {
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok(clock.now())
    };
    tokio::time::timeout(ROUND_LIMIT, emptied)
        .await
        .context("a worker was not emptied in time")?
}

/// What the operator counted between two readings of its metrics.
struct Counted {
    moves: f64,
    failed: f64,
    lost: f64,
    flags: Histogram,
    steps: String,
}

impl Counted {
    fn between(before: &str, after: &str) -> Self {
        let grown = |name: &str, label: &str| sum(after, name, label) - sum(before, name, label);
        let of = |name: &str, step: &str| {
            Histogram::read(after, name, step).since(&Histogram::read(before, name, step))
        };
        let moves = grown("elastic_pool_moves_total", "result=\"moved\"");
        let joins = grown("elastic_pool_moves_total", "result=\"joined\"");
        let steps = STEPS.map(|step| {
            let times = of("elastic_pool_move_step_seconds", &format!("step=\"{step}\""));
            format!("{step} {:.1}", times.mean_ms())
        });
        Self {
            moves,
            failed: grown("elastic_pool_moves_total", "") - moves - joins,
            lost: grown("elastic_pool_users_lost_total", ""),
            flags: of("elastic_pool_move_pause_seconds", ""),
            steps: steps.join(", "),
        }
    }
}
