//! The whole product on loopback: commander, gateways, agents and apps as processes of their own, driven and hurt from outside.

#![allow(clippy::unwrap_used, reason = "what fails here fails a test")]

#[path = "local/browser.rs"]
mod browser;
#[path = "local/deaths.rs"]
mod deaths;
#[path = "local/decisions.rs"]
mod decisions;
#[path = "local/deposits.rs"]
mod deposits;
#[path = "local/elasticity.rs"]
mod elasticity;
#[path = "local/evacuation.rs"]
mod evacuation;
#[path = "local/gateways.rs"]
mod gateways;
#[path = "local/hostile.rs"]
mod hostile;
#[path = "local/load.rs"]
mod load;
#[path = "local/logins.rs"]
mod logins;
#[path = "local/peers.rs"]
mod peers;
#[path = "local/readings.rs"]
mod readings;
#[path = "local/run.rs"]
mod run;
#[path = "local/starts.rs"]
mod starts;
#[path = "local/websockets.rs"]
mod websockets;
