//! The operator's HTTP ports: metrics and probes for everyone, the monitor's state on loopback; it decides nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use elastic_pool_engine::snapshot::Saved;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::commander::{CommanderHandle, UnknownGroup};
use crate::metrics::Metrics;
use crate::net::TcpListener;

/// What the ports show.
#[derive(Debug, Clone)]
pub struct Monitor {
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// The commander, while this process leads.
    pub commander: watch::Receiver<Option<CommanderHandle>>,
}

impl Monitor {
    async fn refresh(&self) -> Option<crate::commander::MonitorState> {
        let commander = self.commander.borrow().clone();
        commander?.state().await
    }
}

/// `/metrics`, `/livez`, `/readyz`: for Prometheus and the kubelet.
pub async fn serve_metrics(
    listener: TcpListener,
    monitor: Monitor,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, metrics_router(monitor))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

/// `/_commander/state`, `/_commander/snapshot`, `/_commander/decisions`: loopback only, until there is access control.
pub async fn serve_state(
    listener: TcpListener,
    monitor: Monitor,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, state_router(monitor))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

fn metrics_router(monitor: Monitor) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(|| async { "ok" }))
        .with_state(monitor)
}

fn state_router(monitor: Monitor) -> Router {
    Router::new()
        .route("/_commander/state", get(state))
        .route("/_commander/snapshot", get(snapshot))
        .route("/_commander/decisions", get(decisions))
        .with_state(monitor)
}

async fn metrics(State(monitor): State<Monitor>) -> Response {
    // Asking for the state brings the gauges up to date.
    let _ = monitor.refresh().await;
    (
        [("content-type", "text/plain; version=0.0.4")],
        monitor.metrics.render(),
    )
        .into_response()
}

async fn state(State(monitor): State<Monitor>) -> Response {
    match monitor.refresh().await {
        Some(state) => Json(state).into_response(),
        None => not_leading(),
    }
}

fn not_leading() -> Response {
    let text = "this operator does not lead: ask the leader's pod\n";
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// Which group is asked about: `namespace/name`, or the name alone where it is the only one.
#[derive(Debug, Deserialize)]
struct Which {
    group: String,
}

/// The group as it is now, one line.
async fn snapshot(State(monitor): State<Monitor>, Query(which): Query<Which>) -> Response {
    let commander = monitor.commander.borrow().clone();
    let answer = match &commander {
        Some(commander) => commander.snapshot(&which.group).await,
        None => None,
    };
    lines(answer.map(|found| found.map(|saved| vec![saved.to_json()])))
}

/// Its last decisions, oldest first, each with the answer that it stood for.
async fn decisions(State(monitor): State<Monitor>, Query(which): Query<Which>) -> Response {
    let commander = monitor.commander.borrow().clone();
    let answer = match &commander {
        Some(commander) => commander.decisions(&which.group).await,
        None => None,
    };
    let answered = |saved: &Arc<Saved>| Saved::clone(saved).answered().to_json();
    lines(answer.map(|found| found.map(|all| all.iter().map(answered).collect())))
}

/// JSON lines; 404 with the groups that could have been meant, 503 where nobody leads.
fn lines(answer: Option<Result<Vec<String>, UnknownGroup>>) -> Response {
    match answer {
        None => not_leading(),
        Some(Err(unknown)) => (StatusCode::NOT_FOUND, format!("{unknown}\n")).into_response(),
        Some(Ok(lines)) => {
            let text: String = lines.into_iter().map(|line| line + "\n").collect();
            ([("content-type", "application/jsonl")], text).into_response()
        }
    }
}

/// Everything on one loopback port, with `more` routes of the local vehicle.
pub async fn serve_all(
    listener: TcpListener,
    monitor: Monitor,
    more: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let router = metrics_router(monitor.clone())
        .merge(state_router(monitor))
        .merge(more);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}
