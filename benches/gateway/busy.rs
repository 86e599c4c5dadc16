//! Not a measurement: keeps gateway and agent at work for a profiler, as many requests at a time as it is told.
//!
//! Says the two process ids, then takes lines `128b COUNT` and `16k COUNT` from standard input and answers each with `done`.

use crate::backend::BODIES;
use crate::client::Load;
use crate::stage::Stage;
use anyhow::{Context as _, bail};

pub(crate) async fn work(stage: &Stage) -> anyhow::Result<()> {
    let path = stage.path(true).await?;
    let pids: Vec<String> = path.pids().map(|pid| pid.to_string()).collect();
    println!("pids {}", pids.join(" "));
    let mut load = Load::connect(path.address).await?;
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
        let Some(line) = line.transpose().context("read a command")? else {
            return Ok(());
        };
        let (size, count) = line.split_once(' ').context("not `SIZE COUNT`")?;
        let size = match size {
            "128b" => 0,
            "16k" => 1,
            _ => bail!("{size}: 128b or 16k"),
        };
        let count = count.parse().context("a number of requests")?;
        load.count(&stage.requests[size], BODIES[size], count).await?;
        println!("done");
    }
}
