//! The one binary: operator, gateway, agent, local vehicle, reference app and tools, as subcommands.

use clap::{Parser, Subcommand};
use elastic_pool::worker::{self, WorkerArgs};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The reference app: a small stateful web app that knows the worker contract
    Worker(WorkerArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Cli::parse().command {
        Command::Worker(args) => worker::run(args).await,
    }
}
