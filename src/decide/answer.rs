//! One line, one answer: a case or a snapshot is read, answered and, where asked for, compared; reads no files.

use elastic_pool_engine::cases::{Case, CaseError};
use elastic_pool_engine::snapshot::{self, Saved, SnapshotError};
use serde_json::{Map, Value};
use thiserror::Error;

/// What the lines of a source are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Case,
    Snapshot,
}

impl Kind {
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Case => "decision cases",
            Self::Snapshot => "snapshots",
        }
    }

    /// The longest line in bytes. A case of a thousand workers with rows fits in 8 MiB.
    pub(super) fn longest(self) -> usize {
        match self {
            Self::Case => 8 << 20,
            Self::Snapshot => snapshot::MAX_BYTES,
        }
    }
}

/// The answer to one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) name: String,
    pub(super) json: String,
    pub(super) text: String,
    /// With a check: what differs, a line each.
    pub(super) mismatches: Vec<String>,
}

/// Why a line has no answer.
#[derive(Debug, Error)]
pub(super) enum Wrong {
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("expect is missing, must be an object; without --check it is not needed")]
    NothingExpected,
    #[error(
        "answer is missing, must be the one given when the snapshot was taken, as --save writes it; without --check it is not needed"
    )]
    NothingGiven,
}

pub(super) fn reply(kind: Kind, line: &str, check: bool) -> Result<Reply, Wrong> {
    match kind {
        Kind::Case => of_case(line, check),
        Kind::Snapshot => of_snapshot(line, check),
    }
}

fn of_case(line: &str, check: bool) -> Result<Reply, Wrong> {
    let case = Case::parse(line)?;
    if check && !case.expects() {
        return Err(Wrong::NothingExpected);
    }
    let answer = case.answer();
    let differs = if check { case.check(&answer) } else { Vec::new() };
    Ok(Reply {
        name: case.name().to_owned(),
        text: in_lines(&answer),
        json: Value::Object(answer).to_string(),
        mismatches: differs.iter().map(ToString::to_string).collect(),
    })
}

/// The name, a line for each field, and the reason last.
fn in_lines(answer: &Map<String, Value>) -> String {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut lines = vec![text("name").to_owned()];
    for (name, value) in answer {
        match value {
            _ if name == "name" || name == "because" => {}
            Value::String(value) => lines.push(format!("  {name}: {value}")),
            value => lines.push(format!("  {name}: {value}")),
        }
    }
    lines.push(format!("  {}", text("because")));
    lines.join("\n")
}

fn of_snapshot(line: &str, check: bool) -> Result<Reply, Wrong> {
    let saved = Saved::parse(line)?;
    let mut reply = Reply::of_saved(&saved);
    if check {
        reply.mismatches = match saved.replayed().ok_or(Wrong::NothingGiven)? {
            Ok(()) => Vec::new(),
            Err(differs) if differs.is_empty() => {
                vec!["answer: the same values in other bytes than this build writes".to_owned()]
            }
            Err(differs) => differs.iter().map(ToString::to_string).collect(),
        };
    }
    Ok(reply)
}

impl Reply {
    pub(super) fn of_saved(saved: &Saved) -> Self {
        let answer = saved.answer();
        Self {
            name: format!("{} at {:.3} s", saved.name(), saved.taken_at().as_secs_f64()),
            json: answer.to_json(),
            text: answer.to_string(),
            mismatches: Vec::new(),
        }
    }
}
