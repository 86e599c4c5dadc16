//! Streams of the app: a WebSocket that echoes and ticks, and server-sent events; each ends by itself when its user is no longer live here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::app::{App, Caller, Who};
use super::routes::finish;
use super::store::Refusal;

const TICK: Duration = Duration::from_secs(1);
const MAX_MESSAGE: usize = 64 * 1024;
const GOING_AWAY: u16 = 1001;
const SERVICE_RESTART: u16 = 1012;

/// One open stream of a caller; leaves the store's books when it is dropped, however it ended.
struct Open {
    app: Arc<App>,
    caller: Caller,
    id: u64,
    worker: String,
}

impl Open {
    fn new(app: &Arc<App>, who: &Who, headers: &HeaderMap) -> Result<Self, Refusal> {
        let id = app.next_stream();
        if let Some(user) = who.user() {
            app.store.lock().open_stream(user, id)?;
        }
        let worker = app.worker(headers).to_owned();
        Ok(Self {
            app: app.clone(),
            caller: who.caller.clone(),
            id,
            worker,
        })
    }

    /// What a tick or an echo says; `add` is what this adds to the counter.
    fn say(&self, kind: &str, add: u64, text: Option<&str>) -> Result<String, Refusal> {
        let counter = if add == 0 {
            self.peek()?
        } else {
            self.app.act(&self.caller, |slice| {
                slice.counter = slice.counter.saturating_add(add);
                slice.counter
            })?
        };
        let user = match &self.caller {
            Caller::User { user, .. } => Some(user.as_str()),
            _ => None,
        };
        Ok(
            json!({ "type": kind, "text": text, "user": user, "counter": counter, "worker": self.worker })
                .to_string(),
        )
    }

    /// The counter without counting as a request: a stream alone keeps a user, but does not make him active.
    fn peek(&self) -> Result<u64, Refusal> {
        let mut store = self.app.store.lock();
        match &self.caller {
            Caller::User { user, .. } => store.counter(user),
            Caller::Guest(id) => Ok(store.guest_counter(id, self.app.seconds())),
            Caller::Stale => Ok(0),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Caller::User { user, .. } = &self.caller {
            self.app.store.lock().close_stream(user, self.id);
        }
    }
}

/// `GET /ws`: echoes each text with the counter it made, and tells counter and worker each second.
pub(super) async fn websocket(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let who = app.identify(&headers);
    match Open::new(&app, &who, &headers) {
        Ok(open) => {
            let upgrade = upgrade.max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
            finish(who, upgrade.on_upgrade(move |socket| talk(socket, open)))
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn talk(mut socket: WebSocket, open: Open) {
    let mut ticks = ticks();
    let stop = open.app.stop.clone();
    let code = loop {
        let said = tokio::select! {
            () = stop.cancelled() => break GOING_AWAY,
            _ = ticks.tick() => open.say("tick", 0, None),
            received = socket.recv() => match received {
                Some(Ok(Message::Text(text))) => open.say("echo", 1, Some(text.as_str())),
                // The answer to a close is written while reading on; then the stream ends.
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return,
            },
        };
        match said {
            Ok(text) => {
                if socket.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
            Err(_) => break SERVICE_RESTART,
        }
    };
    let reason = if code == GOING_AWAY {
        "worker stops"
    } else {
        "user is not live here"
    };
    let _ = socket
        .send(Message::Close(Some(CloseFrame {
            code,
            reason: reason.into(),
        })))
        .await;
}

/// `GET /events`: the ticks of the WebSocket as server-sent events.
pub(super) async fn events(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let who = app.identify(&headers);
    let open = match Open::new(&app, &who, &headers) {
        Ok(open) => open,
        Err(refusal) => return refusal.into_response(),
    };
    let told = stream::unfold((open, ticks()), |(open, mut ticks)| async move {
        let stop = open.app.stop.clone();
        tokio::select! {
            () = stop.cancelled() => None,
            _ = ticks.tick() => {
                let text = open.say("tick", 0, None).ok()?;
                Some((Ok::<_, Infallible>(Event::default().data(text)), (open, ticks)))
            }
        }
    });
    finish(who, Sse::new(told))
}
