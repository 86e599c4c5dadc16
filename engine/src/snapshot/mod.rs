//! One group as it stood at one moment, saved to be asked again: exact, one line of JSON. It acts on nothing.
//!
//! [`Saved::of`] takes it from a live group, [`Saved::to_json`] writes it, [`Saved::parse`] reads it, and
//! [`Saved::answer`] says what would happen now and why. The same snapshot gives the same bytes.

mod answer;
mod exact;
mod leave;
mod read;
mod text;
mod words;
mod write;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::capacity::SpawnHistory;
use crate::field::FieldError;
use crate::group::Group;
use crate::ids::{Birth, UserId};
use crate::mismatch::{Mismatch, mismatches};
use crate::plan::Snapshot;
use crate::thresholds::Policy;

pub use answer::Answer;

/// The version of the form, written as `"snapshot":1`. A reader refuses any other.
pub const VERSION: u64 = 1;

/// The longest line that is read, in bytes: 32 MiB, about 10,000 workers with 30 users each.
pub const MAX_BYTES: usize = 32 << 20;

/// The most users that one worker may hold: what is counted per user stays bounded.
pub const MAX_USERS: u64 = 1_000_000;

/// Why a user cannot be moved now (C7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// He has an open stream that is not to be closed.
    PinnedStream,
    /// His package is larger than a move may carry.
    PackageTooLarge,
    /// A move of his failed; he is left alone until then (V6).
    BackingOff {
        /// On the clock of the snapshot.
        until: Duration,
    },
}

/// A user and where he lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedUser {
    /// His worker.
    pub worker: Birth,
    /// Who he is.
    pub user: UserId,
    /// Open requests; more than none makes him busy (C6).
    pub open_requests: usize,
    /// Why he cannot be moved now, if so.
    pub stays: Option<Stays>,
}

/// A group at one moment: everything that a decision about it stands on.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    name: String,
    taken_at: Duration,
    policy: Policy,
    spawns: SpawnHistory,
    group: Group,
    users: BTreeMap<Birth, Vec<SavedUser>>,
    given: Option<Box<str>>,
}

/// Why a line is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SnapshotError {
    /// It is longer than [`MAX_BYTES`].
    #[error("the snapshot has {0} bytes, allowed are {MAX_BYTES}")]
    TooLong(usize),
    /// It is no JSON.
    #[error(
        "not JSON: {0}; a snapshot is one object a line, as `elastic-pool decide --group NAME --save FILE` writes it"
    )]
    Json(String),
    /// A field is missing, has an impossible value or is not known.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl Saved {
    /// Saves what `snapshot` stands on at `now`, with the users of its workers in the order in which they are to be asked for a move.
    ///
    /// `name` is the group's, for people: `namespace/name`. Call [`Group::expire`] first, as before a plan. Users of
    /// workers that are not in the group are left out.
    pub fn of(
        name: &str,
        snapshot: &Snapshot<'_>,
        now: Duration,
        users: impl IntoIterator<Item = SavedUser>,
    ) -> Self {
        let mut saved = Self {
            name: name.to_owned(),
            taken_at: now,
            policy: snapshot.policy.clone(),
            spawns: *snapshot.spawns,
            group: snapshot.group.clone(),
            users: BTreeMap::new(),
            given: None,
        };
        users.into_iter().for_each(|user| saved.settle(user));
        saved
    }

    fn settle(&mut self, user: SavedUser) {
        if self.group.get(user.worker).is_some() {
            self.users.entry(user.worker).or_default().push(user);
        }
    }

    /// The same with the answer that it gives today, so that another build or another day can be held against it.
    #[must_use]
    pub fn answered(mut self) -> Self {
        self.given = Some(self.answer().to_json().into());
        self
    }

    /// Reads a line that [`Saved::to_json`] wrote, or somebody edited; workers may stand in any order.
    pub fn parse(line: &str) -> Result<Self, SnapshotError> {
        read::parse(line)
    }

    /// One line of JSON, without a line break: workers by birth, keys always in the same order.
    pub fn to_json(&self) -> String {
        write::to_json(self)
    }

    /// What would happen now, and why.
    pub fn answer(&self) -> Answer {
        Answer::of(self)
    }

    /// The answer as it was given when the snapshot was taken, if it was saved too: the bytes of [`Answer::to_json`].
    pub fn given(&self) -> Option<&str> {
        self.given.as_deref()
    }

    /// Where the answer of this build differs from the one given then; `None` when none was saved.
    ///
    /// Bytes are compared; the list names the fields, and none of them only where the bytes differ in their form alone.
    pub fn replayed(&self) -> Option<Result<(), Vec<Mismatch>>> {
        let given = self.given()?;
        let now = self.answer().to_json();
        if given == now {
            return Some(Ok(()));
        }
        let object = |json: &str| serde_json::from_str(json).unwrap_or_default();
        Some(Err(mismatches(&object(given), &object(&now), &[])))
    }

    /// The group's name, `namespace/name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was taken, on the clock of the process that took it.
    pub fn taken_at(&self) -> Duration {
        self.taken_at
    }

    /// The workers.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// What the owner asks for.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Everything a plan stands on.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            group: &self.group,
            policy: &self.policy,
            spawns: &self.spawns,
        }
    }

    /// The users of one worker, in the order in which they are to be asked for a move.
    pub fn users(&self, worker: Birth) -> &[SavedUser] {
        self.users.get(&worker).map_or(&[], Vec::as_slice)
    }
}
