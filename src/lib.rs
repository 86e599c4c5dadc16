//! elastic-pool: places sessions, grows on measured occupancy, shrinks by moving live users.

pub mod agent;
pub mod api;
mod aside;
pub mod channel;
pub mod clock;
pub mod commander;
pub mod controller;
pub mod credentials;
pub mod decide;
pub mod decisions;
mod exchange;
pub mod gateway;
mod heads;
pub mod load;
pub mod metrics;
pub mod monitor;
pub mod net;
pub mod operator;
mod outgoing;
mod patience;
mod prefixed;
mod serving;
pub mod simulate;
pub mod telemetry;
pub mod vehicle;
mod wire;
pub mod worker;

pub use elastic_pool_engine as engine;
