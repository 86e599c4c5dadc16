//! What the app keeps of one user, how two such slices are joined, and the form in which one travels; never does I/O.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// The value of `Pool-Format` that this app writes and reads.
pub(super) const FORMAT: &str = "reference/1";
/// Most notes of one user.
pub(super) const MAX_NOTES: usize = 100;
/// Longest note, in bytes.
pub(super) const MAX_NOTE_BYTES: usize = 1024;
/// Most open pages remembered of one user; the oldest goes first.
pub(super) const MAX_PAGES: usize = 32;
/// Most browsers of one user; the oldest is logged out first.
pub(super) const MAX_SESSIONS: usize = 16;
/// Most undelivered deposits of one user.
pub(super) const MAX_DEPOSITS: usize = 100;
/// Longest deposit, in bytes.
pub(super) const MAX_DEPOSIT_BYTES: usize = 16 * 1024;
/// Most senders of deposits that are remembered; the one silent for longest is forgotten first.
const MAX_SENDERS: usize = 64;
/// Longest id of a page, a session or a sender, in bytes.
pub(super) const MAX_ID_BYTES: usize = 64;

/// The register slice of one user or guest: everything that has to travel with him.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slice {
    /// Counts his requests; no answer may show the same value twice.
    pub(super) counter: u64,
    /// Notes by their random ids, so that a join done twice adds nothing.
    #[serde(default)]
    pub(super) notes: BTreeMap<String, String>,
    /// Ids of the pages he has open, oldest first.
    #[serde(default)]
    pub(super) pages: VecDeque<String>,
    /// Nonces of his logged-in browsers, oldest first.
    #[serde(default)]
    pub(super) sessions: VecDeque<String>,
    /// Messages that wait for him, oldest first.
    #[serde(default)]
    pub(super) deposits: VecDeque<String>,
    /// Senders of deposits with the last number taken from each, so that one that comes again is known (V10).
    #[serde(default)]
    pub(super) senders: VecDeque<(String, u64)>,
    /// Dead weight that makes a package big.
    #[serde(default)]
    pub(super) ballast: String,
}

/// What a join added to the resident's slice, so that it can be taken out again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Joined {
    notes: Vec<String>,
    pages: Vec<String>,
    sessions: Vec<String>,
    deposits: Vec<String>,
    ballast: bool,
}

impl Slice {
    /// Joins a visitor's slice to this resident's: the resident's values win (P5), only what he lacks is added.
    pub(super) fn join(&mut self, visitor: Slice) -> Joined {
        let mut joined = Joined::default();
        for (id, text) in visitor.notes {
            if self.notes.len() < MAX_NOTES && !self.notes.contains_key(&id) {
                self.notes.insert(id.clone(), text);
                joined.notes.push(id);
            }
        }
        joined.pages = adopt(&mut self.pages, visitor.pages, MAX_PAGES);
        joined.sessions = adopt(&mut self.sessions, visitor.sessions, MAX_SESSIONS);
        for text in visitor.deposits {
            if self.deposits.len() < MAX_DEPOSITS {
                self.deposits.push_back(text.clone());
                joined.deposits.push(text);
            }
        }
        if self.ballast.is_empty() && !visitor.ballast.is_empty() {
            self.ballast = visitor.ballast;
            joined.ballast = true;
        }
        joined
    }

    /// Takes out what a join added; what the resident did since stays.
    pub(super) fn undo(&mut self, joined: &Joined) {
        for id in &joined.notes {
            self.notes.remove(id);
        }
        self.pages.retain(|id| !joined.pages.contains(id));
        self.sessions.retain(|id| !joined.sessions.contains(id));
        for text in &joined.deposits {
            if let Some(at) = self.deposits.iter().rposition(|held| held == text) {
                self.deposits.remove(at);
            }
        }
        if joined.ballast {
            self.ballast.clear();
        }
    }

    /// Whether this deposit of `sender` is new; from then on it is not.
    pub(super) fn is_new(&mut self, sender: &str, sequence: u64) -> bool {
        let known = self.senders.iter().position(|(name, _)| name == sender);
        if known.is_some_and(|at| self.senders[at].1 >= sequence) {
            return false;
        }
        if let Some(at) = known {
            self.senders.remove(at);
        }
        while self.senders.len() >= MAX_SENDERS {
            self.senders.pop_front();
        }
        self.senders.push_back((sender.to_owned(), sequence));
        true
    }

    /// Remembers an open page; the oldest is dropped above [`MAX_PAGES`].
    pub(super) fn open_page(&mut self, id: String) {
        remember(&mut self.pages, id, MAX_PAGES);
    }

    /// Remembers a logged-in browser; the oldest is dropped above [`MAX_SESSIONS`].
    pub(super) fn open_session(&mut self, nonce: String) {
        remember(&mut self.sessions, nonce, MAX_SESSIONS);
    }

    /// Whether every part is within its bound; a package that is not is refused whole.
    pub(super) fn within_bounds(&self) -> bool {
        let short = |id: &String| id.len() <= MAX_ID_BYTES;
        self.notes.len() <= MAX_NOTES
            && self
                .notes
                .iter()
                .all(|(id, text)| short(id) && text.len() <= MAX_NOTE_BYTES)
            && self.pages.len() <= MAX_PAGES
            && self.pages.iter().all(short)
            && self.sessions.len() <= MAX_SESSIONS
            && self.sessions.iter().all(short)
            && self.deposits.len() <= MAX_DEPOSITS
            && self.deposits.iter().all(|text| text.len() <= MAX_DEPOSIT_BYTES)
            && self.senders.len() <= MAX_SENDERS
            && self.senders.iter().all(|(sender, _)| short(sender))
    }
}

fn remember(list: &mut VecDeque<String>, id: String, most: usize) {
    if list.contains(&id) {
        return;
    }
    while list.len() >= most {
        list.pop_front();
    }
    list.push_back(id);
}

fn adopt(list: &mut VecDeque<String>, from: VecDeque<String>, most: usize) -> Vec<String> {
    let mut added = Vec::new();
    for id in from {
        if list.len() < most && !list.contains(&id) {
            list.push_back(id.clone());
            added.push(id);
        }
    }
    added
}

/// A package as it travels: a slice with the user it belongs to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Package {
    /// Always [`FORMAT`].
    pub(super) format: String,
    /// The user, unencoded; must be the one of the path.
    pub(super) user: String,
    /// His slice.
    pub(super) slice: Slice,
}
