//! Where a login lives (P1-P5, L5, P7); never looks at growth (G3) and never refuses while a worker is routable.

use thiserror::Error;

use crate::Because;
use crate::group::{Group, WorkerView};
use crate::ids::Birth;
use crate::share::Share;
use crate::thresholds::Policy;

/// Whether the worker that ran the login keeps the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// He stays where he logged in: the null action.
    Keep,
    /// He is passed to another worker, by a move once the login's answer is out (P5, L3).
    Pass,
}

impl Verdict {
    /// The verdict as a label.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Pass => "pass",
        }
    }
}

/// The answer to a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Keep or pass.
    pub verdict: Verdict,
    /// Who shall own him.
    pub worker: Birth,
    /// Nobody had room: he is taken in all the same (P3).
    pub warning: bool,
    /// Why.
    pub because: Because,
}

/// Why a login could not be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// No worker of the group is routable and free to take newcomers.
    #[error("no routable worker")]
    NoRoutableWorker,
}

/// Places somebody who lives nowhere. `at` is the worker that ran the login, `None` for the reception (P7 too).
pub fn place(group: &Group, policy: &Policy, at: Option<Birth>) -> Result<Placement, PlaceError> {
    let reception = group.reception().ok_or(PlaceError::NoRoutableWorker)?;
    match at
        .filter(|birth| *birth != reception.birth)
        .and_then(|birth| group.get(birth))
    {
        None => Ok(at_reception(group, policy, reception)),
        Some(source) if source.is_placeable() => Ok(at_worker(group, policy, reception, source)),
        Some(source) => Ok(at_closed(group, policy, reception, source)),
    }
}

/// P2, then P3.
fn at_reception(group: &Group, policy: &Policy, reception: &WorkerView) -> Placement {
    keeps(group, policy, reception).unwrap_or_else(|| {
        pass(group, policy, &[reception.birth])
            .unwrap_or_else(|| keep(reception, false, "P2", "is the only routable worker"))
    })
}

/// P2: below its threshold, or alone. While others are known, a stale reception is not below anything (E5).
fn keeps(group: &Group, policy: &Policy, reception: &WorkerView) -> Option<Placement> {
    if group.placeable_count() == 1 {
        return Some(keep(reception, false, "P2", "is the only routable worker"));
    }
    let unknown = reception.stale && group.fresh().next().is_some();
    let below = !unknown && reception.occupancy < policy.reception;
    below.then(|| {
        keep(
            reception,
            false,
            "P2",
            &below_text(reception.occupancy, policy.reception),
        )
    })
}

/// L5: the worker keeps him below its own threshold, else P3 among the others.
fn at_worker(group: &Group, policy: &Policy, reception: &WorkerView, source: &WorkerView) -> Placement {
    let unknown = source.stale && group.fresh().next().is_some();
    if !unknown && source.occupancy < policy.admission {
        return keep(
            source,
            false,
            "L5",
            &below_text(source.occupancy, policy.admission),
        );
    }
    pass(group, policy, &[reception.birth, source.birth]).unwrap_or_else(|| {
        keep(
            source,
            true,
            "L5",
            &format!("at {} has no other worker to pass him to", source.occupancy),
        )
    })
}

/// L5 when the source takes nobody: the reception by P2 included.
fn at_closed(group: &Group, policy: &Policy, reception: &WorkerView, source: &WorkerView) -> Placement {
    let to_reception = at_reception(group, policy, reception);
    let text = format!(
        "L5: {} takes nobody any more; {}",
        source.name, to_reception.because.text
    );
    Placement {
        verdict: Verdict::Pass,
        because: Because::new("source_closed", text),
        ..to_reception
    }
}

/// P3 among the placeable workers not in `without`; `None` when there are none.
fn pass(group: &Group, policy: &Policy, without: &[Birth]) -> Option<Placement> {
    let open = |worker: &&WorkerView| !without.contains(&worker.birth);
    let known = group.fresh().find(open);
    let lowest = known.or_else(|| {
        group
            .placeable()
            .filter(open)
            .min_by_key(|w| (w.occupancy, w.birth))
    })?;
    if lowest.occupancy < policy.admission {
        let text = format!(
            "P3: {} at {} is the least occupied below {}",
            lowest.name, lowest.occupancy, policy.admission
        );
        let because = Because::new("least_occupied", text);
        return Some(Placement {
            verdict: Verdict::Pass,
            worker: lowest.birth,
            warning: false,
            because,
        });
    }
    let youngest = group
        .placeable()
        .rev()
        .filter(open)
        .find(|worker| known.is_none() || !worker.stale)?;
    let text = format!(
        "P3: nobody but the reception is below {}, the youngest, {} at {}, takes him in",
        policy.admission, youngest.name, youngest.occupancy
    );
    let because = Because::new("nobody_has_room", text);
    Some(Placement {
        verdict: Verdict::Pass,
        worker: youngest.birth,
        warning: true,
        because,
    })
}

fn below_text(occupancy: Share, threshold: Share) -> String {
    format!("at {occupancy} is below {threshold}")
}

fn keep(worker: &WorkerView, warning: bool, rule: &str, why: &str) -> Placement {
    let because = Because::new("keeps", format!("{rule}: {} {why}", worker.name));
    Placement {
        verdict: Verdict::Keep,
        worker: worker.birth,
        warning,
        because,
    }
}
