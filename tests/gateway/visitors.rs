//! Who a request is taken for: guests, logins, cookies, sessions, and tables that come late.

use crate::client::Browser;
use crate::commander::{Commander, delta, group, owned, welcome, worker};
use crate::stage::{Front, Keys, Stage, app, eventually, found, held, hold, look_up, place, placed};
use elastic_pool::channel::proto::found::Verdict;
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::gateway_message::Message;
use elastic_pool::channel::proto::{Group, Ownership, Placed, Table};
use http::StatusCode;
use http_body_util::Full;

#[tokio::test]
async fn a_guest_stays_with_his_reception_and_the_app_never_sees_the_cookie() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    let first = browser.get("/").await;
    assert_eq!((first.text(), first.cookies().len()), ("one", 1));
    let line = first.headers["set-cookie"].to_str().unwrap();
    assert!(line.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{line}");
    // Another worker becomes the reception; who was taken in before stays.
    let moved = Table {
        version: 11,
        live: true,
        groups: vec![group(2)],
        ..Table::default()
    };
    stage.commander.send(Command::Table(moved)).await;
    eventually("new reception", async || {
        stage.front.browser().get("/").await.text() == "two"
    })
    .await;
    let request = browser
        .request("/")
        .header("cookie", "theme=dark")
        .body(Full::default())
        .unwrap();
    let second = browser.send(request).await;
    assert_eq!((second.text(), second.cookies().len()), ("one", 0));
    let seen = stage.one.last();
    assert_eq!(seen.header("cookie"), Some("theme=dark"));
    assert_eq!(seen.header("pool-hop").unwrap(), stage.keys.pool.hop("uid-1", 1));
    assert_eq!(
        (seen.header("pool-user"), seen.header("pool-epoch")),
        (None, None)
    );
    assert_eq!(seen.header("pool-client").unwrap().len(), 32);
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-host"), Some("shop.test"));
}

#[tokio::test]
async fn a_login_is_placed_before_its_headers_go_out_and_the_user_follows_his_owner() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let login = Stage::spawn(&browser, "/login");
    let asked = stage.commander.receive(place).await;
    assert_eq!((asked.user.as_str(), asked.birth), ("alice", 1));
    assert_eq!(
        stage.one.last().header("pool-client"),
        Some(asked.client.as_str())
    );
    assert!(!login.is_finished());
    let answer = Placed {
        move_follows: true,
        ..placed(asked.request, owned("alice", 1, 11, &[&asked.client]))
    };
    stage.commander.send(Command::Placed(answer)).await;
    let answer = login.await.unwrap();
    assert_eq!(
        (answer.cookies().len(), answer.headers.get("pool-user")),
        (1, None)
    );
    let quiet = stage.commander.receive(|m| match m {
        Message::Quiet(quiet) => Some(quiet.clone()),
        _ => None,
    });
    assert_eq!(quiet.await.client, asked.client);
    // L4: the guest's older cookie means alice as well.
    browser.get("/").await;
    let seen = stage.one.last();
    let ticket = format!("{:064x}", 11);
    assert_eq!(
        (
            seen.header("pool-user"),
            seen.header("pool-epoch"),
            seen.header("pool-ticket")
        ),
        (Some("alice"), Some("11"), Some(ticket.as_str()))
    );
    stage
        .commander
        .send(delta(12, vec![owned("alice", 2, 12, &[&asked.client])]))
        .await;
    browser.cookie = answer.cookies().pop();
    eventually("at worker 2", async || {
        browser.clone().get("/").await.text() == "two"
    })
    .await;
    assert_eq!(stage.two.last().header("pool-epoch"), Some("12"));
}

#[tokio::test]
async fn a_login_is_kept_at_its_reception_while_the_commander_is_silent() {
    let stage = Stage::with_timeouts(app("one").await, app("two").await, 50, 20_000).await;
    let mut browser = stage.front.browser();
    let answer = browser.get("/login").await;
    assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 1));
    let next = browser.get("/").await;
    assert_eq!((next.text(), next.cookies().len()), ("one", 0));
    let seen = stage.one.last();
    assert_eq!(
        (
            seen.header("pool-user"),
            seen.header("pool-epoch"),
            seen.header("pool-ticket")
        ),
        (Some("alice"), Some("0"), None)
    );
    // Any granted ownership beats him: the commander says where he lives by now.
    stage
        .commander
        .send(delta(12, vec![owned("alice", 2, 12, &[])]))
        .await;
    let after = Stage::spawn(&browser, "/");
    let asked = stage.commander.receive(look_up).await;
    assert_eq!((asked.user.as_str(), asked.epoch), ("alice", 0));
    let owner = owned("alice", 2, 12, &[&asked.client]);
    stage
        .commander
        .send(found(asked.request, Verdict::Owned, Some(owner)))
        .await;
    assert_eq!(after.await.unwrap().text(), "two");
}

#[tokio::test]
async fn who_is_gone_runs_as_a_new_guest_with_one_new_cookie() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, client) = stage.alice().await;
    stage
        .commander
        .send(delta(
            12,
            vec![Ownership {
                user: "alice".to_owned(),
                ..Ownership::default()
            }],
        ))
        .await;
    eventually("a guest", async || {
        browser.clone().get("/").await;
        stage.one.last().header("pool-user").is_none()
    })
    .await;
    let answer = browser.get("/").await;
    assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 1));
    assert_ne!(stage.one.last().header("pool-client"), Some(client.as_str()));
    assert_eq!(browser.get("/").await.cookies().len(), 0);
}

#[tokio::test]
async fn a_cookie_with_a_flipped_bit_or_of_another_pool_is_a_new_guest_s() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let good = browser.cookie.clone().unwrap();
    let start = good.find('=').unwrap() + 1;
    for at in (start..good.len()).step_by(7) {
        let mut bytes = good.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(altered) = String::from_utf8(bytes) else {
            continue;
        };
        if altered.contains([';', ',', '"', '\\']) {
            continue;
        }
        let mut browser = Browser {
            cookie: Some(altered),
            ..browser.clone()
        };
        let answer = browser.get("/").await;
        assert_eq!(
            (answer.status, answer.cookies().len()),
            (StatusCode::OK, 1),
            "{at}"
        );
        assert_eq!(stage.one.last().header("pool-user"), None);
    }
    let foreign = Front::start(&stage.commander, &Keys::new()).await;
    let mut visitor = foreign.browser();
    visitor.cookie = Some(good);
    assert_eq!(visitor.get("/").await.cookies().len(), 1);
}

#[tokio::test]
async fn two_gateways_agree_although_one_hears_of_a_login_later() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let second = Front::start(&stage.commander, &stage.keys).await;
    let mut browser = stage.front.browser();
    let login = Stage::spawn(&browser, "/login");
    let asked = stage.commander.receive(place).await;
    let owner = owned("alice", 2, 11, &[&asked.client]);
    stage
        .commander
        .send_to(0, Command::Placed(placed(asked.request, owner.clone())))
        .await;
    browser.cookie = login.await.unwrap().cookies().pop();
    // The second gateway's table is of version 10, and the cookie says 11: it asks.
    browser.address = second.gateway.address;
    let there = Stage::spawn(&browser, "/");
    let asked = stage.commander.receive(look_up).await;
    assert_eq!((asked.user.as_str(), asked.epoch), ("alice", 11));
    stage
        .commander
        .send_to(1, found(asked.request, Verdict::Owned, Some(owner)))
        .await;
    let answer = there.await.unwrap();
    assert_eq!((answer.text(), answer.cookies().len()), ("two", 0));
    let again = browser.get("/").await;
    assert_eq!(again.text(), "two");
    assert_eq!(stage.commander.count(|message| look_up(message).is_some()), 0);
}

#[tokio::test]
async fn a_cookie_of_an_earlier_life_stays_a_guest_s() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, _) = stage.alice().await;
    // She left, and logged in anew from another browser.
    let other = "ab".repeat(16);
    stage
        .commander
        .send(delta(
            30,
            vec![Ownership {
                user: "alice".to_owned(),
                ..Ownership::default()
            }],
        ))
        .await;
    stage
        .commander
        .send(delta(31, vec![owned("alice", 2, 31, &[&other])]))
        .await;
    stage.commander.send(hold(99, "nobody")).await;
    stage.commander.receive(held).await;
    let asking = Stage::spawn(&browser, "/mine");
    let asked = stage.commander.receive(look_up).await;
    assert_eq!((asked.user.as_str(), asked.epoch), ("alice", 11));
    let owner = owned("alice", 2, 31, &[&other]);
    stage
        .commander
        .send(found(asked.request, Verdict::Owned, Some(owner)))
        .await;
    let answer = asking.await.unwrap();
    assert_eq!((answer.text(), answer.cookies().len()), ("one", 1));
    assert_eq!(stage.one.last().header("pool-user"), None);
    browser.cookie = answer.cookies().pop();
    assert_eq!(browser.get("/").await.cookies().len(), 0);
}

#[tokio::test]
async fn a_new_leader_that_has_heard_nobody_takes_nothing_away() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, _) = stage.alice().await;
    let table = Table {
        version: 0,
        full: true,
        live: false,
        ..Table::default()
    };
    stage.commander.send(Command::Table(table)).await;
    // The command after it has taken effect, so the table has.
    stage.commander.send(hold(99, "nobody")).await;
    stage.commander.receive(held).await;
    assert_eq!(browser.get("/").await.text(), "one");
    assert_eq!(stage.one.last().header("pool-user"), Some("alice"));
    assert_eq!(stage.front.browser().get("/").await.text(), "one");
}

#[tokio::test]
async fn a_logout_makes_this_browser_a_guest_of_the_same_worker() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, client) = stage.alice().await;
    let answer = browser.get("/logout").await;
    assert_eq!(answer.cookies().len(), 1);
    browser.get("/").await;
    let seen = stage.one.last();
    assert_eq!(
        (seen.header("pool-user"), seen.header("pool-client")),
        (None, Some(client.as_str()))
    );
}

#[tokio::test]
async fn a_dead_reception_s_guest_is_a_new_guest_and_the_dead_worker_s_users_too() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut user, _) = stage.alice().await;
    let mut guest = stage.front.browser();
    guest.get("/").await;
    let died = Table {
        version: 12,
        live: true,
        groups: vec![group(2)],
        dead: vec![1],
        ..Table::default()
    };
    stage.commander.send(Command::Table(died)).await;
    eventually("moved on", async || {
        stage.front.browser().get("/").await.text() == "two"
    })
    .await;
    for browser in [&mut user, &mut guest] {
        let answer = browser.get("/").await;
        assert_eq!((answer.text(), answer.cookies().len()), ("two", 1));
        assert_eq!(stage.two.last().header("pool-user"), None);
        assert_eq!(browser.get("/").await.cookies().len(), 0);
    }
}

#[tokio::test]
async fn a_session_s_second_request_is_its_worker_s_user_under_its_client_id() {
    let (one, two) = (app("one").await, app("two").await);
    let groups = vec![Group {
        session_users: true,
        newcomer: 2,
        ..group(1)
    }];
    let workers = vec![worker(1, &one.address), worker(2, &two.address)];
    let table = Table {
        version: 10,
        full: true,
        live: true,
        groups,
        workers,
        ..Table::default()
    };
    let commander = Commander::start(vec![welcome(500, 20_000), Command::Table(table)]).await;
    let front = Front::start(&commander, &Keys::new()).await;
    let mut browser = front.browser();
    assert_eq!(browser.get("/login").await.text(), "hello");
    let client = two.last().header("pool-client").unwrap().to_owned();
    assert_eq!(two.last().header("pool-user"), None);
    assert_eq!(browser.get("/").await.cookies().len(), 0);
    let seen = two.last();
    assert_eq!(
        (seen.header("pool-user"), seen.header("pool-epoch")),
        (Some(client.as_str()), Some("0"))
    );
    commander
        .send(delta(11, vec![owned(&client, 2, 11, &[&client])]))
        .await;
    eventually("granted", async || {
        browser.clone().get("/").await;
        two.last().header("pool-epoch") == Some("11")
    })
    .await;
    assert_eq!(commander.count(|message| place(message).is_some()), 0);
}

#[tokio::test]
async fn known_users_and_guests_are_served_while_the_commander_is_away() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, _) = stage.alice().await;
    stage.commander.die();
    eventually("cut off", async || {
        stage.front.metric("elastic_pool_gateway_channel_connected").await < 0.5
    })
    .await;
    assert_eq!(browser.get("/").await.text(), "one");
    assert_eq!(stage.one.last().header("pool-user"), Some("alice"));
    assert_eq!(stage.front.browser().get("/").await.text(), "one");
    assert_eq!(stage.front.admin("/readyz").await.status, StatusCode::OK);
}
