//! Measures the shipped binary on the local vehicle and prints lines `figure NAME VALUE UNIT`; how each came about goes to standard error.
//!
//! `figures BINARY PART...` with the parts `pauses`, `crowd`, `drain`, `proxy`, `memory`, `decision`. What the figures mean is said at
//! each part. Every part has its time and ends with all that it started.

mod browser;
mod decision;
mod handling;
mod memory;
mod moves;
mod process;
mod proxy;
mod stats;
mod vehicle;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use elastic_pool::clock::Clock;
use stats::Histogram;

/// A part that takes longer has failed.
const LIMIT: Duration = Duration::from_mins(4);
const PARTS: [&str; 6] = ["pauses", "crowd", "drain", "proxy", "memory", "decision"];

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context("usage: figures BINARY PART...")?);
    let parts: Vec<String> = arguments.collect();
    if let Some(unknown) = parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("part {unknown}: expected one of {}", PARTS.join(", "));
    }
    let clock = Clock::start();
    let mut decisions = Histogram::default();
    let mut failed = false;
    for part in parts {
        let began = clock.now();
        eprintln!("{part}: on {} cores, load {}", process::cores(), process::load());
        let measured = async {
            match part.as_str() {
                "pauses" => moves::pauses(&binary).await,
                "crowd" => moves::crowd(&binary).await,
                "drain" => moves::drain(&binary).await,
                "proxy" => proxy::measure(&binary).await,
                "memory" => memory::measure(&binary).await,
                _ => decision::measure().await.map(|()| Histogram::default()),
            }
        };
        let result = match tokio::time::timeout(LIMIT, measured).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("not done within {} s", LIMIT.as_secs())),
        };
        match result {
            Ok(seen) => decisions = decisions.and(seen),
            Err(error) => {
                failed = true;
                eprintln!("{part}: FAILED: {error:#}");
            }
        }
        let took = clock.now().saturating_sub(began);
        eprintln!("{part}: took {} s, load {}", took.as_secs(), process::load());
    }
    // What the operators themselves say: without the report's way to the commander.
    if let Some(p99) = decisions.percentile_ms(99.0) {
        figure("decision_handling_p99_ms", p99, "ms");
        eprintln!(
            "operators: {} reports handled, mean {:.3} ms",
            decisions.count(),
            decisions.mean_ms()
        );
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
