//! Messages of an app to a user (V10): what the agent says to the app, and to the next commander.

use elastic_pool::channel::proto::agent_message::Message;
use elastic_pool::channel::proto::{Deposited, Offer, agent_command::Command, deposited::Outcome};
use http::Request;
use http_body_util::Empty;

use crate::app;
use crate::world::{Answer, Commander, Session, Sidecar, send};

async fn offered(session: &mut Session) -> Offer {
    session
        .message(|message| match message {
            Message::Offer(offer) => Some(offer.clone()),
            _ => None,
        })
        .await
}

async fn say(session: &mut Session, number: u64, outcome: Outcome) {
    let deposited = Deposited {
        number,
        outcome: outcome.into(),
        reason: String::new(),
    };
    session.send(0, Command::Deposited(deposited)).await;
}

#[tokio::test]
async fn an_app_is_told_whether_its_message_is_delivered_held_or_refused() {
    let (folder, mut commander) = (tempfile::tempdir().unwrap(), Commander::start().await);
    let app = app::start("i1", folder.path().join("token")).await;
    let sidecar = Sidecar::start(folder.path(), commander.address, app.address).await;
    let mut session = commander.welcomed(|_| {}).await;
    let token = std::fs::read_to_string(folder.path().join("token")).unwrap();
    let deposit = || {
        let (loopback, token) = (sidecar.agent.loopback, token.clone());
        tokio::spawn(async move {
            let request = Request::post("/v1/deposits/al%20ice").header("pool-token", token);
            Answer::read(send(loopback, request.body(Empty::new()).unwrap()).await).await
        })
    };
    for (outcome, status) in [
        (Outcome::Delivered, 200),
        (Outcome::Held, 202),
        (Outcome::Refused, 409),
    ] {
        let answer = deposit();
        let offer = offered(&mut session).await;
        assert_eq!(offer.user, "al ice");
        say(&mut session, offer.number, outcome).await;
        assert_eq!(answer.await.unwrap().status.as_u16(), status);
    }
    // What is held is offered to whoever leads next, under the number that the user's app knows it by.
    drop(session);
    let mut session = commander.welcomed(|_| {}).await;
    let again = offered(&mut session).await;
    assert_eq!((again.number, again.user.as_str()), (2, "al ice"));
}
