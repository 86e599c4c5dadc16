//! What somebody known but idle holds in a gateway, and what an agent needs while nothing happens.

use std::time::Duration;

use elastic_pool::clock::Clock;

use crate::figure;
use crate::process::{cpu_us, memory_mib};
use crate::stage::Stage;

const USERS: usize = 100_000;
/// Told at a time.
const PART: usize = 1000;
/// Longer than the slowest clockwork of an agent (it asks for users each minute).
const REST: Duration = Duration::from_secs(62);
const SETTLE: Duration = Duration::from_secs(3);

async fn users(stage: &Stage) -> anyhow::Result<()> {
    let uid = "gateway-memory";
    let gateway = stage.gateway(None, uid, stage.backend, false).await?;
    let pid = gateway.proxy.pids().next().unwrap_or_default();
    tokio::time::sleep(SETTLE).await;
    let before = memory_mib(pid, "RssAnon")?;
    for part in 0..USERS / PART {
        let some = (part * PART..(part + 1) * PART).map(|number| stage.owner(number));
        stage
            .commander
            .add_users(uid, some.collect::<anyhow::Result<_>>()?)
            .await?;
    }
    let all = format!("elastic_pool_gateway_table_users {USERS}");
    gateway
        .until("/metrics", |page| page.lines().any(|line| line == all))
        .await?;
    tokio::time::sleep(SETTLE).await;
    let bytes = (memory_mib(pid, "RssAnon")? - before) * 1024.0 * 1024.0 / USERS as f64;
    figure("idle_user_bytes", bytes, "bytes");
    Ok(())
}

async fn agent(stage: &Stage) -> anyhow::Result<()> {
    let agent = stage.agent("agent-at-rest").await?;
    let pid = agent.pids().next().unwrap_or_default();
    tokio::time::sleep(SETTLE).await;
    let (clock, used) = (Clock::start(), cpu_us(pid)?);
    tokio::time::sleep(REST).await;
    let percent = (cpu_us(pid)? - used) / 1e4 / clock.now().as_secs_f64();
    figure("agent_rss_mib", memory_mib(pid, "VmRSS")?, "MiB");
    figure("agent_cpu_percent", percent, "percent");
    let own = memory_mib(pid, "RssAnon")?;
    eprintln!("memory: of the agent's {own:.1} MiB are its own, the rest are pages of the program");
    Ok(())
}

/// Prints `idle_user_bytes`, `agent_rss_mib` and `agent_cpu_percent`.
pub(crate) async fn measure(stage: &Stage) -> anyhow::Result<()> {
    users(stage).await?;
    agent(stage).await
}
