//! What a group's status says and when it is written; pure: time is an argument, and nothing is sent from here.

use std::time::Duration;

use crate::api::status::{
    Condition, ConditionStatus, Decision, MAX_CONDITIONS, MAX_DECISIONS, PoolGroupStatus,
};
use crate::vehicle::{ConditionView, GroupView};

/// Figures are written at most this often.
pub(crate) const FIGURES_EVERY: Duration = Duration::from_secs(30);

/// A change of fewer points is not written.
const POINTS: i64 = 5;

/// Longest reason and action.
const LONGEST_WORD: usize = 128;

/// Longest message.
const LONGEST_SENTENCE: usize = 1024;

/// When a status is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// It says nothing new.
    Never,
    /// At once.
    Now,
    /// Not before this time.
    At(Duration),
}

/// Seconds since 1970 as RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(0);
    k8s_openapi::jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}

/// The status that follows `previous`: the commander's figures and conditions, and the controller's `own` conditions,
/// which win over the commander's of the same type. A condition keeps its time while its status stays.
pub(crate) fn group_status(
    previous: &PoolGroupStatus,
    generation: Option<i64>,
    view: Option<&GroupView>,
    own: &[ConditionView],
    now: &str,
) -> PoolGroupStatus {
    let mut status = previous.clone();
    status.observed_generation = generation;
    let theirs = view.map(|view| view.conditions.as_slice()).unwrap_or_default();
    status.conditions = conditions(&previous.conditions, &[own, theirs].concat(), generation, now);
    if view.is_none() {
        // A new leader's commander has not spoken yet: what its predecessor said stays.
        let said = |kind: &str| own.iter().any(|view| view.kind == kind);
        status
            .conditions
            .extend(previous.conditions.iter().filter(|old| !said(&old.kind)).cloned());
        status
            .conditions
            .sort_by(|left, right| left.kind.cmp(&right.kind));
        status.conditions.truncate(MAX_CONDITIONS);
    }
    if let Some(view) = view {
        status.workers = view.workers;
        status.ready_workers = view.ready_workers;
        status.desired_workers = view.desired_workers;
        status.outdated_workers = view.outdated_workers;
        status.users = view.users;
        status.reception.clone_from(&view.reception);
        status.capacity_points = view.capacity_points;
        status.occupied_points = view.occupied_points;
        status.headroom_points = view.headroom_points;
        status.last_decisions = decisions(&previous.last_decisions, view);
    }
    status
}

/// The conditions that follow `previous`, by type; of several of one type the first counts.
pub(crate) fn conditions(
    previous: &[Condition],
    views: &[ConditionView],
    generation: Option<i64>,
    now: &str,
) -> Vec<Condition> {
    let mut all: Vec<Condition> = Vec::new();
    for view in views {
        if all.iter().any(|condition| condition.kind == view.kind) || all.len() == MAX_CONDITIONS {
            continue;
        }
        let status = match view.status {
            Some(true) => ConditionStatus::True,
            Some(false) => ConditionStatus::False,
            None => ConditionStatus::Unknown,
        };
        let before = previous
            .iter()
            .find(|condition| condition.kind == view.kind && condition.status == status);
        all.push(Condition {
            kind: view.kind.clone(),
            status,
            reason: word(&view.reason),
            message: sentence(&view.message),
            last_transition_time: before
                .map_or_else(|| now.to_owned(), |before| before.last_transition_time.clone()),
            observed_generation: generation,
        });
    }
    all.sort_by(|left, right| left.kind.cmp(&right.kind));
    all
}

/// The newest decisions; those of an earlier leader are kept behind this one's.
fn decisions(previous: &[Decision], view: &GroupView) -> Vec<Decision> {
    let new = view.decisions.iter().map(|note| Decision {
        at: rfc3339(note.at),
        action: word(&note.action),
        because: sentence(&note.because),
    });
    let mut all: Vec<Decision> = new.collect();
    for old in previous {
        if !all.contains(old) {
            all.push(old.clone());
        }
    }
    all.truncate(MAX_DECISIONS);
    all
}

fn word(text: &str) -> String {
    let word: String = text
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(LONGEST_WORD)
        .collect();
    if word.is_empty() {
        "Unknown".to_owned()
    } else {
        word
    }
}

fn sentence(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_SENTENCE)
        .collect()
}

/// When `next` is to be written over `published`, which was written at `written` (absent: not by this process).
///
/// Conditions, workers and the generation count at once; users and points at most every 30 s, points only after a
/// change of 5. Digits in a message are figures too: they alone cause no write.
pub(crate) fn due(
    published: &PoolGroupStatus,
    written: Option<Duration>,
    next: &PoolGroupStatus,
    now: Duration,
) -> Due {
    if signals(published) != signals(next) {
        return Due::Now;
    }
    let moved = |from: i64, to: i64| from.abs_diff(to) >= POINTS.unsigned_abs();
    let worth = published.users != next.users
        || moved(published.capacity_points, next.capacity_points)
        || moved(published.occupied_points, next.occupied_points)
        || moved(published.headroom_points, next.headroom_points)
        || published.last_decisions != next.last_decisions
        || messages(published) != messages(next);
    match written {
        _ if !worth => Due::Never,
        Some(written) if now < written + FIGURES_EVERY => Due::At(written + FIGURES_EVERY),
        _ => Due::Now,
    }
}

/// Generation, counts of workers, reception, conditions without their messages.
type Signals<'a> = (
    Option<i64>,
    [u32; 4],
    &'a str,
    Vec<(&'a str, ConditionStatus, &'a str)>,
);

/// What a reader wants to see at once.
fn signals(status: &PoolGroupStatus) -> Signals<'_> {
    let conditions = status.conditions.iter();
    let conditions = conditions.map(|condition| {
        (
            condition.kind.as_str(),
            condition.status,
            condition.reason.as_str(),
        )
    });
    let workers = [
        status.workers,
        status.ready_workers,
        status.desired_workers,
        status.outdated_workers,
    ];
    (
        status.observed_generation,
        workers,
        &status.reception,
        conditions.collect(),
    )
}

fn messages(status: &PoolGroupStatus) -> Vec<String> {
    let letters = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect();
    status
        .conditions
        .iter()
        .map(|condition| letters(&condition.message))
        .collect()
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
