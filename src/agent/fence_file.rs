//! The fence table on the memory volume, tied to the app's instance; it never decides what holds.
//!
//! The whole table is written beside and renamed; a step of a move only appends its user's record to a log that belongs to
//! that one table, so that it costs the same however many live here.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use elastic_pool_engine::ids::{Term, UserId};
use serde::{Deserialize, Serialize};

use super::fence::Record;

const NAME: &str = "fence.json";
/// A longer file is not ours.
const MAX_BYTES: u64 = 256 << 20;
/// A log that is longer than this, and than its table, makes way for a new table.
const LOG_BYTES: u64 = 256 << 10;

/// What outlives a restart of the agent (not of the pod).
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// Grows with each whole table; its log bears the same number.
    pub(crate) generation: u64,
    /// Instance of the app for which the records hold; `None` before any was known.
    pub(crate) instance: Option<String>,
    /// Highest term this agent was welcomed in.
    pub(crate) term: Term,
    /// This pod's own ticket key, hex.
    pub(crate) ticket_key: Option<String>,
    /// Accepted Pool-Hop values.
    pub(crate) hops: Vec<String>,
    pub(crate) worker: String,
    pub(crate) birth: u64,
    pub(crate) session_users: bool,
    pub(crate) session_timeout_ms: u64,
    pub(crate) app_container_id: String,
    pub(crate) records: Vec<(UserId, Record)>,
}

/// What failed.
#[derive(Debug, thiserror::Error)]
pub enum FenceFileError {
    /// The state folder.
    #[error("make the state folder {path}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Writing or renaming.
    #[error("write {path}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The table as it stands on the volume.
#[derive(Debug)]
pub(crate) struct FenceFile {
    folder: PathBuf,
    generation: u64,
    table_bytes: u64,
    log: Option<File>,
    log_bytes: u64,
    /// State of the table in memory that is here whole; the caller's number.
    pub(crate) version: u64,
}

fn log_path(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("fence-{generation}.log"))
}

/// A file of at most [`MAX_BYTES`]; `None` when there is none that can be read.
fn read(path: &Path) -> Option<Vec<u8>> {
    let meta = std::fs::metadata(path).ok()?;
    if meta.len() > MAX_BYTES {
        return None;
    }
    std::fs::read(path)
        .inspect_err(
            |error| tracing::warn!(%error, path = %path.display(), "a file of the fence cannot be read"),
        )
        .ok()
}

/// Reads table and log; what is missing or unreadable counts as none: then nobody is served until claimed anew.
fn load(folder: &Path) -> Kept {
    let Some(table) = read(&folder.join(NAME)) else {
        return Kept::default();
    };
    let mut kept: Kept = match serde_json::from_slice(&table) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(%error, "the fence file cannot be read and is left aside");
            return Kept::default();
        }
    };
    let log = read(&log_path(folder, kept.generation)).unwrap_or_default();
    let mut records: HashMap<UserId, Record> = std::mem::take(&mut kept.records).into_iter().collect();
    for line in log.split(|byte| *byte == b'\n') {
        // A line that a killed process left unfinished is the last one, and nobody was answered on it.
        let Ok((user, record)) = serde_json::from_slice::<(UserId, Option<Record>)>(line) else {
            break;
        };
        match record {
            Some(record) => records.insert(user, record),
            None => records.remove(&user),
        };
    }
    kept.records = records.into_iter().collect();
    kept
}

impl FenceFile {
    /// What the folder holds, and the file to go on with; a whole table is to be stored before anything is appended.
    pub(crate) fn open(folder: &Path) -> (Self, Kept) {
        let kept = load(folder);
        let file = Self {
            folder: folder.to_owned(),
            generation: kept.generation,
            table_bytes: 0,
            log: None,
            log_bytes: 0,
            version: 0,
        };
        (file, kept)
    }

    /// Writes the whole table beside and renames it over the present one, so that a reader finds the old or the new one.
    pub(crate) fn store(&mut self, mut kept: Kept, version: u64) -> Result<(), FenceFileError> {
        kept.generation = self.generation + 1;
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        write_whole(&self.folder.join(NAME), &bytes, 0o600)?;
        let old = log_path(&self.folder, self.generation);
        (self.generation, self.version) = (kept.generation, version);
        (self.table_bytes, self.log, self.log_bytes) = (bytes.len() as u64, None, 0);
        // It belongs to no table any more.
        let _ = std::fs::remove_file(old);
        Ok(())
    }

    /// True when a whole table is due instead of another line.
    pub(crate) fn wants_whole(&self) -> bool {
        self.generation == 0 || self.log_bytes > LOG_BYTES.max(self.table_bytes)
    }

    /// Adds one user's record as it is now. After an error nothing may be appended before the next [`Self::store`].
    pub(crate) fn append(&mut self, user: &UserId, record: Option<&Record>) -> Result<(), FenceFileError> {
        let path = log_path(&self.folder, self.generation);
        let failed = |source| FenceFileError::Write {
            path: path.clone(),
            source,
        };
        let mut line = serde_json::to_vec(&(user, record)).unwrap_or_default();
        line.push(b'\n');
        if self.log.is_none() {
            // Whatever bears this number already is not of this table.
            let _ = std::fs::remove_file(&path);
            let mut options = File::options();
            options.create_new(true).append(true).mode(0o600);
            self.log = Some(options.open(&path).map_err(failed)?);
        }
        if let Some(log) = &mut self.log {
            log.write_all(&line).map_err(failed)?;
        }
        self.log_bytes += line.len() as u64;
        Ok(())
    }
}

/// Makes the folder, for this process alone.
pub(crate) fn prepare(folder: &Path) -> Result<(), FenceFileError> {
    std::fs::create_dir_all(folder).map_err(|source| FenceFileError::Folder {
        path: folder.to_owned(),
        source,
    })
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FenceFileError> {
    let failed = |source| FenceFileError::Write {
        path: path.to_owned(),
        source,
    };
    let draft = path.with_extension("new");
    // One that a killed process left may have another mode.
    let _ = std::fs::remove_file(&draft);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    std::fs::rename(&draft, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elastic_pool_engine::ids::Epoch;

    use super::*;
    use crate::agent::fence::Fence;

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn record(name: &str) -> Record {
        let mut fence = Fence::default();
        fence.login(&user(name), None, Duration::ZERO);
        fence.freeze(&user(name), Epoch(7), Duration::ZERO).unwrap();
        fence.get(&user(name)).unwrap().clone()
    }

    fn table(instance: &str, names: &[&str]) -> Kept {
        Kept {
            instance: Some(instance.into()),
            records: names.iter().map(|name| (user(name), record(name))).collect(),
            ..Kept::default()
        }
    }

    fn names(kept: &Kept) -> Vec<&str> {
        let mut names: Vec<&str> = kept.records.iter().map(|(user, _)| user.as_str()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_broken_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, kept) = FenceFile::open(folder.path());
        assert!(kept.instance.is_none());
        file.store(table("one", &[]), 1).unwrap();
        assert_eq!(load(folder.path()).instance.as_deref(), Some("one"));
        std::fs::write(folder.path().join(NAME), b"{\"instance\":").unwrap();
        assert!(load(folder.path()).instance.is_none());
    }

    #[test]
    fn records_that_were_appended_replace_and_remove_those_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FenceFile::open(folder.path()).0;
        assert!(file.wants_whole());
        file.store(table("one", &["alice", "bob"]), 1).unwrap();
        assert!(!file.wants_whole());
        file.append(&user("carol"), Some(&record("carol"))).unwrap();
        file.append(&user("alice"), None).unwrap();
        let (mut file, kept) = FenceFile::open(folder.path());
        assert_eq!(names(&kept), ["bob", "carol"]);
        file.store(table("one", &["dave"]), 2).unwrap();
        assert_eq!(names(&load(folder.path())), ["dave"]);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "the old log goes"
        );
    }

    #[test]
    fn an_unfinished_line_and_the_log_of_another_table_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FenceFile::open(folder.path()).0;
        file.store(table("one", &["alice"]), 1).unwrap();
        file.append(&user("bob"), Some(&record("bob"))).unwrap();
        let log = log_path(folder.path(), 1);
        let line = std::fs::read(&log).unwrap();
        std::fs::write(&log, [&line[..], b"[\"alice\",nu"].concat()).unwrap();
        assert_eq!(names(&load(folder.path())), ["alice", "bob"]);
        std::fs::rename(&log, log_path(folder.path(), 2)).unwrap();
        assert_eq!(names(&load(folder.path())), ["alice"]);
        file.store(table("one", &["alice"]), 2).unwrap();
        file.append(&user("carol"), Some(&record("carol"))).unwrap();
        assert_eq!(names(&load(folder.path())), ["alice", "carol"]);
    }

    #[test]
    fn a_long_log_makes_way_for_a_new_table() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = FenceFile::open(folder.path()).0;
        file.store(table("one", &["alice"]), 1).unwrap();
        let mut lines = 0_u64;
        while !file.wants_whole() {
            file.append(&user("alice"), Some(&record("alice"))).unwrap();
            lines += 1;
        }
        assert!((1000..10_000).contains(&lines), "{lines}");
    }
}
