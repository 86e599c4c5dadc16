//! What the outside sees of the commander: orders, group views, monitor state (E4, U3); it changes nothing.

use std::collections::BTreeMap;

use elastic_pool_engine::occupancy::{self, Rates};
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Share, WorkerState, WorkerView};
use serde::Serialize;

use super::Commander;
use super::group::{Advice, GroupState};
use super::waits::DrainView;
use super::worker::Worker;
use crate::metrics::{GroupFigures, STATES, WorkerFigures};
use crate::vehicle::{ConditionView, DecisionNote, GroupView, Mode, ObjectKey, SpawnFailure};

/// One worker on the monitor.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorWorker {
    /// Pod name.
    pub name: String,
    /// Birth number, as text: it exceeds what JSON numbers carry exactly.
    pub birth: String,
    /// starting, routable, draining or retiring.
    pub state: &'static str,
    /// True for the group's reception.
    pub reception: bool,
    /// Its agent is connected.
    pub connected: bool,
    /// E5.
    pub stale: bool,
    /// E2, 0..=1.
    pub occupancy: f64,
    /// Means of E2 by component.
    pub components: BTreeMap<&'static str, f64>,
    /// E4: per row the fullest component.
    pub history: Vec<f64>,
    /// E4: requests per second.
    pub rps: Option<f64>,
    /// E4: milliseconds per request.
    pub latency_ms: Option<f64>,
    /// U1: cumulative forwards.
    pub requests: u64,
    /// U1.
    pub errors: u64,
    /// U1.
    pub seconds: f64,
    /// Users that live there.
    pub users: usize,
    /// Forwards in flight, as its agent said last.
    pub open_requests: u64,
    /// Its drain, while it is emptied.
    pub drain: Option<DrainView>,
}

/// One group on the monitor.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorGroup {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The pool it belongs to.
    pub pool: String,
    /// `spec.mode`.
    pub mode: Mode,
    /// What mode Recommend keeps it from doing now.
    pub advice: Option<Advice>,
    /// Ledger and conditions.
    pub view: GroupView,
    /// Workers by birth.
    pub workers: Vec<MonitorWorker>,
}

/// The monitor's whole state.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorState {
    /// The leader's term.
    pub term: u64,
    /// True once every pool's users are known again (D3).
    pub live: bool,
    /// Groups by namespace and name.
    pub groups: Vec<MonitorGroup>,
}

impl Commander {
    /// The monitor's state now; also brings the gauges up to date.
    pub fn monitor(&mut self) -> MonitorState {
        let groups = self
            .groups
            .iter()
            .map(|(key, group)| self.monitor_group(key, group))
            .collect();
        MonitorState {
            term: self.term.0,
            live: self.pools.recovering().next().is_none(),
            groups,
        }
    }

    fn monitor_group(&self, key: &ObjectKey, group: &GroupState) -> MonitorGroup {
        let reception = group.engine.guest_home().map(|worker| worker.birth);
        let row = |view: &WorkerView| {
            let worker = self.workers.get(&view.birth)?;
            Some(self.monitor_worker(group, view, worker, reception == Some(view.birth)))
        };
        let workers: Vec<MonitorWorker> = group.engine.workers().filter_map(row).collect();
        let view = self.group_view(group);
        for worker in &workers {
            let components: Vec<(&'static str, f64)> =
                worker.components.iter().map(|(name, v)| (*name, *v)).collect();
            let figures = WorkerFigures {
                worker: &worker.name,
                occupancy: worker.occupancy,
                components: &components,
                users: worker.users,
                open_requests: worker.open_requests,
                report_age: self.report_age(&worker.birth),
            };
            self.metrics.worker(key, &figures);
        }
        let by_state = STATES.map(|state| {
            (
                state,
                workers.iter().filter(|worker| worker.state == state).count(),
            )
        });
        self.metrics.group(
            key,
            &GroupFigures {
                capacity: group.ledger.capacity.as_f64(),
                occupied: group.ledger.occupied.as_f64(),
                headroom: group.ledger.headroom.as_f64(),
                workers: &by_state,
                users: view.users as usize,
            },
        );
        MonitorGroup {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            pool: group.spec.pool.name.clone(),
            mode: group.spec.mode,
            advice: group.advice.clone(),
            view,
            workers,
        }
    }

    fn report_age(&self, birth: &str) -> Option<f64> {
        let birth = elastic_pool_engine::ids::Birth(birth.parse().ok()?);
        let at = self.workers.get(&birth)?.window.last_at()?;
        Some(self.now.saturating_sub(at).as_secs_f64())
    }

    fn monitor_worker(
        &self,
        group: &GroupState,
        view: &WorkerView,
        worker: &Worker,
        reception: bool,
    ) -> MonitorWorker {
        let rates = Rates::of(&worker.window);
        let forwards = worker.forwards.total();
        MonitorWorker {
            name: worker.name(),
            birth: view.birth.to_string(),
            state: state_name(view.state),
            reception,
            connected: worker.is_connected(),
            stale: view.stale,
            occupancy: view.occupancy.as_f64(),
            components: worker
                .reading
                .components
                .present()
                .map(|(name, share)| (name, share.as_f64()))
                .collect(),
            history: occupancy::history(&worker.window, &group.policy.limits)
                .into_iter()
                .map(Share::as_f64)
                .collect(),
            rps: rates.rps,
            latency_ms: rates.latency_ms,
            requests: forwards.requests,
            errors: forwards.errors,
            seconds: forwards.seconds,
            users: self.users_on(group, view.birth),
            open_requests: worker.open_requests,
            drain: self.drain_view(group, view),
        }
    }

    pub(super) fn users_on(&self, group: &GroupState, birth: elastic_pool_engine::ids::Birth) -> usize {
        self.pools
            .get(&group.spec.pool)
            .map_or(0, |pool| pool.surface.count(birth))
    }

    pub(super) fn group_view(&self, group: &GroupState) -> GroupView {
        let states: Vec<WorkerState> = group.engine.workers().map(|view| view.state).collect();
        let routable =
            |state: &&WorkerState| matches!(state, WorkerState::Routable | WorkerState::Draining(_));
        let staying =
            |state: &&WorkerState| matches!(state, WorkerState::Routable | WorkerState::Nascent { .. });
        let outdated = group.engine.workers().filter(|view| view.outdated);
        let users: usize = group
            .engine
            .workers()
            .map(|view| self.users_on(group, view.birth))
            .sum();
        GroupView {
            workers: small(states.len()),
            ready_workers: small(states.iter().filter(routable).count()),
            desired_workers: small(states.iter().filter(staying).count()),
            outdated_workers: small(outdated.count()),
            users: small(users),
            reception: group
                .engine
                .guest_home()
                .map_or_else(String::new, |worker| worker.name.to_string()),
            capacity_points: points(group.ledger.capacity),
            occupied_points: points(group.ledger.occupied),
            headroom_points: points(group.ledger.headroom),
            conditions: self.conditions(group),
            decisions: group.notes.iter().cloned().collect::<Vec<DecisionNote>>(),
            decisions_seen: group.notes_seen,
        }
    }

    fn conditions(&self, group: &GroupState) -> Vec<ConditionView> {
        let has = |wanted: fn(&Condition) -> bool| group.conditions.iter().any(wanted);
        let unmovable = group.spec.live_moves && group.policy.moves == elastic_pool_engine::MoveMode::Drain;
        let limited = has(|c| matches!(c, Condition::ScalingLimited));
        let above = has(|c| matches!(c, Condition::AboveMax));
        let (pending, degraded) = failure(group);
        let evacuation = self.evacuation_conditions(group);
        let advised = group.spec.mode == Mode::Recommend;
        let advice = advised.then(|| recommendation(group));
        let conditions = vec![
            ready(group),
            self.reports_fresh(group),
            self.progressing(group),
            either(
                "ScalingLimited",
                limited,
                ("MaxWorkers", "growth is wanted and spec.workers.max forbids it"),
                ("WithinMax", "max does not limit growth"),
            ),
            either(
                "AboveMax",
                above,
                ("AboveMax", "more workers than spec.workers.max live"),
                ("WithinMax", "not above max"),
            ),
            either(
                "MovesUnsupported",
                unmovable,
                (
                    "NoSnapshot",
                    "the app hands out no users: workers are drained by waiting",
                ),
                ("Supported", "users can be moved as declared"),
            ),
            pending,
            degraded,
            self.drain_waiting(group),
        ];
        conditions.into_iter().chain(advice).chain(evacuation).collect()
    }

    fn reports_fresh(&self, group: &GroupState) -> ConditionView {
        let stale: Vec<&str> = group
            .engine
            .stale()
            .map(|birth| group.engine.name(birth))
            .collect();
        if !stale.is_empty() {
            let text = format!("no usable report from {}", first_few(&stale));
            return condition("ReportsFresh", false, "Stale", text);
        }
        let workers = group
            .engine
            .workers()
            .filter_map(|view| self.workers.get(&view.birth));
        let odd: Vec<String> = workers
            .filter(|worker| !worker.rejected.is_empty())
            .map(|worker| format!("{}: {}", worker.name(), worker.rejected.join(", ")))
            .collect();
        if odd.is_empty() {
            return condition("ReportsFresh", true, "Fresh", "every worker reports".to_owned());
        }
        let odd: Vec<&str> = odd.iter().map(String::as_str).collect();
        condition(
            "ReportsFresh",
            false,
            "ImpossibleReadings",
            format!("ignored: {}", first_few(&odd)),
        )
    }
}

fn ready(group: &GroupState) -> ConditionView {
    let (placeable, min) = (group.engine.placeable_count(), group.policy.floor());
    if group.spec.mode == Mode::Evacuate && group.engine.living() == 0 {
        let text = "spec.mode is Evacuate and nobody is left".to_owned();
        condition("Ready", false, "Evacuated", text)
    } else if placeable == 0 {
        condition(
            "Ready",
            false,
            "NoRoutableWorker",
            format!("nobody is routable, min is {min}"),
        )
    } else if placeable < min {
        let text = format!("{placeable} of at least {min} workers are routable");
        condition("Ready", false, "BelowMin", text)
    } else {
        condition("Ready", true, "Serving", "the group serves".to_owned())
    }
}

/// What spec.mode Recommend keeps the group from doing; without the figures, which change with every report.
fn recommendation(group: &GroupState) -> ConditionView {
    match &group.advice {
        None => condition(
            "Recommendation",
            false,
            "Nothing",
            "nothing is recommended".to_owned(),
        ),
        Some(Advice { action, reason, .. }) => {
            let text =
                format!("spec.mode is Recommend: {action} was not carried out ({reason}); see lastDecisions");
            condition("Recommendation", true, action, text)
        }
    }
}

/// G4: no capacity apart from a mistake.
fn failure(group: &GroupState) -> (ConditionView, ConditionView) {
    let (pending, mistake) = match &group.failure {
        Some(SpawnFailure::NoCapacity(text)) => (Some(text.clone()), None),
        Some(SpawnFailure::Mistake(text)) => (None, Some(text.clone())),
        None => (None, None),
    };
    let quiet = |kind, reason, text: &str| condition(kind, false, reason, text.to_owned());
    (
        pending.map_or_else(
            || quiet("CapacityPending", "None", "nothing waits for capacity"),
            |text| condition("CapacityPending", true, "NoCapacity", text),
        ),
        mistake.map_or_else(
            || quiet("Degraded", "Healthy", "workers start"),
            |text| condition("Degraded", true, "SpawnsFailing", text),
        ),
    )
}

pub(super) fn condition(kind: &str, status: bool, reason: &str, message: String) -> ConditionView {
    ConditionView {
        kind: kind.to_owned(),
        status: Some(status),
        reason: reason.to_owned(),
        message,
    }
}

fn either(kind: &str, status: bool, yes: (&str, &str), no: (&str, &str)) -> ConditionView {
    let (reason, message) = if status { yes } else { no };
    condition(kind, status, reason, message.to_owned())
}

/// Lists in status are bounded.
pub(super) fn first_few(names: &[&str]) -> String {
    let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

pub(super) fn state_name(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Nascent { .. } => "starting",
        WorkerState::Routable => "routable",
        WorkerState::Draining(_) => "draining",
        WorkerState::Retiring { .. } => "retiring",
    }
}

fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "a share is below 10^7 points")]
fn points(share: Share) -> i64 {
    (share.as_f64() * 100.0).round() as i64
}
