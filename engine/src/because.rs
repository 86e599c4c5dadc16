//! Why a decision was taken, as figures; the sentence is made when somebody reads it.

use std::fmt;

use crate::{capacity, compaction, evacuation, placement, plan, update};

/// Why a decision was taken: a stable code for metrics and events, and one sentence with rules and figures.
///
/// Decisions are taken at every report and their sentences read seldom, so [`fmt::Display`] writes the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Because {
    /// Closed set, snake case, fit for a metric label.
    pub code: &'static str,
    why: Why,
}

/// The figures of a sentence, by the part that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Where a login lives.
    Placed(placement::Why),
    /// Growth.
    Grown(capacity::Why),
    /// Compaction.
    Compacted(compaction::Why),
    /// The replacement of workers of an older template.
    Updated(update::Why),
    /// The end of a drain or of a spawn.
    Ended(plan::Why),
    /// Evacuation.
    Evacuated(evacuation::Why),
    /// A sentence as it stands.
    Told(String),
}

impl Because {
    /// Pairs a code with what its sentence says.
    pub fn new(code: &'static str, why: impl Into<Why>) -> Self {
        Self {
            code,
            why: why.into(),
        }
    }

    /// The figures.
    pub fn why(&self) -> &Why {
        &self.why
    }

    /// Rule numbers and figures in one sentence, for people.
    pub fn text(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed(why) => why.fmt(f),
            Self::Grown(why) => why.fmt(f),
            Self::Compacted(why) => why.fmt(f),
            Self::Updated(why) => why.fmt(f),
            Self::Ended(why) => why.fmt(f),
            Self::Evacuated(why) => why.fmt(f),
            Self::Told(text) => f.write_str(text),
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),+) => {
        $(impl From<$from> for Why {
            fn from(why: $from) -> Self {
                Self::$variant(why)
            }
        })+
    };
}

from!(placement::Why => Placed, capacity::Why => Grown, compaction::Why => Compacted, update::Why => Updated, plan::Why => Ended, evacuation::Why => Evacuated, String => Told);

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        Self::Told(text.to_owned())
    }
}
