//! The Kubernetes vehicle: observes groups, pools and pods, builds what is wanted, applies it, publishes status; it
//! judges nothing about load.

pub mod auth;
pub mod build;
#[cfg(test)]
pub(crate) mod fake;
pub mod leader;
mod pods;
mod shelf;
mod status;
