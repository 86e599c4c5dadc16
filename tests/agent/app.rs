//! A small app that keeps a counter per user and speaks the worker contract; tests turn its knobs.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response, Sse, sse::Event};
use axum::routing::{any, get, post};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    Live(u64),
    Frozen(u64, u64),
    Staged(u64, u64),
}

#[derive(Default)]
pub(crate) struct Knobs {
    pub users: BTreeMap<String, Held>,
    /// Answer of `/_pool/v1/report`.
    pub report: Value,
    /// No contract: 404 below `/_pool/`.
    pub silent: bool,
    /// Requests that reached the app (not the contract), as method and path with the user header.
    pub seen: Vec<String>,
    pub last_headers: HashMap<String, String>,
    /// How WebSockets ended: close code, or 0 for a bare end.
    pub closed: Vec<u16>,
    /// A WebSocket that never ends of itself.
    pub stubborn: bool,
    /// A snapshot freezes its user and takes one permit of the gate to hand him out.
    pub slow_snapshots: bool,
    pub discards: usize,
}

pub(crate) struct App {
    pub address: SocketAddr,
    pub instance: String,
    pub knobs: Mutex<Knobs>,
    /// `/slow` takes one permit to answer.
    pub gate: Semaphore,
    token_file: PathBuf,
    stop: CancellationToken,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

/// Ends the app's server with the test.
pub(crate) struct StopOnDrop(pub Arc<App>);

impl std::ops::Deref for StopOnDrop {
    type Target = App;

    fn deref(&self) -> &App {
        &self.0
    }
}

pub(crate) async fn start(instance: &str, token_file: PathBuf) -> StopOnDrop {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    start_on(listener, instance, token_file)
}

pub(crate) fn start_on(listener: TcpListener, instance: &str, token_file: PathBuf) -> StopOnDrop {
    let app = Arc::new(App {
        address: listener.local_addr().unwrap(),
        instance: instance.to_owned(),
        knobs: Mutex::new(Knobs {
            report: json!({}),
            ..Knobs::default()
        }),
        gate: Semaphore::new(0),
        token_file,
        stop: CancellationToken::new(),
    });
    let contract = Router::new()
        .route("/_pool/v1/report", get(report))
        .route("/_pool/v1/users", get(users))
        .route(
            "/_pool/v1/state",
            get(|| async { axum::Json(json!({ "pages": 3 })) }),
        )
        .route("/_pool/v1/users/{id}", axum::routing::delete(forget))
        .route(
            "/_pool/v1/users/{id}/snapshot/{move}",
            post(snapshot).delete(thaw),
        )
        .route(
            "/_pool/v1/users/{id}/package/{move}",
            axum::routing::put(stage).post(activate).delete(discard),
        )
        .layer(from_fn_with_state(Arc::clone(&app), door));
    let router = Router::new()
        .route("/login/{user}", any(login))
        .route("/logout", any(|| async { ([("pool-user", "")], "bye") }))
        .route("/count", any(count))
        .route("/slow", any(slow))
        .route(
            "/teapot",
            any(|| async {
                (
                    StatusCode::MISDIRECTED_REQUEST,
                    [("pool-fence", "refused")],
                    "mine",
                )
            }),
        )
        .route("/ws", any(socket))
        .route("/events", any(events))
        .fallback(|| async { "hello" })
        .layer(from_fn_with_state(Arc::clone(&app), note))
        .merge(contract)
        .with_state(Arc::clone(&app));
    let stop = app.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = async { axum::serve(listener, router).await } => {}
            () = stop.cancelled() => {}
        }
    });
    StopOnDrop(app)
}

async fn note(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    {
        let mut knobs = app.knobs.lock();
        let user = request
            .headers()
            .get("pool-user")
            .map_or("guest", |user| user.to_str().unwrap());
        knobs.seen.push(format!("{} {user}", request.uri().path()));
        knobs.last_headers = request
            .headers()
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
    }
    next.run(request).await
}

async fn door(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.knobs.lock().silent {
        return StatusCode::NOT_FOUND.into_response();
    }
    let token = std::fs::read_to_string(&app.token_file).unwrap_or_default();
    if request
        .headers()
        .get("pool-token")
        .is_none_or(|shown| shown.as_bytes() != token.as_bytes())
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    next.run(request).await
}

fn user_of(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("pool-user")?.to_str().ok()?.to_owned())
}

async fn login(State(app): State<Arc<App>>, Path(user): Path<String>) -> Response {
    app.knobs
        .lock()
        .users
        .entry(user.clone())
        .or_insert(Held::Live(0));
    ([("pool-user", user), ("pool-secret", "x".to_owned())], "welcome").into_response()
}

async fn count(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let Some(user) = user_of(&headers) else {
        return "guest".into_response();
    };
    match app.knobs.lock().users.get_mut(&user) {
        Some(Held::Live(count)) => {
            *count += 1;
            count.to_string().into_response()
        }
        other => (StatusCode::CONFLICT, format!("{other:?}")).into_response(),
    }
}

async fn slow(State(app): State<Arc<App>>) -> &'static str {
    app.gate.acquire().await.unwrap().forget();
    "at last"
}

async fn socket(State(app): State<Arc<App>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async move |mut socket| {
        let mut code = 0;
        while let Some(Ok(message)) = socket.recv().await {
            match message {
                Message::Close(frame) => code = frame.map_or(1005, |frame| frame.code),
                Message::Text(text) => {
                    let _ = socket.send(Message::Text(text)).await;
                }
                _ => {}
            }
        }
        app.knobs.lock().closed.push(code);
        if app.knobs.lock().stubborn {
            std::future::pending::<()>().await;
        }
    })
}

async fn events() -> impl IntoResponse {
    let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(Event::default().data("first"))]);
    Sse::new(first.chain(futures::stream::pending()))
}

async fn report(State(app): State<Arc<App>>) -> axum::Json<Value> {
    axum::Json(app.knobs.lock().report.clone())
}

async fn users(State(app): State<Arc<App>>) -> axum::Json<Value> {
    let users: Vec<Value> = app
        .knobs
        .lock()
        .users
        .iter()
        .map(|(id, held)| match held {
            Held::Live(_) => json!({ "id": id, "state": "live" }),
            Held::Frozen(_, mv) => json!({ "id": id, "state": "frozen", "move": mv.to_string() }),
            Held::Staged(_, mv) => json!({ "id": id, "state": "staged", "move": mv.to_string() }),
        })
        .collect();
    axum::Json(json!({ "instance": app.instance, "capabilities": ["snapshot"], "users": users }))
}

type Named = Path<(String, u64)>;

async fn snapshot(State(app): State<Arc<App>>, Path((user, mv)): Named) -> Response {
    let (count, slow) = {
        let mut knobs = app.knobs.lock();
        let slow = knobs.slow_snapshots;
        let Some(held) = knobs.users.get_mut(&user) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let (Held::Live(count) | Held::Frozen(count, _) | Held::Staged(count, _)) = *held;
        *held = Held::Frozen(count, mv);
        (count, slow)
    };
    if slow {
        app.gate.acquire().await.unwrap().forget();
    }
    ([("pool-format", "count/1")], count.to_string()).into_response()
}

async fn thaw(State(app): State<Arc<App>>, Path((user, mv)): Named) -> StatusCode {
    match app.knobs.lock().users.get_mut(&user) {
        Some(held @ Held::Frozen(..)) => {
            if let Held::Frozen(count, frozen) = *held
                && frozen == mv
            {
                *held = Held::Live(count);
            }
            StatusCode::NO_CONTENT
        }
        _ => StatusCode::NOT_FOUND,
    }
}

async fn stage(
    State(app): State<Arc<App>>,
    Path((user, mv)): Named,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if headers
        .get("pool-format")
        .is_none_or(|format| format != "count/1")
    {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    let Some(count) = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok()) else {
        return StatusCode::UNPROCESSABLE_ENTITY;
    };
    app.knobs.lock().users.insert(user, Held::Staged(count, mv));
    StatusCode::NO_CONTENT
}

async fn activate(State(app): State<Arc<App>>, Path((user, mv)): Named) -> StatusCode {
    match app.knobs.lock().users.get_mut(&user) {
        Some(held) => match *held {
            Held::Staged(count, staged) if staged == mv => {
                *held = Held::Live(count);
                StatusCode::NO_CONTENT
            }
            _ => StatusCode::CONFLICT,
        },
        None => StatusCode::NOT_FOUND,
    }
}

async fn discard(State(app): State<Arc<App>>, Path((user, mv)): Named) -> StatusCode {
    let mut knobs = app.knobs.lock();
    knobs.discards += 1;
    match knobs.users.get(&user) {
        Some(Held::Staged(_, staged)) if *staged == mv => {
            knobs.users.remove(&user);
            StatusCode::NO_CONTENT
        }
        _ => StatusCode::NOT_FOUND,
    }
}

async fn forget(State(app): State<Arc<App>>, Path(user): Path<String>) -> StatusCode {
    match app.knobs.lock().users.remove(&user) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

/// A server that answers every request with fixed bytes, as a broken source would.
pub(crate) async fn liar(body: &'static str, format: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(move || async move { ([("pool-format", format)], Body::from(body)) });
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
