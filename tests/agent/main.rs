//! The agent between a scripted commander, a small app and hand-made gateways: what it serves, moves and survives.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod app;
#[path = "../support/corpus.rs"]
mod corpus;
mod deposits;
#[path = "../support/grpc.rs"]
mod grpc_support;
mod h2c;
mod hostile;
mod life;
mod moves;
mod path;
#[path = "../support/raw.rs"]
mod raw;
mod streams;
mod world;
