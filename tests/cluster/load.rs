//! The load program beside a test: starts it inside the cluster's network and reads its summary; it judges nothing itself.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::{inside, run};
use crate::shop::Shop;

/// A run of `pool-load` in progress; it ends with the test at the latest.
pub(crate) struct Load {
    child: Child,
    folder: tempfile::TempDir,
}

impl Load {
    /// Starts the users of `profile` on the shop's gateway, with more arguments between spaces.
    pub(crate) fn start(shop: &Shop, profile: &str, more: &str) -> Self {
        Self::start_at(&shop.url(), profile, more)
    }

    /// As [`Self::start`], on the gateway at this URL.
    pub(crate) fn start_at(url: &str, profile: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program =
            std::env::var("ELASTIC_POOL_BIN").expect("ELASTIC_POOL_BIN: run by tests/cluster/with.sh");
        let program = format!("{program}/pool-load");
        let summary = summary(&folder);
        let mut args = vec![
            program.as_str(),
            "--url",
            url,
            "--users-profile",
            profile,
            "--json",
            summary.to_str().expect("UTF-8"),
        ];
        args.extend(more.split_whitespace());
        let child = inside(&args)
            .stdout(File::create(folder.path().join("progress")).expect("a file"))
            .stdin(Stdio::null())
            .spawn()
            .expect("the load program");
        Self { child, folder }
    }

    /// Whether it still runs.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Sends everybody home now; the summary.
    pub(crate) fn end(mut self) -> Value {
        assert!(self.goes_on(), "the load ended by itself");
        run("kill", &["-INT", &self.child.id().to_string()], "");
        self.finish()
    }

    /// Waits for its end; the summary.
    pub(crate) fn finish(mut self) -> Value {
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "pool-load: {status}");
        let text = std::fs::read_to_string(summary(&self.folder)).expect("a summary");
        let mut summary: Value = serde_json::from_str(&text).expect("JSON");
        summary["timeline"].take();
        println!("load: {summary}");
        summary
    }
}

fn summary(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("summary.json")
}

impl Drop for Load {
    fn drop(&mut self) {
        // What it said is what a failure is understood by.
        let said = std::fs::read_to_string(self.folder.path().join("progress"));
        println!("{}", said.unwrap_or_default());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nobody lost his state or was doubled, whatever failed.
pub(crate) fn assert_nobody_lost(summary: &Value) {
    for count in ["lost", "users_lost", "back", "forked", "foreign"] {
        assert_eq!(summary[count], 0, "{count} in {summary}");
    }
}

/// As [`assert_held`], where the leader was handed over meanwhile: a resident's second login waits for the new one, and
/// is answered 503 with Retry-After when that takes longer than a hold may (P6).
pub(crate) fn assert_held_but_for_second_logins(summary: &Value) {
    assert_nobody_lost(summary);
    assert_eq!(summary["failed"], summary["unavailable"], "{summary}");
    let at = summary["failures"].as_object().into_iter().flatten();
    let others: Vec<_> = at
        .filter(|(what, _)| !what.starts_with("/login: status 503"))
        .collect();
    assert!(others.is_empty(), "{others:?} in {summary}");
    assert!(
        summary["failed"].as_u64() <= summary["second_browsers"].as_u64(),
        "{summary}"
    );
    assert!(summary["requests"].as_u64() > Some(0), "{summary}");
}

/// Nothing failed, nobody was lost, set back, doubled or mixed up.
pub(crate) fn assert_held(summary: &Value) {
    for count in [
        "failed",
        "lost",
        "users_lost",
        "second_browsers_lost",
        "back",
        "forked",
        "foreign",
    ] {
        assert_eq!(summary[count], 0, "{count} in {summary}");
    }
    assert!(summary["requests"].as_u64() > Some(0), "{summary}");
}
