//! Reads a snapshot and bounds what it may hold; a refusal names the field, its value and what would be right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::exact::{read_seconds, read_share};
use super::{MAX_BYTES, MAX_USERS, Saved, SavedUser, SnapshotError, Stays, VERSION, words};
use crate::capacity::SpawnHistory;
use crate::field::{Field, FieldError};
use crate::group::{Drain, Group, SpawnFault, WorkerState, WorkerView};
use crate::ids::{Birth, UserId};
use crate::occupancy::Limits;
use crate::share::Share;
use crate::strict;
use crate::thresholds::{Policy, UpdateType};

/// Counts of workers, rows and failures: far above what any group has, far below where sums end.
const MAX_COUNT: u64 = 1_000_000_000;

/// Load in transit to one worker: sums over all workers of a line stay exact.
const MAX_TRANSIT: u32 = 100;

/// A group's or a worker's name in bytes: twice what Kubernetes allows, and a slash.
const MAX_NAME: usize = 512;

/// The answer alone, as its bytes.
#[derive(Deserialize)]
struct Given<'a> {
    #[serde(borrow, default)]
    answer: Option<&'a RawValue>,
}

pub(super) fn parse(line: &str) -> Result<Saved, SnapshotError> {
    if line.len() > MAX_BYTES {
        return Err(SnapshotError::TooLong(line.len()));
    }
    let json = |error: serde_json::Error| SnapshotError::Json(error.to_string());
    let value = strict::parse(line).map_err(json)?;
    let root = Field::root(&value);
    root.object()?;
    version(&root.get("snapshot"))?;
    root.object_of(&[
        "snapshot",
        "group",
        "taken_at_s",
        "policy",
        "spawns",
        "workers",
        "answer",
    ])?;
    let given = serde_json::from_str::<Given<'_>>(line).map_err(json)?.answer;
    if let Some(answer) = root.get("answer").optional() {
        answer.object()?;
    }
    let (group, users) = workers(&root.get("workers"))?;
    Ok(Saved {
        name: name(&root.get("group"))?,
        taken_at: required(&root.get("taken_at_s"), read_seconds)?,
        policy: policy(&root.get("policy"))?,
        spawns: spawns(&root.get("spawns"))?,
        group,
        users,
        given: given.map(|answer| answer.get().into()),
    })
}

fn version(field: &Field<'_>) -> Result<(), FieldError> {
    match field.whole(u64::MAX)? {
        Some(VERSION) => Ok(()),
        _ => field.wrong(&format!(
            "{VERSION}, the version of the form that this build reads"
        )),
    }
}

fn name(field: &Field<'_>) -> Result<String, FieldError> {
    let text = field.text()?;
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        return field.wrong(&format!("1 to {MAX_NAME} bytes without control characters"));
    }
    Ok(text.to_owned())
}

fn required<'a, T>(
    field: &Field<'a>,
    read: impl FnOnce(&Field<'a>) -> Result<Option<T>, FieldError>,
) -> Result<T, FieldError> {
    read(field)?.map_or_else(|| field.wrong("given"), Ok)
}

fn count(field: &Field<'_>, most: u64) -> Result<usize, FieldError> {
    let number = required(field, |field| field.whole(most))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// One of `all`, by the word that `name` gives it.
fn word<T: Copy>(field: &Field<'_>, all: &[T], name: fn(T) -> &'static str) -> Result<T, FieldError> {
    let found = field.optional_text()?;
    let known = all.iter().copied().find(|value| found == Some(name(*value)));
    let words = || {
        all.iter()
            .map(|value| name(*value))
            .collect::<Vec<_>>()
            .join(" or ")
    };
    known.map_or_else(|| field.wrong(&words()), Ok)
}

fn policy(field: &Field<'_>) -> Result<Policy, FieldError> {
    field.object_of(&[
        "reception",
        "admission",
        "margin",
        "smoothing_rows",
        "window_rows",
        "interval_s",
        "min",
        "max",
        "max_surge",
        "spawn_timeout_s",
        "drain_timeout_s",
        "memory_bytes",
        "cpu_cores",
        "moves",
        "mode",
        "outlet",
        "update",
    ])?;
    let share = |name| required(&field.get(name), read_share);
    let seconds = |name| required(&field.get(name), read_seconds);
    let count = |name| count(&field.get(name), MAX_COUNT);
    let max = field.get("max");
    Ok(Policy {
        reception: share("reception")?,
        admission: share("admission")?,
        margin: share("margin")?,
        smoothing_rows: count("smoothing_rows")?,
        window_rows: count("window_rows")?,
        interval: seconds("interval_s")?,
        min: count("min")?,
        max: max.optional().map(|_| count("max")).transpose()?,
        max_surge: count("max_surge")?,
        spawn_timeout: seconds("spawn_timeout_s")?,
        drain_timeout: seconds("drain_timeout_s")?,
        limits: Limits {
            memory_bytes: field.get("memory_bytes").whole(u64::MAX)?,
            cpu_cores: cores(&field.get("cpu_cores"))?,
        },
        moves: word(&field.get("moves"), &words::MOVES, words::moves)?,
        mode: word(&field.get("mode"), &words::MODES, words::mode)?,
        outlet: field.get("outlet").flag()?,
        update: update(&field.get("update"))?,
    })
}

/// Absent in snapshots from before there was another than Move.
fn update(field: &Field<'_>) -> Result<UpdateType, FieldError> {
    let given = field.optional();
    given.map_or(Ok(UpdateType::Move), |field| {
        word(field, &words::UPDATES, words::update)
    })
}

/// A float in a string: Rust reads back exactly what it wrote, a JSON number need not.
fn cores(field: &Field<'_>) -> Result<f64, FieldError> {
    let cores = field
        .text()?
        .parse::<f64>()
        .ok()
        .filter(|cores| cores.is_finite());
    cores.map_or_else(
        || field.wrong("a number of cores in a string, such as \"0.5\""),
        Ok,
    )
}

fn spawns(field: &Field<'_>) -> Result<SpawnHistory, FieldError> {
    field.object_of(&["failures", "last_failure_s", "fault"])?;
    let failures = field.get("failures");
    Ok(SpawnHistory {
        failures: u32::try_from(count(&failures, u32::MAX.into())?).unwrap_or(u32::MAX),
        last_failure: read_seconds(&field.get("last_failure_s"))?,
        fault: fault(&field.get("fault"))?,
    })
}

fn fault(field: &Field<'_>) -> Result<Option<SpawnFault>, FieldError> {
    field
        .optional()
        .map(|field| word(field, &words::FAULTS, SpawnFault::code))
        .transpose()
}

type Workers = (Group, BTreeMap<Birth, Vec<SavedUser>>);

fn workers(field: &Field<'_>) -> Result<Workers, FieldError> {
    let mut group = Group::default();
    let mut users = BTreeMap::new();
    if field.optional().is_none() {
        return field.wrong("an array of workers, [] for none");
    }
    for field in field.items()? {
        let view = worker(&field)?;
        let birth = view.birth;
        if group.get(birth).is_some() {
            return field
                .get("birth")
                .wrong("a birth number that no other worker has");
        }
        let residents = residents(&field.get("residents"), birth)?;
        if !residents.is_empty() {
            users.insert(birth, residents);
        }
        group.put(view);
    }
    Ok((group, users))
}

fn worker(field: &Field<'_>) -> Result<WorkerView, FieldError> {
    field.object_of(&[
        "birth",
        "name",
        "state",
        "since_s",
        "drain",
        "progress",
        "must_go",
        "occupancy",
        "stale",
        "stale_from_s",
        "warm",
        "room_until_s",
        "users",
        "transit",
        "passed_over_until_s",
        "outdated",
        "hindered",
        "guests_until_s",
        "residents",
    ])?;
    let flag = |name| {
        required(&field.get(name), |field| {
            field.optional().map(Field::flag).transpose()
        })
    };
    Ok(WorkerView {
        birth: birth(&field.get("birth"))?,
        name: name(&field.get("name"))?.into(),
        state: state(field)?,
        occupancy: bounded(&field.get("occupancy"), 1)?,
        stale: flag("stale")?,
        stale_from: read_seconds(&field.get("stale_from_s"))?,
        warm: flag("warm")?,
        room_until: read_seconds(&field.get("room_until_s"))?,
        users: count(&field.get("users"), MAX_USERS)?,
        transit: bounded(&field.get("transit"), MAX_TRANSIT)?,
        passed_over_until: read_seconds(&field.get("passed_over_until_s"))?,
        outdated: field.get("outdated").flag()?,
        hindered: fault(&field.get("hindered"))?,
        guests_until: read_seconds(&field.get("guests_until_s"))?,
    })
}

fn birth(field: &Field<'_>) -> Result<Birth, FieldError> {
    let number = field.text()?.parse().ok().map(Birth);
    number.map_or_else(
        || field.wrong("a birth number in a string, such as \"1099511627777\""),
        Ok,
    )
}

fn bounded(field: &Field<'_>, most: u32) -> Result<Share, FieldError> {
    let share = required(field, read_share)?;
    if (Share::ZERO..=Share::from_percent(100 * most)).contains(&share) {
        Ok(share)
    } else {
        field.wrong(&format!("a decimal from 0 to {most}"))
    }
}

/// The fields of a state, and none of another's.
fn state(worker: &Field<'_>) -> Result<WorkerState, FieldError> {
    let (since, must_go) = (worker.get("since_s"), worker.get("must_go"));
    let only = |wanted: &[&str], state| {
        let extra = ["since_s", "drain", "progress", "must_go"]
            .into_iter()
            .filter(|name| !wanted.contains(name))
            .map(|name| worker.get(name))
            .find(|field| field.optional().is_some());
        extra.map_or(Ok(state), |field| field.wrong("left out in this state"))
    };
    match worker.get("state").text()? {
        "routable" => only(&[], WorkerState::Routable),
        "nascent" => {
            let since = required(&since, read_seconds)?;
            only(&["since_s"], WorkerState::Nascent { since })
        }
        "draining" => {
            let drain = Drain {
                kind: word(&worker.get("drain"), &words::KINDS, words::kind)?,
                since: required(&since, read_seconds)?,
                progress: word(&worker.get("progress"), &words::PROGRESS, words::progress)?,
            };
            only(&["since_s", "drain", "progress"], WorkerState::Draining(drain))
        }
        "retiring" => {
            let must_go = required(&must_go, |field| field.optional().map(Field::flag).transpose())?;
            only(&["must_go"], WorkerState::Retiring { must_go })
        }
        _ => worker
            .get("state")
            .wrong("routable, nascent, draining or retiring"),
    }
}

fn residents(field: &Field<'_>, worker: Birth) -> Result<Vec<SavedUser>, FieldError> {
    let mut seen = BTreeSet::new();
    let mut users = Vec::new();
    for field in field.items()? {
        field.object_of(&["user", "open_requests", "stays", "until_s"])?;
        let name = field.get("user");
        let Ok(user) = UserId::new(name.text()?) else {
            return name.wrong("a user id of 1 to 256 bytes without control characters");
        };
        if !seen.insert(user.clone()) {
            return name.wrong("a user that is not named twice on one worker");
        }
        users.push(SavedUser {
            worker,
            user,
            open_requests: count(&field.get("open_requests"), MAX_COUNT)?,
            stays: stays(&field)?,
        });
    }
    Ok(users)
}

fn stays(user: &Field<'_>) -> Result<Option<Stays>, FieldError> {
    let (stays, until) = (user.get("stays"), user.get("until_s"));
    let Some(_) = stays.optional() else {
        return if until.optional().is_some() {
            until.wrong("left out where stays is not backing_off")
        } else {
            Ok(None)
        };
    };
    let until: Option<Duration> = read_seconds(&until)?;
    match (stays.text()?, until) {
        ("pinned_stream", None) => Ok(Some(Stays::PinnedStream)),
        ("package_too_large", None) => Ok(Some(Stays::PackageTooLarge)),
        ("backing_off", Some(until)) => Ok(Some(Stays::BackingOff { until })),
        _ => stays.wrong("pinned_stream or package_too_large, or backing_off with until_s"),
    }
}
