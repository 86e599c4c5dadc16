//! The pure decisions of elastic-pool: no I/O, no clock, no Kubernetes.

pub mod ids;
