//! Shares and durations as decimals in strings, so that nothing is lost in a float; knows no snapshot.

use std::time::Duration;

use crate::field::{Field, FieldError, write_decimal};
use crate::share::Share;

const SHARE_PLACES: usize = 12;
const SECOND_PLACES: usize = 9;
const NANOS: u128 = 1_000_000_000;

pub(super) fn write_share(share: Share) -> String {
    write_decimal(share.picos().into(), SHARE_PLACES)
}

/// Seconds with up to nine decimals.
pub(super) fn write_seconds(duration: Duration) -> String {
    // At most 2^64 x 10^9, which is far below 2^127.
    let nanos = i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    write_decimal(nanos, SECOND_PLACES)
}

pub(super) fn read_share(field: &Field<'_>) -> Result<Option<Share>, FieldError> {
    let Some(units) = field.decimal(SHARE_PLACES)? else {
        return Ok(None);
    };
    match i64::try_from(units) {
        Ok(picos) => Ok(Some(Share::from_picos(picos))),
        Err(_) => field.wrong("a share of a worker between -9223372 and 9223372"),
    }
}

pub(super) fn read_seconds(field: &Field<'_>) -> Result<Option<Duration>, FieldError> {
    let Some(units) = field.decimal(SECOND_PLACES)? else {
        return Ok(None);
    };
    let duration = u128::try_from(units).ok().and_then(|nanos| {
        let seconds = u64::try_from(nanos / NANOS).ok()?;
        let rest = u32::try_from(nanos % NANOS).ok()?;
        Some(Duration::new(seconds, rest))
    });
    duration.map_or_else(
        || field.wrong("seconds, from 0 to 18446744073709551615"),
        |duration| Ok(Some(duration)),
    )
}
