//! Medians, percentiles and Prometheus histograms; measures nothing.

/// The value below which `percent` of the sorted values lie; `None` without any.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(rank).copied()
}

/// A median and how far apart the middle half of the values lies, in percent of it.
pub(crate) fn median_and_spread(values: &mut [f64]) -> Option<(f64, f64)> {
    let median = percentile(values, 50)?;
    let middle = percentile(values, 75)? - percentile(values, 25)?;
    Some((median, 100.0 * middle / median))
}

/// Sum of the series `name` of a /metrics page that have `label` among their labels.
pub(crate) fn sum(page: &str, name: &str, label: &str) -> f64 {
    let of_name = |line: &&str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let lines = page.lines().filter(of_name).filter(|line| line.contains(label));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// One histogram of a /metrics page: cumulative counts by upper bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    buckets: Vec<(f64, f64)>,
    sum: f64,
}

impl Histogram {
    /// The series `name` of a page, with `label` (such as `step="holding"`) among its labels.
    pub(crate) fn read(page: &str, name: &str, label: &str) -> Self {
        let mut found = Self::default();
        for line in page.lines().filter(|line| line.contains(label)) {
            let Some((series, value)) = line.rsplit_once(' ') else {
                continue;
            };
            let Ok(value) = value.parse::<f64>() else { continue };
            let of = |suffix: &str| {
                series
                    .strip_prefix(name)
                    .and_then(|rest| rest.strip_prefix(suffix))
            };
            if of("_sum").is_some() {
                found.sum = value;
            } else if let Some(labels) = of("_bucket") {
                let bound = labels
                    .split("le=\"")
                    .nth(1)
                    .and_then(|rest| rest.split('"').next());
                if let Some(bound) = bound.and_then(|text| text.parse().ok()) {
                    found.buckets.push((bound, value));
                }
            }
        }
        found
    }

    /// What was observed since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (bucket, earlier) in self.buckets.iter_mut().zip(&before.buckets) {
            bucket.1 -= earlier.1;
        }
        self.sum -= before.sum;
        self
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        if self.buckets.is_empty() {
            return other;
        }
        let both = self.buckets.iter().zip(&other.buckets);
        Self {
            buckets: both.map(|(one, two)| (one.0, one.1 + two.1)).collect(),
            sum: self.sum + other.sum,
        }
    }

    /// How many observations.
    pub(crate) fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |bucket| bucket.1)
    }

    /// Mean in milliseconds; 0 without any.
    pub(crate) fn mean_ms(&self) -> f64 {
        if self.count() > 0.0 {
            1000.0 * self.sum / self.count()
        } else {
            0.0
        }
    }

    /// Milliseconds below which `percent` of the observations lie, interpolated within the bucket; `None` without any.
    pub(crate) fn percentile_ms(&self, percent: f64) -> Option<f64> {
        let rank = self.count() * percent / 100.0;
        let (mut below, mut seen) = (0.0, 0.0);
        for (bound, count) in self.buckets.iter().filter(|_| rank > 0.0) {
            if *count >= rank {
                let part = (rank - seen) / (count - seen);
                return Some(
                    1000.0
                        * if bound.is_finite() {
                            below + (bound - below) * part
                        } else {
                            below
                        },
                );
            }
            (below, seen) = (*bound, *count);
        }
        None
    }
}
