//! Counters of this agent for /metrics; never a user in a label.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($field:ident: $name:literal $help:literal,)*) => {
        /// Totals since the agent's start.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $field: Counter,)* }

        impl Counters {
            /// In the text format of Prometheus.
            pub(crate) fn render(&self) -> String {
                let mut text = String::new();
                $(line(&mut text, $name, $help, self.$field.0.load(Relaxed));)*
                text
            }
        }
    };
}

counters! {
    forwards: "forwards" "Requests relayed to the app.",
    hop_refused: "hop_refused" "Requests without a valid Pool-Hop.",
    fence_refused: "fence_refused" "Requests of users that this agent does not own.",
    malformed: "malformed" "Requests with headers that no gateway writes.",
    upstream_failed: "upstream_failed" "Requests that the app did not answer.",
    logins: "logins" "Answers that bound a client to a user.",
    readings_rejected: "readings_rejected" "Impossible readings of the app, taken as absent.",
    reports: "reports" "Reports sent.",
    messages_dropped: "messages_dropped" "Messages to the commander that found no room.",
    commands_refused: "commands_refused" "Commands of a lower term, beyond the bounds or against the fence.",
    unknown_commands: "unknown_commands" "Commands that this build does not know.",
    packages_sent: "packages_sent" "Packages handed to another agent.",
    packages_staged: "packages_staged" "Packages staged in the app.",
    packages_refused: "packages_refused" "Package requests without a valid pass.",
    app_restarts: "app_restarts" "Restarts of the app, each of which dropped all records.",
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn line(text: &mut String, name: &str, help: &str, value: u64) {
    let name = format!("elastic_pool_agent_{name}_total");
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}"
    );
}
