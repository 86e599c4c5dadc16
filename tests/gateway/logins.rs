//! Logins that meet each other, a move, a slow page or an absent commander (L1-L7).

use std::sync::Arc;

use bytes::Bytes;
use elastic_pool::channel::proto::found::Verdict;
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::gateway_message::Message;
use elastic_pool::channel::proto::{Ownership, Placed};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::{Semaphore, mpsc};

use crate::backend::{Backend, Body, Recorded, text};
use crate::commander::{delta, owned};
use crate::stage::{
    Front, Stage, app, eventually, found, held, hold, login_answer, look_up, place, placed, route,
};

fn quiet(message: &Message) -> Option<String> {
    match message {
        Message::Quiet(quiet) => Some(quiet.client.clone()),
        _ => None,
    }
}

/// Who a worker saw at `path`: user, epoch.
fn seen(worker: &Backend, path: &str) -> (Option<String>, Option<String>) {
    let all = worker.requests();
    let request = all
        .iter()
        .rev()
        .find(|request| request.path == path)
        .expect("it came here");
    let header = |name: &str| request.header(name).map(str::to_owned);
    (header("pool-user"), header("pool-epoch"))
}

fn as_alice(epoch: &str) -> (Option<String>, Option<String>) {
    (Some("alice".to_owned()), Some(epoch.to_owned()))
}

/// An app that logs alice in at /login and answers at `path` as `answer` says, once the gate has a permit for it.
async fn waits_at(path: &'static str, answer: fn() -> Response<Body>) -> (Backend, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let own = Arc::clone(&gate);
    let app = Backend::start(move |request: Recorded| {
        let gate = Arc::clone(&own);
        async move {
            match request.path.as_str() {
                "/login" => login_answer("alice"),
                asked if asked == path => {
                    gate.acquire().await.unwrap().forget();
                    answer()
                }
                _ => text("one"),
            }
        }
    })
    .await;
    (app, gate)
}

#[tokio::test]
async fn requests_beside_a_login_are_a_guest_s_until_it_is_placed_and_the_user_s_from_then_on() {
    let (one, gate) = waits_at("/slow", || text("slow")).await;
    let stage = Stage::set(one, app("two").await).await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let slow = Stage::spawn(&browser, "/slow");
    stage.one.arrived(2).await;
    let login = Stage::spawn(&browser, "/login");
    let asked = stage.commander.receive(place).await;
    // Not placed yet: the page's pictures are not kept waiting.
    assert_eq!(browser.get("/picture").await.text(), "one");
    assert_eq!(seen(&stage.one, "/picture"), (None, None));
    let owner = owned("alice", 1, 11, &[&asked.client]);
    stage
        .commander
        .send(Command::Placed(placed(asked.request, owner)))
        .await;
    let answer = login.await.unwrap();
    assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 1));
    // The guest's cookie, which the browser's other tabs still send, means her as well (L4).
    browser.get("/tab").await;
    assert_eq!(seen(&stage.one, "/tab"), as_alice("11"));
    gate.add_permits(1);
    let slow = slow.await.unwrap();
    assert_eq!(
        (slow.text(), slow.cookies().len()),
        ("slow", 0),
        "an older answer takes nothing back"
    );
}

#[tokio::test]
async fn two_logins_as_one_user_through_two_gateways_end_at_one_worker() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let second = Front::start(&stage.commander, &stage.keys).await;
    let (first, other) = (stage.front.browser(), second.browser());
    let (login, rival) = (Stage::spawn(&first, "/login"), Stage::spawn(&other, "/login"));
    let (a, b) = (
        stage.commander.receive(place).await,
        stage.commander.receive(place).await,
    );
    assert_ne!(a.client, b.client);
    // Both gateways hear both answers, as each is sent to all that said Hello; a number nobody asked under is ignored.
    let both = [a.client.as_str(), b.client.as_str()];
    for asked in [&a, &b] {
        let answer = placed(asked.request, owned("alice", 1, 11, &both));
        stage.commander.send(Command::Placed(answer)).await;
    }
    let (login, rival) = (login.await.unwrap(), rival.await.unwrap());
    assert_eq!((login.cookies().len(), rival.cookies().len()), (1, 1));
    // Either cookie works through either gateway, as one user under one epoch.
    for front in [&stage.front, &second] {
        for answer in [&login, &rival] {
            let mut browser = front.browser();
            browser.cookie = answer.cookies().pop();
            assert_eq!(browser.get("/mine").await.cookies().len(), 0);
            assert_eq!(seen(&stage.one, "/mine"), as_alice("11"));
        }
    }
}

#[tokio::test]
async fn a_logout_in_one_browser_leaves_the_other_logged_in() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut first, client) = stage.alice().await;
    let mut second = stage.front.browser();
    let login = Stage::spawn(&second, "/login");
    let asked = stage.commander.receive(place).await;
    let owner = owned("alice", 1, 11, &[&client, &asked.client]);
    stage
        .commander
        .send(Command::Placed(placed(asked.request, owner)))
        .await;
    second.cookie = login.await.unwrap().cookies().pop();
    assert_eq!(second.get("/logout").await.cookies().len(), 1);
    second.get("/out").await;
    assert_eq!(seen(&stage.one, "/out"), (None, None));
    assert_eq!(
        stage.one.last().header("pool-client"),
        Some(asked.client.as_str()),
        "the client id survives"
    );
    first.get("/in").await;
    assert_eq!(seen(&stage.one, "/in"), as_alice("11"));
}

#[tokio::test]
async fn a_login_without_a_commander_goes_to_its_reception_through_any_gateway() {
    let stage = Stage::with_timeouts(app("one").await, app("two").await, 50, 20_000).await;
    let second = Front::start(&stage.commander, &stage.keys).await;
    stage.commander.die();
    eventually("both alone", async || {
        stage.front.metric("elastic_pool_gateway_channel_connected").await < 0.5
            && second.metric("elastic_pool_gateway_channel_connected").await < 0.5
    })
    .await;
    let mut browser = stage.front.browser();
    let answer = browser.get("/login").await;
    assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 1));
    browser.address = second.gateway.address;
    assert_eq!(browser.get("/next").await.text(), "one");
    assert_eq!(seen(&stage.one, "/next"), as_alice("0"));
}

#[tokio::test]
async fn a_login_of_who_is_being_moved_waits_for_the_move_and_follows_it() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (first, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let waiting = Stage::spawn(&first, "/held");
    stage.front.waiting(1.0).await;
    let second = stage.front.browser();
    let login = Stage::spawn(&second, "/login");
    let asked = stage.commander.receive(place).await;
    assert!(!login.is_finished(), "a resident's login is not decided here");
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    assert_eq!(waiting.await.unwrap().text(), "two");
    let owner = owned("alice", 2, 20, &[&client, &asked.client]);
    let answer = Placed {
        join_follows: true,
        ..placed(asked.request, owner.clone())
    };
    stage.commander.send(Command::Placed(answer)).await;
    let answer = login.await.unwrap();
    assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 1));
    let mut second = stage.front.browser();
    second.cookie = answer.cookies().pop();
    let joined = Stage::spawn(&second, "/joined");
    stage.front.waiting(1.0).await;
    stage
        .commander
        .send(hold_client(21, "alice", &asked.client))
        .await;
    assert_eq!(stage.commander.receive(held).await, 21);
    stage.commander.send(route(21, owner)).await;
    assert_eq!(joined.await.unwrap().text(), "two");
    assert_eq!(seen(&stage.two, "/joined"), as_alice("20"));
}

fn hold_client(id: u64, user: &str, client: &str) -> Command {
    Command::Hold(elastic_pool::channel::proto::Hold {
        r#move: id,
        user: user.to_owned(),
        client: client.to_owned(),
    })
}

#[tokio::test]
async fn a_login_page_that_comes_slowly_is_quiet_only_at_its_end() {
    let (rest, pieces) = mpsc::channel::<Result<Frame<Bytes>, std::convert::Infallible>>(4);
    let pieces = Arc::new(parking_lot::Mutex::new(Some(pieces)));
    let one = Backend::start(move |request: Recorded| {
        let pieces = Arc::clone(&pieces);
        async move {
            if request.path != "/login" {
                return text("one");
            }
            let pieces = pieces.lock().take().expect("one login");
            let body = StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(pieces));
            Response::builder()
                .header("pool-user", "alice")
                .body(body.boxed())
                .unwrap()
        }
    })
    .await;
    let stage = Stage::set(one, app("two").await).await;
    let login = Stage::spawn(&stage.front.browser(), "/login");
    let asked = stage.commander.receive(place).await;
    let answer = Placed {
        move_follows: true,
        ..placed(asked.request, owned("alice", 1, 11, &[&asked.client]))
    };
    stage.commander.send(Command::Placed(answer)).await;
    rest.send(Ok(Frame::data(Bytes::from_static(b"half "))))
        .await
        .unwrap();
    // Served at the source meanwhile (L3), by a browser that has the guest's cookie or none of the answer yet.
    stage
        .commander
        .send(delta(12, vec![owned("alice", 1, 11, &[&asked.client])]))
        .await;
    assert_eq!(stage.commander.count(|message| quiet(message).is_some()), 0);
    rest.send(Ok(Frame::data(Bytes::from_static(b"done"))))
        .await
        .unwrap();
    drop(rest);
    assert_eq!(login.await.unwrap().text(), "half done");
    assert_eq!(stage.commander.receive(quiet).await, asked.client);
}

#[tokio::test]
async fn a_session_that_expires_at_the_moment_of_a_move_is_a_guest_s_and_is_not_held() {
    let (one, gate) = waits_at("/expired", || login_answer("")).await;
    let stage = Stage::set(one, app("two").await).await;
    let (mut browser, client) = stage.alice().await;
    let open = Stage::spawn(&browser, "/expired");
    stage.one.arrived(2).await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let waiting = Stage::spawn(&browser, "/next");
    stage.front.waiting(1.0).await;
    gate.add_permits(1);
    let expired = open.await.unwrap();
    assert_eq!((expired.status, expired.cookies().len()), (StatusCode::OK, 1));
    browser.cookie = expired.cookies().pop();
    assert_eq!(browser.get("/guest").await.text(), "one");
    assert_eq!(seen(&stage.one, "/guest"), (None, None));
    // Nobody of the user is left: the move is given up, and what waited runs where it may.
    let gone = Ownership {
        user: "alice".to_owned(),
        ..Ownership::default()
    };
    stage.commander.send(route(20, gone)).await;
    // Her cookie says that she was born after this gateway's table, so the commander is asked whether she is gone (L6).
    let asked = stage.commander.receive(look_up).await;
    assert_eq!((asked.user.as_str(), asked.client), ("alice", client));
    stage
        .commander
        .send(found(asked.request, Verdict::Gone, None))
        .await;
    assert_eq!(waiting.await.unwrap().status, StatusCode::OK);
}
