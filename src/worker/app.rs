//! The state that every route shares, and the answer to "who is asking"; never trusts a `Pool-*` header without the token.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, header};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio_util::sync::CancellationToken;

use super::executor::Executor;
use super::identity::{COOKIE, Session, Sessions, UserId, random_id};
use super::post::{Post, PostError};
use super::slice::Slice;
use super::store::{Refusal, Store};
use super::token::{TokenFile, Verdict};
use crate::clock::Clock;

/// Everything one worker process holds.
pub(super) struct App {
    /// Users and guests.
    pub(super) store: Mutex<Store>,
    /// Signs the app's own cookie.
    pub(super) sessions: Sessions,
    /// The agent's token; none for an app without the contract.
    pub(super) token: Option<TokenFile>,
    /// The way to users on other workers.
    pub(super) post: Post,
    /// Where requests burn CPU.
    pub(super) executor: Executor,
    /// This worker's name where no `Pool-Worker` header says it.
    pub(super) name: String,
    /// Random per process start (contract: `instance`).
    pub(super) instance: String,
    /// Knows nothing of pools: every browser is a guest with a cookie.
    pub(super) plain: bool,
    /// Largest package in bytes, handed out or taken in.
    pub(super) max_package: usize,
    /// Cancelled when the process is told to stop.
    pub(super) stop: CancellationToken,
    /// Runs since the process started.
    pub(super) clock: Clock,
    pub(super) streams: AtomicU64,
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A logged-in browser whose user lives here.
    User {
        /// The user.
        user: UserId,
        /// Names this browser's login.
        nonce: String,
    },
    /// Somebody with a guest's slice.
    Guest(String),
    /// A browser whose login is from another life of its user: served, but nothing of it is kept.
    Stale,
}

/// A caller, and the cookie that has to go out with the answer.
pub(super) struct Who {
    /// Who asks.
    pub(super) caller: Caller,
    /// A complete `Set-Cookie` value for a browser seen for the first time.
    pub(super) set_cookie: Option<String>,
}

impl Who {
    /// The user, if the caller is logged in.
    pub(super) fn user(&self) -> Option<&UserId> {
        match &self.caller {
            Caller::User { user, .. } => Some(user),
            _ => None,
        }
    }
}

impl App {
    /// Whole seconds since this process started.
    pub(super) fn seconds(&self) -> u64 {
        self.clock.now().as_secs()
    }

    /// A new id for an open stream.
    pub(super) fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a message to a user, wherever he lives (V10); the agent's answer.
    pub(super) async fn send(&self, to: &UserId, text: String) -> Result<serde_json::Value, PostError> {
        let token = self.token.as_ref().and_then(TokenFile::read);
        self.post.send(to, text, &token.ok_or(PostError::NoAgent)?).await
    }

    /// Whether the request carries the agent's token.
    pub(super) fn trusts(&self, headers: &HeaderMap) -> Verdict {
        match (&self.token, headers.get("pool-token")) {
            (None, _) => Verdict::NoToken,
            (Some(file), presented) => file.check(presented.map_or(b"", |value| value.as_bytes())),
        }
    }

    /// Who asks: by the app's own session; trusted routing headers can only narrow it.
    pub(super) fn identify(&self, headers: &HeaderMap) -> Who {
        let session = cookie(headers).and_then(|value| self.sessions.open(value));
        let trusted = headers.contains_key("pool-token") && self.trusts(headers) == Verdict::Right;
        let text = |name| {
            headers
                .get(name)
                .filter(|_| trusted)
                .and_then(|value| value.to_str().ok())
        };
        let routed_guest = text("pool-guest")
            .filter(|id| (1..=128).contains(&id.len()))
            .map(str::to_owned);
        let routed_user =
            text("pool-user").map(|raw| percent_decode_str(raw).decode_utf8_lossy().into_owned());
        let keep = |caller| Who {
            caller,
            set_cookie: None,
        };
        match (session, routed_guest) {
            (Some(Session::User { user, nonce }), None) if !self.plain => {
                let agrees = routed_user.is_none_or(|routed| routed == user.as_str());
                let here = agrees && self.store.lock().knows(&user, &nonce);
                keep(if here {
                    Caller::User { user, nonce }
                } else {
                    Caller::Stale
                })
            }
            (_, Some(id)) => keep(Caller::Guest(format!("pool:{id}"))),
            (Some(Session::Guest(id)), None) => keep(Caller::Guest(id)),
            (_, None) => {
                let id = random_id();
                let set_cookie = Some(self.cookie_for(&Session::Guest(id.clone())));
                Who {
                    caller: Caller::Guest(id),
                    set_cookie,
                }
            }
        }
    }

    /// The `Set-Cookie` value of a session.
    pub(super) fn cookie_for(&self, session: &Session) -> String {
        format!(
            "{COOKIE}={}; Path=/; HttpOnly; SameSite=Lax",
            self.sessions.seal(session)
        )
    }

    /// Runs a request on the caller's slice.
    pub(super) fn act<T>(&self, caller: &Caller, act: impl FnOnce(&mut Slice) -> T) -> Result<T, Refusal> {
        let now = self.seconds();
        let mut store = self.store.lock();
        match caller {
            Caller::User { user, .. } => store.serve(user, now, act),
            Caller::Guest(id) => Ok(store.serve_guest(id, now, act)),
            Caller::Stale => Ok(act(&mut Slice::default())),
        }
    }

    /// The name of this worker: the agent's word for it, else its own.
    pub(super) fn worker<'a>(&'a self, headers: &'a HeaderMap) -> &'a str {
        // Shown to the caller and used for nothing else, so it is taken without the token.
        let told = headers
            .get("pool-worker")
            .filter(|_| !self.plain)
            .and_then(|value| value.to_str().ok());
        told.filter(|name| (1..=253).contains(&name.len()))
            .unwrap_or(&self.name)
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(name, value)| (name == COOKIE).then_some(value))
}
