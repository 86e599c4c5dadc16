//! Several groups behind one gateway: who takes newcomers while a group is to be empty, and whose users belong to another now.

use crate::commander::{Commander, group, owned, welcome, worker};
use crate::stage::{Front, Keys, app, eventually, look_up};
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::{Group, Ownership, Route, Table, Worker};
use http::StatusCode;

fn blue(closed: bool) -> Group {
    Group { closed, ..group(1) }
}

fn green(closed: bool) -> Group {
    Group {
        name: "green".to_owned(),
        default_group: false,
        closed,
        ..group(2)
    }
}

/// A change that names all groups anew.
fn groups(version: u64, groups: Vec<Group>) -> Command {
    Command::Table(Table {
        version,
        live: true,
        groups,
        ..Table::default()
    })
}

struct Scene {
    commander: Commander,
    front: Front,
    /// The workers' apps, kept alive.
    _apps: [crate::backend::Backend; 2],
}

/// Blue with the worker "one", green with "two", both open.
async fn scene(users: Vec<Ownership>) -> Scene {
    let (one, two) = (app("one").await, app("two").await);
    let in_green = Worker {
        group: "green".to_owned(),
        ..worker(2, &two.address)
    };
    let table = Table {
        version: 10,
        full: true,
        live: true,
        groups: vec![blue(false), green(false)],
        workers: vec![worker(1, &one.address), in_green],
        users,
        ..Table::default()
    };
    let commander = Commander::start(vec![welcome(500, 20_000), Command::Table(table)]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    Scene {
        commander,
        front,
        _apps: [one, two],
    }
}

async fn newcomer_lands_on(front: &Front, wanted: &str) {
    eventually(wanted, async || front.browser().get("/").await.text() == wanted).await;
}

#[tokio::test]
async fn newcomers_go_to_an_open_group_and_guests_stay_where_they_are() {
    let Scene {
        commander,
        front,
        _apps,
    } = scene(Vec::new()).await;
    let mut guest = front.browser();
    assert_eq!(guest.get("/").await.text(), "one");
    commander.send(groups(11, vec![blue(true), green(false)])).await;
    newcomer_lands_on(&front, "two").await;
    let answer = guest.get("/").await;
    assert_eq!((answer.text(), answer.cookies().len()), ("one", 0));
    let dead = Table {
        version: 12,
        live: true,
        dead: vec![1],
        ..Table::default()
    };
    commander.send(Command::Table(dead)).await;
    eventually("taken in elsewhere", async || {
        guest.clone().get("/").await.text() == "two"
    })
    .await;
    assert_eq!(guest.get("/").await.text(), "two");
    commander.send(groups(13, vec![blue(true), green(true)])).await;
    eventually("nobody else", async || {
        front.browser().get("/").await.status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    assert_eq!(guest.get("/").await.text(), "two", "he is known there");
}

#[tokio::test]
async fn without_an_open_group_a_newcomer_is_told_to_come_back_and_not_held() {
    let Scene {
        commander,
        front,
        _apps,
    } = scene(Vec::new()).await;
    commander.send(groups(11, vec![blue(true), green(true)])).await;
    eventually("refused", async || {
        let answer = front.browser().get("/").await;
        let refused = answer.status == StatusCode::SERVICE_UNAVAILABLE;
        assert!(!refused || answer.headers.contains_key("retry-after"));
        refused
    })
    .await;
    assert!(
        front
            .metric("elastic_pool_forwards_total{outcome=\"closed\"}")
            .await
            > 0.5
    );
    assert!(front.metric("elastic_pool_held_requests").await < 0.5);
    commander.send(groups(12, vec![blue(true), green(false)])).await;
    newcomer_lands_on(&front, "two").await;
}

#[tokio::test]
async fn a_pool_without_any_group_refuses_newcomers() {
    let table = Table {
        version: 10,
        full: true,
        live: true,
        ..Table::default()
    };
    let commander = Commander::start(vec![welcome(500, 20_000), Command::Table(table)]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let answer = front.browser().get("/").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn a_user_who_moved_to_another_group_gets_its_cookie_once() {
    let Scene {
        commander,
        front,
        _apps,
    } = scene(Vec::new()).await;
    let mut browser = front.browser();
    browser.get("/").await;
    let login = {
        let mut browser = browser.clone();
        tokio::spawn(async move {
            let answer = browser.get("/login").await;
            (browser, answer)
        })
    };
    let asked = commander.receive(crate::stage::place).await;
    let alice = |birth: u64, epoch: u64| owned("alice", birth, epoch, &[&asked.client]);
    let placed = elastic_pool::channel::proto::Placed {
        request: asked.request,
        user: Some(alice(1, 11)),
        ..Default::default()
    };
    commander.send(Command::Placed(placed)).await;
    let (mut browser, _) = login.await.unwrap();
    assert_eq!(browser.get("/").await.cookies().len(), 0);
    let route = Route {
        r#move: 12,
        user: Some(alice(2, 12)),
    };
    commander.send(Command::Route(route)).await;
    eventually("moved", async || browser.clone().get("/").await.text() == "two").await;
    assert_eq!(browser.get("/").await.cookies().len(), 1);
    assert_eq!(browser.get("/").await.cookies().len(), 0);
    assert_eq!(commander.count(|message| look_up(message).is_some()), 0);
}
