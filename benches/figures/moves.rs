//! The pause that a moved user sees: a worker with all users must go, they move live to the other one, many times over.
//!
//! Pause: at the client, from send to first byte of the request that met the hold, less the median of the same user's other
//! requests. A user asks again soon after each answer, so that most moves are met by a request; one that finds its user moved
//! already counts as well, with what it took. Apart from that the operator says how long it was from flag to release.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use elastic_pool::clock::Clock;
use futures::future::try_join_all;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;
use crate::figure;
use crate::stats::{Histogram, percentile};
use crate::vehicle::Vehicle;

const USERS: usize = 24;
/// Between an answer and the same user's next request.
const THINK: Duration = Duration::from_millis(5);
/// Times per package size that everybody moves.
const MOST_ROUNDS: usize = 20;
const TIME: Duration = Duration::from_secs(40);
/// Emptying a worker takes at most this long.
const ROUND_LIMIT: Duration = Duration::from_secs(20);
const STEPS: [&str; 6] = [
    "holding",
    "snapshotting",
    "fetching",
    "activating",
    "assigning",
    "forgetting",
];

/// What the users saw.
#[derive(Default)]
struct Seen {
    /// Pauses in milliseconds.
    pauses: Vec<f64>,
    /// Requests that met no move, in milliseconds.
    others: Vec<f64>,
}

/// Prints the figures of both package sizes; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    let small = measure_size(binary, 1 << 10, "1kib").await?;
    let large = measure_size(binary, 1 << 20, "1mib").await?;
    Ok(small.and(large))
}

async fn measure_size(binary: &Path, bytes: usize, label: &str) -> anyhow::Result<Histogram> {
    let vehicle = Vehicle::start(binary, 2, "1s").await?;
    let result = with(&vehicle, bytes, label).await;
    vehicle.end().await;
    result
}

async fn with(vehicle: &Vehicle, bytes: usize, label: &str) -> anyhow::Result<Histogram> {
    let (stop, seen) = (CancellationToken::new(), Arc::new(Mutex::new(Seen::default())));
    let mut users = Vec::new();
    for number in 0..USERS {
        let mut browser = Browser::log_in(vehicle.gateway()?, &format!("user-{number}")).await?;
        browser.post(&format!("/ballast?bytes={bytes}")).await?;
        users.push(tokio::spawn(live(browser, Arc::clone(&seen), stop.clone())));
    }
    let before = vehicle.metrics().await?;
    let rounds = rounds(vehicle).await;
    stop.cancel();
    for user in try_join_all(users).await? {
        user.context("a user's request failed")?;
    }
    let (rounds, after) = (rounds?, vehicle.metrics().await?);
    let of = |name: &str, step: &str| {
        Histogram::read(&after, name, step).since(&Histogram::read(&before, name, step))
    };
    let mut seen = std::mem::take(&mut *seen.lock());
    print(
        label,
        rounds,
        &mut seen,
        &of("elastic_pool_move_pause_seconds", ""),
    );
    let steps = STEPS.map(|step| {
        let times = of("elastic_pool_move_step_seconds", &format!("step=\"{step}\""));
        format!("{step} {:.1}", times.mean_ms())
    });
    eprintln!(
        "moves {label}: mean ms in each step of the operator: {}",
        steps.join(", ")
    );
    Ok(Histogram::read(
        &after,
        "elastic_pool_decision_latency_seconds",
        "",
    ))
}

fn print(label: &str, rounds: usize, seen: &mut Seen, flags: &Histogram) {
    eprintln!(
        "moves {label}: {rounds} rounds, {} moves, {} of them seen by their users; ordinary requests: p50 {:.2} ms, p99 {:.2} ms",
        flags.count(),
        seen.pauses.len(),
        percentile(&mut seen.others, 50).unwrap_or_default(),
        percentile(&mut seen.others, 99).unwrap_or_default(),
    );
    for percent in [50, 99, 100] {
        let name = if percent == 100 {
            "max".to_owned()
        } else {
            format!("p{percent}")
        };
        if let Some(pause) = percentile(&mut seen.pauses, percent) {
            figure(&format!("move_pause_{name}_ms_{label}"), pause, "ms");
        }
    }
    for percent in [50.0, 99.0] {
        if let Some(time) = flags.percentile_ms(percent) {
            figure(&format!("move_flag_to_release_p{percent}_ms_{label}"), time, "ms");
        }
    }
}

/// Empties the worker where the users are, again and again; returns how often.
async fn rounds(vehicle: &Vehicle) -> anyhow::Result<usize> {
    let clock = Clock::start();
    for round in 0..MOST_ROUNDS {
        if clock.now() > TIME {
            return Ok(round);
        }
        vehicle.until_ready(2).await?;
        let workers = vehicle.routable().await?;
        let (home, _) = workers
            .into_iter()
            .max_by_key(|worker| worker.1)
            .context("no worker")?;
        vehicle.drain(&home).await?;
        let gone = async {
            while vehicle.workers()?.iter().any(|worker| worker.name == home) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(ROUND_LIMIT, gone)
            .await
            .context("a worker was not emptied in time")??;
    }
    Ok(MOST_ROUNDS)
}

/// A user asks, waits a little and asks again.
async fn live(mut browser: Browser, seen: Arc<Mutex<Seen>>, stop: CancellationToken) -> anyhow::Result<()> {
    let (mut met, mut others) = (Vec::new(), Vec::new());
    let mut home = browser.get("/work?counter=0").await?.worker()?;
    while !stop.is_cancelled() {
        let answer = browser.get("/work?counter=1").await?;
        let worker = answer.worker()?;
        let milliseconds = answer.first_byte.as_secs_f64() * 1000.0;
        if worker == home {
            others.push(milliseconds);
        } else {
            met.push(milliseconds);
            home = worker;
        }
        tokio::time::sleep(THINK).await;
    }
    let median = percentile(&mut others, 50).context("a user without any request")?;
    let mut seen = seen.lock();
    seen.pauses
        .extend(met.iter().map(|time| (time - median).max(0.0)));
    seen.others.append(&mut others);
    Ok(())
}
