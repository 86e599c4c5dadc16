//! Answers about what one worker measured: components, history, rates and the window (M4, E1-E4).

use serde_json::json;

use super::answer::{Answer, object};
use super::input::{Actor, Scene};
use crate::occupancy::{Components, Rates, Reading, history};
use crate::share::Share;

pub(super) fn evaluator(scene: &Scene, worker: &Actor) -> Answer {
    let policy = &scene.policy;
    let reading = Reading::of(&worker.window, policy.smoothing_rows, &policy.limits);
    let components: Answer = reading
        .components
        .present()
        .map(|(name, share)| (name.to_owned(), json!(share.as_f64())))
        .collect();
    object(json!({
        "components": components,
        "occupancy": worker.occupancy.as_f64(),
        "because": evaluated(worker, &reading),
    }))
}

fn evaluated(worker: &Actor, reading: &Reading) -> String {
    let (name, rows) = (&worker.name, rows(reading.rows));
    match (named_fullest(&reading.components), reading.rows) {
        (None, 0) if worker.occupancy > Share::ZERO => {
            format!(
                "E2: {name} has no rows, its occupancy of {} is given as measured",
                worker.occupancy
            )
        }
        (None, 0) => format!("E3: {name} has no rows, so it counts as 0 and admits"),
        (None, _) => format!("E3: nothing is measurable in the last {rows} of {name}, so it counts as 0"),
        (Some((component, share)), _) => format!(
            "E2: {name} is as full as its bottleneck, {component}, with a mean of {share} over the last {rows}"
        ),
    }
}

fn named_fullest(components: &Components) -> Option<(&'static str, Share)> {
    components.present().max_by_key(|(_, share)| *share)
}

fn rows(count: usize) -> String {
    match count {
        1 => "row".to_owned(),
        n => format!("{n} rows"),
    }
}

pub(super) fn history_of(scene: &Scene, worker: &Actor) -> Answer {
    let shares = history(&worker.window, &scene.policy.limits);
    let name = &worker.name;
    let because = match shares.iter().max() {
        Some(highest) => format!(
            "E4: for each of the {} rows kept of {name}, its fullest component; the highest is {highest}",
            shares.len()
        ),
        None => format!("E4: {name} has no rows, so it has no history"),
    };
    let history: Vec<f64> = shares.into_iter().map(Share::as_f64).collect();
    object(json!({"history": history, "because": because}))
}

pub(super) fn rates(worker: &Actor) -> Answer {
    let rates = Rates::of(&worker.window);
    let Rates { rps, latency_ms } = rates;
    object(json!({"rps": rps, "latency_ms": latency_ms, "because": rated(worker, rates)}))
}

fn rated(worker: &Actor, rates: Rates) -> String {
    let name = &worker.name;
    let mut rows = worker.window.rows();
    let (first, last) = (rows.next(), rows.next_back());
    let (Some(first), Some(last)) = (first, last) else {
        return format!("E4: {name} has fewer than two rows, so it has no rates");
    };
    let elapsed = last.at.saturating_sub(first.at).as_secs_f64();
    let done = last.forward.since(first.forward);
    match (rates.rps, rates.latency_ms) {
        (None, _) => {
            format!("E4: no time passes between the first and the last row of {name}, so it has no rates")
        }
        (Some(_), None) => format!("E4: no request of {name} completed in {elapsed} s, so it has no latency"),
        (Some(_), Some(_)) => format!(
            "E4: between the first and the last row of {name}, {elapsed} s apart, {} requests took {} s",
            done.requests, done.seconds
        ),
    }
}

pub(super) fn window(scene: &Scene, worker: &Actor) -> Answer {
    let users: Vec<_> = worker.window.rows().map(|row| row.report.users).collect();
    let (name, given, keep) = (&worker.name, worker.rows_given, scene.policy.window_rows);
    let because = if given == 0 {
        format!("M4: {name} has no rows")
    } else if given > keep {
        format!("M4: {name} has {given} rows, of which the window keeps the last {keep}")
    } else {
        format!("M4: the window keeps {keep} rows, so all {given} of {name} are there")
    };
    object(json!({
        "rows_kept": users.len(),
        "first_users": users.first().copied().flatten(),
        "last_users": users.last().copied().flatten(),
        "because": because,
    }))
}
