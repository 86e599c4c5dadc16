//! The closing table and the progress line as text; pure.

use std::fmt::Write;

use super::tally::{Moment, Spread, Summary};

/// One line while a run goes on.
pub fn progress(moment: &Moment) -> String {
    format!(
        "{:>6.0} s  {:>5} users  {:>8} requests  {:>4} failed  {:>5} moves  {:>3} workers answered",
        moment.seconds, moment.users, moment.requests, moment.failed, moment.moves, moment.workers
    )
}

/// The closing table.
pub fn table(summary: &Summary) -> String {
    let c = &summary.counts;
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<44} {value}");
    };
    row("seconds", format!("{:.1}", summary.seconds));
    row(
        "users",
        format!("{} ({} with a second browser)", c.users, c.second_browsers),
    );
    row("requests", c.requests.to_string());
    row("failed requests", c.failed.to_string());
    row("  503 with Retry-After", c.unavailable.to_string());
    row("  sent once more (not failed)", c.retried.to_string());
    row("users lost", format!("{} ({} times)", c.users_lost, c.lost));
    row("second browsers lost", c.second_browsers_lost.to_string());
    row(
        "users whose counter jumped back or forked",
        format!(
            "{} ({} back, {} forked)",
            c.users_back_or_forked, c.back, c.forked
        ),
    );
    row("answers about somebody else", c.foreign.to_string());
    row(
        "moves met (after login / later)",
        format!("{} / {}", c.placement_moves, c.live_moves),
    );
    row("pause of a moved user p50 / p99 / max", spread(&summary.pause_ms));
    row("  after login", spread(&summary.placement_pause_ms));
    row("  later", spread(&summary.live_pause_ms));
    row(
        "time to first byte p50 / p99 / max",
        spread(&summary.first_byte_ms),
    );
    row(
        "WebSockets opened / reconnects after 1012",
        format!("{} / {}", c.ws_opened, c.ws_reconnects),
    );
    row(
        "  ended otherwise: politely / not cleanly",
        format!("{} / {}", c.ws_closed, c.ws_unclean),
    );
    row(
        "most workers that answered within 5 s",
        summary.workers_max.to_string(),
    );
    for (why, count) in &summary.failures {
        row("  failure", format!("{count} x {why}"));
    }
    for (worker, harm) in &summary.harm {
        let users = harm.users.len();
        let text = format!("{} failed, {} lost, {users} users", harm.failed, harm.lost);
        row("  harm at", format!("{worker}: {text}"));
    }
    row("held", if summary.held { "yes".into() } else { "NO".into() });
    out
}

fn spread(of: &Spread) -> String {
    match (of.p50, of.p99, of.max) {
        (Some(p50), Some(p99), Some(max)) => format!("{p50:.1} / {p99:.1} / {max:.1} ms ({})", of.count),
        _ => "-".to_owned(),
    }
}
