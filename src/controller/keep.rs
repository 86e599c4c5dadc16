//! When an object that is applied as a whole is applied again: only when it is wanted otherwise, gone or changed; pure.

use std::time::Duration;

use ring::digest;
use serde::Serialize;
use serde_json::Value;

use crate::credentials::hex_encode;

/// A change by somebody else is put right at most this often; a stale watch looks like one.
const PATIENCE: Duration = Duration::from_secs(10);

/// An object as it was applied last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Hash of what was wanted.
    pub(crate) wanted: String,
    /// Fingerprint of what the server answered.
    pub(crate) got: String,
    /// When.
    pub(crate) at: Duration,
}

/// Whether to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is as it should be.
    Nothing,
    /// Apply it.
    Apply,
    /// Look again at this time.
    LookAt(Duration),
}

/// Judges one object: `wanted` is the hash of what is wanted now, `seen` the fingerprint of what the watch shows.
pub(crate) fn need(kept: Option<&Kept>, wanted: &str, seen: Option<&str>, now: Duration) -> Need {
    match kept {
        None => Need::Apply,
        Some(kept) if kept.wanted != wanted => Need::Apply,
        Some(kept) if seen == Some(kept.got.as_str()) => Need::Nothing,
        Some(kept) if now >= kept.at + PATIENCE => Need::Apply,
        Some(kept) => Need::LookAt(kept.at + PATIENCE),
    }
}

/// Hash of a wanted object.
pub(crate) fn hash(object: &Value) -> String {
    // serde_json keeps the keys of a map in order, so equal objects have equal texts.
    hex_encode(digest::digest(&digest::SHA256, object.to_string().as_bytes()).as_ref())
}

/// Hash of what applying decides of an object: its spec and labels, not what others add to it.
pub(crate) fn fingerprint<K: Serialize>(object: &K) -> String {
    let value = serde_json::to_value(object).unwrap_or_default();
    let labels = value["metadata"]["labels"].clone();
    hash(&serde_json::json!({"spec": value["spec"], "labels": labels, "uid": value["metadata"]["uid"]}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            wanted: "w".to_owned(),
            got: "g".to_owned(),
            at: Duration::from_secs(100),
        }
    }

    #[test]
    fn an_object_as_it_should_be_is_left_alone() {
        assert_eq!(
            need(Some(&kept()), "w", Some("g"), Duration::from_secs(9999)),
            Need::Nothing
        );
    }

    #[test]
    fn one_that_is_wanted_otherwise_is_applied_at_once() {
        assert_eq!(
            need(Some(&kept()), "x", Some("g"), Duration::from_secs(100)),
            Need::Apply
        );
        assert_eq!(need(None, "w", Some("g"), Duration::from_secs(100)), Need::Apply);
    }

    #[test]
    fn one_that_went_or_was_changed_is_put_right_without_haste() {
        for seen in [None, Some("changed")] {
            let soon = Duration::from_secs(109);
            assert_eq!(
                need(Some(&kept()), "w", seen, soon),
                Need::LookAt(Duration::from_secs(110))
            );
            assert_eq!(
                need(Some(&kept()), "w", seen, Duration::from_secs(110)),
                Need::Apply
            );
        }
    }
}
