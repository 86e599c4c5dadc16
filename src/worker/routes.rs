//! The app's own routes: login, logout, work, notes, messages, ballast; moving users is none of their business.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::app::{App, Caller, Who};
use super::executor::Gauge;
use super::identity::{COOKIE, Session, UserId, random_id};
use super::slice::{MAX_DEPOSIT_BYTES, MAX_NOTE_BYTES, MAX_NOTES};
use super::store::Refusal;
use super::{contract, live, page};

/// Longest body of the app's own routes, in bytes.
const MAX_BODY: usize = 64 * 1024;
const MAX_CPU_MS: u64 = 10_000;
const MAX_HOLD_MS: u64 = 60_000;

/// All routes of the app; with `contract` those of the contract too.
pub(super) fn router(app: Arc<App>, contract: bool) -> Router {
    let mut router = Router::new()
        .route("/", get(page::home))
        .route("/app.js", get(page::script))
        .route("/app.css", get(page::style))
        .route("/work", get(work).post(work))
        .route("/notes", get(notes).post(add_note))
        .route("/ballast", post(ballast))
        .route("/ws", get(live::websocket))
        .route("/events", get(live::events))
        .route("/healthz", get(async || "ok\n"));
    if !app.plain {
        router = router
            .route("/login", post(login))
            .route("/logout", post(logout))
            .route("/deposits", get(deposits))
            .route("/send/{to}", post(send));
    }
    let mut router = router
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(app.clone());
    if contract {
        router = router.merge(contract::router(app));
    }
    router
}

/// What every JSON answer says.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    /// The user, null for a guest.
    pub(super) user: Option<String>,
    /// The caller's counter.
    pub(super) counter: u64,
    /// Who served it.
    pub(super) worker: String,
    /// The process that served it.
    pub(super) instance: String,
    /// The ownership's epoch, where the forward names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<String>,
    /// The executor at that moment.
    pub(super) executor: Gauge,
}

impl App {
    /// The JSON answer to a caller.
    pub(super) fn answer(&self, who: &Who, counter: u64, headers: &HeaderMap) -> Answer {
        let epoch = headers.get("pool-epoch").and_then(|value| value.to_str().ok());
        Answer {
            user: who.user().map(|user| user.as_str().to_owned()),
            counter,
            worker: self.worker(headers).to_owned(),
            instance: self.instance.clone(),
            epoch: epoch.filter(|text| text.len() <= 20).map(str::to_owned),
            executor: self.executor.gauge(),
        }
    }
}

/// Finishes an answer: nobody may keep it, and a new browser gets its cookie.
pub(super) fn finish(who: Who, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(value) = who.set_cookie.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.append(header::SET_COOKIE, value);
    }
    response
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Absent => StatusCode::NOT_FOUND,
            Self::Frozen | Self::Conflict => StatusCode::CONFLICT,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
        };
        (status, Json(json!({ "error": self.to_string() }))).into_response()
    }
}

fn bad(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

#[derive(Deserialize)]
struct Login {
    user: String,
}

async fn login(State(app): State<Arc<App>>, request: Request) -> Response {
    let headers = request.headers().clone();
    let starts = |name, text: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .is_some_and(|value: &str| value.starts_with(text))
    };
    let json = starts(header::CONTENT_TYPE, "application/json");
    let wanted = if json {
        Json::<Login>::from_request(request, &())
            .await
            .map(|Json(login)| login)
            .ok()
    } else {
        Form::<Login>::from_request(request, &())
            .await
            .map(|Form(login)| login)
            .ok()
    };
    let Some(user) = wanted.and_then(|login| UserId::parse(login.user.trim())) else {
        return bad(
            StatusCode::BAD_REQUEST,
            "user: 1 to 256 bytes of text without control characters",
        );
    };
    let guest = match app.identify(&headers).caller {
        Caller::Guest(id) => Some(id),
        _ => None,
    };
    let nonce = random_id();
    let counter = match app
        .store
        .lock()
        .login(&user, guest.as_deref(), nonce.clone(), app.seconds())
    {
        Ok(counter) => counter,
        Err(refusal) => return refusal.into_response(),
    };
    let set_cookie = Some(app.cookie_for(&Session::User {
        user: user.clone(),
        nonce: nonce.clone(),
    }));
    let encoded = user.encoded();
    let who = Who {
        caller: Caller::User { user, nonce },
        set_cookie,
    };
    let body = app.answer(&who, counter, &headers);
    let mut response = if starts(header::ACCEPT, "text/html") {
        finish(who, (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]))
    } else {
        finish(who, Json(body))
    };
    if let Ok(value) = HeaderValue::from_str(&encoded) {
        response.headers_mut().insert("pool-user", value);
    }
    response
}

async fn logout(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let mut who = app.identify(&headers);
    if let Caller::User { user, nonce } = &who.caller
        && let Err(refusal) = app.store.lock().logout(user, nonce, app.seconds())
    {
        return refusal.into_response();
    }
    who.caller = Caller::Stale;
    who.set_cookie = Some(format!("{COOKIE}=; Path=/; Max-Age=0"));
    let html = headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let mut response = if html.starts_with("text/html") {
        finish(who, (StatusCode::SEE_OTHER, [(header::LOCATION, "/")]))
    } else {
        let body = app.answer(&who, 0, &headers);
        finish(who, Json(body))
    };
    response
        .headers_mut()
        .insert("pool-user", HeaderValue::from_static(""));
    response
}

#[derive(Deserialize)]
struct Work {
    #[serde(default)]
    cpu_ms: u64,
    #[serde(default)]
    hold_ms: u64,
    /// How much the counter grows; 0 only looks.
    #[serde(default = "one")]
    counter: u64,
}

fn one() -> u64 {
    1
}

async fn work(State(app): State<Arc<App>>, Query(work): Query<Work>, headers: HeaderMap) -> Response {
    if work.cpu_ms > MAX_CPU_MS || work.hold_ms > MAX_HOLD_MS || work.counter > 1 {
        return bad(
            StatusCode::BAD_REQUEST,
            "cpu_ms: at most 10000; hold_ms: at most 60000; counter: 0 or 1",
        );
    }
    let who = app.identify(&headers);
    if who.user().is_some_and(|user| !app.store.lock().is_live(user)) {
        return Refusal::Frozen.into_response();
    }
    let (cpu, hold) = (
        Duration::from_millis(work.cpu_ms),
        Duration::from_millis(work.hold_ms),
    );
    if let Err(error) = app.executor.run(cpu, hold).await {
        return bad(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
    }
    // Counted after the work: a request that outlives its user's freeze is refused and has changed nothing.
    match app.act(&who.caller, |slice| {
        slice.counter = slice.counter.saturating_add(work.counter);
        slice.counter
    }) {
        Ok(counter) => {
            let body = app.answer(&who, counter, &headers);
            finish(who, Json(body))
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn notes(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let who = app.identify(&headers);
    let notes = app.act(&who.caller, |slice| {
        slice.notes.values().cloned().collect::<Vec<_>>()
    });
    reply(who, notes.map(|notes| json!({ "notes": notes })))
}

async fn add_note(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(text) = std::str::from_utf8(&body)
        .ok()
        .filter(|t| (1..=MAX_NOTE_BYTES).contains(&t.len()))
    else {
        return bad(StatusCode::BAD_REQUEST, "a note is 1 to 1024 bytes of UTF-8");
    };
    let who = app.identify(&headers);
    let added = app.act(&who.caller, |slice| {
        if slice.notes.len() >= MAX_NOTES {
            return Err(Refusal::Full);
        }
        slice.notes.insert(random_id(), text.to_owned());
        Ok(json!({ "notes": slice.notes.len() }))
    });
    reply(who, added.and_then(|inner| inner))
}

/// Messages that waited for the user; reading takes them.
async fn deposits(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let who = app.identify(&headers);
    let taken = app.act(&who.caller, |slice| std::mem::take(&mut slice.deposits));
    reply(who, taken.map(|deposits| json!({ "deposits": deposits })))
}

/// A message to another user, wherever he lives; says what became of it.
async fn send(
    State(app): State<Arc<App>>,
    Path(to): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = std::str::from_utf8(&body)
        .ok()
        .filter(|text| (1..=MAX_DEPOSIT_BYTES).contains(&text.len()));
    let (Some(to), Some(text)) = (UserId::parse(&to), text) else {
        return bad(
            StatusCode::BAD_REQUEST,
            "a message is 1 to 16384 bytes of UTF-8 for a user of 1 to 256 bytes",
        );
    };
    let who = app.identify(&headers);
    if who.user().is_none() {
        return bad(StatusCode::FORBIDDEN, "only a logged-in user sends messages");
    }
    match app.send(&to, text.to_owned()).await {
        Ok(answer) => finish(who, Json(answer)),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a message was not taken"
            );
            bad(StatusCode::BAD_GATEWAY, "the agent does not answer")
        }
    }
}

#[derive(Deserialize)]
struct Ballast {
    bytes: usize,
}

async fn ballast(State(app): State<Arc<App>>, Query(wanted): Query<Ballast>, headers: HeaderMap) -> Response {
    if wanted.bytes > app.max_package {
        return bad(StatusCode::BAD_REQUEST, "bytes: at most the largest package");
    }
    let who = app.identify(&headers);
    if who.user().is_none() {
        return bad(StatusCode::FORBIDDEN, "only a logged-in user has ballast");
    }
    let text = noise(wanted.bytes);
    let done = app.act(&who.caller, |slice| slice.ballast = text);
    reply(who, done.map(|()| json!({ "ballast": wanted.bytes })))
}

fn reply(who: Who, result: Result<Value, Refusal>) -> Response {
    match result {
        Ok(body) => finish(who, Json(body)),
        Err(refusal) => refusal.into_response(),
    }
}

/// Text that does not compress well, the same each time.
fn noise(bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            char::from(LETTERS[usize::try_from(seed >> 58).unwrap_or(0)])
        })
        .collect()
}
