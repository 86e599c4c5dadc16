//! The peer port: probes, the waiting preStop, packages for other agents, metrics; it changes nothing but that it says "terminating".

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Epoch;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;

use super::headers;
use super::http_client;
use super::listen::accept;
use super::relay::RelayBody;
use super::shared::Shared;
use crate::credentials::same;
use crate::net::TcpListener;

/// How often a waiting preStop looks whether the app still lives.
const LOOK: Duration = Duration::from_millis(500);
/// Failed looks in a row after which the app counts as dead.
const DEAD_AFTER: u32 = 3;
const HEAD: Duration = Duration::from_secs(10);

/// Serves until stopped; a waiting preStop ends with it.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop.clone(), move |stream| {
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(serve(&shared, request).await) }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = serving => {}
                () = stop.cancelled() => {}
            }
        });
    })
    .await;
}

fn text(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<RelayBody> {
    let mut response = Response::new(RelayBody::text(text));
    *response.status_mut() = status;
    response
}

async fn serve(shared: &Shared, request: Request<Incoming>) -> Response<RelayBody> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
    }
    match request.uri().path() {
        // The port opens after the token and the fence are written.
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => ready(shared).await,
        "/drained" => drained(shared).await,
        "/metrics" => text(StatusCode::OK, metrics(shared)),
        path => match path.strip_prefix("/packages/") {
            Some(named) => package(shared, &request, named),
            None => text(StatusCode::NOT_FOUND, "not found\n"),
        },
    }
}

async fn ready(shared: &Shared) -> Response<RelayBody> {
    if !shared.lock().app.compared {
        return text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the app's instance is not known yet\n",
        );
    }
    match http_client::connect(shared.upstream.app()).await {
        Ok(_) => text(StatusCode::OK, "ok\n"),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "the app takes no connection\n"),
    }
}

/// Hands a package to the agent that shows the pass of its move, and to nobody else.
fn package(shared: &Shared, request: &Request<Incoming>, named: &str) -> Response<RelayBody> {
    let parsed = named
        .split_once('/')
        .and_then(|(user, mv)| Some((headers::decode_user(user)?, mv.parse().ok().map(Epoch)?)));
    let Some((user, mv)) = parsed else {
        return text(StatusCode::NOT_FOUND, "not found\n");
    };
    let inner = shared.lock();
    let shown = headers::single(request.headers(), headers::PASS).unwrap_or_default();
    if !inner
        .key
        .as_ref()
        .is_some_and(|key| same(&key.package_pass(user.as_str(), mv), shown))
    {
        shared.counters.packages_refused.add();
        return text(StatusCode::FORBIDDEN, "no valid pass\n");
    }
    let Some(kept) = inner.packages.get(&user, mv) else {
        return text(StatusCode::NOT_FOUND, "no package of this move\n");
    };
    shared.counters.packages_sent.add();
    let mut response = text(StatusCode::OK, kept.bytes.clone());
    headers::set(response.headers_mut(), headers::FORMAT, &kept.format);
    response
}

/// One waiting preStop; dropped, it waits no longer.
struct Waiting<'a>(&'a Shared);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.terminating = inner.terminating.saturating_sub(1);
    }
}

/// preStop: answers when nobody lives here, when the app is dead, when the commander keeps admission open (the pod
/// is not terminating: the kubelet calls this after a failed liveness probe too), or when the grace period ends.
async fn drained(shared: &Shared) -> Response<RelayBody> {
    let before = {
        let mut inner = shared.lock();
        inner.terminating += 1;
        // Whether somebody lives here is what a list says from now on.
        inner.ask_list = true;
        inner.admissions
    };
    let waiting = Waiting(shared);
    shared.report_now.notify_one();
    shared.ask_app.notify_one();
    let released = shared.wait_until(shared.config.drain_wait, |inner| {
        let kept_open = inner.admissions > before && inner.closed_since.is_none();
        kept_open || (inner.closed_since.is_some() && inner.is_empty(shared.now()))
    });
    let why = tokio::select! {
        released = released => if released { "released" } else { "the grace period ends" },
        () = dead(shared) => "the app is dead",
    };
    drop(waiting);
    tracing::info!(why, "preStop ends");
    text(StatusCode::OK, format!("{why}\n"))
}

/// Resolves when the app takes no connection any more.
async fn dead(shared: &Shared) {
    let mut failed = 0;
    while failed < DEAD_AFTER {
        let lives = http_client::connect(shared.upstream.app()).await.is_ok();
        failed = if lives { 0 } else { failed + 1 };
        if failed < DEAD_AFTER {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn metrics(shared: &Shared) -> String {
    let mut out = shared.counters.render();
    let now = shared.now();
    let mut guard = shared.lock();
    let inner = &mut *guard;
    let (open, streams) = inner.open.counts();
    let oldest = inner.open.oldest(now).unwrap_or_default().as_secs_f64();
    let users = inner.fence.living() as f64;
    let gauges = [
        ("worker_open_requests", "Requests in flight.", open as f64),
        (
            "agent_open_streams",
            "WebSockets, other upgrades and event streams.",
            streams as f64,
        ),
        (
            "agent_oldest_request_seconds",
            "Age of the oldest request in flight.",
            oldest,
        ),
        ("agent_users", "Users who live here.", users),
        (
            "agent_linked",
            "1 while a stream to the commander is up.",
            f64::from(u8::from(inner.uplink.is_some())),
        ),
    ];
    drop(guard);
    for (name, help, value) in gauges {
        let name = format!("elastic_pool_{name}");
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    out
}
