//! A gateway between scripted ends: a commander and workers that do what each test says, on loopback ports of their own.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod access;
#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/backend.rs"]
mod backend;
#[path = "../support/client.rs"]
mod client;
#[path = "../support/commander.rs"]
mod commander;
mod cookies;
#[path = "../support/corpus.rs"]
mod corpus;
mod faults;
mod groups;
mod grpc;
#[path = "../support/grpc.rs"]
mod grpc_support;
mod holds;
mod hostile;
mod http2;
mod logins;
mod path;
#[path = "../support/publisher.rs"]
mod publisher;
#[path = "../support/raw.rs"]
mod raw;
#[path = "../support/stage.rs"]
mod stage;
mod tls;
mod tokens;
mod visitors;
