//! `elastic-pool-model [SECONDS] [WORDS]`: explores the worlds whose name holds the words and prints their sizes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use elastic_pool_model::{Bounds, worlds};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(600);
    let words = args.next().unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut red = false;
    let chosen = worlds::SMALL.into_iter().chain(worlds::LARGE);
    for world in chosen.filter(|world| world.name.contains(&words)) {
        #[allow(clippy::disallowed_methods, reason = "the time it took, for people")]
        let began = Instant::now();
        let report = world.explore(Bounds {
            threads,
            limit: Some(Duration::from_secs(seconds)),
        });
        red |= !report.broken.is_empty();
        println!(
            "{}: {report} ({:.1} s)",
            world.name,
            began.elapsed().as_secs_f64()
        );
    }
    if red { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
