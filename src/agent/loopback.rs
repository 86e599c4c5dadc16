//! The loopback port, for the app alone: a user left; it believes only the holder of the pod's token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::forward::accept;
use super::headers;
use super::relay::RelayBody;
use super::shared::Shared;

const HEAD: Duration = Duration::from_secs(10);

/// Serves until stopped.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, stop: CancellationToken) {
    accept(listener, stop.clone(), move |stream| {
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(serve(&shared, &request)) }
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

fn serve(shared: &Shared, request: &Request<Incoming>) -> Response<RelayBody> {
    let (status, text) = answer(shared, request);
    let mut response = Response::new(RelayBody::text(text));
    *response.status_mut() = status;
    response
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> (StatusCode, &'static str) {
    let shown = headers::single(request.headers(), headers::TOKEN).unwrap_or_default();
    if !shared.contract.is_token(shown) {
        return (StatusCode::FORBIDDEN, "Pool-Token: the pod's token is required\n");
    }
    let path = request.uri().path();
    let user = |prefix| path.strip_prefix(prefix).map(headers::decode_user);
    match (request.method(), user("/v1/users/"), user("/v1/deposits/")) {
        (_, Some(None), _) | (_, _, Some(None)) => {
            (StatusCode::BAD_REQUEST, "user: 1 to 256 bytes, percent-encoded\n")
        }
        (&Method::DELETE, Some(Some(_)), _) => {
            // The app's list decides (L7): asked at once, twice.
            shared.lock().ask_list = true;
            shared.ask_app.notify_one();
            (StatusCode::ACCEPTED, "")
        }
        (&Method::POST, _, Some(Some(_))) => (
            StatusCode::NOT_IMPLEMENTED,
            "deposits from an app are not built yet\n",
        ),
        _ => (StatusCode::NOT_FOUND, "not found\n"),
    }
}
