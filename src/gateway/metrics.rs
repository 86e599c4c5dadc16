//! The gateway's metrics; closed label sets, never a user in a label.

use super::bearer::RenewalCounters;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

/// How a request ended; the label `outcome` of forwards_total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A worker answered, whatever the status.
    Answered,
    /// The worker broke off after something was sent.
    Broken,
    /// No routable worker, or nobody who took the request, until the hold timeout.
    Unavailable,
    /// No group of the pool takes newcomers.
    Closed,
    /// Held for a move until the hold timeout.
    HeldTooLong,
    /// Too many waited already.
    Overflow,
    /// A refused request whose body was too long to send again.
    NotReplayable,
    /// The client asked for something that the gateway keeps from workers.
    Forbidden,
    /// What was sent is no request, or its body broke off or off its framing.
    Malformed,
    /// CONNECT or TRACE.
    NotAllowed,
    /// An expectation other than 100-continue.
    Expectation,
    /// A body longer than is taken.
    TooLarge,
    /// A body of which nothing came for too long.
    Stalled,
    /// The client hung up before it was answered.
    Abandoned,
}

impl Outcome {
    /// Its label.
    pub(crate) fn as_str(self) -> &'static str {
        let known = Self::ALL.iter().find(|(outcome, _)| *outcome == self);
        known.map_or("", |(_, label)| label)
    }

    const ALL: [(Self, &'static str); 14] = [
        (Self::Answered, "answered"),
        (Self::Broken, "broken"),
        (Self::Unavailable, "unavailable"),
        (Self::Closed, "closed"),
        (Self::HeldTooLong, "held_too_long"),
        (Self::Overflow, "overflow"),
        (Self::NotReplayable, "not_replayable"),
        (Self::Forbidden, "forbidden"),
        (Self::Malformed, "malformed"),
        (Self::NotAllowed, "not_allowed"),
        (Self::Expectation, "expectation"),
        (Self::TooLarge, "too_large"),
        (Self::Stalled, "stalled"),
        (Self::Abandoned, "abandoned"),
    ];
}

impl Outcome {
    /// True when the request was wrong in itself, so that its connection is not trusted to begin another.
    pub(crate) fn is_clients_fault(self) -> bool {
        matches!(
            self,
            Self::Malformed | Self::NotAllowed | Self::Expectation | Self::TooLarge | Self::Stalled
        )
    }
}

/// All of them, with the labels resolved once.
pub(crate) struct Metrics {
    registry: Registry,
    outcomes: Vec<IntCounter>,
    pub(crate) refused: IntCounter,
    pub(crate) forward_seconds: Histogram,
    pub(crate) hold_seconds: Histogram,
    pub(crate) held_requests: IntGauge,
    pub(crate) open_streams: IntGauge,
    pub(crate) connections: IntGauge,
    pub(crate) connections_refused: IntCounter,
    pub(crate) handshakes_failed: IntCounter,
    pub(crate) requests: IntCounter,
    pub(crate) connections_failed: IntCounter,
    pub(crate) access_lines_dropped: IntCounter,
    pub(crate) channel_connected: IntGauge,
    pub(crate) table_users: IntGauge,
    pub(crate) guests: IntCounter,
    pub(crate) logins: IntCounter,
    pub(crate) provisional: IntCounter,
    pub(crate) cookies_rejected: IntCounter,
    pub(crate) headers_stripped: IntCounter,
    pub(crate) unknown_commands: IntCounter,
    pub(crate) renewals: RenewalCounters,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("elastic_pool".to_owned()), None)?;
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let histogram = |name: &str, help: &str| -> Result<Histogram, prometheus::Error> {
            let buckets = vec![
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
            ];
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok(histogram)
        };
        let forwards = IntCounterVec::new(
            Opts::new("forwards_total", "Requests by how they ended."),
            &["outcome"],
        )?;
        registry.register(Box::new(forwards.clone()))?;
        let outcomes = Outcome::ALL
            .iter()
            .map(|(_, label)| forwards.with_label_values(&[label]))
            .collect();
        Ok(Self {
            outcomes,
            refused: counter(
                "forwards_refused_total",
                "Forwards that an agent refused and that were asked for again.",
            )?,
            forward_seconds: histogram("forward_seconds", "From the forward to the end of its answer.")?,
            hold_seconds: histogram("hold_seconds", "How long requests were held for a move.")?,
            held_requests: gauge("held_requests", "Requests that wait.")?,
            open_streams: gauge("gateway_open_streams", "Open WebSocket and event streams.")?,
            connections: gauge("gateway_connections", "Open client connections.")?,
            requests: counter(
                "gateway_requests_total",
                "Requests that began; each ends in one outcome of forwards_total.",
            )?,
            access_lines_dropped: counter(
                "gateway_access_lines_dropped_total",
                "Lines of the access log that found no room.",
            )?,
            connections_failed: counter(
                "gateway_connections_failed_total",
                "Connections given up for what was no request, or for half a head that took too long.",
            )?,
            connections_refused: counter("gateway_connections_refused_total", "Connections over the limit.")?,
            handshakes_failed: counter(
                "gateway_tls_handshakes_failed_total",
                "Connections whose TLS handshake failed or took too long.",
            )?,
            channel_connected: gauge(
                "gateway_channel_connected",
                "1 while a commander leads this gateway.",
            )?,
            table_users: gauge("gateway_table_users", "Users that the table names.")?,
            guests: counter("gateway_guests_total", "Cookies given to new guests.")?,
            logins: counter("gateway_logins_total", "Logins that the commander placed.")?,
            provisional: counter(
                "gateway_provisional_logins_total",
                "Logins kept while no commander answered.",
            )?,
            cookies_rejected: counter(
                "gateway_cookies_rejected_total",
                "Cookies that were false, altered or foreign.",
            )?,
            headers_stripped: counter(
                "gateway_pool_headers_stripped_total",
                "Requests that carried pool-* headers.",
            )?,
            unknown_commands: counter(
                "gateway_unknown_commands_total",
                "Commands that this build does not know.",
            )?,
            renewals: RenewalCounters {
                renewed: counter(
                    "gateway_jwks_renewals_total",
                    "Times that the keys of bearer tokens were had.",
                )?,
                failed: counter(
                    "gateway_jwks_failures_total",
                    "Times that they could not be had or used, so that the last ones stayed.",
                )?,
            },
            registry,
        })
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        let at = Outcome::ALL.iter().position(|(known, _)| *known == outcome);
        if let Some(counter) = at.and_then(|at| self.outcomes.get(at)) {
            counter.inc();
        }
    }

    /// Prometheus' text form.
    pub(crate) fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}
