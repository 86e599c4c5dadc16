//! Requests that no gateway sends; what must become of them stands in `tests/corpus/hostile.txt`.

use tempfile::TempDir;

use crate::corpus::{self, Part};
use crate::raw::{RawBackend, RawClient};
use crate::world::{CLIENT, Commander, Session, Sidecar, hop};

fn proof() -> String {
    format!("Pool-Hop: {}\r\nPool-Client: {CLIENT}\r\n", hop())
}

/// A sidecar that its commander welcomed, beside an app without contract that records what arrives; the last value keeps them up.
async fn beside_raw_app() -> (Sidecar, RawBackend, (TempDir, Commander, Session)) {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = RawBackend::start().await;
    let sidecar = Sidecar::start_with(folder.path(), commander.address, app.address, |config| {
        config.contract = None;
    })
    .await;
    let session = commander.welcomed(|_| {}).await;
    (sidecar, app, (folder, commander, session))
}

#[tokio::test]
async fn the_agent_treats_hostile_requests_as_the_corpus_says() {
    let (sidecar, app, _held) = beside_raw_app().await;
    let corpus = corpus::read("hostile.txt");
    let faults = corpus::run(&corpus, Part::Agent, sidecar.agent.traffic, &proof(), &app).await;
    assert!(faults.is_empty(), "{faults}");
}

#[tokio::test]
async fn an_expectation_of_the_gateway_s_own_ends_at_the_agent_and_the_client_s_goes_on() {
    let (sidecar, app, _held) = beside_raw_app().await;
    let head = |more: &str| {
        let (proof, more) = (proof(), more.to_owned());
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{proof}{more}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
    };
    for (more, passes) in [("", false), ("Pool-Expects: 1\r\n", true)] {
        let mut gateway = RawClient::connect(sidecar.agent.traffic).await;
        gateway.send(head(more).as_bytes()).await;
        assert_eq!(
            gateway.answer(false).await.unwrap().status,
            100,
            "the fence lets it in"
        );
        gateway.send(b"hello").await;
        assert_eq!(gateway.answer(false).await.unwrap().status, 200);
        let seen = app.arrivals().pop().unwrap();
        assert_eq!(
            seen.head.to_ascii_lowercase().contains("expect:"),
            passes,
            "{}",
            seen.head
        );
        assert_eq!(seen.body, b"hello");
    }
}

#[tokio::test]
async fn a_body_that_the_fence_refuses_is_never_asked_for() {
    let (sidecar, app, _held) = beside_raw_app().await;
    let mut gateway = RawClient::connect(sidecar.agent.traffic).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\n{}Pool-User: alice\r\nPool-Epoch: 7\r\nPool-Ticket: x\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n",
        proof()
    );
    gateway.send(head.as_bytes()).await;
    let answer = gateway.answer(false).await.unwrap();
    assert_eq!((answer.status, answer.all("pool-fence")), (421, vec!["refused"]));
    assert!(app.arrivals().is_empty());
}
