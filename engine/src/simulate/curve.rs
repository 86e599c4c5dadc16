//! A figure that holds until it changes, and its means per minute.

use std::time::Duration;

/// A minute.
pub(super) const MINUTE: Duration = Duration::from_mins(1);

/// A piecewise constant figure from 0 to the end of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    value: f64,
    highest: f64,
    since: Duration,
    end: Duration,
    minutes: Vec<f64>,
}

/// A curve that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Means {
    /// Mean of each minute; the last one may be short.
    pub(super) minutes: Vec<f64>,
    /// The highest value there was.
    pub(super) highest: f64,
    /// The integral over time, in hours.
    pub(super) hours: f64,
}

impl Curve {
    pub(super) fn new(end: Duration) -> Self {
        let minutes = usize::try_from(end.as_nanos().div_ceil(MINUTE.as_nanos())).unwrap_or(usize::MAX);
        Self {
            value: 0.0,
            highest: 0.0,
            since: Duration::ZERO,
            end,
            minutes: vec![0.0; minutes],
        }
    }

    pub(super) fn set(&mut self, value: f64, now: Duration) {
        self.settle(now);
        self.value = value;
        self.highest = self.highest.max(value);
    }

    /// Adds what the value comes to between the last change and `now`, minute by minute.
    fn settle(&mut self, now: Duration) {
        let now = now.min(self.end);
        while self.since < now {
            let minute = self.since.as_secs() / MINUTE.as_secs();
            let until = Duration::from_secs((minute + 1) * MINUTE.as_secs()).min(now);
            if let Some(sum) = usize::try_from(minute)
                .ok()
                .and_then(|at| self.minutes.get_mut(at))
            {
                *sum += self.value * until.saturating_sub(self.since).as_secs_f64();
            }
            self.since = until;
        }
    }

    pub(super) fn finish(mut self) -> Means {
        self.settle(self.end);
        let hours = self.minutes.iter().sum::<f64>() / 3600.0;
        let mut left = self.end.as_secs_f64();
        for sum in &mut self.minutes {
            *sum /= left.min(60.0);
            left -= 60.0;
        }
        Means {
            minutes: self.minutes,
            highest: self.highest,
            hours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, Means};
    use std::time::Duration;

    #[test]
    fn means_per_minute_and_the_integral_are_those_of_the_steps() {
        let mut curve = Curve::new(Duration::from_secs(150));
        curve.set(2.0, Duration::from_secs(0));
        curve.set(4.0, Duration::from_secs(30));
        curve.set(1.0, Duration::from_mins(1));
        curve.set(3.0, Duration::from_secs(135));
        let means = Means {
            minutes: vec![3.0, 1.0, 2.0],
            highest: 4.0,
            hours: (2.0 * 30.0 + 4.0 * 30.0 + 75.0 + 3.0 * 15.0) / 3600.0,
        };
        assert_eq!(curve.finish(), means);
    }
}
