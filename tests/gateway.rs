//! A gateway between scripted ends: a commander and workers that do what each test says, on loopback ports of their own.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

#[path = "support/backend.rs"]
mod backend;
#[path = "support/client.rs"]
mod client;
#[path = "support/commander.rs"]
mod commander;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use backend::{Backend, Body, Recorded, text};
use bytes::Bytes;
use client::{Answer, Browser, send};
use commander::{Commander, PATIENCE, delta, full, group, owned, welcome, worker};
use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::gateway_message::Message;
use elastic_pool::channel::proto::{
    Cancel, Found, Group, Hold, LookUp, Ownership, Place, Placed, Route, Table, found::Verdict,
};
use elastic_pool::credentials::Key;
use elastic_pool::gateway::{Gateway, GatewayConfig, Listeners};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

struct Keys {
    cookie: Key,
    pool: Key,
}

impl Keys {
    fn new() -> Self {
        Self {
            cookie: Key::random().unwrap(),
            pool: Key::random().unwrap(),
        }
    }
}

struct Front {
    gateway: Gateway,
    stop: DropGuard,
}

impl Front {
    async fn start_with(commander: &Commander, keys: &Keys, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let stop = CancellationToken::new();
        let (cookie, pool) = (keys.cookie.clone(), keys.pool.clone());
        let mut config = GatewayConfig::new("default", "shop", "uid-gateway", commander.link(), cookie, pool);
        change(&mut config);
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = Listeners {
            traffic: bind().await,
            admin: bind().await,
            monitor: Some(bind().await),
        };
        let gateway = Gateway::start(config, listeners, stop.clone()).unwrap();
        Self {
            gateway,
            stop: stop.drop_guard(),
        }
    }

    async fn start(commander: &Commander, keys: &Keys) -> Self {
        let front = Self::start_with(commander, keys, |_| {}).await;
        eventually("ready", async || {
            front.admin("/readyz").await.status == StatusCode::OK
        })
        .await;
        front
    }

    fn browser(&self) -> Browser {
        Browser::new(self.gateway.address)
    }

    async fn admin(&self, path: &str) -> Answer {
        get(self.gateway.admin_address, path).await
    }

    /// Value of a metric without labels, or with exactly these.
    async fn metric(&self, name: &str) -> f64 {
        let text = self.admin("/metrics").await;
        let line = text
            .text()
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    async fn waiting(&self, count: f64) {
        eventually("waiting", async || {
            (self.metric("elastic_pool_held_requests").await - count).abs() < 0.5
        })
        .await;
    }
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    let request = http::Request::builder()
        .uri(path)
        .header("host", "x")
        .body(Full::default())
        .unwrap();
    send(address, request).await.unwrap()
}

async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

fn login_answer(user: &str) -> Response<Body> {
    let mut response = text("hello");
    response.headers_mut().insert("pool-user", user.parse().unwrap());
    response
}

/// Logs in whoever asks for /login, out at /logout.
async fn app(name: &'static str) -> Backend {
    Backend::start(move |request: Recorded| async move {
        match request.path.as_str() {
            "/login" => login_answer("alice"),
            "/logout" => login_answer(""),
            _ => text(name),
        }
    })
    .await
}

fn place(message: &Message) -> Option<Place> {
    match message {
        Message::Place(place) => Some(place.clone()),
        _ => None,
    }
}

fn look_up(message: &Message) -> Option<LookUp> {
    match message {
        Message::LookUp(asked) => Some(asked.clone()),
        _ => None,
    }
}

fn held(message: &Message) -> Option<u64> {
    match message {
        Message::Held(held) => Some(held.r#move),
        _ => None,
    }
}

fn hold(id: u64, user: &str) -> Command {
    Command::Hold(Hold {
        r#move: id,
        user: user.to_owned(),
        client: String::new(),
    })
}

fn route(id: u64, user: Ownership) -> Command {
    Command::Route(Route {
        r#move: id,
        user: Some(user),
    })
}

fn placed(request: u64, user: Ownership) -> Placed {
    Placed {
        request,
        user: Some(user),
        join_follows: false,
        move_follows: false,
    }
}

fn found(request: u64, verdict: Verdict, user: Option<Ownership>) -> Command {
    Command::Found(Found {
        request,
        verdict: verdict.into(),
        user,
    })
}

/// One commander, one gateway, workers 1 and 2 of which 1 is the reception.
struct Stage {
    commander: Commander,
    front: Front,
    keys: Keys,
    one: Backend,
    two: Backend,
}

impl Stage {
    async fn set(one: Backend, two: Backend) -> Self {
        Self::with_timeouts(one, two, 5000, 20_000).await
    }

    async fn with_timeouts(one: Backend, two: Backend, place: u64, hold: u64) -> Self {
        let workers = vec![worker(1, &one.address), worker(2, &two.address)];
        let commander = Commander::start(vec![welcome(place, hold), full(10, 1, workers, vec![])]).await;
        let keys = Keys::new();
        let front = Front::start(&commander, &keys).await;
        Self {
            commander,
            front,
            keys,
            one,
            two,
        }
    }

    /// A browser logged in as alice at worker 1 under epoch 11.
    async fn alice(&self) -> (Browser, String) {
        let mut browser = self.front.browser();
        let task = {
            let mut browser = browser.clone();
            tokio::spawn(async move {
                browser.get("/login").await;
                browser
            })
        };
        let asked = self.commander.receive(place).await;
        let owner = owned("alice", 1, 11, &[&asked.client]);
        self.commander
            .send(Command::Placed(placed(asked.request, owner)))
            .await;
        browser.cookie = task.await.unwrap().cookie;
        (browser, asked.client)
    }

    fn spawn(browser: &Browser, path: &str) -> tokio::task::JoinHandle<Answer> {
        let (mut browser, path) = (browser.clone(), path.to_owned());
        tokio::spawn(async move { browser.get(&path).await })
    }
}

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
    assert_eq!(stage.front.browser().get("/other").await.text(), "one");
    assert_eq!(stage.one.requests().len(), before + 1);
    stage
        .commander
        .send(route(20, owned("alice", 2, 20, &[&client])))
        .await;
    for answer in waiting {
        assert_eq!(answer.await.unwrap().text(), "two");
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
async fn an_app_s_own_421_and_403_pass() {
    let own = |request: Recorded| async move {
        let status: u16 = request.path[1..].parse().unwrap();
        Response::builder()
            .status(status)
            .body(Full::from("mine").boxed())
            .unwrap()
    };
    let stage = Stage::set(Backend::start(own).await, app("two").await).await;
    for path in ["/421", "/403", "/502"] {
        let answer = stage.front.browser().get(path).await;
        assert_eq!(
            (format!("/{}", answer.status.as_u16()).as_str(), answer.text()),
            (path, "mine")
        );
    }
    assert_eq!(stage.one.requests().len(), 3);
}

#[tokio::test]
async fn what_only_the_gateway_may_say_is_not_taken_from_a_client() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    let request = browser
        .request("/")
        .header("pool-user", "alice")
        .header("pool_epoch", "99")
        .header("pool-hop", "x")
        .header("connection", "x-secret, cookie")
        .header("x-secret", "1")
        .header("x-forwarded-proto", "https");
    let answer = browser.send(request.body(Full::default()).unwrap()).await;
    assert_eq!((answer.text(), answer.cookies().len()), ("one", 1));
    let seen = stage.one.last();
    for name in ["pool-user", "pool_epoch", "pool-epoch", "x-secret", "connection"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(browser.get("/_pool/v1/users").await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        browser.get("/%5Fpool/v1/users").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(stage.one.requests().len(), 1);
    let heavy = browser
        .request("/")
        .header("x", "y".repeat(40_000))
        .body(Full::default())
        .unwrap();
    assert_eq!(
        browser.send(heavy).await.status,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
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
async fn a_websocket_passes_and_is_closed_with_1012_when_its_user_is_moved() {
    use futures::{SinkExt as _, StreamExt as _};
    use tokio_tungstenite::tungstenite::Message as Frame;

    let stage = Stage::set(app("one").await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let stream = tokio::net::TcpStream::connect(browser.address).await.unwrap();
    let request = browser
        .request("ws://shop.test/ws")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header(
            "sec-websocket-key",
            tokio_tungstenite::tungstenite::handshake::client::generate_key(),
        )
        .body(())
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    for size in [0, 5, 200, 70_000] {
        let sent = Frame::binary(vec![7; size]);
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    assert_eq!(stage.one.last().header("pool-user"), Some("alice"));
    stage.commander.send(hold(20, "alice")).await;
    let end = tokio::time::timeout(PATIENCE, socket.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let Frame::Close(Some(close)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(u16::from(close.code), 1012);
    eventually("tunnel gone", async || {
        stage.front.metric("elastic_pool_gateway_open_streams").await < 0.5
    })
    .await;
}

#[tokio::test]
async fn an_event_stream_ends_cleanly_when_its_user_is_moved() {
    let script = |request: Recorded| async move {
        if request.path == "/login" {
            return login_answer("alice");
        }
        let first = futures::stream::iter([Ok(hyper::body::Frame::data(Bytes::from_static(b"data: 1\n\n")))]);
        let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
        Response::builder()
            .header("content-type", "text/event-stream")
            .body(body.boxed())
            .unwrap()
    };
    // `boxed` needs Sync; the stream above is.
    let stage = Stage::set(Backend::start(script).await, app("two").await).await;
    let (browser, _) = stage.alice().await;
    let events = Stage::spawn(&browser, "/events");
    eventually("open", async || {
        stage.front.metric("elastic_pool_gateway_open_streams").await > 0.5
    })
    .await;
    stage.commander.send(hold(20, "alice")).await;
    assert_eq!(events.await.unwrap().text(), "data: 1\n\n");
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
async fn a_long_body_streams_both_ways() {
    let echo = |request: Recorded| async move { text(request.body) };
    let stage = Stage::set(Backend::start(echo).await, app("two").await).await;
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let answer = stage.front.browser().post("/", body.clone()).await;
    assert_eq!(answer.body, body);
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
async fn a_worker_that_breaks_off_is_a_502_and_nothing_is_repeated() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let answer = browser.get("/break").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert!(answer.text().contains("broke off"), "{}", answer.text());
    assert_eq!(
        stage
            .one
            .requests()
            .iter()
            .filter(|request| request.path == "/break")
            .count(),
        1
    );
    assert_eq!(browser.get("/").await.text(), "one");
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

#[tokio::test]
async fn totals_tell_each_second_what_was_forwarded() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let (mut browser, _) = stage.alice().await;
    browser.get("/").await;
    let totals = stage.commander.receive(|message| match message {
        Message::Totals(totals) if totals.workers.iter().any(|worker| worker.requests == 2) => {
            Some(totals.clone())
        }
        _ => None,
    });
    let totals = totals.await;
    assert_eq!((totals.workers[0].birth, totals.workers[0].errors), (1, 0));
    assert!(totals.workers[0].seconds > 0.0);
    let alice = totals
        .users
        .iter()
        .find(|user| user.user == "alice")
        .expect("alice");
    assert_eq!(alice.requests, 1);
}

#[tokio::test]
async fn a_gateway_told_to_stop_is_unready_finishes_what_is_open_and_ends() {
    let release = Arc::new(tokio::sync::Notify::new());
    let gate = Arc::clone(&release);
    let slow = Backend::start(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            text("done")
        }
    })
    .await;
    let commander = Commander::start(vec![
        welcome(500, 20_000),
        full(10, 1, vec![worker(1, &slow.address)], vec![]),
    ])
    .await;
    let front = Front::start_with(&commander, &Keys::new(), |config| {
        config.drain_delay = Duration::from_millis(300);
    })
    .await;
    eventually("ready", async || {
        front.admin("/readyz").await.status == StatusCode::OK
    })
    .await;
    let open = Stage::spawn(&front.browser(), "/");
    slow.arrived(1).await;
    let (gateway, stop) = (front.gateway, front.stop);
    let admin = gateway.admin_address;
    drop(stop);
    eventually("unready", async || {
        get(admin, "/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    release.notify_one();
    assert_eq!(open.await.unwrap().text(), "done");
    tokio::time::timeout(PATIENCE, gateway.ended())
        .await
        .expect("it ends");
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

#[tokio::test]
async fn http2_without_tls_is_understood() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let stream = tokio::net::TcpStream::connect(stage.front.gateway.address)
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://shop.test/h2?q=1")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::<Bytes>::default())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let seen = stage.one.last();
    assert_eq!(
        (seen.path.as_str(), seen.header("host")),
        ("/h2?q=1", Some("shop.test"))
    );
    assert_eq!(seen.header("cookie"), Some("a=1; b=2"));
}

#[tokio::test]
async fn connections_to_a_worker_are_used_again() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut browser = stage.front.browser();
    for _ in 0..20 {
        assert_eq!(browser.get("/").await.text(), "one");
    }
    assert_eq!(stage.one.connections(), 1);
}
