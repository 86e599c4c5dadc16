//! Calls that live of trailers and of streams both ways (gRPC) pass on one shared HTTP/2 connection per worker.

use http::Version;

use crate::commander::{Commander, full, welcome, worker};
use crate::grpc_support::{Call, Echo};
use crate::stage::{Front, Keys, eventually};

#[tokio::test]
async fn a_call_goes_both_ways_at_its_own_pace_and_ends_with_its_trailers() {
    let echo = Echo::start().await;
    let workers = vec![worker(1, &echo.address.to_string())];
    let commander = Commander::start(vec![welcome(500, 20_000), full(10, 1, workers, vec![])]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut call = Call::begin(front.gateway.address, &[("pool-user", "eve"), ("x-own", "1")]).await;
    assert!(call.head().headers().contains_key("set-cookie"));
    for piece in ["one", "two", "three"] {
        call.echo(piece).await;
    }
    let trailers = call.end().await;
    assert_eq!(trailers["grpc-status"], "0");
    assert!(!trailers.contains_key("pool-user"));
    let calls = echo.calls.lock().clone();
    let (version, target, headers) = &calls[0];
    assert_eq!(
        (*version, target.as_str()),
        (Version::HTTP_2, "http://shop.test/shop.Service/Call")
    );
    assert_eq!(
        (headers["te"].as_bytes(), headers["x-own"].as_bytes()),
        (&b"trailers"[..], &b"1"[..])
    );
    assert!(
        headers.contains_key("pool-hop")
            && !headers.contains_key("pool-user")
            && !headers.contains_key("expect")
    );
    eventually("it is answered", async || {
        front
            .metric("elastic_pool_forwards_total{outcome=\"answered\"}")
            .await
            > 0.5
    })
    .await;
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_is_given_up_at_the_worker() {
    let echo = Echo::start().await;
    let workers = vec![worker(1, &echo.address.to_string())];
    let commander = Commander::start(vec![welcome(500, 20_000), full(10, 1, workers, vec![])]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut kept = Call::begin(front.gateway.address, &[]).await;
    kept.echo("one").await;
    let mut dropped = Call::begin(front.gateway.address, &[]).await;
    dropped.echo("one").await;
    drop(dropped);
    eventually("one is open", async || {
        let open = crate::stage::get(front.gateway.monitor_address.unwrap(), "/_commander/open").await;
        let open: serde_json::Value = serde_json::from_slice(&open.body).unwrap();
        open["workers"][0]["open"] == 1
    })
    .await;
    // The connection that both shared goes on.
    kept.echo("two").await;
    assert_eq!(kept.end().await["grpc-status"], "0");
}
