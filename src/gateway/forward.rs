//! One attempt to have a worker answer a request: sends it, and says what became of it; it never sends twice what may have run.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Epoch;
use http::header::{CONTENT_TYPE, EXPECT};
use http::{HeaderMap, HeaderValue, StatusCode, request, response};

use super::body::{ForwardBody, Replay};
use super::forwarded::{self, Forwarded};
use super::hold::Permit;
use super::hygiene::POOL_FENCE;
use super::identity::{Visitor, Who};
use super::resident::user_text;
use super::upstream::Upstream;
use crate::exchange::{Connection, Failed, Reply, Request};
use crate::heads::Decimal;

/// A released request lets the next one start after this long, even when it is not answered yet.
const PACE: Duration = Duration::from_millis(100);
/// A body up to this size is sent without being asked for: it is kept, and sent again after a refusal (V8).
const UNASKED: u64 = super::body::REPLAY_MAX as u64;

/// What became of an attempt.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum Attempt {
    /// The worker answered.
    Answered(response::Parts, Reply<ForwardBody>),
    /// The agent refused: not executed.
    Refused,
    /// Nothing reached the app.
    Unsent,
    /// Something was sent, and no answer came.
    Broken,
    /// The body cannot be sent again.
    NotReplayable,
}

/// A request as it stands when it is sent.
pub(crate) struct Asked<'a> {
    pub(crate) head: &'a request::Parts,
    pub(crate) forwarded: &'a Forwarded,
    pub(crate) visitor: &'a Visitor,
    pub(crate) who: &'a Who,
    pub(crate) body: Option<&'a Arc<Replay>>,
}

/// Whose request it is, as text.
struct Proof<'a> {
    user: Cow<'a, str>,
    epoch: Decimal,
    ticket: Option<[u8; 64]>,
}

impl<'a> Proof<'a> {
    /// Nothing of a guest.
    fn of(who: &'a Who) -> Option<Self> {
        let user = user_text(who.user_text()?);
        Some(match who {
            Who::Owned(owner) => Self {
                user,
                epoch: Decimal::of(owner.epoch.0),
                ticket: owner.ticket(),
            },
            Who::Guest | Who::Unowned(_) => Self {
                user,
                epoch: Decimal::of(Epoch::PROVISIONAL.0),
                ticket: None,
            },
        })
    }
}

/// Lines that are sent beyond the client's: whose request this is, and over which connection it came.
struct Lines<'a> {
    lines: [(&'static str, &'a [u8]); 9],
    count: usize,
}

impl<'a> Lines<'a> {
    fn of(upstream: &'a Upstream, asked: &Asked<'a>, proof: Option<&'a Proof<'a>>) -> Self {
        let mut lines = Self {
            lines: [("pool-hop", upstream.hop.as_bytes()); 9],
            count: 1,
        };
        lines.add("pool-client", asked.visitor.client_header.as_bytes());
        if let Some(proof) = proof {
            lines.add("pool-user", proof.user.as_bytes());
            lines.add("pool-epoch", proof.epoch.as_bytes());
            if let Some(ticket) = &proof.ticket {
                lines.add("pool-ticket", ticket);
            }
        }
        for (name, value) in asked.forwarded.lines() {
            lines.add(name, value.as_bytes());
        }
        lines
    }

    /// Says when the body comes only once it is asked for; true when it does.
    fn expect(&mut self, headers: &HeaderMap, body: &Replay) -> bool {
        if headers.contains_key(EXPECT) {
            // The agent passes on what the client itself expects, and takes out what stands here for the fence.
            self.add("pool-expects", b"1");
            return true;
        }
        let waits = body.length().is_none_or(|length| length > UNASKED);
        if waits {
            self.add("expect", b"100-continue");
        }
        waits
    }

    fn add(&mut self, name: &'static str, value: &'a [u8]) {
        self.lines[self.count] = (name, value);
        self.count += 1;
    }
}

/// Sends the request once. `permit` is given back as soon as the request is under way.
pub(crate) async fn attempt(
    upstream: &Upstream,
    asked: &Asked<'_>,
    now: Duration,
    permit: Option<Permit>,
) -> Attempt {
    let proof = Proof::of(asked.who);
    let mut lines = Lines::of(upstream, asked, proof.as_ref());
    let waits = asked
        .body
        .is_some_and(|body| lines.expect(&asked.head.headers, body));
    let request = Request {
        method: &asked.head.method,
        target: &asked.head.uri,
        headers: &asked.head.headers,
        leaves_out: forwarded::is_ours,
        more: &lines.lines[..lines.count],
        waits,
    };
    let (answer, reply) = match send(upstream, request, asked.body, now, permit).await {
        Ok(answered) => answered,
        Err(failed) => return failed,
    };
    let fence = answer.headers.get(POOL_FENCE).map(HeaderValue::as_bytes);
    match (answer.status, fence) {
        (StatusCode::MISDIRECTED_REQUEST | StatusCode::FORBIDDEN, Some(_)) => Attempt::Refused,
        (StatusCode::BAD_GATEWAY, Some(b"upstream-unsent")) => Attempt::Unsent,
        (StatusCode::BAD_GATEWAY, Some(b"upstream")) => Attempt::Broken,
        _ => Attempt::Answered(answer, reply),
    }
}

/// On an idle connection, or on a fresh one when that turns out to be closed before anything was sent.
async fn send(
    upstream: &Upstream,
    request: Request<'_>,
    body: Option<&Arc<Replay>>,
    now: Duration,
    mut permit: Option<Permit>,
) -> Result<(response::Parts, Reply<ForwardBody>), Attempt> {
    if is_grpc(request.headers) {
        return send_multiplexed(upstream, request, body).await;
    }
    let mut idle = upstream.take_idle(now);
    loop {
        let is_fresh = idle.is_none();
        let connection = match idle.take() {
            Some(connection) => connection,
            None => upstream.connect().await.map_err(|error| {
                tracing::debug!(
                    ?upstream,
                    error = &error as &dyn std::error::Error,
                    "worker not reached"
                );
                Attempt::Unsent
            })?,
        };
        let body = match body.map(Replay::attempt) {
            None => None,
            Some(Some(body)) => Some(body),
            Some(None) => return Err(Attempt::NotReplayable),
        };
        match exchange(connection, request, body, permit.take()).await {
            Ok(answered) => return Ok(answered),
            Err(Failed::Unsent(_)) if !is_fresh => {}
            Err(Failed::Unsent(_)) => return Err(Attempt::Unsent),
            Err(Failed::Broken(error)) => {
                tracing::debug!(
                    ?upstream,
                    error = &error as &dyn std::error::Error,
                    "worker broke off"
                );
                return Err(Attempt::Broken);
            }
        }
    }
}

/// True for calls that live of trailers and of streams both ways.
fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

async fn send_multiplexed(
    upstream: &Upstream,
    request: Request<'_>,
    body: Option<&Arc<Replay>>,
) -> Result<(response::Parts, Reply<ForwardBody>), Attempt> {
    let body = match body.map(Replay::attempt) {
        None => None,
        Some(Some(body)) => Some(body),
        Some(None) => return Err(Attempt::NotReplayable),
    };
    upstream
        .multiplexed
        .exchange(request, body)
        .await
        .map_err(|failed| match failed {
            Failed::Unsent(_) => Attempt::Unsent,
            Failed::Broken(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(?upstream, error, "worker broke off");
                Attempt::Broken
            }
        })
}

async fn exchange(
    connection: Connection,
    request: Request<'_>,
    body: Option<ForwardBody>,
    permit: Option<Permit>,
) -> Result<(response::Parts, Reply<ForwardBody>), Failed> {
    let sending = connection.exchange(request, body);
    let Some(permit) = permit else {
        return sending.await;
    };
    let mut sending = std::pin::pin!(sending);
    let early = tokio::time::timeout(PACE, &mut sending).await;
    drop(permit);
    match early {
        Ok(sent) => sent,
        Err(_) => sending.await,
    }
}
