//! Rules of growth and compaction, each claim a test.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod changes;
mod compaction;
mod evacuation;
mod growth;
#[path = "../scene/mod.rs"]
mod scene;
mod unknown;
mod update;
