//! Ten thousand moves of users at work: what went wrong, how many a second, and what those notice who are not moving.
//!
//! Before each drain nobody moves for a while; a request counts as one of the others when it began and ended in one such time,
//! or in one drain, and was not held itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::clock::Clock;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use super::user::{BETWEEN, MOVING, QUIET, Seen, Stage, User};
use super::{Counted, empty, on_two_workers, ready};
use crate::figure;
use crate::stats::{Histogram, percentile, sum};
use crate::vehicle::Vehicle;

const USERS: usize = 300;
const BALLAST: usize = 1 << 10;
/// Each user asks twice a second.
const BEAT: Duration = Duration::from_millis(500);
const MOVES: f64 = 10_000.0;
/// No further round begins after this.
const TIME: Duration = Duration::from_secs(215);
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Prints the figures; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    on_two_workers(binary, with).await
}

async fn with(vehicle: &Vehicle) -> anyhow::Result<Histogram> {
    let (stop, stage) = (CancellationToken::new(), Arc::new(Stage::default()));
    let mut work = Vec::new();
    for number in 0..USERS {
        let user = User::new(vehicle.gateway()?, format!("user-{number:03}"), BALLAST).await?;
        let begin = BEAT * u32::try_from(number)? / u32::try_from(USERS)?;
        work.push(tokio::spawn(user.work(
            BEAT,
            begin,
            Arc::clone(&stage),
            stop.clone(),
        )));
    }
    let before = vehicle.metrics().await?;
    let rates = rounds(vehicle, &stage).await;
    stop.cancel();
    let mut seen = Seen::default();
    for mut user in try_join_all(work).await? {
        seen = seen.and(user.take_seen(0.0));
    }
    let (mut rates, after) = (rates?, vehicle.metrics().await?);
    print(&mut rates, &mut seen, &Counted::between(&before, &after));
    let name = "elastic_pool_decision_latency_seconds";
    Ok(Histogram::read(&after, name, ""))
}

/// Empties the worker where everybody is until there were enough moves; moves per second of each drain.
async fn rounds(vehicle: &Vehicle, stage: &Stage) -> anyhow::Result<Vec<f64>> {
    let (clock, mut rates) = (Clock::start(), Vec::new());
    let moved = async || {
        let page = vehicle.metrics().await?;
        anyhow::Ok(sum(&page, "elastic_pool_moves_total", "result=\"moved\""))
    };
    let first = moved().await?;
    let mut done = first;
    while done - first < MOVES && clock.now() < TIME {
        let home = ready(vehicle).await?;
        stage.enter(QUIET);
        tokio::time::sleep(QUIET_TIME).await;
        stage.enter(MOVING);
        let took = empty(vehicle, &home).await;
        stage.enter(BETWEEN);
        let before = std::mem::replace(&mut done, moved().await?);
        rates.push((done - before) / took?.as_secs_f64());
    }
    Ok(rates)
}

fn print(rates: &mut [f64], seen: &mut Seen, counted: &Counted) {
    let [_, quiet, moving] = &mut seen.others;
    let mut of = |percent| {
        let quiet = percentile(quiet, percent).unwrap_or(f64::NAN);
        (quiet, percentile(moving, percent).unwrap_or(f64::NAN))
    };
    let ((quiet50, moving50), (quiet99, moving99)) = (of(50), of(99));
    eprintln!(
        "crowd: {} moves in {} drains, {} held requests; others p50 {quiet50:.2} ms and {moving50:.2} ms, p99 {quiet99:.2} ms and {moving99:.2} ms, \
         of {} and {} requests; mean ms in each step of the operator: {}",
        counted.moves,
        rates.len(),
        seen.pauses.len(),
        seen.others[QUIET].len(),
        seen.others[MOVING].len(),
        counted.steps,
    );
    eprintln!(
        "crowd: moves per second of each drain: p25 {:.0}, p75 {:.0}",
        percentile(rates, 25).unwrap_or_default(),
        percentile(rates, 75).unwrap_or_default(),
    );
    figure("moves", counted.moves, "count");
    figure(
        "moves_per_second",
        percentile(rates, 50).unwrap_or_default(),
        "1/s",
    );
    figure("move_errors", seen.errors as f64 + counted.failed, "count");
    figure("users_lost", seen.lost as f64 + counted.lost, "count");
    figure("double_served", seen.double as f64, "count");
    figure("others_p99_ratio", moving99 / quiet99, "ratio");
}
