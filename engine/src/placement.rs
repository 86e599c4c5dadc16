//! Where a login lives (P1-P5, L5, P7); never looks at growth (G3) and never refuses while a worker is routable.

use std::fmt;
use std::sync::Arc;

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

/// Why a login lives where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// P2, L5: the worker is below its threshold.
    Below(Rule, Figures),
    /// P2: there is nobody else.
    Alone(Arc<str>),
    /// L5: it is not below its threshold, but nobody else could take him.
    NobodyElse(Arc<str>, Share),
    /// L5: the worker that ran the login takes nobody any more.
    SourceClosed(Arc<str>, Box<Because>),
    /// P3: the least occupied below the admission threshold; he would have to leave this one of an older template again.
    NewTemplate(Arc<str>, Figures),
    /// P3: the least occupied below the admission threshold.
    LeastOccupied(Figures),
    /// P3: nobody is below it, so the youngest.
    NobodyHasRoom(Figures),
}

/// The rule by which a worker keeps a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The reception's.
    P2,
    /// Another worker's.
    L5,
}

/// A worker against a threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Its pod.
    pub name: Arc<str>,
    /// How full it is.
    pub occupancy: Share,
    /// What it was compared with.
    pub threshold: Share,
}

impl Figures {
    /// How full `worker` is, against `threshold`.
    pub fn of(worker: &WorkerView, threshold: Share) -> Self {
        Self {
            name: Arc::clone(&worker.name),
            occupancy: worker.occupancy,
            threshold,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(rule, of) => {
                write!(
                    f,
                    "{rule:?}: {} keeps him, at {} it is below its threshold of {}",
                    of.name, of.occupancy, of.threshold
                )
            }
            Self::Alone(name) => write!(f, "P2: {name} keeps him, it is the only worker that takes users"),
            Self::NobodyElse(name, occupancy) => {
                write!(
                    f,
                    "L5: {name} keeps him at {occupancy}, there is no other worker to pass him to"
                )
            }
            Self::SourceClosed(name, then) => write!(f, "L5: {name} takes nobody any more; {then}"),
            Self::NewTemplate(name, of) => write!(
                f,
                "P3: {name} is of an older template, so he is passed to {} of the new one, at {} below {}",
                of.name, of.occupancy, of.threshold
            ),
            Self::LeastOccupied(of) => write!(
                f,
                "P3: he is passed to {}, at {} the least occupied beside the reception and below {}",
                of.name, of.occupancy, of.threshold
            ),
            Self::NobodyHasRoom(of) => write!(
                f,
                "P3: nobody beside the reception is below {}, so he is passed to the youngest, {} at {}",
                of.threshold, of.name, of.occupancy
            ),
        }
    }
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
    keeps(group, policy, reception)
        .unwrap_or_else(|| pass(group, policy, &[reception.birth]).unwrap_or_else(|| only(reception)))
}

/// P2: below its threshold, or alone. While others are known, a stale reception is not below anything (E5).
fn keeps(group: &Group, policy: &Policy, reception: &WorkerView) -> Option<Placement> {
    if group.placeable_count() == 1 {
        return Some(only(reception));
    }
    if let Some(passed) = to_new_template(group, policy, reception) {
        return Some(passed);
    }
    below(group, reception, policy.reception, Rule::P2)
}

/// L5: the worker keeps him below its own threshold, else P3 among the others.
fn at_worker(group: &Group, policy: &Policy, reception: &WorkerView, source: &WorkerView) -> Placement {
    to_new_template(group, policy, source)
        .or_else(|| below(group, source, policy.admission, Rule::L5))
        .or_else(|| pass(group, policy, &[reception.birth, source.birth]))
        .unwrap_or_else(|| {
            let why = Why::NobodyElse(Arc::clone(&source.name), source.occupancy);
            keep(source, true, why)
        })
}

/// L5 when the source takes nobody: the reception by P2 included.
fn at_closed(group: &Group, policy: &Policy, reception: &WorkerView, source: &WorkerView) -> Placement {
    let to_reception = at_reception(group, policy, reception);
    let why = Why::SourceClosed(Arc::clone(&source.name), Box::new(to_reception.because.clone()));
    Placement {
        verdict: Verdict::Pass,
        because: Because::new("source_closed", why),
        ..to_reception
    }
}

/// P3 past a worker of an older template that is to be replaced, while one of the new template has room.
fn to_new_template(group: &Group, policy: &Policy, source: &WorkerView) -> Option<Placement> {
    if !source.outdated || !policy.prefers_new() {
        return None;
    }
    let lowest = group.fresh().find(|worker| !worker.outdated)?;
    (lowest.occupancy < policy.admission).then(|| {
        let figures = Figures::of(lowest, policy.admission);
        let why = Why::NewTemplate(Arc::clone(&source.name), figures);
        passed(lowest, false, "new_template", why)
    })
}

/// P3 among the placeable workers not in `without`; `None` when there are none.
fn pass(group: &Group, policy: &Policy, without: &[Birth]) -> Option<Placement> {
    let open = |worker: &&WorkerView| !without.contains(&worker.birth);
    let lowest = group.fresh().find(open).or_else(|| group.unknown().find(open))?;
    let newer =
        |worker: &&WorkerView| open(worker) && !worker.outdated && worker.occupancy < policy.admission;
    let lowest = if policy.prefers_new() && lowest.outdated {
        group.fresh().find(newer).unwrap_or(lowest)
    } else {
        lowest
    };
    if lowest.occupancy < policy.admission {
        let why = Why::LeastOccupied(Figures::of(lowest, policy.admission));
        return Some(passed(lowest, false, "least_occupied", why));
    }
    let youngest = group
        .youngest_known()
        .find(open)
        .or_else(|| group.placeable().rev().find(open))?;
    let why = Why::NobodyHasRoom(Figures::of(youngest, policy.admission));
    Some(passed(youngest, true, "nobody_has_room", why))
}

fn below(group: &Group, worker: &WorkerView, threshold: Share, rule: Rule) -> Option<Placement> {
    let unknown = worker.stale && group.fresh().next().is_some();
    (!unknown && worker.occupancy < threshold)
        .then(|| keep(worker, false, Why::Below(rule, Figures::of(worker, threshold))))
}

fn only(reception: &WorkerView) -> Placement {
    keep(reception, false, Why::Alone(Arc::clone(&reception.name)))
}

fn keep(worker: &WorkerView, warning: bool, why: Why) -> Placement {
    Placement {
        verdict: Verdict::Keep,
        worker: worker.birth,
        warning,
        because: Because::new("keeps", why),
    }
}

fn passed(worker: &WorkerView, warning: bool, code: &'static str, why: Why) -> Placement {
    Placement {
        verdict: Verdict::Pass,
        worker: worker.birth,
        warning,
        because: Because::new(code, why),
    }
}
