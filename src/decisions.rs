//! Saves decisions as JSON lines, a file for each group, bounded; it decides nothing and holds up nobody who does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elastic_pool_engine::snapshot::Saved;
use tokio::sync::mpsc;

use crate::commander::DecisionSink;
use crate::metrics::Metrics;

/// Decisions that may wait to be written; more are lost, and counted.
const QUEUE: usize = 1024;
/// A file that would grow beyond this is put aside.
const LARGEST: u64 = 16 << 20;
/// Files put aside for each group: `NAME.jsonl.1` is the newest.
const ASIDE: u32 = 4;

/// Bounds of a folder of decisions.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    largest: u64,
    aside: u32,
}

/// Starts to save what is sent as `NAMESPACE_NAME.jsonl` in `folder`, on a thread of its own that ends with the sender.
///
/// A write that fails is counted (`decisions_unsaved_total`) and warned of once until one succeeds; it stops nothing.
pub fn save_in(folder: PathBuf, metrics: Arc<Metrics>) -> io::Result<DecisionSink> {
    let (sink, mut decisions) = mpsc::channel::<Arc<Saved>>(QUEUE);
    let bounds = Bounds {
        largest: LARGEST,
        aside: ASIDE,
    };
    let write = move || {
        let mut failing = false;
        while let Some(saved) = decisions.blocking_recv() {
            let line = Saved::clone(&saved).answered().to_json();
            let result = append(&folder, saved.name(), &line, bounds);
            if let Err(error) = &result {
                metrics.decision_unsaved("write");
                if !failing {
                    tracing::warn!(folder = %folder.display(), group = saved.name(), %error, "decisions cannot be saved");
                }
            }
            failing = result.is_err();
        }
    };
    std::thread::Builder::new()
        .name("decisions".to_owned())
        .spawn(write)?;
    Ok(sink)
}

/// Appends one line to the group's file, and puts a full one aside first.
fn append(folder: &Path, group: &str, line: &str, bounds: Bounds) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = format!("{}.jsonl", group.replace('/', "_"));
    let path = folder.join(&name);
    let size = fs::metadata(&path).map_or(0, |present| present.len());
    if size > 0 && size + line.len() as u64 >= bounds.largest {
        put_aside(folder, &name, bounds.aside)?;
    }
    let mut file: File = OpenOptions::new().create(true).append(true).open(&path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// `NAME` becomes `NAME.1`, that `NAME.2` and so on; the oldest goes.
fn put_aside(folder: &Path, name: &str, aside: u32) -> io::Result<()> {
    let numbered = |number: u32| match number {
        0 => folder.join(name),
        number => folder.join(format!("{name}.{number}")),
    };
    for number in (0..aside).rev() {
        match fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Bounds, append};

    const BOUNDS: Bounds = Bounds {
        largest: 10,
        aside: 2,
    };

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        for line in ["one", "two", "three", "four", "five", "six", "seven"] {
            append(folder.path(), "shop/blue", line, BOUNDS).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("shop_blue.jsonl"), "six\nseven\n");
        assert_eq!(read("shop_blue.jsonl.1"), "four\nfive\n");
        assert_eq!(read("shop_blue.jsonl.2"), "three\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("file");
        std::fs::write(&taken, "in the way").unwrap();
        assert!(append(&taken, "shop/blue", "one", BOUNDS).is_err());
        assert_eq!(std::fs::read_to_string(taken).unwrap(), "in the way");
    }
}
