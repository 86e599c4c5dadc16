//! One attempt to have a worker answer a request: sends it, and says what became of it; it never sends twice what may have run.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, request};
use hyper::body::Incoming;

use super::body::{ForwardBody, Replay};
use super::front::Front;
use super::hold::Permit;
use super::hygiene::{POOL_CLIENT, POOL_EPOCH, POOL_FENCE, POOL_HOP, POOL_TICKET, POOL_USER};
use super::identity::{Visitor, Who};
use super::upstream::{Sender, Upstream};

/// A released request lets the next one start after this long, even when it is not answered yet.
const PACE: Duration = Duration::from_millis(100);

/// What became of an attempt.
pub(crate) enum Attempt {
    /// The worker answered.
    Answered(Response<Incoming>, Sender),
    /// The agent refused: not executed.
    Refused,
    /// Nothing reached the app.
    Unsent,
    /// Something was sent, and no answer came.
    Broken,
    /// The body cannot be sent again.
    NotReplayable,
}

/// Sets what tells the agent whose request this is.
pub(crate) fn mark(headers: &mut HeaderMap, upstream: &Upstream, visitor: &Visitor, who: &Who) {
    headers.insert(POOL_HOP, upstream.hop.clone());
    headers.insert(POOL_CLIENT, visitor.client_header.clone());
    match who {
        Who::Guest => {
            headers.remove(POOL_USER);
            headers.remove(POOL_EPOCH);
            headers.remove(POOL_TICKET);
        }
        Who::Owned(owner) => {
            headers.insert(POOL_USER, owner.user_header.clone());
            headers.insert(POOL_EPOCH, owner.epoch_header.clone());
            match &owner.ticket {
                Some(ticket) => drop(headers.insert(POOL_TICKET, ticket.clone())),
                None => drop(headers.remove(POOL_TICKET)),
            }
        }
        Who::Unowned { header, .. } => {
            headers.insert(POOL_USER, header.clone());
            headers.insert(POOL_EPOCH, http::HeaderValue::from_static("0"));
            headers.remove(POOL_TICKET);
        }
    }
}

/// Sends the request once. `permit` is given back as soon as the request is under way.
pub(crate) async fn attempt(
    front: &Front,
    upstream: &Upstream,
    head: &request::Parts,
    body: Option<&Arc<Replay>>,
    permit: Option<Permit>,
) -> Attempt {
    let body = match body.map(Replay::attempt) {
        None => ForwardBody::Empty,
        Some(Some(body)) => body,
        Some(None) => return Attempt::NotReplayable,
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = head.headers.clone();
    let (response, sender) = match send(front, upstream, request, permit).await {
        Ok(answered) => answered,
        Err(failed) => return failed,
    };
    let fence = response
        .headers()
        .get(POOL_FENCE)
        .map(http::HeaderValue::as_bytes);
    match (response.status(), fence) {
        (StatusCode::MISDIRECTED_REQUEST | StatusCode::FORBIDDEN, Some(_)) => Attempt::Refused,
        (StatusCode::BAD_GATEWAY, Some(b"upstream-unsent")) => Attempt::Unsent,
        (StatusCode::BAD_GATEWAY, Some(b"upstream")) => Attempt::Broken,
        _ => Attempt::Answered(response, sender),
    }
}

/// On an idle connection, or on a fresh one when that turns out to be closed before anything was sent.
async fn send(
    front: &Front,
    upstream: &Upstream,
    mut request: Request<ForwardBody>,
    mut permit: Option<Permit>,
) -> Result<(Response<Incoming>, Sender), Attempt> {
    let mut idle = upstream.take_idle(front.clock.now());
    loop {
        let is_fresh = idle.is_none();
        let mut sender = match idle.take() {
            Some(sender) => sender,
            None => upstream.connect().await.map_err(|error| {
                tracing::debug!(
                    ?upstream,
                    error = &error as &dyn std::error::Error,
                    "worker not reached"
                );
                Attempt::Unsent
            })?,
        };
        if sender.ready().await.is_err() {
            if is_fresh {
                return Err(Attempt::Unsent);
            }
            continue;
        }
        let mut sending = std::pin::pin!(sender.try_send_request(request));
        let sent = if permit.is_some() {
            let early = tokio::time::timeout(PACE, &mut sending).await;
            permit = None;
            match early {
                Ok(sent) => sent,
                Err(_) => sending.await,
            }
        } else {
            sending.await
        };
        match sent {
            Ok(response) => return Ok((response, sender)),
            Err(mut error) => match error.take_message() {
                Some(message) if !is_fresh => request = message,
                Some(_) => return Err(Attempt::Unsent),
                None => {
                    tracing::debug!(
                        ?upstream,
                        error = error.error() as &dyn std::error::Error,
                        "worker broke off"
                    );
                    return Err(Attempt::Broken);
                }
            },
        }
    }
}
