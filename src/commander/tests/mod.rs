//! The commander against scripted agents and gateways: whole scenarios, time as an argument.

mod deaths;
mod growth;
mod logins;
mod moves;
mod recovery;
mod world;
