//! What the gateways say at the end: requests that they hold, and requests without an outcome.

use std::sync::Arc;

use bytes::Bytes;
use elastic_pool::net::TcpStream;
use http::Request;
use http_body_util::Empty;

use crate::history::Event;
use crate::world::{GATEWAY_ADMIN, GATEWAYS, Shared, gateway_host};

/// Asks each gateway for its metrics.
pub(crate) async fn ask(shared: Arc<Shared>) {
    for number in 0..GATEWAYS {
        let Ok(stream) = TcpStream::connect((gateway_host(number), GATEWAY_ADMIN)).await else {
            continue;
        };
        let Ok(request) = Request::get("/metrics")
            .header("host", "gateway")
            .body(Empty::<Bytes>::new())
        else {
            continue;
        };
        let Some((_, text)) = crate::users::exchange(stream, request).await else {
            continue;
        };
        let sum = |name: &str| -> i64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok())
                .sum()
        };
        let held = sum("elastic_pool_held_requests ");
        let unended = sum("elastic_pool_gateway_requests_total ") - sum("elastic_pool_forwards_total{");
        shared.note(Event::Left {
            gateway: format!("gateway-{number}"),
            held,
            unended,
        });
    }
}
