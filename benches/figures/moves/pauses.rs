//! The pause of a moved user: from send to first byte of a request that was held, less the median of the requests that were not.
//!
//! The gateway says in each answer whether its request was held. Rounds of two kinds take turns. Idle: nobody asks for anything
//! but the user who is about to move, until he has moved. Busy: every user asks 20 times a second all the time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::clock::Clock;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use super::user::{Seen, Stage, User};
use super::{Counted, empty, ready};
use crate::figure;
use crate::stats::{Histogram, percentile};
use crate::vehicle::Vehicle;

/// 20 requests a second.
const BEAT: Duration = Duration::from_millis(50);
/// An idle user who is not moving yet asks again after this.
const PROBE: Duration = Duration::from_millis(2);
/// Users who are asked for at once in an idle round: as many as move at once.
const PROBES: usize = 8;
/// No further pair of rounds begins after this.
const TIME: Duration = Duration::from_secs(38);
const MOST_ROUNDS: usize = 24;

/// Prints the figures of the three package sizes; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    let mut decisions = Histogram::default();
    // The package is the ballast and a little more, and 16 MiB the most that may travel.
    for (label, ballast, users) in [
        ("1kib", 1 << 10, 48),
        ("1mib", 1 << 20, 48),
        ("16mib", (16 << 20) - 4096, 8),
    ] {
        let vehicle = Vehicle::start(binary, 2, "1s").await?;
        let result = size(&vehicle, label, ballast, users).await;
        vehicle.end().await;
        decisions = decisions.and(result?);
    }
    Ok(decisions)
}

async fn size(vehicle: &Vehicle, label: &str, ballast: usize, users: usize) -> anyhow::Result<Histogram> {
    let gateway = vehicle.gateway()?;
    let mut crowd = Vec::new();
    for number in 0..users {
        crowd.push(User::new(gateway, format!("user-{number:03}"), ballast).await?);
    }
    let clock = Clock::start();
    let (mut idle, mut busy) = (Round::default(), Round::default());
    let before = vehicle.metrics().await?;
    for _ in 0..MOST_ROUNDS {
        if clock.now() > TIME {
            break;
        }
        crowd = idle_round(vehicle, crowd).await?;
        idle.take(&mut crowd);
        crowd = busy_round(vehicle, crowd).await?;
        busy.take(&mut crowd);
    }
    let after = vehicle.metrics().await?;
    let counted = Counted::between(&before, &after);
    idle.print(label, "idle", "");
    busy.print(label, "at 20 requests/s", "_busy");
    for percent in [50.0, 99.0] {
        if let Some(time) = counted.flags.percentile_ms(percent) {
            figure(&format!("move_flag_to_release_p{percent}_ms_{label}"), time, "ms");
        }
    }
    eprintln!(
        "pauses {label}: {} moves, {} failed; mean ms in each step of the operator: {}",
        counted.moves, counted.failed, counted.steps
    );
    anyhow::ensure!(counted.failed + counted.lost < 1.0, "moves failed");
    let name = "elastic_pool_decision_latency_seconds";
    Ok(Histogram::read(&after, name, ""))
}

/// What was seen in the rounds of one kind.
#[derive(Default)]
struct Round {
    seen: Seen,
    number: usize,
}

impl Round {
    fn take(&mut self, crowd: &mut [User]) {
        let mut others: Vec<f64> = crowd
            .iter()
            .flat_map(|user| user.seen.others[0].clone())
            .collect();
        let ordinary = percentile(&mut others, 50).unwrap_or_default();
        for user in crowd {
            self.seen = std::mem::take(&mut self.seen).and(user.take_seen(ordinary));
        }
        self.number += 1;
    }

    fn print(&mut self, label: &str, kind: &str, suffix: &str) {
        let Seen { pauses, others, .. } = &mut self.seen;
        eprintln!(
            "pauses {label}, {kind}: {} rounds, {} held requests, p25 {:.2} ms, p75 {:.2} ms; {} others, p50 {:.2} ms, p99 {:.2} ms",
            self.number,
            pauses.len(),
            percentile(pauses, 25).unwrap_or_default(),
            percentile(pauses, 75).unwrap_or_default(),
            others[0].len(),
            percentile(&mut others[0], 50).unwrap_or_default(),
            percentile(&mut others[0], 99).unwrap_or_default(),
        );
        for percent in [50, 99] {
            if let Some(pause) = percentile(pauses, percent) {
                figure(&format!("move_pause_p{percent}_ms_{label}{suffix}"), pause, "ms");
            }
        }
        if self.seen.errors + self.seen.lost + self.seen.double > 0 {
            eprintln!(
                "pauses {label}, {kind}: {:?}",
                (self.seen.errors, self.seen.lost, self.seen.double)
            );
        }
    }
}

/// Nobody asks but those whose turn to move it is.
async fn idle_round(vehicle: &Vehicle, crowd: Vec<User>) -> anyhow::Result<Vec<User>> {
    let home = ready(vehicle).await?;
    let mut queues: Vec<Vec<User>> = (0..PROBES).map(|_| Vec::new()).collect();
    // Idle users move in the order of their names.
    for (number, user) in crowd.into_iter().enumerate() {
        queues[number % PROBES].push(user);
    }
    let stop = CancellationToken::new();
    let probes = queues
        .into_iter()
        .map(|queue| tokio::spawn(probe(queue, home.clone(), stop.clone())));
    let probes: Vec<_> = probes.collect();
    let emptied = empty(vehicle, &home).await;
    stop.cancel();
    let queues = try_join_all(probes).await?;
    emptied?;
    let mut crowd: Vec<User> = queues.into_iter().flatten().collect();
    crowd.sort_by(|one, two| one.name().cmp(two.name()));
    Ok(crowd)
}

/// One user after the other asks until he has moved.
async fn probe(mut users: Vec<User>, home: String, stop: CancellationToken) -> Vec<User> {
    let stage = Stage::default();
    for user in &mut users {
        while !stop.is_cancelled() {
            user.ask(&stage).await;
            if user.worker != home {
                break;
            }
            tokio::time::sleep(PROBE).await;
        }
    }
    users
}

/// Everybody asks at his beat while all move.
async fn busy_round(vehicle: &Vehicle, crowd: Vec<User>) -> anyhow::Result<Vec<User>> {
    let home = ready(vehicle).await?;
    let (stop, stage) = (CancellationToken::new(), Arc::new(Stage::default()));
    let users = u32::try_from(crowd.len())?;
    let work = (0_u32..).zip(crowd).map(|(number, user)| {
        let begin = BEAT * number / users;
        tokio::spawn(user.work(BEAT, begin, Arc::clone(&stage), stop.clone()))
    });
    let work: Vec<_> = work.collect();
    // So that the operator has seen who is at work before it chooses an order.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let emptied = empty(vehicle, &home).await;
    stop.cancel();
    let crowd = try_join_all(work).await?;
    emptied?;
    Ok(crowd)
}
