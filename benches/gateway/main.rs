//! The data path beside HAProxy, nginx and Envoy: one run, interleaved rounds, the same tiny backend, one thread each.
//!
//! `gateway BINARY [--bare BINARY] [--envoy BINARY] [PART]...` with the parts `cpu`, `latency`, `accounting`, `sockets`, `memory`; all of
//! them when none is named. Lines `figure NAME VALUE UNIT` go to standard output, how each came about to standard error. A figure whose
//! rounds differ too much (middle half wider than 10 % of the median) is printed as `not_resolved`.

mod backend;
mod busy;
mod client;
mod commander;
mod cost;
mod latency;
mod memory;
mod proxy;
mod rivals;
mod sockets;
mod stage;

#[path = "../figures/process.rs"]
mod process;
#[allow(dead_code, reason = "the histograms are read by the other measurements only")]
#[path = "../figures/stats.rs"]
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use elastic_pool::clock::Clock;

use self::stage::Stage;

const PARTS: [&str; 5] = ["cpu", "latency", "accounting", "sockets", "memory"];
/// For profilers, by name only.
const BUSY: &str = "busy";
const USAGE: &str =
    "usage: gateway BINARY [--bare BINARY] [--envoy BINARY] [cpu|latency|accounting|sockets|memory|busy]...";
/// A median is resolved when the middle half of its rounds lies within this many percent of it.
const RESOLVED: f64 = 10.0;

/// Prints one figure.
fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}

/// Prints the median of the rounds' ratios, or that they do not agree.
fn ratio(name: &str, rounds: &mut [f64]) {
    let Some((median, spread)) = stats::median_and_spread(rounds) else {
        return;
    };
    eprintln!("{name}: {median:.3}, middle half within {spread:.1} %, rounds {rounds:.3?}");
    if spread > RESOLVED {
        println!("figure {name} not_resolved ratio");
    } else {
        figure(name, median, "ratio");
    }
}

/// What the command line says.
struct Wanted {
    binary: PathBuf,
    /// The same program without dictionary, clocks and cookie check.
    bare: Option<PathBuf>,
    envoy: Option<PathBuf>,
    parts: Vec<String>,
}

fn wanted() -> anyhow::Result<Wanted> {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().context(USAGE)?);
    let (mut bare, mut envoy, mut parts) = (None, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bare" => bare = Some(PathBuf::from(arguments.next().context(USAGE)?)),
            "--envoy" => envoy = Some(PathBuf::from(arguments.next().context(USAGE)?)),
            part if PARTS.contains(&part) || part == BUSY => parts.push(argument),
            _ => bail!("{argument}: {USAGE}"),
        }
    }
    if parts.is_empty() {
        parts = PARTS.map(str::to_owned).into();
    }
    Ok(Wanted {
        binary,
        bare,
        envoy,
        parts,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let wanted = wanted()?;
    let clock = Clock::start();
    // Asked before this process confines itself to some of them.
    let cores = process::cores();
    let stage = Stage::set(&wanted.binary, cores).await?;
    let mut failed = false;
    for part in &wanted.parts {
        eprintln!("{part}: on {cores} cores, load {}", process::load());
        let began = clock.now();
        let done = match part.as_str() {
            "cpu" => cost::cpu(&stage, wanted.envoy.as_deref()).await,
            "latency" => latency::measure(&stage).await,
            "accounting" => cost::accounting(&stage, wanted.bare.as_deref()).await,
            "sockets" => sockets::measure(&stage).await,
            BUSY => busy::work(&stage).await,
            _ => memory::measure(&stage).await,
        };
        if let Err(error) = done {
            failed = true;
            eprintln!("{part}: FAILED: {error:#}");
        }
        let took = clock.now().saturating_sub(began);
        eprintln!("{part}: took {} s", took.as_secs());
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
