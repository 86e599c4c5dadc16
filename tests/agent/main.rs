//! The agent between a scripted commander, a small app and hand-made gateways: what it serves, moves and survives.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod app;
mod deposits;
mod life;
mod moves;
mod path;
mod streams;
mod world;
