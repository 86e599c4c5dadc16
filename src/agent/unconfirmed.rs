//! Clients of an app without logins who were seen once (P7): a number and a latest expiry; it knows none of them.

use std::time::Duration;

/// P7: clients seen once, as a number and a latest expiry, so that a flood creates nothing.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed {
    count: u64,
    expiry: Duration,
}

impl Unconfirmed {
    pub(crate) fn seen(&mut self, now: Duration, timeout: Duration) {
        self.expire(now);
        self.count += 1;
        self.expiry = now + timeout;
    }

    pub(crate) fn confirmed(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    fn expire(&mut self, now: Duration) {
        if now >= self.expiry {
            self.count = 0;
        }
    }

    /// How many, and how long until the last of them expires.
    pub(crate) fn read(&mut self, now: Duration) -> (u64, Duration) {
        self.expire(now);
        let left = if self.count == 0 {
            Duration::ZERO
        } else {
            self.expiry.saturating_sub(now)
        };
        (self.count, left)
    }
}
