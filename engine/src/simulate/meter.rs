//! One worker's load as its reports show it: the same measuring for every way of serving users.

use std::time::Duration;

use super::Settings;
use crate::occupancy::Reading;
use crate::report::Report;
use crate::share::Share;
use crate::thresholds::Policy;
use crate::window::{Row, Window};

/// What a worker's users need and what its window says of it.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    users: usize,
    needed: Share,
    since: Duration,
    reported: Duration,
    used_seconds: f64,
    needed_seconds: f64,
    window: Window,
    /// The smoothed reading (E2), as of the last report.
    pub(super) reading: Reading,
}

/// Users' time on workers that had too much to do, in user-hours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overload {
    /// On workers above the admission threshold.
    pub(super) above_admission: f64,
    /// On workers that were asked for more than they have: everybody there waits.
    pub(super) above_capacity: f64,
}

impl Meter {
    pub(super) fn new(policy: &Policy, now: Duration) -> Self {
        Self {
            users: 0,
            needed: Share::ZERO,
            since: now,
            reported: now,
            used_seconds: 0.0,
            needed_seconds: 0.0,
            window: Window::new(policy.window_rows, ""),
            reading: Reading::default(),
        }
    }

    /// Users here and what they need.
    #[cfg(test)]
    pub(super) fn load(&self) -> (usize, Share) {
        (self.users, self.needed)
    }

    /// When it reported last.
    pub(super) fn reported_at(&self) -> Option<Duration> {
        self.window.last_at()
    }

    pub(super) fn enter(&mut self, load: Share, now: Duration) {
        self.users += 1;
        self.change(Share::ZERO, load, now);
    }

    pub(super) fn leave(&mut self, load: Share, now: Duration) {
        self.users -= 1;
        self.change(load, Share::ZERO, now);
    }

    /// A user's need changes.
    pub(super) fn change(&mut self, from: Share, to: Share, now: Duration) {
        self.settle(now);
        self.needed = self.needed + to - from;
    }

    fn settle(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.needed_seconds += seconds * self.needed.as_f64();
        self.used_seconds += seconds * self.needed.clamped().as_f64();
    }

    /// A report: nobody uses more than a worker has, so what is needed beyond that shows nowhere (E1).
    pub(super) fn report(&mut self, policy: &Policy, now: Duration, overload: &mut Overload) {
        self.settle(now);
        let seconds = now.saturating_sub(self.reported).as_secs_f64();
        let needed = self.needed_seconds / seconds;
        let hours = self.users as f64 * seconds / 3600.0;
        if needed >= policy.admission.as_f64() {
            overload.above_admission += hours;
        }
        if needed >= 1.0 {
            overload.above_capacity += hours;
        }
        let report = Report {
            cpu: Some(self.used_seconds / seconds * policy.limits.cpu_cores.min(1.0)),
            ..Report::default()
        };
        self.window.push(Row {
            at: now,
            report: report.sanitised().0,
            forward: crate::forward::Forwards::default(),
        });
        self.reading = Reading::of(&self.window, policy.smoothing_rows, &policy.limits);
        self.reported = now;
        self.used_seconds = 0.0;
        self.needed_seconds = 0.0;
    }

    /// Mean occupancy over the last `rows` reports; `None` while there are fewer.
    pub(super) fn mean(&self, rows: usize, policy: &Policy) -> Option<Share> {
        let enough = self.window.rows().len() >= rows;
        enough.then(|| Reading::of(&self.window, rows, &policy.limits).occupancy)
    }
}

/// When the `index`-th worker reports first: workers do not report at the same moment.
pub(super) fn first_report(policy: &Policy, settings: &Settings, index: u64, now: Duration) -> Duration {
    let phase = super::random::Random::stream(settings.seed ^ 0x5EED, index).unit();
    now + policy.interval.mul_f64(phase).max(Duration::from_millis(1))
}
