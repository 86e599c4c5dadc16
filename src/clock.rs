//! The only place that reads a clock; everything else is told what time it is.

use std::time::Duration;

use tokio::time::Instant;

/// A monotonic clock with an origin of its own; times of two clocks are never compared.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock at zero.
    #[allow(clippy::disallowed_methods, reason = "the one place that may")]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// Time since the clock was started.
    pub fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Seconds since 1970 by the wall clock; for timestamps in logs and in Kubernetes objects, never for a decision.
#[allow(clippy::disallowed_methods, reason = "the one place that may")]
pub fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
