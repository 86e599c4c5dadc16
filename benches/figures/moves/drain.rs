//! How soon a worker with 300 users of 100 KiB is empty, eight moves at a time, from the word that it must go.

use std::path::Path;
use std::time::Duration;

use elastic_pool::clock::Clock;

use super::user::User;
use super::{Counted, empty, on_two_workers, ready};
use crate::figure;
use crate::stats::{Histogram, percentile};
use crate::vehicle::Vehicle;

const USERS: usize = 300;
const BALLAST: usize = 100 << 10;
const ROUNDS: usize = 5;
/// No further round begins after this.
const TIME: Duration = Duration::from_secs(40);

/// Prints the figure; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    on_two_workers(binary, with).await
}

async fn with(vehicle: &Vehicle) -> anyhow::Result<Histogram> {
    for number in 0..USERS {
        User::new(vehicle.gateway()?, format!("user-{number:03}"), BALLAST).await?;
    }
    let before = vehicle.metrics().await?;
    let (clock, mut times) = (Clock::start(), Vec::new());
    while times.len() < ROUNDS && clock.now() < TIME {
        let home = ready(vehicle).await?;
        times.push(empty(vehicle, &home).await?.as_secs_f64());
    }
    let after = vehicle.metrics().await?;
    let counted = Counted::between(&before, &after);
    eprintln!(
        "drain: {} moves, {} failed, seconds of each drain {times:.2?}; mean ms in each step of the operator: {}",
        counted.moves, counted.failed, counted.steps
    );
    anyhow::ensure!(counted.failed + counted.lost < 1.0, "moves failed");
    figure(
        "drain_300_users_s",
        percentile(&mut times, 50).unwrap_or_default(),
        "s",
    );
    let name = "elastic_pool_decision_latency_seconds";
    Ok(Histogram::read(&after, name, ""))
}
