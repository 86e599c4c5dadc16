//! Load program: drives real users through a gateway and checks that nobody is lost.

use std::process::ExitCode;

use clap::Parser;
use elastic_pool::load::{self, LoadArgs};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let args = LoadArgs::parse();
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            told.cancel();
        }
    });
    let summary = load::drive(&args, stop, |moment| println!("{}", load::progress(moment))).await?;
    println!("\n{}", load::table(&summary));
    Ok(if args.assert && !summary.held {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
