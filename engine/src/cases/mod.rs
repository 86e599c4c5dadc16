//! Decision cases: reads one JSON line, asks the engine, gives the answer as JSON; no files, no printing.
//!
//! `question` and `input` (with `thresholds`, `users`, `rows`) read a case, `answer` (with `measured`, `placed`,
//! `sized`) asks the engine.

mod answer;
mod input;
mod measured;
mod placed;
mod question;
mod rows;
mod sized;
mod thresholds;
mod users;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::field::{Field, FieldError, quote_specials};
use crate::mismatch::mismatches;
use crate::strict;

pub use crate::mismatch::Mismatch;

/// Fields of an answer that have fields of their own, of which a case may expect some.
const RECORDS: [&str; 5] = [
    "ledger",
    "final_ledger",
    "after",
    "placement_of_next_login",
    "scale_up",
];

/// What is wrong with a case line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CaseError {
    /// The line is no JSON.
    #[error("not JSON: {0}; a case is one object a line: {{\"name\", \"category\", \"input\", \"expect\"}}")]
    Json(String),
    /// It is a saved snapshot.
    #[error(
        "the line is a saved snapshot, must be a case; `elastic-pool decide --snapshot FILE` answers snapshots"
    )]
    Snapshot,
    /// A field is missing or has an impossible value.
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// One case of `tests/cases`, read and checked.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    question: question::Question,
    scene: input::Scene,
    expect: Option<Map<String, Value>>,
}

impl Case {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, CaseError> {
        let value = strict::parse(&quote_specials(line)).map_err(|e| CaseError::Json(e.to_string()))?;
        let case = Field::root(&value);
        if case.object()?.contains_key("snapshot") && case.get("name").optional().is_none() {
            return Err(CaseError::Snapshot);
        }
        let input = case.get("input");
        let expect = case.get("expect");
        Ok(Self {
            name: case.get("name").text()?.to_owned(),
            question: question::Question::read(&case)?,
            scene: input::Scene::read(&input)?,
            expect: expect
                .optional()
                .map(|expect| expect.object().cloned())
                .transpose()?,
        })
    }

    /// The case's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The answer: `name`, what the question asks for, and `because`.
    pub fn answer(&self) -> Map<String, Value> {
        let mut answer = Map::new();
        answer.insert("name".to_owned(), self.name.clone().into());
        answer.append(&mut answer::answer(&self.question, &self.scene));
        answer
    }

    /// Where `answer` differs from what the case expects; empty when it passes, or expects nothing.
    pub fn check(&self, answer: &Map<String, Value>) -> Vec<Mismatch> {
        self.expect
            .as_ref()
            .map(|expect| mismatches(expect, answer, &RECORDS))
            .unwrap_or_default()
    }

    /// Whether the case says what it expects.
    pub fn expects(&self) -> bool {
        self.expect.is_some()
    }
}
