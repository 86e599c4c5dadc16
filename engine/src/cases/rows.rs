//! Reads the rows of a worker: its reports, sanitised, and its counters (M1, M2, M4); interprets none of them.

use std::time::Duration;

use crate::field::{Field, FieldError};
use crate::forward::Forwards;
use crate::report::{Executor, Report};
use crate::thresholds::Policy;
use crate::window::{Row, Window};

/// 2^53: what a counter may be at most.
const LARGEST: f64 = 9_007_199_254_740_992.0;

/// The window that `rows` fill, and the names of readings that were refused on the way (M2).
pub(super) fn window(rows: &Field<'_>, policy: &Policy) -> Result<(Window, Vec<&'static str>), FieldError> {
    let mut window = Window::new(policy.window_rows, "");
    let mut rejected = Vec::new();
    let mut origin = None;
    for row in rows.items()? {
        row.object()?;
        let ts = time(&row.get("ts"))?;
        let since = (ts - *origin.get_or_insert(ts)).max(0.0);
        let (report, refused) = report(&row.get("report"))?.sanitised();
        rejected.extend(refused);
        window.push(Row {
            at: Duration::from_secs_f64(since),
            report,
            forward: forward(&row.get("forward"))?,
        });
    }
    rejected.sort_unstable();
    rejected.dedup();
    Ok((window, rejected))
}

/// Seconds on any clock; only differences count.
fn time(ts: &Field<'_>) -> Result<f64, FieldError> {
    let seconds = ts.number(-1e15, 1e15)?;
    seconds.map_or_else(|| ts.wrong("a time in seconds"), Ok)
}

fn report(field: &Field<'_>) -> Result<Report, FieldError> {
    let (executor, backlog) = (field.get("executor"), field.get("backlog"));
    for part in [field, &executor, &backlog] {
        part.optional_object()?;
    }
    Ok(Report {
        users: field.get("users").reading()?,
        pages: field.get("pages").reading()?,
        connections: field.get("connections").reading()?,
        active_users: field.get("active_users").reading()?,
        executor: Executor {
            busy: executor.get("busy").reading()?,
            total: executor.get("total").reading()?,
            queue_depth: executor.get("queue_depth").reading()?,
        },
        cpu: field.get("cpu").reading()?,
        rss: field.get("rss").reading()?,
        backlog_pending: backlog.get("pending").reading()?,
        backlog_outbox: backlog.get("outbox").reading()?,
        load: field.get("load").reading()?,
    })
}

fn forward(field: &Field<'_>) -> Result<Forwards, FieldError> {
    field.optional_object()?;
    let counter = |name: &str| -> Result<u64, FieldError> {
        let number = field.get(name).number(0.0, LARGEST)?.unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 2^53"
        )]
        Ok(number as u64)
    };
    Ok(Forwards {
        requests: counter("requests")?,
        errors: counter("errors")?,
        seconds: field.get("seconds").number(0.0, LARGEST)?.unwrap_or_default(),
    })
}
