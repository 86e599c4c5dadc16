//! What is due and when, in a simulated day; what comes due at one moment comes in the order in which it was put down.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub(super) struct Agenda<E> {
    due: BinaryHeap<Reverse<(Duration, u64, E)>>,
    added: u64,
}

impl<E: Ord> Agenda<E> {
    pub(super) fn new() -> Self {
        Self {
            due: BinaryHeap::new(),
            added: 0,
        }
    }

    pub(super) fn add(&mut self, at: Duration, event: E) {
        self.added += 1;
        self.due.push(Reverse((at, self.added, event)));
    }

    /// When the next one is due, if that is before `end`.
    pub(super) fn next_before(&self, end: Duration) -> Option<Duration> {
        let Reverse((at, ..)) = self.due.peek()?;
        (*at < end).then_some(*at)
    }

    pub(super) fn next(&mut self) -> Option<(Duration, E)> {
        let Reverse((at, _, event)) = self.due.pop()?;
        Some((at, event))
    }
}
