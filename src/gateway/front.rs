//! What all requests of one gateway share, and the answers it gives itself; it runs no request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio_util::task::TaskTracker;

use super::access::AccessLog;
use super::answer::AnswerBody;
use super::commander::Commander;
use super::cookie::{Cookie, Seal};
use super::hold::Holds;
use super::hygiene::Network;
use super::jar::Opened;
use super::metrics::{Metrics, Outcome};
use super::named::Named;
use super::open::Dictionary;
use super::set_cookie::Style;
use super::streams::Streams;
use super::table::Table;
use super::tls::Tls;
use crate::clock::Clock;

/// What a client may take of a gateway.
#[derive(Debug, Clone)]
pub struct Limits {
    /// For a request's head to arrive, and for an idle connection.
    pub head_timeout: Duration,
    /// For the next piece of a request's body to arrive.
    pub body_timeout: Duration,
    /// Bytes of a request's body; absent: any number.
    pub max_body: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_mins(1),
            max_body: None,
        }
    }
}

/// Shared by all requests.
pub(crate) struct Front {
    pub(crate) table: Arc<Table>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) open: Arc<Dictionary>,
    pub(crate) commander: Arc<Commander>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clock: Clock,
    pub(crate) seal: Seal,
    pub(crate) opened: Opened,
    pub(crate) style: Style,
    pub(crate) named: Named,
    pub(crate) trusted: Vec<Network>,
    pub(crate) tls: Option<Tls>,
    pub(crate) limits: Limits,
    pub(crate) access: Option<Arc<AccessLog>>,
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
        let text = self.style.line(secure, &value);
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.append(SET_COOKIE, text);
        }
    }

    /// The gateway's own answer to a request that no worker answered; `is_h1` when its connection may be told to close.
    pub(crate) fn refusal(&self, outcome: Outcome, is_h1: bool) -> Response<AnswerBody> {
        self.metrics.ended(outcome);
        let (status, text) = match outcome {
            Outcome::Broken => (
                StatusCode::BAD_GATEWAY,
                "The worker broke off before it answered. It may have acted.\n",
            ),
            Outcome::Closed => (
                StatusCode::SERVICE_UNAVAILABLE,
                "This service takes nobody in at present. Please try again later.\n",
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
            Outcome::Malformed => (StatusCode::BAD_REQUEST, "This is no request.\n"),
            Outcome::NotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "Not allowed.\n"),
            Outcome::Expectation => (
                StatusCode::EXPECTATION_FAILED,
                "Nothing but 100-continue can be expected.\n",
            ),
            Outcome::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.\n"),
            Outcome::Stalled => (StatusCode::REQUEST_TIMEOUT, "The body did not come.\n"),
            Outcome::Unavailable | Outcome::Answered | Outcome::Abandoned => (
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
        if outcome == Outcome::NotAllowed {
            headers.insert(
                ALLOW,
                HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            );
        }
        if outcome.is_clients_fault() && is_h1 {
            // Where its next request would begin is not known.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
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
