//! `elastic-pool simulate`: a day of arrivals against a group's thresholds, as a text chart or JSON; the arithmetic is the engine's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use elastic_pool_engine::Policy;
use elastic_pool_engine::simulate::{LARGEST, Settings, Trace, TraceError, chart, simulate};
use kube::ResourceExt as _;
use thiserror::Error;

use crate::api::PoolGroup;
use crate::api::manifest::{self, ManifestError};
use crate::api::measures::FieldError;
use crate::api::resolve;
use crate::commander;

/// Arguments of the subcommand.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The day: CSV with the header time,logins,mean_stay_seconds,cost_percent
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Manifest with the PoolGroup whose thresholds, min, max and moves count
    #[arg(long, value_name = "FILE")]
    pub group: PathBuf,
    /// Which PoolGroup of the manifest, where it holds several
    #[arg(long)]
    pub name: Option<String>,
    /// How to answer
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Of the random numbers: the same seed gives the same answer
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds from the order of a worker until it is routable, for both the pool and the autoscaler
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = within::<0, 3600>)]
    pub spawn_seconds: f64,
    /// Seconds that the move of one user takes
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = within::<0, 60>)]
    pub move_seconds: f64,
    /// Percent of his stay in which a user is active; his cost falls into that part
    #[arg(long, value_name = "PERCENT", default_value_t = 40.0, value_parser = within::<1, 100>)]
    pub active_percent: f64,
    /// CPU utilisation, in percent of a worker, that the autoscaler aims at
    #[arg(long, value_name = "PERCENT", default_value_t = 70.0, value_parser = within::<1, 100>)]
    pub autoscaler_target_percent: f64,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Charts of at most 100 columns and a table.
    Text,
    /// One JSON object with all figures, minute by minute too.
    Json,
}

/// Why nothing was simulated.
#[derive(Debug, Error)]
pub enum Error {
    /// A file could not be opened or read.
    #[error("{origin}: cannot read: {source}")]
    Read {
        /// Name of the file.
        origin: String,
        /// What the system says.
        source: io::Error,
    },
    /// The trace cannot be used.
    #[error("{origin}:{source}")]
    Trace {
        /// Name of the file.
        origin: String,
        /// Line, what is wrong and what would be right.
        source: TraceError,
    },
    /// The manifest cannot be used.
    #[error("{origin}: {source}")]
    Manifest {
        /// Name of the file.
        origin: String,
        /// What is wrong.
        source: Box<ManifestError>,
    },
    /// A field of the group cannot be used.
    #[error("{origin}: PoolGroup {name}: {source}")]
    Group {
        /// Name of the file.
        origin: String,
        /// Name of the group.
        name: String,
        /// The field, its value and what would be right.
        source: Box<FieldError>,
    },
    /// The manifest does not say which group.
    #[error("{origin}: {found}, {remedy}")]
    Choice {
        /// Name of the file.
        origin: String,
        /// What it holds.
        found: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// The answer could not be written.
    #[error("cannot write the answer: {0}")]
    Write(#[from] io::Error),
}

/// Simulates and writes the answer.
pub fn run(args: &Args, out: &mut impl Write) -> Result<(), Error> {
    let trace = trace(&args.trace)?;
    let (policy, parallelism) = policy(&args.group, args.name.as_deref())?;
    let settings = Settings {
        seed: args.seed,
        spawn: Duration::from_secs_f64(args.spawn_seconds),
        move_time: Duration::from_secs_f64(args.move_seconds),
        parallelism,
        active: args.active_percent / 100.0,
        autoscaler_target: args.autoscaler_target_percent / 100.0,
    };
    let outcome = simulate(&trace, &policy, &settings);
    match args.output {
        Output::Text => out.write_all(chart(&outcome).as_bytes())?,
        Output::Json => {
            serde_json::to_writer(&mut *out, &outcome).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}

/// The whole subcommand: 0 when it answered, 2 for malformed input.
pub fn main(args: &Args) -> ExitCode {
    match run(args, &mut io::BufWriter::new(io::stdout().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}

fn trace(path: &Path) -> Result<Trace, Error> {
    Trace::parse(&read(path, LARGEST)?).map_err(|source| Error::Trace {
        origin: path.display().to_string(),
        source,
    })
}

/// The first `most` bytes of a file.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|file| file.take(most as u64).read_to_end(&mut bytes));
    match file {
        Ok(_) => Ok(bytes),
        Err(source) => Err(Error::Read {
            origin: path.display().to_string(),
            source,
        }),
    }
}

/// A manifest larger than this is none: 4 MiB.
const LARGEST_MANIFEST: usize = 4 << 20;

/// The engine's policy of the group as the commander would have it, and its moves at a time.
fn policy(path: &Path, name: Option<&str>) -> Result<(Policy, usize), Error> {
    let origin = path.display().to_string();
    let text = String::from_utf8(read(path, LARGEST_MANIFEST)?).map_err(|_| Error::Choice {
        origin: origin.clone(),
        found: "no UTF-8".to_owned(),
        remedy: "write the manifest as YAML",
    })?;
    let manifests = manifest::read(&text).map_err(|source| Error::Manifest {
        origin: origin.clone(),
        source: Box::new(source),
    })?;
    let group = choose(&origin, &manifests.groups, name)?;
    let spec = resolve::group_spec(group, true).map_err(|source| Error::Group {
        origin,
        name: group.name_any(),
        source: Box::new(source),
    })?;
    Ok((
        commander::policy(&spec, spec.live_moves),
        spec.parallelism as usize,
    ))
}

fn choose<'a>(origin: &str, groups: &'a [PoolGroup], name: Option<&str>) -> Result<&'a PoolGroup, Error> {
    let wrong = |found, remedy| Error::Choice {
        origin: origin.to_owned(),
        found,
        remedy,
    };
    let names = || {
        groups
            .iter()
            .map(PoolGroup::name_any)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (groups, name) {
        ([], _) => Err(wrong(
            "no PoolGroup".to_owned(),
            "write one: its thresholds are what counts",
        )),
        ([group], None) => Ok(group),
        (_, Some(name)) => groups
            .iter()
            .find(|group| group.name_any() == name)
            .ok_or_else(|| {
                wrong(
                    format!("no PoolGroup {name}"),
                    "name one that is there with --name",
                )
            }),
        (_, None) => Err(wrong(
            format!("several PoolGroups: {}", names()),
            "choose one with --name",
        )),
    }
}

/// Reads an option's number.
fn within<const LEAST: u32, const MOST: u32>(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (f64::from(LEAST)..=f64::from(MOST)).contains(&value) => Ok(value),
        _ => Err(format!("must be a number from {LEAST} to {MOST}")),
    }
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
