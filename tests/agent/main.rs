//! The agent between a scripted commander, a small app and hand-made gateways: what it serves, moves and survives.

mod app;
mod life;
mod moves;
mod path;
mod streams;
mod world;
