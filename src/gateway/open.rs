//! The forwards that are open, as a dictionary that people can read (V2): who, where, since when; it ends none.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use elastic_pool_engine::ids::ClientId;
use parking_lot::Mutex;

use super::identity::Who;
use super::upstream::Upstream;

/// Threads do not meet: each writes into a part of its own.
const PARTS: usize = 16;

static NEXT_PART: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static PART: Cell<usize> = Cell::new(NEXT_PART.fetch_add(1, Relaxed) % PARTS);
}

/// One open forward.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) who: Who,
    pub(crate) client: ClientId,
    /// By the gateway's clock.
    pub(crate) since: Duration,
}

#[derive(Default)]
struct Part {
    rows: Vec<Option<Row>>,
    free: Vec<usize>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Dictionary {
    parts: [Mutex<Part>; PARTS],
}

/// An entry; dropped, it is closed.
pub(crate) struct Open {
    dictionary: Arc<Dictionary>,
    part: usize,
    at: usize,
    upstream: Arc<Upstream>,
}

impl Dictionary {
    pub(crate) fn open(self: &Arc<Self>, row: Row) -> Open {
        let upstream = Arc::clone(&row.upstream);
        upstream.open.fetch_add(1, Relaxed);
        if cfg!(feature = "bare") {
            return Open {
                dictionary: Arc::clone(self),
                part: 0,
                at: usize::MAX,
                upstream,
            };
        }
        let part = PART.with(Cell::get);
        let mut rows = self.parts[part].lock();
        let at = if let Some(at) = rows.free.pop() {
            rows.rows[at] = Some(row);
            at
        } else {
            rows.rows.push(Some(row));
            rows.rows.len() - 1
        };
        drop(rows);
        Open {
            dictionary: Arc::clone(self),
            part,
            at,
            upstream,
        }
    }

    /// At most `most` entries, the oldest first, and how many there are.
    pub(crate) fn list(&self, most: usize) -> (Vec<Row>, usize) {
        let mut rows: Vec<Row> = Vec::new();
        for part in &self.parts {
            rows.extend(part.lock().rows.iter().flatten().cloned());
        }
        let count = rows.len();
        rows.sort_by_key(|row| row.since);
        rows.truncate(most);
        (rows, count)
    }
}

impl Open {
    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.upstream.open.fetch_sub(1, Relaxed);
        let mut part = self.dictionary.parts[self.part].lock();
        if let Some(row) = part.rows.get_mut(self.at) {
            *row = None;
            part.free.push(self.at);
        }
    }
}
