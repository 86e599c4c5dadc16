//! The algorithm of Kubernetes' HorizontalPodAutoscaler (autoscaling/v2) for one CPU target, with its default behaviour:
//! 10 % tolerance, no wait upwards, the highest of 300 s downwards, per sync at most 4 pods or double. It owns no pod.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two looks at the metrics.
pub(super) const SYNC: Duration = Duration::from_secs(15);
/// A ratio this close to 1 changes nothing.
const TOLERANCE: f64 = 0.1;
/// Downwards, the highest recommendation of this long counts.
const DOWNSCALE_STABILIZATION: Duration = Duration::from_mins(5);
/// Upwards, at most this many pods a sync, or as many as there are.
const SCALE_UP_PODS: usize = 4;

/// One autoscaler.
#[derive(Clone, Debug)]
pub(super) struct Autoscaler {
    /// Utilisation that a pod should have, above 0.
    target: f64,
    min: usize,
    max: usize,
    recommendations: VecDeque<(Duration, usize)>,
}

impl Autoscaler {
    pub(super) fn new(target: f64, min: usize, max: Option<usize>) -> Self {
        Self {
            target,
            min: min.max(1),
            max: max.unwrap_or(usize::MAX),
            recommendations: VecDeque::new(),
        }
    }

    /// One sync: how many pods there should be, given how many were asked for, the utilisation of those with metrics, and
    /// how many are not ready or have none yet.
    pub(super) fn sync(&mut self, now: Duration, current: usize, measured: &[f64], unready: usize) -> usize {
        let wanted = proposal(self.target, current, measured, unready);
        while self
            .recommendations
            .front()
            .is_some_and(|(at, _)| *at + DOWNSCALE_STABILIZATION <= now)
        {
            self.recommendations.pop_front();
        }
        self.recommendations.push_back((now, wanted));
        let highest = self.recommendations.iter().map(|(_, wanted)| *wanted).max();
        let stable = if wanted > current {
            wanted
        } else {
            highest.unwrap_or(current).min(current)
        };
        let fastest = current
            .saturating_mul(2)
            .max(current.saturating_add(SCALE_UP_PODS));
        stable.min(fastest).clamp(self.min, self.max.max(self.min))
    }
}

/// The replica calculator: pods without metrics count as idle before anything grows, and not at all before it shrinks.
fn proposal(target: f64, current: usize, measured: &[f64], unready: usize) -> usize {
    if measured.is_empty() {
        return current;
    }
    let sum: f64 = measured.iter().sum();
    let ratio = sum / measured.len() as f64 / target;
    if ratio <= 1.0 || unready == 0 {
        return if within_tolerance(ratio) {
            current
        } else {
            pods(ratio, measured.len())
        };
    }
    let all = measured.len() + unready;
    let ratio = sum / all as f64 / target;
    let wanted = pods(ratio, all);
    // Growth that the idle ones would turn into shrinking is no growth.
    if within_tolerance(ratio) || ratio < 1.0 || wanted < current {
        current
    } else {
        wanted
    }
}

fn within_tolerance(ratio: f64) -> bool {
    (1.0 - ratio).abs() <= TOLERANCE
}

fn pods(ratio: f64, count: usize) -> usize {
    let wanted = (ratio * count as f64).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to a million: utilisation is bounded"
    )]
    let wanted = wanted.clamp(0.0, 1e6) as usize;
    wanted
}

#[cfg(test)]
mod tests {
    use super::{Autoscaler, proposal};
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case("the documentation's 200m at a target of 100m doubles", 1.0, &[2.0, 2.0], 0, 4)]
    #[case("its 50m at a target of 100m halves", 1.0, &[0.5; 4], 0, 2)]
    #[case("within 10 % above nothing happens", 0.8, &[0.87, 0.87, 0.87], 0, 3)]
    #[case("beyond 10 % it grows", 0.8, &[0.9, 0.9, 0.9], 0, 4)]
    #[case("within 10 % below nothing happens", 0.8, &[0.73; 5], 0, 5)]
    #[case("beyond 10 % below it rounds up", 0.8, &[0.6; 4], 0, 3)]
    #[case("a pod on its way counts as idle: 0.9 of 2 over 3 is 0.75 of the target", 0.8, &[0.9, 0.9], 1, 3)]
    #[case("two saturated ones and a new one grow all the same", 0.5, &[1.0, 1.0], 1, 4)]
    #[case("a pod on its way does not hold back shrinking", 0.8, &[0.3, 0.3], 1, 1)]
    #[case("without metrics nothing happens", 0.8, &[], 3, 3)]
    fn the_calculator(
        #[case] claim: &str,
        #[case] target: f64,
        #[case] measured: &[f64],
        #[case] unready: usize,
        #[case] wanted: usize,
    ) {
        let current = measured.len() + unready;
        assert_eq!(proposal(target, current, measured, unready), wanted, "{claim}");
    }

    #[test]
    fn it_shrinks_only_to_the_highest_of_three_hundred_seconds() {
        let mut scaler = Autoscaler::new(0.8, 1, None);
        let mut current = 4;
        let mut sync = |second: u64, load: f64| {
            current = scaler.sync(Duration::from_secs(second), current, &vec![load; current], 0);
            current
        };
        assert_eq!(sync(0, 0.8), 4);
        assert_eq!(sync(15, 0.4), 4);
        assert_eq!(sync(285, 0.4), 4);
        assert_eq!(
            sync(300, 0.4),
            2,
            "the recommendation of second 0 is out of the window"
        );
        assert_eq!(sync(315, 1.0), 3, "up at once");
    }

    #[test]
    fn it_grows_by_four_pods_or_double_a_sync_within_its_bounds() {
        let sync = |max, current: usize, load: f64| {
            Autoscaler::new(0.1, 2, max).sync(Duration::ZERO, current, &vec![load; current], 0)
        };
        assert_eq!(sync(None, 2, 1.0), 6);
        assert_eq!(sync(None, 10, 1.0), 20);
        assert_eq!(sync(Some(12), 10, 1.0), 12);
        assert_eq!(sync(None, 3, 0.0), 2);
    }
}
