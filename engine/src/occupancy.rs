//! How full a worker is (E1-E5), from its rows; never decides anything on it.

use std::time::Duration;

use crate::report::Report;
use crate::share::Share;
use crate::window::{Row, Window};

/// What a full component is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of memory; `None` or 0: no memory component.
    pub memory_bytes: Option<u64>,
    /// CPU cores, at most one (E1); 0 or less: no cpu component.
    pub cpu_cores: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            cpu_cores: 1.0,
        }
    }
}

/// The components of one row or their means, each 0..1 where it could be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Components {
    /// Resident memory over its limit.
    pub memory: Option<Share>,
    /// CPU over its capacity.
    pub cpu: Option<Share>,
    /// Busy over total slots.
    pub executor: Option<Share>,
}

impl Components {
    /// The components of one report (E1).
    pub fn of(report: &Report, limits: &Limits) -> Self {
        let ratio = |part: f64, whole: f64| {
            // An impossible part is absent, whoever forgot to sanitise it; a huge one is simply full.
            (part >= 0.0 && whole > 0.0)
                .then(|| Share::from_f64((part / whole).min(1.0)))
                .flatten()
        };
        let memory = report
            .rss
            .zip(limits.memory_bytes)
            .and_then(|(rss, limit)| ratio(rss, limit as f64));
        let cpu = report.cpu.and_then(|cpu| ratio(cpu, limits.cpu_cores.min(1.0)));
        let executor = report
            .executor
            .total
            .and_then(|total| ratio(report.executor.busy.unwrap_or(0.0), total));
        Self {
            memory,
            cpu,
            executor,
        }
    }

    /// The fullest component; `None` when nothing could be measured.
    pub fn fullest(&self) -> Option<Share> {
        self.memory.max(self.cpu).max(self.executor)
    }

    /// Name and value of each component that is there.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, Share)> {
        [
            ("memory", self.memory),
            ("cpu", self.cpu),
            ("executor", self.executor),
        ]
        .into_iter()
        .filter_map(|(name, share)| Some((name, share?)))
    }
}

/// What a worker's last rows say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Means over the smoothing rows that carry the component (E2).
    pub components: Components,
    /// The largest mean; zero when there is none (E2, E3).
    pub occupancy: Share,
    /// Rows that were looked at.
    pub rows: usize,
}

impl Reading {
    /// Mean first, maximum after, over the last `smoothing_rows` rows (E2, E3).
    pub fn of(window: &Window, smoothing_rows: usize, limits: &Limits) -> Self {
        let mut means = [Mean::default(); 3];
        let mut rows = 0;
        for report in window.gauges(smoothing_rows) {
            let one = Components::of(&report, limits);
            means[0].add(one.memory);
            means[1].add(one.cpu);
            means[2].add(one.executor);
            rows += 1;
        }
        let components = Components {
            memory: means[0].value(),
            cpu: means[1].value(),
            executor: means[2].value(),
        };
        Self {
            components,
            occupancy: components.fullest().unwrap_or_default(),
            rows,
        }
    }

    /// The second half of E5: it holds users, it reported, and its rows carry no component.
    pub fn is_unmeasured(&self, holds_users: bool) -> bool {
        holds_users && self.rows > 0 && self.components.fullest().is_none()
    }
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: Share,
    count: usize,
}

impl Mean {
    fn add(&mut self, share: Option<Share>) {
        if let Some(share) = share {
            self.sum += share;
            self.count += 1;
        }
    }

    fn value(self) -> Option<Share> {
        (self.count > 0).then(|| self.sum.divided(self.count))
    }
}

/// When a worker goes stale for silence: three intervals after its last report (E5); never, if it never reported.
pub fn stale_from(last_report: Option<Duration>, interval: Duration) -> Option<Duration> {
    last_report.map(|at| at.saturating_add(interval.saturating_mul(3)))
}

/// Per row the fullest component, zero for an empty row, over the whole window (E4).
pub fn history(window: &Window, limits: &Limits) -> Vec<Share> {
    window
        .rows()
        .map(|row| Components::of(&row.report, limits).fullest().unwrap_or_default())
        .collect()
}

/// Rates over the first and the last row of a window (E4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests per second; `None` with fewer than two rows or no elapsed time.
    pub rps: Option<f64>,
    /// Mean milliseconds per request; `None` also when none completed.
    pub latency_ms: Option<f64>,
}

impl Rates {
    /// The rates between the first and the last row.
    pub fn of(window: &Window) -> Self {
        let mut rows = window.rows();
        let (Some(first), Some(last)) = (rows.next(), rows.next_back()) else {
            return Self::default();
        };
        Self::between(&first, &last)
    }

    fn between(first: &Row, last: &Row) -> Self {
        let elapsed = last.at.saturating_sub(first.at).as_secs_f64();
        if elapsed <= 0.0 {
            return Self::default();
        }
        let done = last.forward.since(first.forward);
        let requests = done.requests as f64;
        Self {
            rps: Some(requests / elapsed),
            latency_ms: (done.requests > 0).then(|| done.seconds / requests * 1000.0),
        }
    }
}
