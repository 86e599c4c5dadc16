//! What a worker measured at one tick (M1) and the check of its readings (M2); never judges how full it is.

/// One reading of a worker. Every field may be absent; numbers are exact up to 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Users in memory; a drift sentinel only.
    pub users: Option<f64>,
    /// Pages in memory; a drift sentinel only.
    pub pages: Option<f64>,
    /// Open connections; a drift sentinel only.
    pub connections: Option<f64>,
    /// Users with a non-system request inside the window.
    pub active_users: Option<f64>,
    /// The app's executor.
    pub executor: Executor,
    /// CPU seconds per elapsed second since the previous report: cores.
    pub cpu: Option<f64>,
    /// Resident bytes.
    pub rss: Option<f64>,
    /// Drain sentinel: deposits not yet taken.
    pub backlog_pending: Option<f64>,
    /// Drain sentinel: messages not yet sent.
    pub backlog_outbox: Option<f64>,
    /// The machine's load average; diagnostic only.
    pub load: Option<f64>,
}

/// The executor's part of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Executor {
    /// Busy slots; absent counts as 0 where `total` is given (E1).
    pub busy: Option<f64>,
    /// Slots there are.
    pub total: Option<f64>,
    /// Work that waits for a slot.
    pub queue_depth: Option<f64>,
}

/// The name of a reading that was refused, as it stands in metrics and conditions.
pub type Field = &'static str;

const LARGEST: f64 = 9_007_199_254_740_992.0;

fn possible(value: f64) -> bool {
    (0.0..=LARGEST).contains(&value)
}

impl Report {
    /// The report without its impossible readings (negative, NaN, infinite, over 2^53), and their names (M2).
    ///
    /// A refused `busy` or `total` takes the other with it: E1 would read the remaining half as a number.
    pub fn sanitised(mut self) -> (Self, Vec<Field>) {
        let mut rejected = Vec::new();
        let fields: [(&mut Option<f64>, Field); 12] = [
            (&mut self.users, "users"),
            (&mut self.pages, "pages"),
            (&mut self.connections, "connections"),
            (&mut self.active_users, "active_users"),
            (&mut self.executor.busy, "executor.busy"),
            (&mut self.executor.total, "executor.total"),
            (&mut self.executor.queue_depth, "executor.queue_depth"),
            (&mut self.cpu, "cpu"),
            (&mut self.rss, "rss"),
            (&mut self.backlog_pending, "backlog.pending"),
            (&mut self.backlog_outbox, "backlog.outbox"),
            (&mut self.load, "load"),
        ];
        for (value, name) in fields {
            if value.is_some_and(|v| !possible(v)) {
                *value = None;
                rejected.push(name);
            }
        }
        if rejected
            .iter()
            .any(|name| matches!(*name, "executor.busy" | "executor.total"))
        {
            self.executor.busy = None;
            self.executor.total = None;
        }
        (self, rejected)
    }
}

#[cfg(test)]
mod tests {
    use super::{Executor, Report};
    use rstest::rstest;

    #[rstest]
    #[case(-1.0)]
    #[case(f64::NAN)]
    #[case(f64::INFINITY)]
    #[case(f64::NEG_INFINITY)]
    #[case(9_007_199_254_740_994.0)]
    fn an_impossible_reading_becomes_absent(#[case] value: f64) {
        let report = Report {
            cpu: Some(value),
            rss: Some(5.0),
            ..Report::default()
        };
        let (clean, rejected) = report.sanitised();
        assert_eq!(
            clean,
            Report {
                rss: Some(5.0),
                ..Report::default()
            }
        );
        assert_eq!(rejected, ["cpu"]);
    }

    #[test]
    fn a_possible_reading_stays_as_it_is() {
        let report = Report {
            users: Some(0.0),
            rss: Some(9_007_199_254_740_992.0),
            cpu: Some(1.4),
            ..Report::default()
        };
        assert_eq!(report.sanitised(), (report, vec![]));
    }

    #[test]
    fn a_refused_busy_is_not_read_as_zero() {
        let executor = Executor {
            busy: Some(-3.0),
            total: Some(10.0),
            queue_depth: Some(2.0),
        };
        let (clean, rejected) = Report {
            executor,
            ..Report::default()
        }
        .sanitised();
        assert_eq!(
            clean.executor,
            Executor {
                queue_depth: Some(2.0),
                ..Executor::default()
            }
        );
        assert_eq!(rejected, ["executor.busy"]);
    }
}
