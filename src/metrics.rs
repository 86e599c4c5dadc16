//! The operator's Prometheus metrics: names, labels and their life; it measures nothing itself.
//!
//! Prefix `elastic_pool_`, base units, closed label sets, never a user in a label. Series go when their object goes.

use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::vehicle::ObjectKey;

const PREFIX: &str = "elastic_pool";

/// All metrics of one operator process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    occupancy: GaugeVec,
    component: GaugeVec,
    worker_users: IntGaugeVec,
    worker_open_requests: IntGaugeVec,
    worker_report_age: GaugeVec,
    capacity: GaugeVec,
    occupied: GaugeVec,
    headroom: GaugeVec,
    group_workers: IntGaugeVec,
    group_users: IntGaugeVec,
    decisions: IntCounterVec,
    moves: IntCounterVec,
    move_pause: Histogram,
    move_step: HistogramVec,
    decision_latency: Histogram,
    spawn_seconds: Histogram,
    growth: HistogramVec,
    reports: IntCounterVec,
    rejected: IntCounterVec,
    refused: IntCounterVec,
    lost: IntCounterVec,
    unsaved: IntCounterVec,
    held: IntGaugeVec,
    connections: IntGaugeVec,
    leader: IntGauge,
}

/// Figures of one worker at one moment.
#[derive(Debug, Clone, Copy)]
pub struct WorkerFigures<'a> {
    /// Pod name.
    pub worker: &'a str,
    /// E2, 0..=1.
    pub occupancy: f64,
    /// E1 means by component name.
    pub components: &'a [(&'static str, f64)],
    /// Users that live there.
    pub users: usize,
    /// Forwards in flight, as its agent said last.
    pub open_requests: u64,
    /// Seconds since its last report; `None` before the first.
    pub report_age: Option<f64>,
}

/// Figures of one group at one moment.
#[derive(Debug, Clone, Copy)]
pub struct GroupFigures<'a> {
    /// C1, in workers.
    pub capacity: f64,
    /// C1, in workers.
    pub occupied: f64,
    /// C1, in workers.
    pub headroom: f64,
    /// Living workers by state.
    pub workers: &'a [(&'static str, usize)],
    /// Users that live in the group.
    pub users: usize,
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace(PREFIX)
}

fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<GaugeVec, prometheus::Error> {
    let metric = GaugeVec::new(opts(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn int_gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, prometheus::Error> {
    let metric = IntGaugeVec::new(opts(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let metric = IntCounterVec::new(opts(name, help), labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: Vec<f64>,
) -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts {
        common_opts: opts(name, help),
        buckets,
    };
    let metric = Histogram::with_opts(options)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: Vec<f64>,
    labels: &[&str],
) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts {
        common_opts: opts(name, help),
        buckets,
    };
    let metric = HistogramVec::new(options, labels)?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

const WORKER: &[&str] = &["namespace", "group", "worker"];
const GROUP: &[&str] = &["namespace", "group"];
const PAUSES: &[f64] = &[
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];
const SPAWNS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, 80.0, 160.0];

impl Metrics {
    /// Registers every metric in a registry of its own.
    #[expect(clippy::too_many_lines, reason = "a list")]
    pub fn new() -> Result<Self, prometheus::Error> {
        let r = Registry::new();
        let leader = IntGauge::with_opts(opts("leader", "1 while this operator leads"))?;
        r.register(Box::new(leader.clone()))?;
        let start_time = Gauge::with_opts(opts(
            "start_time_seconds",
            "Start of this process, seconds since 1970",
        ))?;
        r.register(Box::new(start_time.clone()))?;
        start_time.set(crate::clock::unix_seconds() as f64);
        let (pauses, spawns) = (PAUSES.to_vec(), SPAWNS.to_vec());
        Ok(Self {
            occupancy: gauges(
                &r,
                "worker_occupancy_ratio",
                "Smoothed occupancy of a worker (E2)",
                WORKER,
            )?,
            component: gauges(
                &r,
                "worker_component_ratio",
                "Mean of one component over the smoothing rows (E1)",
                &["namespace", "group", "worker", "component"],
            )?,
            worker_users: int_gauges(&r, "worker_users", "Users that live on a worker", WORKER)?,
            worker_open_requests: int_gauges(
                &r,
                "worker_open_requests",
                "Requests open at a worker's agent when it last reported",
                WORKER,
            )?,
            worker_report_age: gauges(
                &r,
                "worker_report_age_seconds",
                "Time since a worker's last report",
                WORKER,
            )?,
            capacity: gauges(
                &r,
                "group_capacity",
                "C of the capacity ledger, in workers (C1)",
                GROUP,
            )?,
            occupied: gauges(
                &r,
                "group_occupied",
                "O of the capacity ledger, in workers (C1, C4)",
                GROUP,
            )?,
            headroom: gauges(
                &r,
                "group_headroom",
                "H of the capacity ledger, in workers (C1)",
                GROUP,
            )?,
            group_workers: int_gauges(
                &r,
                "group_workers",
                "Living workers of a group by state",
                &["namespace", "group", "state"],
            )?,
            group_users: int_gauges(&r, "group_users", "Users that live in a group", GROUP)?,
            decisions: counters(
                &r,
                "decisions_total",
                "Decisions by action and reason",
                &["action", "reason"],
            )?,
            moves: counters(&r, "moves_total", "Moves and joins by result", &["result"])?,
            move_pause: histogram(
                &r,
                "move_pause_seconds",
                "From flag to release of a moved user",
                pauses.clone(),
            )?,
            move_step: histograms(
                &r,
                "move_step_seconds",
                "Time that moves and joins spent in one of their steps",
                pauses.clone(),
                &["step"],
            )?,
            decision_latency: histogram(
                &r,
                "decision_latency_seconds",
                "From the arrival of a report to the actions that follow from it",
                pauses,
            )?,
            growth: histograms(
                &r,
                "growth_seconds",
                "From the report that asked for a worker to each stage of its start",
                spawns.clone(),
                &["stage"],
            )?,
            spawn_seconds: histogram(
                &r,
                "spawn_seconds",
                "From the create call to a routable worker",
                spawns,
            )?,
            reports: counters(&r, "reports_total", "Reports by outcome", &["outcome"])?,
            rejected: counters(
                &r,
                "reports_rejected_total",
                "Impossible readings by field (M2)",
                &["reason"],
            )?,
            refused: counters(
                &r,
                "peers_refused_total",
                "Peers that were not let onto the channel",
                &["reason"],
            )?,
            unsaved: counters(
                &r,
                "decisions_unsaved_total",
                "Decisions that were not saved although they should have been",
                &["reason"],
            )?,
            lost: counters(
                &r,
                "users_lost_total",
                "Users whose session was lost, by cause",
                &["cause"],
            )?,
            held: int_gauges(
                &r,
                "held_requests",
                "Requests held by a gateway now",
                &["gateway"],
            )?,
            connections: int_gauges(&r, "channel_connections", "Open channel streams", &["peer"])?,
            leader,

            registry: r,
        })
    }

    /// All metrics in the text format.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// This process leads, or not.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Sets a worker's series.
    pub fn worker(&self, group: &ObjectKey, figures: &WorkerFigures<'_>) {
        let labels = [group.namespace.as_str(), &group.name, figures.worker];
        self.occupancy.with_label_values(&labels).set(figures.occupancy);
        self.worker_users
            .with_label_values(&labels)
            .set(count(figures.users));
        let open = i64::try_from(figures.open_requests).unwrap_or(i64::MAX);
        self.worker_open_requests.with_label_values(&labels).set(open);
        if let Some(age) = figures.report_age {
            self.worker_report_age.with_label_values(&labels).set(age);
        }
        for component in ["memory", "cpu", "executor"] {
            let labels = [group.namespace.as_str(), &group.name, figures.worker, component];
            match figures.components.iter().find(|(name, _)| *name == component) {
                Some((_, value)) => self.component.with_label_values(&labels).set(*value),
                None => {
                    let _ = self.component.remove_label_values(&labels);
                }
            }
        }
    }

    /// Removes a worker's series.
    pub fn forget_worker(&self, group: &ObjectKey, worker: &str) {
        let labels = [group.namespace.as_str(), &group.name, worker];
        let _ = self.occupancy.remove_label_values(&labels);
        let _ = self.worker_users.remove_label_values(&labels);
        let _ = self.worker_open_requests.remove_label_values(&labels);
        let _ = self.worker_report_age.remove_label_values(&labels);
        for component in ["memory", "cpu", "executor"] {
            let labels = [group.namespace.as_str(), &group.name, worker, component];
            let _ = self.component.remove_label_values(&labels);
        }
    }

    /// Sets a group's series.
    pub fn group(&self, group: &ObjectKey, figures: &GroupFigures<'_>) {
        let labels = [group.namespace.as_str(), &group.name];
        self.capacity.with_label_values(&labels).set(figures.capacity);
        self.occupied.with_label_values(&labels).set(figures.occupied);
        self.headroom.with_label_values(&labels).set(figures.headroom);
        self.group_users
            .with_label_values(&labels)
            .set(count(figures.users));
        for (state, workers) in figures.workers {
            let labels = [group.namespace.as_str(), &group.name, state];
            self.group_workers.with_label_values(&labels).set(count(*workers));
        }
    }

    /// Removes a group's series.
    pub fn forget_group(&self, group: &ObjectKey) {
        let labels = [group.namespace.as_str(), &group.name];
        let _ = self.capacity.remove_label_values(&labels);
        let _ = self.occupied.remove_label_values(&labels);
        let _ = self.headroom.remove_label_values(&labels);
        let _ = self.group_users.remove_label_values(&labels);
        for state in crate::metrics::STATES {
            let _ = self
                .group_workers
                .remove_label_values(&[labels[0], labels[1], state]);
        }
    }

    /// Counts a decision.
    pub fn decision(&self, action: &str, reason: &str) {
        self.decisions.with_label_values(&[action, reason]).inc();
    }

    /// Counts a move that ended.
    pub fn moved(&self, result: &str) {
        self.moves.with_label_values(&[result]).inc();
    }

    /// From flag to release, in seconds.
    pub fn pause(&self, seconds: f64) {
        self.move_pause.observe(seconds);
    }

    /// How long a move was in a step that it left, in seconds.
    pub fn move_step(&self, step: &str, seconds: f64) {
        self.move_step.with_label_values(&[step]).observe(seconds);
    }

    /// From a report's arrival to its actions, in seconds.
    pub fn decided(&self, seconds: f64) {
        self.decision_latency.observe(seconds);
    }

    /// From create call to routable, in seconds.
    pub fn spawned(&self, seconds: f64) {
        self.spawn_seconds.observe(seconds);
    }

    /// A growth's progress, in seconds since the report that asked for it arrived: `created` when the vehicle made
    /// the worker, `routable`, `first_user` when somebody lives there.
    pub fn grew(&self, stage: &str, seconds: f64) {
        self.growth.with_label_values(&[stage]).observe(seconds);
    }

    /// Counts a report that was taken.
    pub fn report_accepted(&self) {
        self.reports.with_label_values(&["accepted"]).inc();
    }

    /// Counts a report that was dropped (M3).
    pub fn report_dropped(&self, reason: &str) {
        self.reports.with_label_values(&[reason]).inc();
    }

    /// Counts an impossible reading (M2).
    pub fn report_rejected(&self, field: &str) {
        self.rejected.with_label_values(&[field]).inc();
    }

    /// Counts a peer that was refused.
    pub fn peer_refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    /// Counts a decision that was not saved: `queue_full` or `write`.
    pub fn decision_unsaved(&self, reason: &str) {
        self.unsaved.with_label_values(&[reason]).inc();
    }

    /// Counts lost users.
    pub fn users_lost(&self, cause: &str, users: usize) {
        self.lost.with_label_values(&[cause]).inc_by(users as u64);
    }

    /// Users lost by this cause so far.
    #[cfg(test)]
    pub(crate) fn lost(&self, cause: &str) -> u64 {
        self.lost.with_label_values(&[cause]).get()
    }

    /// Requests that a gateway holds now.
    pub fn held(&self, gateway: u64, held: u64) {
        self.held
            .with_label_values(&[&gateway.to_string()])
            .set(i64::try_from(held).unwrap_or(i64::MAX));
    }

    /// A gateway's series go.
    pub fn forget_gateway(&self, gateway: u64) {
        let _ = self.held.remove_label_values(&[&gateway.to_string()]);
    }

    /// Open streams of one kind of peer.
    pub fn connections(&self, peer: &str, open: usize) {
        self.connections.with_label_values(&[peer]).set(count(open));
    }
}

/// States of `group_workers`.
pub const STATES: [&str; 4] = ["starting", "routable", "draining", "retiring"];

fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_go_when_their_worker_goes() {
        let metrics = Metrics::new().unwrap();
        let group = ObjectKey {
            namespace: "shop".into(),
            name: "shop-blue".into(),
        };
        let figures = WorkerFigures {
            worker: "shop-blue-x",
            occupancy: 0.5,
            components: &[("cpu", 0.5)],
            users: 3,
            open_requests: 0,
            report_age: Some(1.0),
        };
        metrics.worker(&group, &figures);
        assert!(
            metrics
                .render()
                .contains("elastic_pool_worker_occupancy_ratio{group=\"shop-blue\"")
        );
        metrics.forget_worker(&group, "shop-blue-x");
        assert!(!metrics.render().contains("shop-blue-x"));
    }
}
