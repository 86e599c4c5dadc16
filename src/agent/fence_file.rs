//! The fence table on the memory volume, tied to the app's instance; it is written whole and renamed, and never decides what holds.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use elastic_pool_engine::ids::{Term, UserId};
use serde::{Deserialize, Serialize};

use super::fence::Record;

const NAME: &str = "fence.json";
/// A longer file is not ours.
const MAX_BYTES: u64 = 256 << 20;

/// What outlives a restart of the agent (not of the pod).
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
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

/// Reads the file; one that is missing or unreadable counts as none: then nobody is served until claimed anew.
pub(crate) fn load(folder: &Path) -> Kept {
    let path = folder.join(NAME);
    match std::fs::metadata(&path) {
        Ok(meta) if meta.len() <= MAX_BYTES => {}
        _ => return Kept::default(),
    }
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string())) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(%error, "the fence file cannot be read and is left aside");
            Kept::default()
        }
    }
}

/// Makes the folder, for this process alone.
pub(crate) fn prepare(folder: &Path) -> Result<(), FenceFileError> {
    std::fs::create_dir_all(folder).map_err(|source| FenceFileError::Folder {
        path: folder.to_owned(),
        source,
    })
}

/// Writes beside the file and renames over it, so that a reader finds the old or the new one.
pub(crate) fn store(folder: &Path, kept: &Kept) -> Result<(), FenceFileError> {
    let bytes = serde_json::to_vec(kept).unwrap_or_default();
    write_whole(&folder.join(NAME), &bytes, 0o600)
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
    use super::*;

    #[test]
    fn a_broken_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).instance.is_none());
        store(
            folder.path(),
            &Kept {
                instance: Some("one".into()),
                ..Kept::default()
            },
        )
        .unwrap();
        assert_eq!(load(folder.path()).instance.as_deref(), Some("one"));
        std::fs::write(folder.path().join(NAME), b"{\"instance\":").unwrap();
        assert!(load(folder.path()).instance.is_none());
    }
}
