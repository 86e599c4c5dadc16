//! Clocks every forward for its worker and its user (U1): cumulative since this gateway's start; it reads no clock itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use parking_lot::Mutex;

use crate::channel::proto::{Totals, UserTotals, WorkerTotals};

const CELLS: usize = 8;

static NEXT_CELL: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static CELL: usize = NEXT_CELL.fetch_add(1, Relaxed) % CELLS;
}

#[derive(Default)]
#[repr(align(64))]
struct Cell {
    requests: AtomicU64,
    errors: AtomicU64,
    nanos: AtomicU64,
}

/// Counters of one worker, a cell per thread so that threads do not share a cache line.
#[derive(Default)]
pub(crate) struct WorkerClock {
    cells: [Cell; CELLS],
    reported: AtomicU64,
}

/// Counters of one user; his requests are few, one cell is enough. They go with what the table knows of him.
#[derive(Debug, Default)]
pub(crate) struct UserClock {
    requests: AtomicU64,
    nanos: AtomicU64,
    reported: AtomicU64,
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

impl WorkerClock {
    /// One forward ended after `took`; `failed` when the transport broke (whatever the status otherwise).
    pub(crate) fn add(&self, took: Duration, failed: bool) {
        let cell = &self.cells[CELL.with(|cell| *cell)];
        if failed {
            cell.errors.fetch_add(1, Relaxed);
        } else {
            cell.requests.fetch_add(1, Relaxed);
        }
        cell.nanos.fetch_add(nanos(took), Relaxed);
    }

    fn totals(&self, birth: Birth) -> WorkerTotals {
        let sum = |part: fn(&Cell) -> &AtomicU64| {
            self.cells
                .iter()
                .map(|cell| part(cell).load(Relaxed))
                .sum::<u64>()
        };
        WorkerTotals {
            birth: birth.0,
            requests: sum(|cell| &cell.requests),
            errors: sum(|cell| &cell.errors),
            seconds: Duration::from_nanos(sum(|cell| &cell.nanos)).as_secs_f64(),
        }
    }
}

impl UserClock {
    pub(crate) fn add(&self, took: Duration) {
        self.requests.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos(took), Relaxed);
    }

    /// What to report of `user`, if anything changed since the last report or `everything` is asked for.
    pub(crate) fn totals(&self, user: &str, everything: bool) -> Option<UserTotals> {
        let requests = self.requests.load(Relaxed);
        let is_due = self.reported.swap(requests, Relaxed) != requests || everything;
        is_due.then(|| UserTotals {
            user: user.to_owned(),
            requests,
            seconds: Duration::from_nanos(self.nanos.load(Relaxed)).as_secs_f64(),
        })
    }
}

/// The workers' counters; they go when their entries go.
#[derive(Default)]
pub(crate) struct Clocks {
    workers: Mutex<BTreeMap<Birth, Arc<WorkerClock>>>,
}

impl Clocks {
    pub(crate) fn worker(&self, birth: Birth) -> Arc<WorkerClock> {
        Arc::clone(self.workers.lock().entry(birth).or_default())
    }

    pub(crate) fn forget_worker(&self, birth: Birth) {
        self.workers.lock().remove(&birth);
    }

    /// What changed of workers since the last call; after `everything` (a new commander) also what did not.
    pub(crate) fn totals(&self, everything: bool, held: u64) -> Totals {
        let mut totals = Totals {
            held,
            ..Totals::default()
        };
        for (birth, clock) in self.workers.lock().iter() {
            let worker = clock.totals(*birth);
            let seen = worker.requests + worker.errors;
            if clock.reported.swap(seen, Relaxed) != seen || everything {
                totals.workers.push(worker);
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_cumulative_and_leave_out_what_did_not_change() {
        let clocks = Clocks::default();
        let worker = clocks.worker(Birth(1));
        let of_alice = UserClock::default();
        worker.add(Duration::from_millis(500), false);
        worker.add(Duration::from_millis(250), true);
        of_alice.add(Duration::from_millis(500));
        let first = clocks.totals(false, 3);
        assert_eq!(
            first.workers,
            [WorkerTotals {
                birth: 1,
                requests: 1,
                errors: 1,
                seconds: 0.75
            }]
        );
        let told = UserTotals {
            user: "alice".to_owned(),
            requests: 1,
            seconds: 0.5,
        };
        assert_eq!(of_alice.totals("alice", false), Some(told.clone()));
        assert_eq!(of_alice.totals("alice", false), None);
        assert_eq!(of_alice.totals("alice", true), Some(told));
        assert_eq!(first.held, 3);
        assert_eq!(clocks.totals(false, 0), Totals::default());
        assert_eq!(clocks.totals(true, 3), first);
        worker.add(Duration::from_millis(250), false);
        assert_eq!(clocks.totals(false, 0).workers[0].requests, 2);
    }
}
