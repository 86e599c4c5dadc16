//! Properties of the engine over random groups, each named after the rule of spec.md that it keeps.
//!
//! `ELASTIC_POOL_CASES` says how many cases each property tries [2,000]. The cases are the same in every run, unless
//! `ELASTIC_POOL_SEED` names another start, or `random`. A case that fails becomes a test with a name.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod compaction;
mod evacuation;
mod found;
mod growth;
mod life;
mod numbers;
mod occupancy;
mod oracle;
mod order;
mod placement;
mod plan;
mod readers;
mod snapshot;
mod updates;
mod world;
