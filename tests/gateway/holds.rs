//! Requests that wait: for a move, for a join, for a worker, for an answer to who owns their user.

use crate::backend::{Backend, Recorded, text};
use crate::commander::{Commander, delta, full, group, owned, welcome, worker};
use crate::stage::{
    Front, Keys, Stage, app, eventually, found, held, hold, login_answer, look_up, place, placed, route,
};
use elastic_pool::channel::proto::found::Verdict;
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::{Cancel, Hold, Placed, Table};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::Full;
use std::sync::Arc;

#[tokio::test]
async fn held_requests_survive_the_switch_and_start_in_order_at_the_new_owner() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    assert_eq!(stage.commander.receive(held).await, 20);
    let before = stage.one.requests().len();
    let mut waiting = Vec::new();
    for number in 0..12 {
        waiting.push(Stage::spawn(&browser, &format!("/{number}")));
        stage.front.waiting(f64::from(number + 1)).await;
    }
    // Somebody else is not held.
    let other = stage.front.browser().get("/other").await;
    assert_eq!((other.text(), other.headers.get("server-timing")), ("one", None));
    assert_eq!(stage.one.requests().len(), before + 1);
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert_eq!(answer.text(), "two");
        let timing = answer.headers["server-timing"].to_str().unwrap();
        let held: f64 = timing.strip_prefix("hold;dur=").unwrap().parse().unwrap();
        assert!(held > 0.0, "{timing}");
    }
    let seen = stage.two.requests();
    assert!(
        seen.iter()
            .all(|request| request.header("pool-epoch") == Some("20"))
    );
    assert!(
        seen.iter()
            .all(|request| request.header("pool-ticket") == Some(&format!("{:064x}", 20)))
    );
    let order: Vec<i32> = seen
        .iter()
        .map(|request| request.path[1..].parse().unwrap())
        .collect();
    // Four start at once, so a request may be at most three places early.
    for (place, number) in order.iter().enumerate() {
        assert!(i32::try_from(place).unwrap() >= number - 3, "{order:?}");
    }
    stage.front.waiting(0.0).await;
}

/// Found by the model: V7 saves whoever's complete copy stands at the target, so until the move has ended he is not gone.
#[tokio::test]
async fn a_user_whose_worker_dies_in_his_move_waits_for_its_end() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let dead = Table {
        version: 15,
        live: true,
        groups: vec![group(2)],
        dead: vec![1],
        ..Table::default()
    };
    stage.commander.send(Command::Table(dead)).await;
    eventually("the death is known", async || {
        stage.front.browser().get("/").await.text() == "two"
    })
    .await;
    let waiting = Stage::spawn(&browser, "/a");
    stage.front.waiting(1.0).await;
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    let answer = waiting.await.unwrap();
    assert_eq!((answer.text(), answer.cookies().len()), ("two", 0));
    assert_eq!(stage.two.last().header("pool-user"), Some("alice"));
}

#[tokio::test]
async fn after_an_abort_held_requests_run_at_the_old_owner_under_the_new_epoch() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let waiting = Stage::spawn(&browser, "/a");
    stage.front.waiting(1.0).await;
    let user = Some(owned("alice", 1, 21, &[&client]));
    stage
        .commander
        .send(Command::Cancel(Cancel {
            r#move: 20,
            user,
            client: String::new(),
        }))
        .await;
    assert_eq!(waiting.await.unwrap().text(), "one");
    assert_eq!(stage.one.last().header("pool-epoch"), Some("21"));
}

#[tokio::test]
async fn a_hold_that_never_ends_is_a_503_and_the_user_keeps_his_owner() {
    let stage = Stage::with_timeouts(app("one").await, app("two").await, 5000, 200).await;
    let (mut browser, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let answer = browser.get("/a").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (
            answer.headers["retry-after"].to_str().unwrap(),
            answer.cookies().len()
        ),
        ("1", 0)
    );
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    eventually("released", async || {
        browser.clone().get("/b").await.text() == "two"
    })
    .await;
    assert!(stage.two.requests().iter().all(|request| request.path == "/b"));
}

#[tokio::test]
async fn more_than_64_waiting_requests_of_a_user_are_turned_away_at_once() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, client) = stage.alice().await;
    stage.commander.send(hold(20, "alice")).await;
    stage.commander.receive(held).await;
    let waiting: Vec<_> = (0..64)
        .map(|number| Stage::spawn(&browser, &format!("/{number}")))
        .collect();
    stage.front.waiting(64.0).await;
    assert_eq!(browser.get("/more").await.status, StatusCode::SERVICE_UNAVAILABLE);
    // One hangs up, and its place is free.
    let mut waiting = waiting.into_iter();
    waiting.next().unwrap().abort();
    stage.front.waiting(63.0).await;
    let late = Stage::spawn(&browser, "/late");
    stage.front.waiting(64.0).await;
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    assert_eq!(late.await.unwrap().text(), "two");
    for answer in waiting {
        assert_eq!(answer.await.unwrap().text(), "two");
    }
    assert!(stage.two.requests().iter().all(|request| request.path != "/0"));
}

#[tokio::test]
async fn a_refused_request_is_sent_again_once_under_a_newer_epoch_with_its_body() {
    let refuse = |request: Recorded| async move {
        if request.path == "/login" {
            return login_answer("alice");
        }
        let response = Response::builder()
            .status(421)
            .header("pool-fence", "refused")
            .header("pool-epoch", "20");
        response.body(Full::from("no").boxed()).unwrap()
    };
    let stage = Stage::set(Backend::start(refuse).await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    let posted = {
        let mut browser = browser.clone();
        tokio::spawn(async move { browser.post("/a", vec![b'x'; 60_000]).await })
    };
    let asked = stage.commander.receive(look_up).await;
    assert_eq!((asked.user.as_str(), asked.epoch), ("alice", 11));
    stage
        .commander
        .send(found(asked.request, Verdict::Wait, None))
        .await;
    let again = stage.commander.receive(look_up).await;
    let owner = owned("alice", 2, 20, &[&client]);
    stage
        .commander
        .send(found(again.request, Verdict::Owned, Some(owner)))
        .await;
    let answer = posted.await.unwrap();
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, "two"));
    let seen = stage.two.requests();
    assert_eq!(
        (seen.len(), seen[0].body.len(), seen[0].header("pool-epoch")),
        (1, 60_000, Some("20"))
    );
    assert_eq!(
        stage
            .one
            .requests()
            .iter()
            .filter(|request| request.path == "/a")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_refusal_of_what_the_commander_confirms_is_tried_again() {
    let refusals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let script = move |request: Recorded| {
        let refused =
            request.path == "/a" && refusals.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        async move {
            match request.path.as_str() {
                "/login" => login_answer("alice"),
                _ if refused => {
                    let response = Response::builder().status(421).header("pool-fence", "refused");
                    response.body(Full::default().boxed()).unwrap()
                }
                _ => text("one"),
            }
        }
    };
    let stage = Stage::set(Backend::start(script).await, app("two").await).await;
    let (browser, client) = stage.alice().await;
    let asking = Stage::spawn(&browser, "/a");
    let asked = stage.commander.receive(look_up).await;
    stage
        .commander
        .send(found(
            asked.request,
            Verdict::Owned,
            Some(owned("alice", 1, 11, &[&client])),
        ))
        .await;
    assert_eq!(asking.await.unwrap().text(), "one");
    assert_eq!(stage.commander.count(|message| look_up(message).is_some()), 0);
}

#[tokio::test]
async fn a_newcomer_waits_for_a_routable_worker_and_else_gets_a_503() {
    let one = app("one").await;
    let commander = Commander::start(vec![welcome(500, 300), full(10, 0, vec![], vec![])]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let answer = front.browser().get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers["retry-after"], "1");
    commander.send(welcome(500, 20_000)).await;
    eventually("waits", async || {
        let waiting = Stage::spawn(&front.browser(), "/");
        front.waiting(1.0).await;
        commander
            .send(full(11, 1, vec![worker(1, &one.address)], vec![]))
            .await;
        waiting.await.unwrap().text() == "one"
    })
    .await;
}

#[tokio::test]
async fn a_join_holds_its_client_until_it_is_routed_and_others_are_served() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    stage
        .commander
        .send(delta(12, vec![owned("alice", 2, 12, &[])]))
        .await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let login = Stage::spawn(&browser, "/login");
    let asked = stage.commander.receive(place).await;
    let answer = Placed {
        join_follows: true,
        ..placed(asked.request, owned("alice", 2, 12, &[]))
    };
    stage.commander.send(Command::Placed(answer)).await;
    browser.cookie = login.await.unwrap().cookies().pop();
    let waiting = Stage::spawn(&browser, "/a");
    stage.front.waiting(1.0).await;
    let join = Hold {
        r#move: 21,
        user: "alice".to_owned(),
        client: asked.client.clone(),
    };
    stage.commander.send(Command::Hold(join)).await;
    assert_eq!(stage.commander.receive(held).await, 21);
    stage
        .commander
        .send(route(21, owned("alice", 2, 12, &[&asked.client])))
        .await;
    assert_eq!(waiting.await.unwrap().text(), "two");
    assert_eq!(stage.two.last().header("pool-user"), Some("alice"));
}

#[tokio::test]
async fn a_worker_that_takes_no_connection_yet_is_tried_again_until_it_does() {
    // A port that nobody listens on, then somebody does.
    let reserved = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let workers = vec![worker(1, &address.to_string())];
    let commander = Commander::start(vec![welcome(500, 20_000), full(10, 1, workers, vec![])]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let waiting = Stage::spawn(&front.browser(), "/");
    front.waiting(1.0).await;
    let two = app("two").await;
    let table = full(11, 2, vec![worker(2, &two.address)], vec![]);
    commander.send(table).await;
    assert_eq!(waiting.await.unwrap().text(), "two");
}
