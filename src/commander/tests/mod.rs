//! The commander against scripted agents and gateways: whole scenarios, time as an argument.

mod changes;
mod cordons;
mod deaths;
mod deposits;
mod evacuation;
mod groups;
mod growth;
mod history;
mod incremental;
mod logins;
mod manifest;
mod modes;
mod moves;
mod open_moves;
mod parallelism;
mod peers;
mod recovery;
mod spawns;
mod updates;
mod waits;
mod world;
