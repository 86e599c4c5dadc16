//! The app's bounded executor: burns real CPU for a request on one of a fixed number of slots, and counts who waits.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::clock::Clock;

/// Why a request was not run.
#[derive(Debug, Error)]
pub(super) enum ExecutorError {
    /// As many wait already as may.
    #[error("the executor's queue is full")]
    Full,
    /// The process is going down.
    #[error("the executor is closed")]
    Closed,
}

/// The executor's part of a report (M1).
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Gauge {
    /// Slots in use.
    pub(super) busy: usize,
    /// Slots.
    pub(super) total: usize,
    /// Requests that wait for a slot.
    pub(super) queue_depth: usize,
}

/// A fixed number of slots with a bounded queue before them.
pub(super) struct Executor {
    slots: Arc<Semaphore>,
    total: usize,
    waiting: AtomicUsize,
    queue: usize,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Executor {
    /// An executor of `total` slots before which at most `queue` requests wait.
    pub(super) fn new(total: usize, queue: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(total)),
            total,
            waiting: AtomicUsize::new(0),
            queue,
        }
    }

    /// Burns `cpu` of CPU time on a slot, then keeps the slot for `hold` more without using any.
    pub(super) async fn run(&self, cpu: Duration, hold: Duration) -> Result<(), ExecutorError> {
        if cpu.is_zero() && hold.is_zero() {
            return Ok(());
        }
        let slot = {
            let waiting = Waiting(&self.waiting);
            if waiting.0.fetch_add(1, Ordering::Relaxed) >= self.queue {
                return Err(ExecutorError::Full);
            }
            self.slots
                .clone()
                .acquire_owned()
                .await
                .map_err(|_| ExecutorError::Closed)?
        };
        // The slot travels with the work: a client that goes away does not free a slot that still burns.
        let slot = tokio::task::spawn_blocking(move || {
            burn(cpu);
            slot
        })
        .await
        .map_err(|_| ExecutorError::Closed)?;
        tokio::time::sleep(hold).await;
        drop(slot);
        Ok(())
    }

    /// What is in use now.
    pub(super) fn gauge(&self) -> Gauge {
        Gauge {
            busy: self.total.saturating_sub(self.slots.available_permits()),
            total: self.total,
            queue_depth: self.waiting.load(Ordering::Relaxed),
        }
    }
}

/// Does as much work as an undisturbed core does in `cpu`: throttling makes it slower, never less.
fn burn(cpu: Duration) {
    static ROUNDS_PER_MS: OnceLock<f64> = OnceLock::new();
    if cpu.is_zero() {
        return;
    }
    let rate = *ROUNDS_PER_MS.get_or_init(measure_rate);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    work((rate * cpu.as_secs_f64() * 1000.0) as u64);
}

/// The fastest of many short batches is one that nothing interrupted.
fn measure_rate() -> f64 {
    const ROUNDS: u16 = 50;
    const BATCHES: u16 = 32;
    work(u64::from(ROUNDS));
    let fastest = (0..BATCHES)
        .map(|_| {
            let clock = Clock::start();
            work(u64::from(ROUNDS));
            clock.now().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    f64::from(ROUNDS) / (fastest.max(1e-6) * 1000.0)
}

fn work(rounds: u64) {
    let block = [7_u8; 1024];
    for _ in 0..rounds {
        black_box(digest(&SHA256, black_box(&block)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_free_slot_serves() {
        let executor = Executor::new(1, 1);
        let held = executor.slots.clone().acquire_owned().await.unwrap();
        let waits = executor.run(Duration::from_millis(1), Duration::ZERO);
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        assert_eq!(
            executor.gauge(),
            Gauge {
                busy: 1,
                total: 1,
                queue_depth: 1
            }
        );
        let refused = executor.run(Duration::from_millis(1), Duration::ZERO).await;
        assert!(matches!(refused, Err(ExecutorError::Full)));
        drop(held);
        waits.await.unwrap();
        assert_eq!(
            executor.gauge(),
            Gauge {
                busy: 0,
                total: 1,
                queue_depth: 0
            }
        );
    }
}
