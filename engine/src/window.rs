//! The last rows of one worker (M3, M4), packed; never computes an occupancy.

mod packed;

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
///
/// Rows stand side by side in slots of one length, that of the longest so far: about 64 bytes where every field is there. They are held to
/// the last bit, so that another limit or threshold can be applied to all of them at any time.
#[derive(Clone, Debug)]
pub struct Window {
    slots: Vec<u8>,
    /// Bytes of a slot; 0 before the first row.
    slot: usize,
    /// The slot of the oldest row.
    oldest: usize,
    rows: usize,
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
            slots: Vec::new(),
            slot: 0,
            oldest: 0,
            rows: 0,
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
        let mut bytes = [0; packed::MOST];
        let length = packed::pack(&row, &mut bytes);
        if length > self.slot {
            self.widen(length);
        }
        let place = if self.rows < self.keep {
            self.make_room();
            self.rows += 1;
            self.rows - 1
        } else {
            let place = self.oldest;
            self.oldest = (self.oldest + 1) % self.keep;
            place
        };
        let from = place * self.slot;
        self.slots[from..from + length].copy_from_slice(&bytes[..length]);
    }

    /// Slots grow by doubling, but never beyond those of a full window.
    fn make_room(&mut self) {
        let end = (self.rows + 1) * self.slot;
        if end > self.slots.capacity() {
            let rows = self.rows.saturating_mul(2).clamp(4, self.keep.max(4));
            self.slots.reserve_exact(rows * self.slot - self.slots.len());
        }
        self.slots.resize(end, 0);
    }

    fn widen(&mut self, slot: usize) {
        let mut wider = Vec::with_capacity(self.rows * slot);
        for row in 0..self.rows {
            wider.extend_from_slice(self.packed(row));
            wider.resize((row + 1) * slot, 0);
        }
        (self.slots, self.slot, self.oldest) = (wider, slot, 0);
    }

    fn packed(&self, row: usize) -> &[u8] {
        // Only a full window has turned round: then it has `keep` slots.
        let turned = self.oldest + row;
        let place = if turned < self.rows {
            turned
        } else {
            turned - self.rows
        };
        &self.slots[place * self.slot..(place + 1) * self.slot]
    }

    /// All rows, oldest first.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row> + DoubleEndedIterator {
        (0..self.rows).map(|row| packed::unpack(self.packed(row)))
    }

    /// The last `count` rows, oldest first.
    pub fn last(&self, count: usize) -> impl ExactSizeIterator<Item = Row> + DoubleEndedIterator {
        let from = self.rows.saturating_sub(count);
        (from..self.rows).map(|row| packed::unpack(self.packed(row)))
    }

    /// What E1 reads of the last `count` reports, oldest first.
    pub(crate) fn gauges(&self, count: usize) -> impl Iterator<Item = Report> {
        let from = self.rows.saturating_sub(count);
        (from..self.rows).map(|row| packed::unpack_gauges(self.packed(row)))
    }

    /// The newest row's arrival.
    pub fn last_at(&self) -> Option<Duration> {
        self.last(1).next().map(|row| row.at)
    }

    /// The rows that arrived at or after `since`.
    pub fn rows_since(&self, since: Duration) -> usize {
        self.rows().rev().take_while(|row| row.at >= since).count()
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

    #[test]
    fn a_longer_row_in_a_full_window_leaves_the_others_as_they_are() {
        let mut window = Window::new(3, "a");
        (1..=4).for_each(|second| window.push(row(second)));
        let long = Row {
            report: Report {
                load: Some(0.1),
                rss: Some(0.2),
                ..Report::default()
            },
            ..row(5)
        };
        window.push(long);
        window.push(row(6));
        assert_eq!(window.rows().collect::<Vec<_>>(), [row(4), long, row(6)]);
        assert_eq!(window.last_at(), Some(Duration::from_secs(6)));
    }

    #[test]
    fn a_full_window_of_busy_rows_takes_less_than_four_kilobytes() {
        let mut window = Window::new(Window::ROWS, "a");
        for second in 0..200 {
            let number = Some(f64::from(1_000 + second));
            let report = Report {
                users: number,
                pages: number,
                connections: number,
                active_users: number,
                executor: crate::report::Executor {
                    busy: number,
                    total: number,
                    queue_depth: number,
                },
                cpu: Some(0.123_456_789),
                rss: Some(3e9),
                backlog_pending: number,
                backlog_outbox: number,
                load: Some(1.234_567),
            };
            let forward = Forwards {
                requests: 4_000_000_000,
                errors: 9,
                seconds: 0.1 * f64::from(second),
            };
            window.push(Row {
                report,
                forward,
                ..row(100_000)
            });
        }
        assert!(window.slots.capacity() < 4_096, "{}", window.slots.capacity());
    }
}
