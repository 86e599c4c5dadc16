//! Reads a case's thresholds into a policy; absent ones are the defaults of the rules.

use std::time::Duration;

use crate::field::{Field, FieldError};
use crate::occupancy::Limits;
use crate::share::Share;
use crate::thresholds::{MoveMode, Policy, UpdateType};

/// Bytes in a megabyte of `memory_limit_mb`.
const MEGABYTE: f64 = 1_048_576.0;

/// What `input.thresholds` may name.
pub(super) const FIELDS: [&str; 13] = [
    "reception_threshold",
    "admission_threshold",
    "compaction_margin_workers",
    "min_workers",
    "max_workers",
    "memory_limit_mb",
    "smoothing_rows",
    "metrics_window",
    "cpu_capacity_cores",
    "interval_s",
    "max_surge",
    "moves",
    "update",
];

pub(super) fn policy(thresholds: &Field<'_>) -> Result<Policy, FieldError> {
    thresholds.optional_object()?;
    let defaults = Policy::default();
    let share = |name: &str, default: Share, high: f64| -> Result<Share, FieldError> {
        let given = thresholds.get(name).number(0.0, high)?;
        Ok(given.and_then(Share::from_f64).unwrap_or(default))
    };
    let count = |name: &str, low, default| -> Result<usize, FieldError> {
        Ok(thresholds.get(name).count(low)?.unwrap_or(default))
    };
    let admission = share("admission_threshold", defaults.admission, 1.0)?;
    let margin_workers = share("compaction_margin_workers", Share::from_percent(150), 1000.0)?;
    let seconds = thresholds.get("interval_s").number(0.001, 1e6)?;
    let min = count("min_workers", 0, defaults.min)?;
    let max = thresholds.get("max_workers").count(0)?;
    if max.is_some_and(|max| max < min) {
        let wanted = format!("at least min_workers, which is {min}, or null");
        return thresholds.get("max_workers").wrong(&wanted);
    }
    Ok(Policy {
        reception: share("reception_threshold", defaults.reception, 1.0)?,
        admission,
        margin: margin_workers.times(admission),
        smoothing_rows: count("smoothing_rows", 1, defaults.smoothing_rows)?,
        window_rows: count("metrics_window", 1, defaults.window_rows)?,
        interval: seconds.map_or(defaults.interval, Duration::from_secs_f64),
        min,
        max,
        max_surge: count("max_surge", 0, defaults.max_surge)?,
        limits: Limits {
            memory_bytes: memory(&thresholds.get("memory_limit_mb"))?,
            cpu_cores: thresholds
                .get("cpu_capacity_cores")
                .number(0.0, 1e6)?
                .unwrap_or(defaults.limits.cpu_cores),
        },
        moves: moves(&thresholds.get("moves"))?,
        update: update(&thresholds.get("update"))?,
        ..defaults
    })
}

/// Null and 0 are no memory component.
fn memory(megabytes: &Field<'_>) -> Result<Option<u64>, FieldError> {
    let bytes = megabytes.number(0.0, 1e9)?.unwrap_or_default() * MEGABYTE;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to about 10^15"
    )]
    let bytes = bytes as u64;
    Ok((bytes > 0).then_some(bytes))
}

fn moves(field: &Field<'_>) -> Result<MoveMode, FieldError> {
    match field.optional_text()? {
        None | Some("Live") => Ok(MoveMode::Live),
        Some("Drain") => Ok(MoveMode::Drain),
        Some(_) => field.wrong("Live or Drain"),
    }
}

fn update(field: &Field<'_>) -> Result<UpdateType, FieldError> {
    match field.optional_text()? {
        None | Some("Move") => Ok(UpdateType::Move),
        Some("Drain") => Ok(UpdateType::Drain),
        Some("OnDelete") => Ok(UpdateType::OnDelete),
        Some(_) => field.wrong("Move, Drain or OnDelete"),
    }
}
