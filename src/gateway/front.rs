//! What all requests of one gateway share, and the answers it gives itself; it runs no request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio_util::task::TaskTracker;

use super::answer::AnswerBody;
use super::commander::Commander;
use super::cookie::{Cookie, Seal};
use super::hold::Holds;
use super::hygiene::Network;
use super::jar::{Names, Opened};
use super::metrics::{Metrics, Outcome};
use super::streams::Streams;
use super::table::Table;
use crate::clock::Clock;

/// When the cookie carries Secure and the `__Host-` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum CookieSecure {
    /// When a trusted proxy says that the client spoke https.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Shared by all requests.
pub(crate) struct Front {
    pub(crate) table: Arc<Table>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) commander: Arc<Commander>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) seal: Seal,
    pub(crate) opened: Opened,
    pub(crate) names: Names,
    pub(crate) cookie_secure: CookieSecure,
    pub(crate) trusted: Vec<Network>,
    /// Tunnels, which outlive the connection task that they came from.
    pub(crate) tunnels: TaskTracker,
}

impl Front {
    /// Adds our cookie to an answer's headers.
    pub(crate) fn set_cookie(&self, headers: &mut HeaderMap, cookie: &Cookie, secure: bool) {
        let value = match self.seal.seal(cookie) {
            Ok(value) => value,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "no cookie");
                return;
            }
        };
        let name = self.names.of(secure);
        let suffix = if secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{suffix}");
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.append(SET_COOKIE, text);
        }
    }

    /// The gateway's own answer to a request that no worker answered.
    pub(crate) fn refusal(&self, outcome: Outcome) -> Response<AnswerBody> {
        self.metrics.ended(outcome);
        let (status, text) = match outcome {
            Outcome::Broken => (
                StatusCode::BAD_GATEWAY,
                "The worker broke off before it answered. It may have acted.\n",
            ),
            Outcome::HeldTooLong => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This session is being moved. Please try again.\n",
            ),
            Outcome::Overflow => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many requests are waiting. Please try again.\n",
            ),
            Outcome::NotReplayable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This session was moved; nothing was done. Please try again.\n",
            ),
            Outcome::Forbidden => (StatusCode::NOT_FOUND, "Not found.\n"),
            Outcome::Unavailable | Outcome::Answered => (
                StatusCode::SERVICE_UNAVAILABLE,
                "No worker is available. Please try again.\n",
            ),
        };
        let mut response = Response::new(AnswerBody::Text(Some(Bytes::from_static(text.as_bytes()))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// What is left of the hold timeout for a request that came at `started`.
    pub(crate) fn left(&self, started: Duration) -> Duration {
        (started + self.commander.hold_timeout()).saturating_sub(self.clock.now())
    }
}
