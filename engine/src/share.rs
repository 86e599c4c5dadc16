//! Fixed-point parts of a worker, so that sums are exact and do not depend on their order; never a float inside.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

const PICOS: i64 = 1_000_000_000_000;

/// A part of one worker's capacity in units of 10^-12; 1.0 is a full worker. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(i64);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// A full worker.
    pub const ONE: Self = Self(PICOS);
    /// Differences up to 1e-9 are none (C2).
    pub const TOLERANCE: Self = Self(1_000);

    /// The nearest share to `value`; `None` for NaN, the infinities and beyond a million workers.
    pub fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() || value.abs() > 1e6 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "bounded by the check above: at most 1e18"
        )]
        Some(Self((value * PICOS as f64).round() as i64))
    }

    /// `percent` of a worker, exactly.
    pub const fn from_percent(percent: u32) -> Self {
        Self((percent as i64).saturating_mul(PICOS / 100))
    }

    /// `picos` units of 10^-12, as [`Self::picos`] gives them.
    pub const fn from_picos(picos: i64) -> Self {
        Self(picos)
    }

    /// This share in units of 10^-12, exactly.
    pub const fn picos(self) -> i64 {
        self.0
    }

    /// This share as a float, for people and JSON.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / PICOS as f64
    }

    /// Cut to 0..=1 (E1).
    #[must_use]
    pub fn clamped(self) -> Self {
        Self(self.0.clamp(0, PICOS))
    }

    /// This share times `factor`, rounded to the nearest unit.
    #[must_use]
    pub fn times(self, factor: Self) -> Self {
        let product = i128::from(self.0) * i128::from(factor.0);
        let half = i128::from(PICOS / 2) * product.signum();
        Self::saturated((product + half) / i128::from(PICOS))
    }

    /// This share times a whole number.
    #[must_use]
    pub fn times_count(self, count: usize) -> Self {
        Self::saturated(i128::from(self.0) * i128::try_from(count).unwrap_or(i128::MAX >> 64))
    }

    /// This share divided by `parts`, rounded to the nearest unit; by 0 it stays whole.
    #[must_use]
    pub fn divided(self, parts: usize) -> Self {
        let parts = i128::try_from(parts.max(1)).unwrap_or(i128::MAX >> 64);
        let half = parts / 2 * i128::from(self.0.signum());
        Self::saturated((i128::from(self.0) + half) / parts)
    }

    /// More than `other` by more than the tolerance of C2.
    pub fn exceeds(self, other: Self) -> bool {
        self.0.saturating_sub(other.0) > Self::TOLERANCE.0
    }

    /// In units of 10^-12.
    pub(crate) fn units(self) -> i128 {
        self.0.into()
    }

    fn saturated(value: i128) -> Self {
        Self(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl Add for Share {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Share {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Share {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Share {
    /// Up to four decimals, at least two: `0.50`, `0.3333`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.4}", self.as_f64());
        let short = text.strip_suffix("00").unwrap_or(&text);
        f.write_str(short)
    }
}

/// A sum of shares that neither saturates nor depends on the order in which they came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total(i128);

impl Total {
    /// Counts `new` instead of `old`.
    pub(crate) fn replace(&mut self, old: Share, new: Share) {
        self.0 += new.units() - old.units();
    }

    /// In units of 10^-12.
    pub(crate) fn units(self) -> i128 {
        self.0
    }

    /// As a share; saturates.
    pub(crate) fn share(self) -> Share {
        Share::saturated(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Share, Total};

    #[test]
    fn decimal_sums_are_exact_where_floats_are_not() {
        let tenth = Share::from_f64(0.1).unwrap();
        let three: Share = std::iter::repeat_n(tenth, 3).sum();
        assert_eq!(three, Share::from_f64(0.3).unwrap());
        assert_eq!(
            Share::from_percent(80).times(Share::from_percent(150)),
            Share::from_percent(120)
        );
    }

    #[test]
    fn what_is_no_number_is_no_share() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e7] {
            assert_eq!(Share::from_f64(value), None, "{value}");
        }
    }

    #[test]
    fn means_round_to_the_nearest_unit() {
        assert_eq!(Share(5).divided(2), Share(3));
        assert_eq!(Share(-5).divided(2), Share(-3));
        assert_eq!(Share(2).divided(3), Share(1));
        assert_eq!(Share(7).divided(0), Share(7));
    }

    #[test]
    fn a_total_takes_back_what_no_share_could_hold() {
        let huge = Share(i64::MAX);
        let mut total = Total::default();
        (0..3).for_each(|_| total.replace(Share::ZERO, huge));
        assert_eq!(total.share(), huge);
        (0..3).for_each(|_| total.replace(huge, Share::ONE));
        assert_eq!(total.share(), Share::from_percent(300));
    }

    #[test]
    fn no_arithmetic_runs_over_at_the_ends_of_the_numbers() {
        let ends = [Share(i64::MIN), Share(i64::MAX), Share::ZERO, Share::ONE];
        for one in ends {
            for other in ends {
                let _ = (one + other, one - other, one.times(other), one.exceeds(other));
            }
            for count in [0, 1, usize::MAX] {
                let _ = (one.times_count(count), one.divided(count));
            }
        }
        assert_eq!(Share(i64::MAX).times_count(usize::MAX), Share(i64::MAX));
        assert_eq!(Share(i64::MIN).times_count(usize::MAX), Share(i64::MIN));
        assert_eq!(Share::from_percent(u32::MAX), Share(i64::MAX));
    }

    #[test]
    fn people_read_two_to_four_decimals() {
        let text = |value| Share::from_f64(value).unwrap().to_string();
        assert_eq!(
            [text(0.5), text(1.0 / 3.0), text(-0.9)],
            ["0.50", "0.3333", "-0.90"]
        );
    }
}
