//! The channel between the commander and its agents and gateways: messages, the dialling and the listening end.

mod convert;
pub mod link;
pub mod server;

/// Messages of proto/channel.proto.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, reason = "generated")]
pub mod proto {
    tonic::include_proto!("elasticpool.channel.v1");
}

/// Version of the protocol that this build speaks.
pub const PROTOCOL: u32 = 1;

/// Largest message in bytes: a Hello or a Table of 100,000 users stays below it.
pub const LARGEST_MESSAGE: usize = 32 << 20;

/// Audience of the service account tokens that peers show.
pub const AUDIENCE: &str = "elastic-pool";

/// Whether this operator leads, and else who does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderState {
    /// This process leads in `term`.
    Leading {
        /// The Lease's transition count.
        term: elastic_pool_engine::ids::Term,
    },
    /// Somebody else leads, or nobody yet.
    Following {
        /// host:port of the leader's channel; empty when unknown.
        address: String,
        /// Highest term known.
        term: elastic_pool_engine::ids::Term,
    },
}

/// Name of the service account that a pool's gateways run under.
pub fn gateway_account(pool: &str) -> String {
    format!("{pool}-gateway")
}
