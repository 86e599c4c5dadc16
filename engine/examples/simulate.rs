//! `simulate FOLDER [SEEDS]`: serves the made-up days in FOLDER with default thresholds and prints lines `figure NAME VALUE UNIT`.
//!
//! `simulate_day_s` is the longest of the three days. With SEEDS above 1 the other figures are means over that many seeds.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use elastic_pool_engine::Policy;
use elastic_pool_engine::simulate::{Outcome, Settings, Trace, simulate};

const DAYS: [(&str, &str); 3] = [
    ("office", "office.csv"),
    ("flash", "flash-crowd.csv"),
    ("sawtooth", "sawtooth.csv"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: simulate FOLDER [SEEDS]")?;
    let seeds: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let mut longest = Duration::ZERO;
    for (name, file) in DAYS {
        let trace = Trace::parse(&std::fs::read(Path::new(&folder).join(file))?)?;
        let mut outcomes = Vec::new();
        for seed in 1..=seeds.max(1) {
            let settings = Settings {
                seed,
                ..Settings::default()
            };
            let began = now();
            outcomes.push(simulate(&trace, &Policy::default(), &settings));
            longest = longest.max(now() - began);
        }
        let figure = |what: &str, unit: &str, of: &dyn Fn(&Outcome) -> f64| {
            let mean = outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
            println!("figure simulate_{what}_{name} {mean:.3} {unit}");
        };
        figure("worker_hours_vs_optimum", "ratio", &|o| {
            o.pool.worker_hours_vs_optimum
        });
        figure("above_admission_percent", "%", &|o| {
            o.pool.placed_above_admission_percent
        });
        figure("user_hours_above_capacity_percent", "%", &|o| {
            o.pool.user_hours_above_capacity / o.day.user_hours * 100.0
        });
        figure("autoscaler_worker_hours_vs_optimum", "ratio", &|o| {
            o.autoscaler.worker_hours_vs_optimum
        });
        figure("autoscaler_above_admission_percent", "%", &|o| {
            o.autoscaler.placed_above_admission_percent
        });
        figure("autoscaler_user_hours_above_capacity_percent", "%", &|o| {
            o.autoscaler.user_hours_above_capacity / o.day.user_hours * 100.0
        });
        figure("killed_by_autoscaler", "sessions", &|o| {
            o.autoscaler.killed as f64
        });
    }
    println!("figure simulate_day_s {:.3} s", longest.as_secs_f64());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a measurement: nothing decides on it")]
fn now() -> Instant {
    Instant::now()
}
