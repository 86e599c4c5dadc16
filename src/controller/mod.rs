//! The Kubernetes controller: observe, build, apply, status; it decides nothing about placement or size.

pub mod build;
