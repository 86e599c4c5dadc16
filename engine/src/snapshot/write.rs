//! Writes a snapshot: the fields, their names and their order; reads nothing.

use serde::Serialize;
use serde_json::value::RawValue;

use super::exact::{write_seconds, write_share};
use super::{Saved, SavedUser, Stays, VERSION, words};
use crate::capacity::SpawnHistory;
use crate::group::{Drain, SpawnFault, WorkerState, WorkerView};
use crate::occupancy::Limits;
use crate::thresholds::{Policy, UpdateType};

#[derive(Serialize)]
struct SavedLine<'a> {
    snapshot: u64,
    group: &'a str,
    taken_at_s: String,
    policy: PolicyFields,
    spawns: SpawnFields,
    workers: Vec<WorkerFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct PolicyFields {
    reception: String,
    admission: String,
    margin: String,
    smoothing_rows: usize,
    window_rows: usize,
    interval_s: String,
    min: usize,
    max: Option<usize>,
    max_surge: usize,
    spawn_timeout_s: String,
    drain_timeout_s: String,
    memory_bytes: Option<u64>,
    cpu_cores: String,
    moves: &'static str,
    mode: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    outlet: bool,
    /// Left out where it is Move, as in snapshots from before there was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    update: Option<&'static str>,
}

#[derive(Serialize)]
struct SpawnFields {
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure_s: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
}

#[derive(Serialize)]
struct WorkerFields<'a> {
    birth: String,
    name: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_s: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    must_go: Option<bool>,
    occupancy: String,
    stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_from_s: Option<String>,
    warm: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    room_until_s: Option<String>,
    users: usize,
    transit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed_over_until_s: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    outdated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hindered: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guests_until_s: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    residents: Vec<UserFields<'a>>,
}

#[derive(Serialize)]
struct UserFields<'a> {
    user: &'a str,
    open_requests: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    stays: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_s: Option<String>,
}

pub(super) fn to_json(saved: &Saved) -> String {
    let line = SavedLine {
        snapshot: VERSION,
        group: &saved.name,
        taken_at_s: write_seconds(saved.taken_at),
        policy: policy(&saved.policy),
        spawns: spawns(&saved.spawns),
        workers: saved
            .group
            .workers()
            .map(|view| worker(view, saved.users(view.birth)))
            .collect(),
        answer: saved.given().and_then(|given| serde_json::from_str(given).ok()),
    };
    // Strings, numbers and lists only: nothing that could fail.
    serde_json::to_string(&line).unwrap_or_default()
}

/// Taken apart field by field, so that a field added to the policy cannot be forgotten here.
fn policy(policy: &Policy) -> PolicyFields {
    let &Policy {
        reception,
        admission,
        margin,
        smoothing_rows,
        window_rows,
        interval,
        min,
        max,
        max_surge,
        spawn_timeout,
        drain_timeout,
        limits: Limits {
            memory_bytes,
            cpu_cores,
        },
        moves,
        mode,
        outlet,
        update,
    } = policy;
    PolicyFields {
        reception: write_share(reception),
        admission: write_share(admission),
        margin: write_share(margin),
        smoothing_rows,
        window_rows,
        interval_s: write_seconds(interval),
        min,
        max,
        max_surge,
        spawn_timeout_s: write_seconds(spawn_timeout),
        drain_timeout_s: write_seconds(drain_timeout),
        memory_bytes,
        cpu_cores: cpu_cores.to_string(),
        moves: words::moves(moves),
        mode: words::mode(mode),
        outlet,
        update: (update != UpdateType::Move).then(|| words::update(update)),
    }
}

fn spawns(spawns: &SpawnHistory) -> SpawnFields {
    let SpawnHistory {
        failures,
        last_failure,
        fault,
    } = *spawns;
    SpawnFields {
        failures,
        last_failure_s: last_failure.map(write_seconds),
        fault: fault.map(SpawnFault::code),
    }
}

fn worker<'a>(view: &'a WorkerView, users: &'a [SavedUser]) -> WorkerFields<'a> {
    let &WorkerView {
        birth,
        ref name,
        state,
        occupancy,
        stale,
        stale_from,
        warm,
        room_until,
        users: count,
        transit,
        passed_over_until,
        outdated,
        hindered,
        guests_until,
    } = view;
    let (since, drain, must_go) = match state {
        WorkerState::Nascent { since } => (Some(since), None, None),
        WorkerState::Routable => (None, None, None),
        WorkerState::Draining(drain) => (Some(drain.since), Some(drain), None),
        WorkerState::Retiring { must_go } => (None, None, Some(must_go)),
    };
    WorkerFields {
        birth: birth.to_string(),
        name,
        state: words::state(state),
        since_s: since.map(write_seconds),
        drain: drain.map(|Drain { kind, .. }| words::kind(kind)),
        progress: drain.map(|Drain { progress, .. }| words::progress(progress)),
        must_go,
        occupancy: write_share(occupancy),
        stale,
        stale_from_s: stale_from.map(write_seconds),
        warm,
        room_until_s: room_until.map(write_seconds),
        users: count,
        transit: write_share(transit),
        passed_over_until_s: passed_over_until.map(write_seconds),
        outdated,
        hindered: hindered.map(SpawnFault::code),
        guests_until_s: guests_until.map(write_seconds),
        residents: users.iter().map(user).collect(),
    }
}

fn user(user: &SavedUser) -> UserFields<'_> {
    let until = match user.stays {
        Some(Stays::BackingOff { until }) => Some(until),
        _ => None,
    };
    UserFields {
        user: user.user.as_str(),
        open_requests: user.open_requests,
        stays: user.stays.map(words::stays),
        until_s: until.map(write_seconds),
    }
}
