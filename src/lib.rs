//! elastic-pool: places sessions, grows on measured occupancy, shrinks by moving live users.

pub mod api;
pub mod channel;
pub mod clock;
pub mod controller;
pub mod credentials;
pub mod vehicle;

pub use elastic_pool_engine as engine;
