//! Growing pauses after a failure; never sleeps itself.

use std::time::Duration;

/// A pause that doubles from `first` up to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub most: Duration,
}

impl Backoff {
    /// Between failed spawns: 10 s doubling to 5 min (G4).
    pub const SPAWN: Self = Self {
        first: Duration::from_secs(10),
        most: Duration::from_mins(5),
    };
    /// For a user whose move failed, and for a worker that could not be emptied: 1 min doubling to 15 (V6, C7).
    pub const MOVE: Self = Self {
        first: Duration::from_mins(1),
        most: Duration::from_mins(15),
    };

    /// The pause after `failures` failures in a row; none after 0.
    pub fn pause(self, failures: u32) -> Duration {
        match failures {
            0 => Duration::ZERO,
            n => self
                .first
                .saturating_mul(1u32.checked_shl(n - 1).unwrap_or(u32::MAX))
                .min(self.most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn pauses_double_up_to_the_most() {
        let seconds = |n| Backoff::SPAWN.pause(n).as_secs();
        assert_eq!(
            [0, 1, 2, 3, 6, 40, u32::MAX].map(seconds),
            [0, 10, 20, 40, 300, 300, 300]
        );
    }
}
