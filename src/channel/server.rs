//! The listening end: authenticates peers, turns streams into events for the commander; it decides nothing.
