//! CPU time per request of the gateway and of the agent: user and system time of their processes over fixed numbers of requests.
//!
//! A thousand users, each with a connection of his own, ask for the reference app's cheapest route, 32 at a time. In turn one of
//! the two has a core for itself while client, app and the other share the rest; medians over interleaved rounds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use elastic_pool::clock::Clock;
use futures::future::try_join_all;

use crate::browser::Browser;
use crate::figure;
use crate::process::{cores, cpu_us, pin};
use crate::stats::{Histogram, median_and_spread};
use crate::vehicle::Vehicle;

const USERS: usize = 1000;
const AT_ONCE: usize = 32;
const REQUESTS: usize = 20_000;
const ROUNDS: usize = 7;
/// No further round is begun after this.
const TIME: Duration = Duration::from_mins(1);

/// A user with the request that he sends again and again.
struct User {
    browser: Browser,
    request: Vec<u8>,
}

/// Prints both figures; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    let vehicle = Vehicle::start(binary, 1, "5s").await?;
    let result = with(&vehicle).await;
    vehicle.end().await;
    result
}

async fn with(vehicle: &Vehicle) -> anyhow::Result<Histogram> {
    let gateway = vehicle.gateway_pid()?;
    let worker = vehicle.workers()?.into_iter().next().context("no worker")?;
    let others = [std::process::id(), vehicle.pid(), worker.app_pid];
    let mut users = log_in(vehicle).await?;
    // The first round warms connections and caches up.
    users = run(users, REQUESTS).await?;
    let cores = cores();
    let (rest, all) = (format!("1-{}", cores - 1), format!("0-{}", cores - 1));
    let (mut of_gateway, mut of_agent, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let clock = Clock::start();
    for _ in 0..ROUNDS {
        if clock.now() > TIME {
            break;
        }
        for (alone, other, figures) in [
            (gateway, worker.agent_pid, &mut of_gateway),
            (worker.agent_pid, gateway, &mut of_agent),
        ] {
            if cores > 1 {
                pin(alone, "0").await?;
                for pid in others.into_iter().chain([other]) {
                    pin(pid, &rest).await?;
                }
            }
            let (used, began) = (cpu_us(alone)?, clock.now());
            users = run(users, REQUESTS).await?;
            figures.push((cpu_us(alone)? - used) / REQUESTS as f64);
            rates.push(REQUESTS as f64 / clock.now().saturating_sub(began).as_secs_f64());
        }
    }
    // What comes after this part, and what this process starts then, has all cores again.
    pin(std::process::id(), &all).await?;
    for (name, figures) in [("gateway", &mut of_gateway), ("agent", &mut of_agent)] {
        let (median, spread) = median_and_spread(figures).context("no rounds")?;
        figure(&format!("{name}_cpu_us_per_request"), median, "us");
        eprintln!("proxy: {name} {median:.1} us, middle half within {spread:.1} %, rounds {figures:.1?}");
    }
    let (rate, _) = median_and_spread(&mut rates).context("no rounds")?;
    eprintln!("proxy: {rate:.0} requests per second, {USERS} users, {AT_ONCE} at a time");
    let page = vehicle.metrics().await?;
    Ok(Histogram::read(
        &page,
        "elastic_pool_decision_latency_seconds",
        "",
    ))
}

async fn log_in(vehicle: &Vehicle) -> anyhow::Result<Vec<User>> {
    let mut users = Vec::with_capacity(USERS);
    for number in 0..USERS {
        let mut browser = Browser::log_in(vehicle.gateway()?, &format!("user-{number}")).await?;
        browser.get("/work").await?;
        let request = browser.request("GET", "/healthz", "");
        users.push(User { browser, request });
    }
    Ok(users)
}

/// Sends so many requests, each user in his turn.
async fn run(users: Vec<User>, requests: usize) -> anyhow::Result<Vec<User>> {
    let left = Arc::new(AtomicUsize::new(requests));
    let mut lanes: Vec<Vec<User>> = (0..AT_ONCE).map(|_| Vec::new()).collect();
    for (at, user) in users.into_iter().enumerate() {
        lanes[at % AT_ONCE].push(user);
    }
    let lane = |mut users: Vec<User>| {
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            loop {
                for user in &mut users {
                    if left
                        .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                        .is_err()
                    {
                        return anyhow::Ok(users);
                    }
                    user.browser.exchange(&user.request).await?;
                }
            }
        })
    };
    let lanes = try_join_all(lanes.into_iter().map(lane)).await?;
    let lanes = lanes.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    Ok(lanes.into_iter().flatten().collect())
}
