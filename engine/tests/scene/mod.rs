//! Workers and plans at one moment, for tests of rules; claims nothing.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress};
use elastic_pool_engine::{
    Action, Birth, Group, Plan, Policy, Share, Snapshot, WorkerState, WorkerView, plan,
};

pub(crate) const NOW: Duration = Duration::from_secs(1000);
pub(crate) const SPAWN: Action = Action::Spawn { count: 1 };

pub(crate) fn percent(percent: u32) -> Share {
    Share::from_percent(percent)
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ago(age: u64) -> Duration {
    NOW.saturating_sub(seconds(age))
}

/// A routable, warm worker with ten users.
pub(crate) fn worker(birth: u64, load: u32) -> WorkerView {
    WorkerView {
        occupancy: percent(load),
        users: 10,
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    }
}

pub(crate) fn workers(loads: &[u32]) -> Vec<WorkerView> {
    loads
        .iter()
        .zip(1..)
        .map(|(load, birth)| worker(birth, *load))
        .collect()
}

pub(crate) fn spawned(birth: u64, age: u64) -> WorkerView {
    WorkerView {
        state: WorkerState::Nascent { since: ago(age) },
        ..WorkerView::new(Birth(birth), &format!("w{birth}"))
    }
}

pub(crate) fn drained(birth: u64, load: u32, kind: DrainKind, progress: DrainProgress) -> WorkerView {
    WorkerView {
        state: WorkerState::Draining(Drain {
            kind,
            since: NOW,
            progress,
        }),
        ..worker(birth, load)
    }
}

pub(crate) fn drain(birth: u64) -> Action {
    Action::Drain { birth: Birth(birth) }
}

pub(crate) fn cancel_spawn(birth: u64) -> Action {
    Action::CancelSpawn { birth: Birth(birth) }
}

pub(crate) fn cancel_drain(birth: u64) -> Action {
    Action::CancelDrain { birth: Birth(birth) }
}

pub(crate) fn planned(workers: impl IntoIterator<Item = WorkerView>, policy: &Policy) -> Plan {
    planned_after(workers, policy, &SpawnHistory::default())
}

pub(crate) fn planned_after(
    workers: impl IntoIterator<Item = WorkerView>,
    policy: &Policy,
    spawns: &SpawnHistory,
) -> Plan {
    decided(&workers.into_iter().collect(), policy, spawns, NOW)
}

pub(crate) fn decided(group: &Group, policy: &Policy, spawns: &SpawnHistory, now: Duration) -> Plan {
    let snapshot = Snapshot {
        group,
        policy,
        spawns,
    };
    plan(&snapshot, now)
}

pub(crate) fn actions(plan: &Plan) -> Vec<Action> {
    plan.actions().collect()
}

pub(crate) fn codes(plan: &Plan) -> Vec<&'static str> {
    plan.reasons().map(|because| because.code).collect()
}

/// What a group with the defaults does.
pub(crate) fn acts(workers: impl IntoIterator<Item = WorkerView>) -> Vec<Action> {
    actions(&planned(workers, &Policy::default()))
}

pub(crate) fn with_max(max: usize) -> Policy {
    Policy {
        max: Some(max),
        ..Policy::default()
    }
}

pub(crate) fn with_min(min: usize) -> Policy {
    Policy {
        min,
        ..Policy::default()
    }
}
