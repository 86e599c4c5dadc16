//! Timeouts that cost a request nothing: they are looked at when their connection is polled anyway, and at least once each patrol.
//!
//! hyper sets a timeout for each request's head and takes it back when the head is there. With a runtime's timer that is an entry made and removed
//! per request; here it is one number.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// Longest time between two looks.
const PATROL: Duration = Duration::from_secs(5);

fn beat(limit: Duration) -> Duration {
    (limit / 4).clamp(Duration::from_millis(1), PATROL)
}

/// How many beats of a patrol make up `limit`.
pub(crate) fn beats(limit: Duration) -> u32 {
    let beats = limit.as_nanos().div_ceil(beat(limit).as_nanos());
    u32::try_from(beats).unwrap_or(u32::MAX)
}

/// How often a connection with a timeout of `limit` has to be polled.
pub(crate) fn patrol(limit: Duration) -> tokio::time::Interval {
    let mut patrol = tokio::time::interval(beat(limit));
    patrol.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    patrol
}

/// A timer for connections that somebody patrols.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience;

struct Until(Instant);

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if tokio::time::Instant::now().into_std() < self.0 {
            // Whoever patrols comes by.
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl Sleep for Until {}

impl Timer for Patience {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until(deadline))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
