//! An app that speaks HTTP/2 without TLS.

use elastic_pool::agent::AppProtocol;
use http::Version;

use crate::grpc_support::{Call, Echo};
use crate::world::{CLIENT, Commander, Sidecar, Who, hop};

#[tokio::test]
async fn an_app_of_h2c_gets_calls_of_either_version_and_its_trailers_come_back() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = Echo::start().await;
    let sidecar = Sidecar::start_with(folder.path(), commander.address, app.address, |config| {
        config.app_protocol = AppProtocol::H2c;
        config.contract = None;
    })
    .await;
    let _session = commander.welcomed(|_| {}).await;
    let mut call = Call::begin(
        sidecar.agent.traffic,
        &[("pool-hop", &hop()), ("pool-client", CLIENT)],
    )
    .await;
    call.echo("one").await;
    call.echo("two").await;
    assert_eq!(call.end().await["grpc-status"], "0");
    assert_eq!(sidecar.get("/plain", Who::Guest).await.status, 200);
    let calls = app.calls.lock().clone();
    assert_eq!(calls.len(), 2);
    for (version, target, headers) in &calls {
        assert_eq!(*version, Version::HTTP_2, "{target}");
        assert_eq!(headers["pool-guest"], CLIENT);
        assert!(!headers.contains_key("pool-hop") && !headers.contains_key("connection"));
    }
    assert_eq!(calls[1].1, "http://shop.example/plain");
}
