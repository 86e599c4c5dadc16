//! The one binary: operator, gateway, agent, local vehicle, reference app and tools, as subcommands.

fn main() {}
