//! The one binary: operator, gateway, agent, local vehicle, reference app and tools, as subcommands.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use elastic_pool::vehicle::local::{self, LocalArgs};
use elastic_pool::worker::{self, WorkerArgs};
use elastic_pool::{agent, api, decide, gateway, operator, simulate, telemetry};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Form of the log on standard error
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        env = "ELASTIC_POOL_LOG_FORMAT"
    )]
    log_format: telemetry::LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one per process")]
enum Command {
    /// Serves PoolGroups and Pools: commander and controller
    Operator(Box<operator::OperatorArgs>),
    /// The sidecar of a worker, in its request path
    Agent(agent::AgentArgs),
    /// The sticky front of a pool
    Gateway(gateway::GatewayArgs),
    /// The reference app: a small stateful web app that knows the worker contract
    Worker(WorkerArgs),
    /// Runs a manifest with processes on loopback instead of pods
    Local(LocalArgs),
    /// Prints the custom resource definitions
    Crd,
    /// Says what would happen and why: for decision cases, saved snapshots and live groups
    Decide(decide::Args),
    /// Serves a day of arrivals against a group's thresholds, beside a CPU autoscaler and the optimum
    Simulate(simulate::Args),
}

/// The agent's command line without the other subcommands': to build theirs costs memory beside every worker.
#[derive(Parser)]
#[command(
    name = "elastic-pool agent",
    about = "The sidecar of a worker, in its request path"
)]
struct Sidecar {
    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text", env = "ELASTIC_POOL_LOG_FORMAT")]
    log_format: telemetry::LogFormat,
    #[command(flatten)]
    args: agent::AgentArgs,
}

impl Cli {
    fn read() -> Self {
        if std::env::args_os().nth(1).is_none_or(|first| first != "agent") {
            return Self::parse();
        }
        let Sidecar { log_format, args } = Sidecar::parse_from(std::env::args_os().skip(1));
        Self {
            log_format,
            command: Command::Agent(args),
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::read();
    telemetry::start(cli.log_format);
    match cli.command {
        Command::Decide(args) => return Ok(decide::main(&args)),
        Command::Simulate(args) => return Ok(simulate::main(&args)),
        Command::Crd => std::io::stdout().write_all(api::crds_yaml().as_bytes())?,
        Command::Operator(args) => many()?.block_on(async { operator::run(*args, stopped()?).await })?,
        Command::Agent(args) => single()?.block_on(async { agent::run(args, stopped()?).await })?,
        Command::Gateway(args) => single()?.block_on(async { gateway::run(args, stopped()?).await })?,
        Command::Worker(args) => many()?.block_on(worker::run(args))?,
        Command::Local(args) => {
            many()?.block_on(async { local::run(args, CancellationToken::new()).await })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread: for the parts that stand beside somebody else's work.
fn single() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn many() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}

/// Cancelled by SIGTERM or Ctrl-C.
fn stopped() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, token) = (signal(SignalKind::terminate())?, stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        token.cancel();
    });
    Ok(stop)
}
