//! Resident memory after a minute: of an agent without users, and of agent, gateway and operator with 500 users.
//!
//! The operator's stand-in is the local vehicle's process: the same commander and channel, no Kubernetes client.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;

use crate::browser::Browser;
use crate::figure;
use crate::process::memory_mib;
use crate::stats::Histogram;
use crate::vehicle::Vehicle;

const USERS: u64 = 500;
const SETTLE: Duration = Duration::from_mins(1);
/// Between two requests of a user.
const THINK: Duration = Duration::from_secs(1);

/// Prints the figures; returns the operator's decision latencies.
pub(crate) async fn measure(binary: &Path) -> anyhow::Result<Histogram> {
    let idle = Vehicle::start(binary, 1, "5s").await?;
    let used = match Vehicle::start(binary, 1, "5s").await {
        Ok(used) => used,
        Err(error) => {
            idle.end().await;
            return Err(error);
        }
    };
    let result = with(&idle, &used).await;
    idle.end().await;
    used.end().await;
    result
}

async fn with(idle: &Vehicle, used: &Vehicle) -> anyhow::Result<Histogram> {
    let mut users = JoinSet::new();
    for number in 0..USERS {
        let browser = Browser::log_in(used.gateway()?, &format!("user-{number}")).await?;
        users.spawn(live(browser));
    }
    tokio::select! {
        () = tokio::time::sleep(SETTLE) => {}
        Some(ended) = users.join_next() => ended?.context("a user's request failed")?,
    }
    let agent = |vehicle: &Vehicle| anyhow::Ok(vehicle.workers()?.first().context("no worker")?.agent_pid);
    for (name, pid) in [
        ("agent_rss_mib_idle", agent(idle)?),
        ("agent_rss_mib_500_users", agent(used)?),
        ("gateway_rss_mib_500_users", used.gateway_pid()?),
        ("operator_rss_mib", used.pid()),
    ] {
        figure(name, memory_mib(pid, "VmRSS")?, "MiB");
        let own = memory_mib(pid, "RssAnon")?;
        eprintln!(
            "memory: {name}: {own:.1} MiB of it its own, the rest pages of the program, which all parts on a node share"
        );
    }
    let page = used.metrics().await?;
    Ok(Histogram::read(
        &page,
        "elastic_pool_decision_latency_seconds",
        "",
    ))
}

async fn live(mut browser: Browser) -> anyhow::Result<()> {
    loop {
        browser.get("/work?counter=1").await?;
        tokio::time::sleep(THINK).await;
    }
}
