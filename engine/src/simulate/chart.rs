//! The outcome of a simulated day as text of at most 100 columns; it computes nothing that is not in the figures.

use std::fmt::Write as _;

use super::outcome::{Figures, Outcome};

/// Columns of a chart's plot; with its axis it stays within 100.
pub const WIDTH: usize = 96;
const HEIGHT: usize = 12;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => { let _ = writeln!($out, $($arg)*); };
}

/// Charts of workers, the day's users, load and moves, and the table of figures.
pub fn chart(outcome: &Outcome) -> String {
    let minutes = &outcome.minutes;
    let optimum: Vec<f64> = minutes
        .optimum_workers
        .iter()
        .map(|workers| *workers as f64)
        .collect();
    let moves: Vec<f64> = minutes.pool_moves.iter().copied().map(f64::from).collect();
    let killed: Vec<f64> = minutes.autoscaler_killed.iter().copied().map(f64::from).collect();
    let top = highest(&minutes.pool_workers)
        .max(highest(&minutes.autoscaler_workers))
        .max(highest(&optimum));
    let mut out = String::new();
    assumed(&mut out, outcome);
    line(&mut out, "users, mean of a minute", &minutes.users, "at most");
    out.push('\n');
    let legend = "█ the fewest that would do, ▒ more than that, ! missing";
    bars(
        &mut out,
        &format!("elastic pool: workers ({legend})"),
        &minutes.pool_workers,
        &optimum,
        top,
    );
    axis(&mut out, outcome);
    line(&mut out, "occupancy, mean", &minutes.pool_occupancy, "at most");
    line(&mut out, "users moved a minute", &moves, "at most");
    out.push('\n');
    bars(
        &mut out,
        "sticky sessions and CPU autoscaler: pods",
        &minutes.autoscaler_workers,
        &optimum,
        top,
    );
    axis(&mut out, outcome);
    line(
        &mut out,
        "occupancy, mean",
        &minutes.autoscaler_occupancy,
        "at most",
    );
    line(&mut out, "sessions killed a minute", &killed, "at most");
    out.push('\n');
    table(&mut out, outcome);
    out
}

/// What the day and the group are, and what else was assumed.
fn assumed(out: &mut String, outcome: &Outcome) {
    let (day, assumed) = (&outcome.day, &outcome.assumed);
    let max = assumed
        .max
        .map_or_else(|| "no max".to_owned(), |max| format!("max {max}"));
    put!(
        out,
        "{} users in {} h; reception {} %, admission {} %, min {}, {max};\nseed {}, a worker comes after {} s, the autoscaler aims at {} %\n",
        day.users,
        number(day.hours),
        number(assumed.reception_percent),
        number(assumed.admission_percent),
        assumed.min,
        assumed.seed,
        number(assumed.spawn_seconds),
        number(assumed.autoscaler_target_percent)
    );
}

/// The highest of each column's minutes.
fn columns(values: &[f64]) -> Vec<f64> {
    let per = values.len().div_ceil(WIDTH).max(1);
    values.chunks(per).map(highest).collect()
}

fn means(values: &[f64]) -> Vec<f64> {
    let per = values.len().div_ceil(WIDTH).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    values.chunks(per).map(mean).collect()
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// One line of eighths, the highest value full.
fn line(out: &mut String, name: &str, values: &[f64], what: &str) {
    let columns = columns(values);
    let top = highest(&columns);
    let text: String = columns.iter().map(|value| LEVELS[level(*value, top)]).collect();
    put!(out, "{name}, {what} {}", number(top));
    put!(out, "    {}", text.trim_end());
}

/// 0 for nothing, else 1 to 8.
fn level(value: f64, top: f64) -> usize {
    let eighths = (value / top * 8.0).ceil();
    (1..=8).rev().find(|level| eighths >= *level as f64).unwrap_or(0)
}

/// Workers as bars over the fewest that would do.
fn bars(out: &mut String, title: &str, workers: &[f64], fewest: &[f64], top: f64) {
    put!(out, "{title}");
    let (workers, fewest) = (means(workers), means(fewest));
    let step = (top / HEIGHT as f64).ceil().max(1.0);
    let own = highest(&workers).max(highest(&fewest));
    let rows = (1..=HEIGHT).filter(|row| (*row as f64 - 0.5) * step <= own);
    for row in rows.rev() {
        // A column reaches this row when it is over the row's middle.
        let middle = (row as f64 - 0.5) * step;
        let cells = workers.iter().zip(&fewest).map(|(workers, fewest)| {
            match (*workers >= middle, *fewest >= middle) {
                (true, true) => '█',
                (true, false) => '▒',
                (false, true) => '!',
                (false, false) => ' ',
            }
        });
        let text: String = cells.collect();
        put!(out, "{:>3} {}", number(row as f64 * step), text.trim_end());
    }
}

/// Time of day under a plot, every twelve columns.
fn axis(out: &mut String, outcome: &Outcome) {
    let minutes = outcome.minutes.users.len();
    let per = minutes.div_ceil(WIDTH).max(1);
    let begin = outcome.day.start.get(..5).and_then(|text| {
        let (hours, minutes) = text.split_once(':')?;
        Some(hours.parse::<usize>().ok()? * 60 + minutes.parse::<usize>().ok()?)
    });
    let ticks = (0..minutes.div_ceil(per)).step_by(12).map(|column| {
        let minute = begin.unwrap_or_default() + column * per;
        format!("{:<12}", format!("{:02}:{:02}", minute / 60, minute % 60))
    });
    let text: String = ticks.collect();
    put!(out, "    {}", text.trim_end());
}

fn table(out: &mut String, outcome: &Outcome) {
    let (pool, rival, least) = (&outcome.pool, &outcome.autoscaler, &outcome.optimum);
    put!(
        out,
        "{:<44}{:>17}{:>17}{:>17}",
        "",
        "elastic pool",
        "autoscaler",
        "optimum"
    );
    let mut row = |name: &str, of: &dyn Fn(&Figures) -> String, best: &str| {
        let text = format!("{name:<44}{:>17}{:>17}{best:>17}", of(pool), of(rival));
        put!(out, "{}", text.trim_end());
    };
    row(
        "worker-hours",
        &|f| decimals(f.worker_hours, 1),
        &decimals(least.worker_hours, 1),
    );
    row(
        "  as a part of the optimum's",
        &|f| decimals(f.worker_hours_vs_optimum, 2),
        "1.00",
    );
    row(
        "most workers",
        &|f| number(f.most_workers),
        &least.most_workers.to_string(),
    );
    row(
        "mean occupancy",
        &|f| decimals(f.mean_occupancy, 2),
        &decimals(least.mean_occupancy, 2),
    );
    if least.short_minutes > 0 {
        let text = least.short_minutes.to_string();
        row("minutes for which max is too few", &|_| String::new(), &text);
    }
    row("logins", &|f| f.logins.to_string(), "");
    let above = format!("  placed above {} %", number(outcome.assumed.admission_percent));
    let placed = |f: &Figures| {
        format!(
            "{} = {} %",
            f.placed_above_admission,
            decimals(f.placed_above_admission_percent, 2)
        )
    };
    row(&above, &placed, "");
    user_table(out, outcome);
}

/// What the users had of it.
fn user_table(out: &mut String, outcome: &Outcome) {
    let (pool, rival) = (&outcome.pool, &outcome.autoscaler);
    let hours = format!("user-hours of {} ...", number(outcome.day.user_hours.round()));
    put!(out, "{hours}");
    let mut row = |name: &str, of: &dyn Fn(&Figures) -> String| {
        put!(out, "{name:<44}{:>17}{:>17}", of(pool), of(rival));
    };
    let above = format!(
        "  on workers above {} %",
        number(outcome.assumed.admission_percent)
    );
    row(&above, &|f| decimals(f.user_hours_above_admission, 1));
    row("  on workers asked for more than they have", &|f| {
        decimals(f.user_hours_above_capacity, 1)
    });
    row("users moved by compaction", &|f| f.moves.to_string());
    row("logins passed on by the reception", &|f| f.passed.to_string());
    row("sessions killed", &|f| f.killed.to_string());
}

fn decimals(value: f64, count: usize) -> String {
    format!("{value:.count$}")
}

/// At most two decimals, none where there are none.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
