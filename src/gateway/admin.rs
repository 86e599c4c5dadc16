//! Probes, metrics and the list of what is open; read-only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::front::Front;
use super::tls::Tls;

/// Open requests that are named; the oldest.
const LISTED: usize = 1000;

/// What the probes look at.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) front: Arc<Front>,
    /// Told to stop.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// Probes and metrics, for the pod's own port.
pub(crate) fn probes(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

/// What names users, for loopback.
pub(crate) fn monitor(admin: Admin) -> Router {
    Router::new()
        .route("/_commander/open", get(open))
        .with_state(admin)
}

async fn ready(State(admin): State<Admin>) -> (StatusCode, String) {
    if admin.stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned())
    } else if let Some(fault) = admin.front.tls.as_ref().and_then(Tls::fault) {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("no certificate: {fault}\n"),
        )
    } else if !admin.front.named.is_settled() {
        let text = "the keys of bearer tokens are being fetched\n".to_owned();
        (StatusCode::SERVICE_UNAVAILABLE, text)
    } else if admin.front.table.is_received() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no table from the commander yet\n".to_owned(),
        )
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let front = &admin.front;
    let figure = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    front.metrics.held_requests.set(figure(front.holds.waiting()));
    front.metrics.open_streams.set(figure(front.streams.count()));
    front.metrics.table_users.set(figure(front.table.users_known()));
    match front.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn open(State(admin): State<Admin>) -> Json<Value> {
    let front = &admin.front;
    let now = front.clock.now();
    let held: Vec<Value> = front
        .holds
        .list()
        .into_iter()
        .map(|(user, client, since)| {
            let seconds = now.saturating_sub(since).as_secs_f64();
            json!({"user": user.as_str(), "client": client.to_string(), "seconds": seconds})
        })
        .collect();
    let topology = front.table.topology();
    let workers: Vec<Value> = topology
        .workers
        .values()
        .map(|worker| {
            let open = worker.open.load(Ordering::Relaxed);
            json!({"birth": worker.birth.0.to_string(), "name": worker.name, "open": open})
        })
        .collect();
    let (rows, count) = front.open.list(LISTED);
    let requests: Vec<Value> = rows
        .iter()
        .map(|row| {
            let seconds = now.saturating_sub(row.since).as_secs_f64();
            let (user, client) = (row.who.user_text(), row.client.to_string());
            json!({"user": user, "client": client, "worker": row.upstream.name, "seconds": seconds})
        })
        .collect();
    Json(json!({
        "open": count,
        "requests": requests,
        "held": held,
        "waiting": front.holds.waiting(),
        "streams": front.streams.count(),
        "workers": workers,
        "commander": front.commander.is_up(),
    }))
}
