//! The loopback port, for the app alone: a user left, a message to a user; it believes only the holder of the pod's token.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::UserId;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;

use super::commander::MAX_DEPOSIT;
use super::headers;
use super::listen::accept;
use super::outbox::Answer;
use super::relay::RelayBody;
use super::shared::Shared;
use crate::net::TcpListener;

const HEAD: Duration = Duration::from_secs(10);
/// The commander says within this time what became of a message, else it counts as held.
const WORD: Duration = Duration::from_secs(5);

/// Serves until stopped.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop.clone(), move |stream| {
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(serve(&shared, request).await) }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = serving => {}
                () = stop.cancelled() => {}
            }
        });
    })
    .await;
}

async fn serve(shared: &Shared, request: Request<Incoming>) -> Response<RelayBody> {
    let (status, text) = answer(shared, request).await;
    let mut response = Response::new(RelayBody::text(text.into_owned()));
    *response.status_mut() = status;
    response
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> (StatusCode, Cow<'static, str>) {
    let shown = headers::single(request.headers(), headers::TOKEN).unwrap_or_default();
    if !shared.contract.is_token(shown) {
        return (
            StatusCode::FORBIDDEN,
            "Pool-Token: the pod's token is required\n".into(),
        );
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let user = |prefix| path.strip_prefix(prefix).map(headers::decode_user);
    match (method, user("/v1/users/"), user("/v1/deposits/")) {
        (_, Some(None), _) | (_, _, Some(None)) => (
            StatusCode::BAD_REQUEST,
            "user: 1 to 256 bytes, percent-encoded\n".into(),
        ),
        (Method::DELETE, Some(Some(_)), _) => {
            // The app's list decides (L7): asked at once, twice.
            shared.lock().ask_list = true;
            shared.ask_app.notify_one();
            (StatusCode::ACCEPTED, "".into())
        }
        (Method::POST, _, Some(Some(user))) => deposit(shared, user, request).await,
        _ => (StatusCode::NOT_FOUND, "not found\n".into()),
    }
}

/// V10: a message to a user, wherever he lives; says delivered, held or refused.
async fn deposit(
    shared: &Shared,
    user: UserId,
    request: Request<Incoming>,
) -> (StatusCode, Cow<'static, str>) {
    let kind = headers::single(request.headers(), "content-type").unwrap_or_default();
    let kind = kind.to_owned();
    let Ok(body) = Limited::new(request.into_body(), MAX_DEPOSIT).collect().await else {
        return refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is longer than 1 MiB or broke off",
        );
    };
    let waiting = shared.outbox.lock().put(user, body.to_bytes(), kind);
    let Some(answered) = waiting else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "too many messages wait here");
    };
    shared.offer_deposits();
    // Who hears nothing in time is told what is true: it waits.
    match tokio::time::timeout(WORD, answered).await {
        Ok(Ok(Answer::Delivered)) => (StatusCode::OK, "{\"outcome\":\"delivered\"}\n".into()),
        Ok(Ok(Answer::Refused(reason))) => refused(StatusCode::CONFLICT, &reason),
        Ok(Ok(Answer::Held) | Err(_)) | Err(_) => (StatusCode::ACCEPTED, "{\"outcome\":\"held\"}\n".into()),
    }
}

fn refused(status: StatusCode, reason: &str) -> (StatusCode, Cow<'static, str>) {
    let body = serde_json::json!({ "outcome": "refused", "reason": reason });
    (status, format!("{body}\n").into())
}
