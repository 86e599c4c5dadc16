//! Cumulative counters of forwards, added up from gateways that restart (M4, U1); no total ever falls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::GatewayId;

/// Cumulative counters of one worker, or of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forwards {
    /// Completed forwards, whatever their status.
    pub requests: u64,
    /// Transport failures.
    pub errors: u64,
    /// Seconds spent in both.
    pub seconds: f64,
}

impl Forwards {
    /// What came on top of `earlier`; a counter that fell adds nothing.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let seconds = self.seconds - earlier.seconds;
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            errors: self.errors.saturating_sub(earlier.errors),
            seconds: if seconds.is_finite() {
                seconds.max(0.0)
            } else {
                0.0
            },
        }
    }

    /// Adds `more` to every counter.
    pub fn add(&mut self, more: Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.errors = self.errors.saturating_add(more.errors);
        self.seconds += more.seconds;
    }
}

/// The sum over gateways of what each said last, kept over their restarts.
#[derive(Clone, Debug, Default)]
pub struct ForwardSum {
    total: Forwards,
    last: BTreeMap<GatewayId, (Arc<str>, Forwards)>,
}

impl ForwardSum {
    /// Takes a gateway's totals since its start; `incarnation` changes when it starts anew (M4).
    pub fn observe(&mut self, gateway: GatewayId, incarnation: &str, totals: Forwards) {
        match self.last.get_mut(&gateway) {
            Some((seen, last)) if **seen == *incarnation => {
                self.total.add(totals.since(*last));
                *last = totals;
            }
            _ => {
                self.total.add(totals.since(Forwards::default()));
                self.last.insert(gateway, (incarnation.into(), totals));
            }
        }
    }

    /// Drops the memory of a gateway that is gone; its part of the total stays.
    pub fn forget(&mut self, gateway: GatewayId) {
        self.last.remove(&gateway);
    }

    /// The sum over all gateways that ever spoke.
    pub fn total(&self) -> Forwards {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::{ForwardSum, Forwards};
    use crate::ids::GatewayId;

    fn of(requests: u64, seconds: f64) -> Forwards {
        Forwards {
            requests,
            errors: 0,
            seconds,
        }
    }

    #[test]
    fn totals_never_fall_when_a_gateway_restarts() {
        let mut sum = ForwardSum::default();
        sum.observe(GatewayId(1), "a", of(10, 1.0));
        sum.observe(GatewayId(2), "c", of(5, 0.5));
        sum.observe(GatewayId(1), "a", of(12, 1.25));
        assert_eq!(sum.total(), of(17, 1.75));
        sum.observe(GatewayId(1), "b", of(3, 0.25));
        assert_eq!(sum.total(), of(20, 2.0));
    }

    #[test]
    fn a_counter_that_fell_adds_nothing() {
        let mut sum = ForwardSum::default();
        sum.observe(GatewayId(1), "a", of(10, 1.0));
        sum.observe(GatewayId(1), "a", of(4, f64::NAN));
        assert_eq!(sum.total(), of(10, 1.0));
    }
}
