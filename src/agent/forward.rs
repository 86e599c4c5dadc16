//! The request path: hop, fence, relay, login; it never repeats a request that may have been executed.

use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::{Epoch, UserId};
use http::header::{CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version, request, response};
use hyper::upgrade::OnUpgrade;
use tokio_util::sync::CancellationToken;

use super::fence::{Shown, Verdict};
use super::headers::{self, Login, Named};
use super::open::{Open, StreamEnd};
use super::relay::{AppBody, OpenGuard, RelayBody};
use super::shared::Shared;
use super::streams;
use super::transfer;
use super::upstream::UpstreamError;
use crate::channel::proto::{ClientLeft, UserBorn, agent_message};
use crate::exchange::{ExchangeError, Reply, Upgraded};
use crate::heads::recycle;
use crate::net::{Protection, lacks};
use crate::serving::Inbound;
use crate::wire::Framing;

/// How long a user's request waits while the app's instance is being compared (the gateway's hold is longer).
pub(super) const COMPARE: Duration = Duration::from_secs(3);

/// An answer of the agent itself, marked so that no client ever sees it.
fn answer(status: StatusCode, fence: &'static str, text: &'static str) -> Response<RelayBody> {
    let mut response = Response::new(RelayBody::text(text));
    *response.status_mut() = status;
    if !fence.is_empty() {
        response
            .headers_mut()
            .insert(headers::FENCE, HeaderValue::from_static(fence));
    }
    response
}

fn refused(known: Option<Epoch>) -> Response<RelayBody> {
    let mut response = answer(
        StatusCode::MISDIRECTED_REQUEST,
        "refused",
        "not executed: another worker owns this user\n",
    );
    if let Some(epoch) = known {
        headers::set(response.headers_mut(), headers::EPOCH, &epoch.to_string());
    }
    response
}

/// What nobody may send, hop or not.
fn refuse(request: &Request<Inbound>, framing: Framing) -> Option<Response<RelayBody>> {
    let (status, text) = if [Method::CONNECT, Method::TRACE].contains(request.method()) {
        (StatusCode::METHOD_NOT_ALLOWED, "not allowed\n")
    } else if framing == Framing::Ambiguous || request.headers().get_all(HOST).iter().count() > 1 {
        (StatusCode::BAD_REQUEST, "malformed\n")
    } else if headers::is_contract_path(request.uri().path()) {
        return Some(answer(StatusCode::NOT_FOUND, "", "not found\n"));
    } else {
        return None;
    };
    Some(closing(
        answer(status, "", text),
        request.version() == Version::HTTP_2,
    ))
}

/// The connection ends with this answer: where its next request would begin is not known.
fn closing(mut response: Response<RelayBody>, is_h2: bool) -> Response<RelayBody> {
    if !is_h2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(http::header::CONNECTION, close);
    }
    response
}

/// Answers one request; never fails.
pub(super) async fn serve(
    shared: Arc<Shared>,
    framing: Framing,
    request: Request<Inbound>,
) -> Response<RelayBody> {
    if let Some(refusal) = refuse(&request, framing) {
        return refusal;
    }
    if !shared.lock().hops.accept(request.headers()) {
        shared.counters.hop_refused.add();
        return answer(
            StatusCode::FORBIDDEN,
            "hop",
            "this port is for the gateways of the pool\n",
        );
    }
    let named = match headers::read_named(request.headers()) {
        Ok(named) => named,
        Err(error) => {
            shared.counters.malformed.add();
            tracing::debug!(%error, "a gateway sent a malformed request");
            return answer(StatusCode::BAD_REQUEST, "malformed", "malformed\n");
        }
    };
    let guard = match admit(&shared, &named).await {
        Ok(guard) => guard,
        Err(response) => return response,
    };
    relay(&shared, request, named, guard).await
}

/// The fence: an open request, or the refusal.
async fn admit(shared: &Arc<Shared>, named: &Named) -> Result<OpenGuard, Response<RelayBody>> {
    let compared = |app: &super::shared::AppView| app.compared && !app.doubt;
    // Guests are anybody's: they need no comparison.
    if named.user.is_some()
        && !compared(&shared.lock().app)
        && !shared.wait_until(COMPARE, |inner| compared(&inner.app)).await
    {
        return Err(answer(
            StatusCode::BAD_GATEWAY,
            "upstream-unsent",
            "the app is not known to be the same\n",
        ));
    }
    match check(shared, named) {
        Check::Open(guard) => Ok(guard),
        Check::Refuse(known) => {
            shared.counters.fence_refused.add();
            Err(refused(known))
        }
        Check::Thaw(user) => {
            let shown = (named.epoch, named.ticket.clone());
            if !transfer::thaw_by_forward(shared, user, shown).await {
                shared.counters.fence_refused.add();
                return Err(refused(None));
            }
            match check(shared, named) {
                Check::Open(guard) => Ok(guard),
                Check::Refuse(known) => Err(refused(known)),
                Check::Thaw(_) => Err(refused(None)),
            }
        }
    }
}

enum Check {
    Open(OpenGuard),
    Refuse(Option<Epoch>),
    Thaw(UserId),
}

/// Asks the fence and opens the request under the same lock, so that no freeze comes between.
fn check(shared: &Arc<Shared>, named: &Named) -> Check {
    let now = shared.now();
    let mut guard = shared.lock();
    let inner = &mut *guard;
    let session = inner.orders.session_users;
    let mut born = false;
    let user = if let Some(user) = &named.user {
        let shown = Shown {
            epoch: named.epoch,
            ticket: &named.ticket,
        };
        match inner.fence.check(user, shown, inner.key.as_ref(), session, now) {
            Verdict::Raised => shared.mark_dirty(inner),
            Verdict::Born => {
                inner.unconfirmed.confirmed();
                shared.mark_dirty(inner);
                born = true;
            }
            Verdict::Thaw { .. } => return Check::Thaw(user.clone()),
            Verdict::Refuse { known } if !lacks(Protection::Fence) => return Check::Refuse(known),
            Verdict::Accept | Verdict::Refuse { .. } => {}
        }
        Some(user.clone())
    } else {
        let bound = named
            .client
            .and_then(|client| inner.fence.user_of(&client).cloned());
        // His copy is in a move: the gateway that knows him as a guest asks again (V3).
        if let Some(record) = bound.as_ref().and_then(|user| inner.fence.get(user))
            && !record.is_served()
        {
            return Check::Refuse(Some(record.epoch()));
        }
        if session && named.client.is_some() {
            inner.unconfirmed.seen(now, inner.orders.session_timeout);
        }
        bound
    };
    let id = inner.open.insert(Open {
        user: user.clone(),
        client: named.client,
        since: now,
        stream: None,
    });
    drop(guard);
    if let (true, Some(user)) = (born, user) {
        tell_born(shared, &user, named);
    }
    Check::Open(OpenGuard {
        shared: Arc::clone(shared),
        id,
    })
}

fn tell_born(shared: &Shared, user: &UserId, named: &Named) {
    let client = named.client.map(|client| client.to_string()).unwrap_or_default();
    let born = UserBorn {
        user: user.as_str().to_owned(),
        client,
    };
    shared.tell(agent_message::Message::UserBorn(born));
}

/// What an upgrade needs before the request leaves our hands.
struct Upgrade {
    gateway: OnUpgrade,
    websocket: bool,
}

async fn relay(
    shared: &Arc<Shared>,
    mut request: Request<Inbound>,
    named: Named,
    guard: OpenGuard,
) -> Response<RelayBody> {
    shared.counters.forwards.add();
    let upgrade = request
        .headers()
        .get(UPGRADE)
        .filter(|_| request.version() == Version::HTTP_11)
        .cloned();
    let upgrade = upgrade.map(|protocol| Upgrade {
        gateway: hyper::upgrade::on(&mut request),
        websocket: protocol.as_bytes().eq_ignore_ascii_case(b"websocket"),
    });
    let (worker, contract) = {
        let inner = shared.lock();
        (inner.orders.worker_header.clone(), inner.app.contract)
    };
    let is_h2 = request.version() == Version::HTTP_2;
    let (mut head, body) = request.into_parts();
    to_app(&mut head, upgrade.is_some());
    let mut more = [(headers::WORKER, worker.as_bytes()); 3];
    let mut count = 1;
    if let Some((name, value)) = &named.person {
        more[count] = (*name, value.as_bytes());
        count += 1;
    }
    if contract {
        // The app believes our headers only beside its token: other pods can reach its port too.
        more[count] = (headers::TOKEN, shared.contract.token().as_bytes());
        count += 1;
    }
    let sent = shared
        .upstream
        .send(&head, &more[..count], body, shared.now())
        .await;
    recycle(head.headers);
    match sent {
        Ok((answer, reply)) => from_app(shared, answer, reply, &named, upgrade, guard),
        Err(
            UpstreamError::Unsent(ExchangeError::Body(error))
            | UpstreamError::Broken(ExchangeError::Body(error)),
        ) => {
            // Whoever sent it is to blame, and not the app.
            tracing::debug!(error = &*error as &dyn std::error::Error, "a request broke off");
            closing(answer(StatusCode::BAD_REQUEST, "", "malformed\n"), is_h2)
        }
        Err(UpstreamError::Broken(error)) => {
            doubt(shared);
            shared.counters.upstream_failed.add();
            tracing::debug!(error = &error as &dyn std::error::Error, "the app broke off");
            answer(StatusCode::BAD_GATEWAY, "upstream", "the app broke off\n")
        }
        Err(error) => {
            doubt(shared);
            shared.counters.upstream_failed.add();
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the app takes no connection"
            );
            answer(
                StatusCode::BAD_GATEWAY,
                "upstream-unsent",
                "the app takes no connection\n",
            )
        }
    }
}

/// The app may have restarted: nobody is served until it was asked.
pub(crate) fn doubt(shared: &Shared) {
    shared.lock().app.doubt = true;
    shared.ask_app.notify_one();
}

/// Makes the request one for the app: its host where HTTP/2 says it, and nothing of the gateway's connection.
fn to_app(head: &mut request::Parts, upgrade: bool) {
    if let Some(host) = head.uri.authority()
        && let Ok(host) = HeaderValue::from_str(host.as_str())
    {
        head.headers.insert(HOST, host);
    }
    let trailers = headers::wants_trailers(&head.headers);
    headers::strip_connection(&mut head.headers, upgrade);
    if trailers {
        headers::set(&mut head.headers, "te", "trailers");
    }
}

fn from_app(
    shared: &Arc<Shared>,
    mut head: response::Parts,
    reply: Reply<Inbound>,
    named: &Named,
    upgrade: Option<Upgrade>,
    guard: OpenGuard,
) -> Response<RelayBody> {
    let login = headers::take_login(&mut head.headers);
    // P7: a later login places nothing anew.
    if login != Login::Nothing && !shared.lock().orders.session_users {
        note_login(shared, named, &login);
    }
    let switching = matches!(reply, Reply::Switched(_));
    headers::strip_connection(&mut head.headers, switching);
    let body = match reply {
        Reply::Whole(body, connection) => {
            if let Some(connection) = connection {
                shared.upstream.give_back(connection, shared.now());
            }
            AppBody::whole(body, guard)
        }
        Reply::Streamed(body) => {
            let end = is_events(&head).then(|| begin_stream(shared, guard.id));
            AppBody::arriving(body, end, guard)
        }
        Reply::Switched(app) => {
            let Some(upgrade) = upgrade else {
                return answer(StatusCode::BAD_GATEWAY, "upstream", "the app switched unasked\n");
            };
            switch(shared, app, upgrade, guard);
            return Response::from_parts(head, RelayBody::Own(None));
        }
    };
    Response::from_parts(head, RelayBody::App(Box::new(body)))
}

fn is_events(head: &response::Parts) -> bool {
    head.headers.get(CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes()
            .get(..17)
            .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
    })
}

/// From here on the open request is a stream.
fn begin_stream(shared: &Shared, id: u64) -> StreamEnd {
    let end = StreamEnd {
        cancel: CancellationToken::new(),
        ended: CancellationToken::new(),
    };
    shared.lock().open.becomes_stream(id, end.clone());
    // A quiesce counts it no longer.
    shared.changed.notify_waiters();
    end
}

fn switch(shared: &Shared, app: Upgraded, upgrade: Upgrade, guard: OpenGuard) {
    let end = begin_stream(shared, guard.id);
    tokio::spawn(async move {
        let gateway = tokio::select! {
            biased;
            () = end.cancel.cancelled() => None,
            gateway = upgrade.gateway => gateway.ok(),
        };
        if let Some(gateway) = gateway {
            streams::tunnel(gateway, app, upgrade.websocket, end, guard).await;
        } else {
            drop(app);
            end.ended.cancel();
        }
    });
}

/// L1 and L5: binds or unbinds the client before anything of the answer goes out.
fn note_login(shared: &Shared, named: &Named, login: &Login) {
    let now = shared.now();
    match login {
        Login::Nothing => {}
        Login::In(user) if named.user.as_ref() == Some(user) => {
            if let Some(record) = shared.lock().fence.get_mut(user) {
                record.touch(now);
            }
        }
        Login::In(user) => {
            shared.counters.logins.add();
            let mut inner = shared.lock();
            if !inner.bind(user, named.client, now) {
                tracing::warn!("the fence is full: a login is not bound");
                return;
            }
            shared.mark_dirty(&mut inner);
            drop(inner);
            tell_born(shared, user, named);
        }
        Login::Out => {
            let mut inner = shared.lock();
            let Some(client) = named.client else { return };
            let user = inner.fence.unbind(&client).or_else(|| named.user.clone());
            shared.mark_dirty(&mut inner);
            drop(inner);
            if let Some(user) = user {
                let left = ClientLeft {
                    user: user.as_str().to_owned(),
                    client: client.to_string(),
                };
                shared.tell(agent_message::Message::ClientLeft(left));
            }
        }
    }
}
