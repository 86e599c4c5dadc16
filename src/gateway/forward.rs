//! One attempt to have a worker answer a request: sends it, and says what became of it; it never sends twice what may have run.

use std::sync::Arc;
use std::time::Duration;

use http::header::EXPECT;
use http::{HeaderMap, HeaderValue, StatusCode, request, response};

use super::body::{ForwardBody, Replay};
use super::front::Front;
use super::hold::Permit;
use super::hygiene::POOL_FENCE;
use super::identity::{Visitor, Who};
use super::upstream::Upstream;
use crate::exchange::{Connection, Failed, Reply, Request};

/// A released request lets the next one start after this long, even when it is not answered yet.
const PACE: Duration = Duration::from_millis(100);
/// A body up to this size is sent without being asked for: it is kept, and sent again after a refusal (V8).
const UNASKED: u64 = super::body::REPLAY_MAX as u64;
static CONTINUE: HeaderValue = HeaderValue::from_static("100-continue");
static ITS_OWN: HeaderValue = HeaderValue::from_static("1");
static PROVISIONAL: HeaderValue = HeaderValue::from_static("0");

/// What became of an attempt.
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

/// What tells the agent whose request this is.
struct Marks<'a> {
    lines: [(&'static str, &'a HeaderValue); 6],
    count: usize,
}

impl<'a> Marks<'a> {
    fn of(upstream: &'a Upstream, visitor: &'a Visitor, who: &'a Who) -> Self {
        let hop = ("pool-hop", &upstream.hop);
        let mut marks = Self {
            lines: [hop; 6],
            count: 1,
        };
        marks.add("pool-client", &visitor.client_header);
        match who {
            Who::Guest => {}
            Who::Owned(owner) => {
                marks.add("pool-user", &owner.user_header);
                marks.add("pool-epoch", &owner.epoch_header);
                if let Some(ticket) = &owner.ticket {
                    marks.add("pool-ticket", ticket);
                }
            }
            Who::Unowned { header, .. } => {
                marks.add("pool-user", header);
                marks.add("pool-epoch", &PROVISIONAL);
            }
        }
        marks
    }

    /// Says when the body comes only once it is asked for; true when it does.
    fn expect(&mut self, headers: &HeaderMap, body: &Replay) -> bool {
        if headers.contains_key(EXPECT) {
            // The agent passes on what the client itself expects, and takes out what stands here for the fence.
            self.add("pool-expects", &ITS_OWN);
            return true;
        }
        let waits = body.length().is_none_or(|length| length > UNASKED);
        if waits {
            self.add("expect", &CONTINUE);
        }
        waits
    }

    fn add(&mut self, name: &'static str, value: &'a HeaderValue) {
        self.lines[self.count] = (name, value);
        self.count += 1;
    }
}

/// Sends the request once. `permit` is given back as soon as the request is under way.
pub(crate) async fn attempt(
    front: &Front,
    upstream: &Upstream,
    head: &request::Parts,
    body: Option<&Arc<Replay>>,
    whose: (&Visitor, &Who),
    permit: Option<Permit>,
) -> Attempt {
    let mut marks = Marks::of(upstream, whose.0, whose.1);
    let waits = body.is_some_and(|body| marks.expect(&head.headers, body));
    let request = Request {
        method: &head.method,
        target: &head.uri,
        headers: &head.headers,
        more: &marks.lines[..marks.count],
        waits,
    };
    let (answer, reply) = match send(front, upstream, request, body, permit).await {
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
    front: &Front,
    upstream: &Upstream,
    request: Request<'_>,
    body: Option<&Arc<Replay>>,
    mut permit: Option<Permit>,
) -> Result<(response::Parts, Reply<ForwardBody>), Attempt> {
    let mut idle = upstream.take_idle(front.clock.now());
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
