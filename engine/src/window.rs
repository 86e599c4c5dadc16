//! The last rows of one worker (M3, M4); never computes an occupancy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::forward::Forwards;
use crate::report::Report;

/// One report as it arrived, with the worker's counters at that moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Arrival, by the commander's monotonic clock.
    pub at: Duration,
    /// The report, sanitised.
    pub report: Report,
    /// The worker's cumulative forward counters.
    pub forward: Forwards,
}

/// Why a report was dropped (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is of another incarnation than the one that announced itself.
    OtherIncarnation,
    /// Its sequence is not above the last one.
    OldSequence,
}

impl Dropped {
    /// The reason as a metric label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::OtherIncarnation => "other_incarnation",
            Self::OldSequence => "old_sequence",
        }
    }
}

/// The last rows of one worker, oldest first.
#[derive(Clone, Debug)]
pub struct Window {
    rows: VecDeque<Row>,
    keep: usize,
    incarnation: Arc<str>,
    sequence: Option<u64>,
}

impl Window {
    /// Rows kept unless the policy says otherwise (M4).
    pub const ROWS: usize = 60;

    /// An empty window of at most `keep` rows (at least one) for the incarnation that announced itself.
    pub fn new(keep: usize, incarnation: &str) -> Self {
        Self {
            rows: VecDeque::new(),
            keep: keep.max(1),
            incarnation: incarnation.into(),
            sequence: None,
        }
    }

    /// Another incarnation announced itself: its sequence starts anew, the rows stay.
    pub fn announce(&mut self, incarnation: &str) {
        if *self.incarnation != *incarnation {
            self.incarnation = incarnation.into();
            self.sequence = None;
        }
    }

    /// Takes a report, unless it is repeated, older, or of another incarnation (M3).
    pub fn accept(&mut self, incarnation: &str, sequence: u64, row: Row) -> Result<(), Dropped> {
        if *incarnation != *self.incarnation {
            return Err(Dropped::OtherIncarnation);
        }
        if self.sequence.is_some_and(|last| sequence <= last) {
            return Err(Dropped::OldSequence);
        }
        self.sequence = Some(sequence);
        self.push(row);
        Ok(())
    }

    /// Takes a row whose place in the order is known.
    pub fn push(&mut self, row: Row) {
        if self.rows.len() == self.keep {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// All rows, oldest first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &Row> + DoubleEndedIterator {
        self.rows.iter()
    }

    /// The last `count` rows, oldest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = &Row> {
        self.rows.range(self.rows.len().saturating_sub(count)..)
    }

    /// The newest row's arrival.
    pub fn last_at(&self) -> Option<Duration> {
        self.rows.back().map(|row| row.at)
    }

    /// The rows that arrived at or after `since`.
    pub fn rows_since(&self, since: Duration) -> usize {
        self.rows.iter().rev().take_while(|row| row.at >= since).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{Dropped, Row, Window};
    use crate::forward::Forwards;
    use crate::report::Report;
    use std::time::Duration;

    fn row(second: u64) -> Row {
        Row {
            at: Duration::from_secs(second),
            report: Report::default(),
            forward: Forwards::default(),
        }
    }

    #[test]
    fn an_old_or_foreign_report_is_dropped() {
        let mut window = Window::new(60, "a");
        assert_eq!(window.accept("a", 1, row(1)), Ok(()));
        assert_eq!(window.accept("a", 1, row(2)), Err(Dropped::OldSequence));
        assert_eq!(window.accept("a", 0, row(2)), Err(Dropped::OldSequence));
        assert_eq!(window.accept("b", 2, row(2)), Err(Dropped::OtherIncarnation));
        assert_eq!(window.rows().len(), 1);
    }

    #[test]
    fn a_new_incarnation_starts_its_sequence_anew_and_keeps_the_rows() {
        let mut window = Window::new(60, "a");
        assert_eq!(window.accept("a", 9, row(1)), Ok(()));
        window.announce("b");
        assert_eq!(window.accept("b", 0, row(2)), Ok(()));
        assert_eq!(window.rows().len(), 2);
    }

    #[test]
    fn the_oldest_row_goes_first() {
        let mut window = Window::new(3, "a");
        (1..=5).for_each(|second| window.push(row(second)));
        let kept: Vec<u64> = window.rows().map(|row| row.at.as_secs()).collect();
        assert_eq!(kept, [3, 4, 5]);
        assert_eq!(
            window.last(2).map(|row| row.at.as_secs()).collect::<Vec<_>>(),
            [4, 5]
        );
        assert_eq!(window.rows_since(Duration::from_secs(4)), 2);
    }
}
