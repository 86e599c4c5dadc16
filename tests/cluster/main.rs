//! The tests on a real cluster, run as `tests/cluster/with.sh NAME cargo nextest run -E 'binary(cluster)'`; none of them makes or removes a cluster.
//! They share one operator, installed by the first, and run one at a time; each has a namespace of its own that enforces Pod Security `restricted`.

mod accepted;
mod containers;
mod deaths;
mod drains;
mod evacuation;
mod evictions;
mod faults;
mod foreign;
mod gateways;
mod growth;
mod harness;
mod kills_in_moves;
mod load;
mod measured;
mod node_drains;
mod node_losses;
mod nodes;
mod prometheus;
mod quiet;
mod shop;
mod updates;
