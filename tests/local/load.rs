//! The load program as a process, and its summary.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};

/// Beyond the profile's own time.
const EXTRA: Duration = Duration::from_secs(90);

/// Users at work; they are ended when this value is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    child: Child,
    folder: tempfile::TempDir,
}

impl Load {
    /// Starts users by this profile, with some more flags.
    pub(crate) fn start(gateway: SocketAddr, profile: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_pool-load"))
            .arg(format!("--url=http://{gateway}"))
            .arg(format!("--users-profile={profile}"))
            .arg("--json")
            .arg(folder.path().join("summary.json"))
            .arg("--assert")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// True while users are there.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells the users to leave now.
    pub(crate) fn leave(&self) {
        super::run::signal("-INT", u64::from(self.child.id().unwrap()));
    }

    /// Waits for the end; the summary, and whether everything held.
    pub(crate) async fn end(mut self) -> Value {
        let status = tokio::time::timeout(EXTRA, self.child.wait())
            .await
            .expect("the load ends")
            .unwrap();
        let text = std::fs::read(self.folder.path().join("summary.json")).unwrap();
        let mut summary: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(summary["held"] == true, status.success());
        summary.as_object_mut().unwrap().remove("timeline");
        summary
    }

    /// Waits for the end; everything held.
    pub(crate) async fn held(self) -> Value {
        let summary = self.end().await;
        assert_eq!(summary["held"], true, "{summary:#}");
        summary
    }
}

/// A count of a summary.
pub(crate) fn count(summary: &Value, field: &str) -> u64 {
    summary[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field}: {summary:#}"))
}
