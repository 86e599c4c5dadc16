//! A small generator of random numbers (splitmix64), so that a seed gives the same day everywhere; not for secrets.

use std::time::Duration;

/// A stream of random numbers; a copy goes on with the same numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The stream `index` of a seed; streams of one seed are independent for all that a simulation can see.
    pub(super) fn stream(seed: u64, index: u64) -> Self {
        Self(mix(seed).wrapping_add(mix(index ^ 0xA5A5_5A5A_A5A5_5A5A)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Evenly from (0, 1].
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed around `mean`: gaps of a Poisson process, memoryless stays.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(self.unit())
    }

    /// The same as a span of time, to the microsecond.
    pub(super) fn span(&mut self, mean: Duration) -> Duration {
        let seconds = self.exponential(mean.as_secs_f64());
        Duration::from_secs_f64((seconds * 1e6).round() / 1e6)
    }

    /// Lognormally distributed with mean 1; `sigma` is the deviation of the logarithm.
    pub(super) fn factor(&mut self, sigma: f64) -> f64 {
        // Twelve even numbers add up to a normal one of deviation 1, as near as a made-up day needs it.
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        exp(sigma * normal - sigma * sigma / 2.0)
    }
}

/// The logarithm of a positive number, made of exact operations: those of the C libraries differ in their last digits.
fn ln(x: f64) -> f64 {
    const ODD: [f64; 12] = [
        1.0 / 23.0,
        1.0 / 21.0,
        1.0 / 19.0,
        1.0 / 17.0,
        1.0 / 15.0,
        1.0 / 13.0,
        1.0 / 11.0,
        1.0 / 9.0,
        1.0 / 7.0,
        1.0 / 5.0,
        1.0 / 3.0,
        1.0,
    ];
    let mut exponent = (x.to_bits() >> 52) as f64 - 1023.0;
    let mut mantissa = f64::from_bits(x.to_bits() & ((1 << 52) - 1) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let series = ODD.iter().fold(0.0, |sum, odd| sum * (t * t) + odd);
    exponent * std::f64::consts::LN_2 + 2.0 * t * series
}

/// The exponential of a small number, for the same reason.
fn exp(x: f64) -> f64 {
    let part = x / 16.0;
    let root = (1..20).rev().fold(1.0, |sum, n| 1.0 + sum * part / f64::from(n));
    (0..4).fold(root, |power, _| power * power)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Random, exp, ln};

    #[test]
    fn means_are_what_was_asked_for() {
        let mut random = Random::stream(7, 0);
        let n = 100_000;
        let mean = |values: &mut dyn FnMut() -> f64| (0..n).map(|_| values()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || random.exponential(40.0)) - 40.0).abs() < 0.5);
        assert!((mean(&mut || random.factor(0.5)) - 1.0).abs() < 0.01);
    }

    #[test]
    fn logarithm_and_exponential_are_those_of_mathematics() {
        for x in [1.0, 0.999, 0.7, 0.5, 0.1, 1e-5, f64::EPSILON / 2.0] {
            assert!((ln(x) - x.ln()).abs() < 1e-14 * x.ln().abs().max(1.0), "{x}");
        }
        for x in [-4.0, -0.3, 0.0, 0.01, 1.0, 2.9f64] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-13, "{x}");
        }
    }

    #[test]
    fn streams_differ_and_repeat() {
        let three = |index| {
            let mut random = Random::stream(1, index);
            [random.unit(), random.unit(), random.unit()]
        };
        assert_eq!(three(5).map(f64::to_bits), three(5).map(f64::to_bits));
        assert_ne!(three(5).map(f64::to_bits), three(6).map(f64::to_bits));
    }
}
