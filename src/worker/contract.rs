//! The app's side of the worker contract under `/_pool/v1/`: only the holder of the token gets past the door.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use tracing::warn;

use super::app::App;
use super::identity::{MoveId, UserId};
use super::slice::{FORMAT, MAX_DEPOSIT_BYTES, MAX_ID_BYTES, Package};
use super::store::Refusal;
use super::token::Verdict;

/// Requests count as activity for this long, in seconds: 60 reports at the default interval.
const WINDOW: u64 = 300;
/// Most users that `state` describes.
const MAX_DESCRIBED: usize = 10_000;

/// The contract's routes, each behind the token.
pub(super) fn router(app: Arc<App>) -> Router {
    let limit = app.max_package;
    Router::new()
        .route("/_pool/v1/report", get(report))
        .route("/_pool/v1/users", get(users))
        .route("/_pool/v1/state", get(state))
        .route("/_pool/v1/users/{id}", delete(forget))
        .route(
            "/_pool/v1/users/{id}/snapshot/{move}",
            post(snapshot).delete(thaw),
        )
        .route(
            "/_pool/v1/users/{id}/package/{move}",
            put(stage).post(activate).delete(discard),
        )
        .route("/_pool/v1/users/{id}/deposits", post(deposit))
        .layer(DefaultBodyLimit::max(limit))
        .layer(from_fn_with_state(app.clone(), door))
        .with_state(app)
}

/// Wrong token: 403. No token to compare with: there is no contract here, 404.
async fn door(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match app.trusts(request.headers()) {
        Verdict::Right => next.run(request).await,
        Verdict::Wrong => (StatusCode::FORBIDDEN, "wrong token\n").into_response(),
        Verdict::NoToken => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn report(State(app): State<Arc<App>>) -> Json<Value> {
    let mut store = app.store.lock();
    let counts = store.counts(app.seconds(), WINDOW);
    Json(json!({
        "users": counts.users,
        "pages": counts.pages,
        "connections": counts.connections,
        "active_users": counts.active_users,
        "executor": app.executor.gauge(),
        "backlog": { "pending": counts.pending, "outbox": 0 },
        "gone": store.take_gone(),
    }))
}

async fn users(State(app): State<Arc<App>>) -> Json<Value> {
    let users = app.store.lock().list();
    Json(json!({ "instance": app.instance, "capabilities": ["snapshot"], "users": users }))
}

async fn state(State(app): State<Arc<App>>) -> Json<Value> {
    let (store, now) = (app.store.lock(), app.seconds());
    let mut users = Vec::new();
    store.describe(now, MAX_DESCRIBED, |user, slice, connections, idle| {
        users.push(json!({
            "id": user.as_str(),
            "counter": slice.counter,
            "pages": slice.pages.len(),
            "connections": connections,
            "notes": slice.notes.len(),
            "deposits": slice.deposits.len(),
            "ballast_bytes": slice.ballast.len(),
            "idle_seconds": idle,
        }));
    });
    Json(json!({ "uptime_seconds": now, "users": users }))
}

/// The user and the move of a path; both are checked before anything is touched.
fn named(user: &str, id: &str) -> Result<(UserId, MoveId), Box<Response>> {
    match (UserId::parse(user), MoveId::parse(id)) {
        (Some(user), Some(id)) => Ok((user, id)),
        _ => Err(Box::new(refuse(
            StatusCode::BAD_REQUEST,
            "user: 1 to 256 bytes; move: a decimal number",
        ))),
    }
}

fn refuse(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

fn done(result: Result<(), Refusal>) -> Response {
    result.map(|()| StatusCode::NO_CONTENT).into_response()
}

async fn snapshot(State(app): State<Arc<App>>, Path((user, id)): Path<(String, String)>) -> Response {
    let (user, id) = match named(&user, &id) {
        Ok(named) => named,
        Err(response) => return *response,
    };
    // Written out without the lock: a large slice takes its time, and everybody else is served meanwhile.
    let (was_live, slice) = {
        let mut store = app.store.lock();
        let was_live = store.is_live(&user);
        match store.freeze(&user, id) {
            Ok(slice) => (was_live, slice.clone()),
            Err(refusal) => return refusal.into_response(),
        }
    };
    let package = Package {
        format: FORMAT.to_owned(),
        user: user.as_str().to_owned(),
        slice,
    };
    match serde_json::to_vec(&package) {
        Ok(bytes) if bytes.len() <= app.max_package => (
            [("content-type", "application/json"), ("pool-format", FORMAT)],
            bytes,
        )
            .into_response(),
        too_large_or_broken => {
            if was_live {
                let _ = app.store.lock().thaw(&user, id);
            }
            warn!(
                bytes = too_large_or_broken.map_or(0, |b| b.len()),
                "a package is too large to be moved"
            );
            refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the package is larger than this app hands out",
            )
        }
    }
}

async fn thaw(State(app): State<Arc<App>>, Path((user, id)): Path<(String, String)>) -> Response {
    match named(&user, &id) {
        Ok((user, id)) => done(app.store.lock().thaw(&user, id)),
        Err(response) => *response,
    }
}

async fn stage(
    State(app): State<Arc<App>>,
    Path((user, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (user, id) = match named(&user, &id) {
        Ok(named) => named,
        Err(response) => return *response,
    };
    if headers.get("pool-format").is_some_and(|format| format != FORMAT) {
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Pool-Format: only reference/1 is read here",
        );
    }
    match serde_json::from_slice::<Package>(&body) {
        Ok(package) if package.format != FORMAT => refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "format: only reference/1 is read here",
        ),
        Ok(package) if package.user != user.as_str() || !package.slice.within_bounds() => refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the package is another user's or out of bounds",
        ),
        Ok(package) => done(app.store.lock().stage(user, id, package.slice)),
        Err(_) => refuse(StatusCode::UNPROCESSABLE_ENTITY, "the body is no package"),
    }
}

async fn activate(State(app): State<Arc<App>>, Path((user, id)): Path<(String, String)>) -> Response {
    match named(&user, &id) {
        Ok((user, id)) => done(app.store.lock().activate(&user, id, app.seconds())),
        Err(response) => *response,
    }
}

async fn discard(State(app): State<Arc<App>>, Path((user, id)): Path<(String, String)>) -> Response {
    match named(&user, &id) {
        Ok((user, id)) => done(app.store.lock().discard(&user, id)),
        Err(response) => *response,
    }
}

async fn forget(State(app): State<Arc<App>>, Path(user): Path<String>) -> Response {
    match UserId::parse(&user) {
        Some(user) => done(app.store.lock().forget(&user)),
        None => refuse(
            StatusCode::BAD_REQUEST,
            "user: 1 to 256 bytes without control characters",
        ),
    }
}

async fn deposit(
    State(app): State<Arc<App>>,
    Path(user): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let sender = value("pool-sender").filter(|sender| (1..=MAX_ID_BYTES).contains(&sender.len()));
    let from = sender.zip(value("pool-sequence").and_then(|text| text.parse().ok()));
    let text = std::str::from_utf8(&body)
        .ok()
        .filter(|text| (1..=MAX_DEPOSIT_BYTES).contains(&text.len()));
    match (UserId::parse(&user), text) {
        (Some(user), Some(text)) => done(app.store.lock().deposit(&user, text.to_owned(), from)),
        _ => refuse(
            StatusCode::BAD_REQUEST,
            "a deposit is 1 to 16384 bytes of UTF-8 for a valid user",
        ),
    }
}
