//! The tick: one report each interval (M1), and what is due with it: expiries, sweeps, Resolve. It never waits for a package.

use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Epoch, UserId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::app;
use super::contract::ContractError;
use super::counters::Counter;
use super::fence::State;
use super::forward::doubt;
use super::sensor::Reading;
use super::shared::{Inner, Shared};
use crate::channel::proto::{Report, Resolve, agent_message};

/// Largest number that a reading may be (M2).
const LARGEST: f64 = 9_007_199_254_740_992.0;
/// Rows of the commander's window; activity counts within it.
const WINDOW_ROWS: u32 = 60;
/// A frozen original asks what became of its move after this time.
const FROZEN_LONG: Duration = Duration::from_secs(10);

/// Reports until stopped.
pub(crate) async fn tick(shared: Arc<Shared>, stop: CancellationToken) {
    let mut sequence = 0;
    let mut due = shared.now();
    loop {
        let wait = due.saturating_sub(shared.now());
        let asked = tokio::select! {
            () = stop.cancelled() => return,
            () = shared.report_now.notified() => true,
            () = tokio::time::sleep(wait) => false,
        };
        let (now, interval) = (shared.now(), shared.lock().orders.interval);
        // A tick that came late moves the next one; a Welcome may have shortened the wait for it.
        due = if asked {
            due.min(now + interval)
        } else {
            (due + interval).max(now + interval / 2)
        };
        sweep(&shared);
        let answer = ask(&shared).await;
        sequence += 1;
        let report = make(&shared, sequence, answer.as_ref());
        if shared.tell(agent_message::Message::Report(report)) {
            shared.counters.reports.add();
        }
        resolve(&shared);
    }
}

/// The app's own figures, if it has a contract and answers.
async fn ask(shared: &Shared) -> Option<Value> {
    let contract = {
        let app = &shared.lock().app;
        app.compared && app.contract
    };
    if !contract {
        return None;
    }
    match shared.contract.report().await {
        Ok(report) => Some(report),
        Err(ContractError::NoContract) => None,
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "the app gave no report");
            if matches!(error, ContractError::Call(_)) {
                doubt(shared);
            }
            None
        }
    }
}

/// Expiries of sessions and of the past, idle connections.
fn sweep(shared: &Shared) {
    let now = shared.now();
    shared.upstream.sweep(now);
    shared.offer_deposits();
    let gone: Vec<(UserId, Epoch)> = {
        let mut guard = shared.lock();
        let inner = &mut *guard;
        if inner.fence.sweep(now) {
            shared.mark_dirty(inner);
        }
        if inner.closed_since.is_some() && inner.fence.living() == 0 && !inner.is_empty(now) {
            // The last user has gone: only a list asked for from now on can say so (L7).
            inner.ask_list = true;
            shared.ask_app.notify_one();
        }
        if inner.app.compared && inner.users_by_traffic() {
            let timeout = inner.orders.session_timeout;
            let idle = inner.fence.iter().filter(|(user, record)| {
                record.is_served()
                    && now.saturating_sub(record.touched) >= timeout
                    && !inner.open.any_of(user)
            });
            idle.map(|(user, record)| (user.clone(), record.epoch()))
                .collect()
        } else {
            Vec::new()
        }
    };
    for (user, epoch) in gone {
        app::leave(shared, &user, epoch);
    }
}

/// A number of the app; an impossible one goes up as NaN, so that the commander drops, counts and names it (M2).
fn reading(value: Option<&Value>, rejected: &Counter) -> Option<f64> {
    let value = value.filter(|value| !value.is_null())?;
    let number = value.as_f64().filter(|number| (0.0..=LARGEST).contains(number));
    if number.is_none() {
        rejected.add();
    }
    number.or(Some(f64::NAN))
}

fn make(shared: &Shared, sequence: u64, answer: Option<&Value>) -> Report {
    let now = shared.now();
    let mut guard = shared.lock();
    let inner = &mut *guard;
    let mut report = own_figures(inner, sequence, now);
    if inner.app.compared && !inner.app.contract && restarted(inner) {
        inner.app.doubt = true;
        shared.ask_app.notify_one();
    }
    let Some(answer) = answer else { return report };
    let rejected = &shared.counters.readings_rejected;
    let field = |path: &str| reading(answer.pointer(path), rejected);
    // What the app counts wins, also when it is impossible (M2); what it does not count is ours.
    let counted = |path: &str, own| {
        if answer.pointer(path).is_some() {
            field(path)
        } else {
            own
        }
    };
    report.users = counted("/users", report.users);
    report.pages = field("/pages");
    report.connections = counted("/connections", report.connections);
    report.active_users = counted("/active_users", report.active_users);
    report.executor_busy = field("/executor/busy");
    report.executor_total = field("/executor/total");
    report.executor_queue_depth = field("/executor/queue_depth");
    report.backlog_pending = field("/backlog/pending");
    report.backlog_outbox = field("/backlog/outbox");
    report.cpu = field("/cpu").or(report.cpu);
    report.rss = field("/rss").or(report.rss);
    report.load = field("/load").or(report.load);
    if answer
        .get("gone")
        .and_then(Value::as_array)
        .is_some_and(|gone| !gone.is_empty())
    {
        inner.ask_list = true;
        shared.ask_app.notify_one();
    }
    report
}

/// What the agent sees itself.
fn own_figures(inner: &mut Inner, sequence: u64, now: Duration) -> Report {
    // A report out of turn measures no CPU: its time would be too short to mean anything.
    let short = inner
        .sensor
        .last_read()
        .is_some_and(|last| now.saturating_sub(last) < inner.orders.interval / 2);
    let Reading { cpu, rss, load } = if short {
        Reading::default()
    } else {
        inner.sensor.read(now)
    };
    let (open, streams) = inner.open.counts();
    let (unconfirmed, expiry) = inner.unconfirmed.read(now);
    let window = inner.orders.interval * WINDOW_ROWS;
    let served = inner.fence.iter().filter(|(_, record)| record.is_served());
    let (users, active) = served.fold((0, 0), |(users, active), (_, record)| {
        (
            users + 1,
            active + u32::from(now.saturating_sub(record.touched) < window),
        )
    });
    Report {
        sequence,
        users: Some(f64::from(users)),
        connections: Some(streams as f64),
        active_users: Some(f64::from(active)),
        cpu,
        rss,
        load,
        open_requests: open as u64,
        open_streams: streams as u64,
        unconfirmed,
        unconfirmed_expiry_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
        empty: inner.closed_since.is_some() && inner.is_empty(now),
        terminating: inner.terminating > 0,
        guest_idle_ms: u64::try_from(inner.open.guest_idle(now).as_millis()).ok(),
        ..Report::default()
    }
}

/// Without a contract a restart shows in the processes.
fn restarted(inner: &Inner) -> bool {
    let instance = inner.sensor.started().map(|started| format!("start-{started}"));
    instance.is_some() && instance != inner.app.instance
}

/// A frozen original never thaws by itself: it asks.
fn resolve(shared: &Shared) {
    let now = shared.now();
    let frozen: Vec<Resolve> = {
        let inner = shared.lock();
        let long = inner
            .fence
            .iter()
            .filter_map(|(user, record)| match record.state {
                State::Frozen { mv, .. } if now.saturating_sub(record.since) >= FROZEN_LONG => {
                    Some(Resolve {
                        user: user.as_str().to_owned(),
                        r#move: mv.0,
                    })
                }
                _ => None,
            });
        long.collect()
    };
    for resolve in frozen {
        shared.tell(agent_message::Message::Resolve(resolve));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_impossible_reading_is_no_number_and_counted() {
        let rejected = Counter::default();
        let read = |value: Value| reading(Some(&value), &rejected);
        assert_eq!(read(json!(0)), Some(0.0));
        assert_eq!(read(json!(12.5)), Some(12.5));
        assert_eq!(read(json!(null)), None);
        assert_eq!(rejected.get(), 0);
        for bad in [json!(-1), json!("NaN"), json!(1e300), json!([1]), json!(true)] {
            assert!(read(bad).is_some_and(f64::is_nan));
        }
        assert_eq!(rejected.get(), 5);
    }
}
