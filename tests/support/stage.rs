//! A gateway between scripted ends: a commander and two workers that do what each test says.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::SocketAddr;

use elastic_pool::channel::proto::gateway_command::Command;
use elastic_pool::channel::proto::gateway_message::Message;
use elastic_pool::channel::proto::{Found, Hold, LookUp, Ownership, Place, Placed, Route, found::Verdict};
use elastic_pool::credentials::Key;
use elastic_pool::gateway::{Gateway, GatewayConfig, Listeners, StartError};
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::backend::{Backend, Body, Recorded, text};
use crate::client::{Answer, Browser, send};
use crate::commander::{Commander, PATIENCE, full, owned, welcome, worker};

pub(crate) struct Keys {
    pub(crate) cookie: Key,
    pub(crate) pool: Key,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            cookie: Key::random().unwrap(),
            pool: Key::random().unwrap(),
        }
    }
}

pub(crate) struct Front {
    pub(crate) gateway: Gateway,
    pub(crate) stop: DropGuard,
}

impl Front {
    pub(crate) async fn start_with(
        commander: &Commander,
        keys: &Keys,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Self {
        Self::try_start(commander, keys, change).await.unwrap()
    }

    pub(crate) async fn try_start(
        commander: &Commander,
        keys: &Keys,
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Result<Self, StartError> {
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
        let gateway = Gateway::start(config, listeners, stop.clone())?;
        Ok(Self {
            gateway,
            stop: stop.drop_guard(),
        })
    }

    pub(crate) async fn start(commander: &Commander, keys: &Keys) -> Self {
        let front = Self::start_with(commander, keys, |_| {}).await;
        eventually("ready", async || {
            front.admin("/readyz").await.status == StatusCode::OK
        })
        .await;
        front
    }

    pub(crate) fn browser(&self) -> Browser {
        Browser::new(self.gateway.address)
    }

    pub(crate) async fn admin(&self, path: &str) -> Answer {
        get(self.gateway.admin_address, path).await
    }

    /// Value of a metric without labels, or with exactly these.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.admin("/metrics").await;
        let line = text
            .text()
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    pub(crate) async fn waiting(&self, count: f64) {
        eventually("waiting", async || {
            (self.metric("elastic_pool_held_requests").await - count).abs() < 0.5
        })
        .await;
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    let request = http::Request::builder()
        .uri(path)
        .header("host", "x")
        .body(Full::default())
        .unwrap();
    send(address, request).await.unwrap()
}

pub(crate) async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) fn login_answer(user: &str) -> Response<Body> {
    let mut response = text("hello");
    response.headers_mut().insert("pool-user", user.parse().unwrap());
    response
}

/// Logs in whoever asks for /login, out at /logout.
pub(crate) async fn app(name: &'static str) -> Backend {
    Backend::start(move |request: Recorded| async move {
        match request.path.as_str() {
            "/login" => login_answer("alice"),
            "/logout" => login_answer(""),
            _ => text(name),
        }
    })
    .await
}

pub(crate) fn place(message: &Message) -> Option<Place> {
    match message {
        Message::Place(place) => Some(place.clone()),
        _ => None,
    }
}

pub(crate) fn look_up(message: &Message) -> Option<LookUp> {
    match message {
        Message::LookUp(asked) => Some(asked.clone()),
        _ => None,
    }
}

pub(crate) fn held(message: &Message) -> Option<u64> {
    match message {
        Message::Held(held) => Some(held.r#move),
        _ => None,
    }
}

pub(crate) fn hold(id: u64, user: &str) -> Command {
    Command::Hold(Hold {
        r#move: id,
        user: user.to_owned(),
        client: String::new(),
    })
}

pub(crate) fn route(id: u64, user: Ownership) -> Command {
    Command::Route(Route {
        r#move: id,
        user: Some(user),
    })
}

pub(crate) fn placed(request: u64, user: Ownership) -> Placed {
    Placed {
        request,
        user: Some(user),
        join_follows: false,
        move_follows: false,
    }
}

pub(crate) fn found(request: u64, verdict: Verdict, user: Option<Ownership>) -> Command {
    Command::Found(Found {
        request,
        verdict: verdict.into(),
        user,
    })
}

/// One commander, one gateway, workers 1 and 2 of which 1 is the reception.
pub(crate) struct Stage {
    pub(crate) commander: Commander,
    pub(crate) front: Front,
    pub(crate) keys: Keys,
    pub(crate) one: Backend,
    pub(crate) two: Backend,
}

impl Stage {
    pub(crate) async fn set(one: Backend, two: Backend) -> Self {
        Self::with_timeouts(one, two, 5000, 20_000).await
    }

    /// As `set`, with a gateway that is configured otherwise.
    pub(crate) async fn with(one: Backend, two: Backend, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let mut stage = Self::set(one, two).await;
        stage.front = Front::start_with(&stage.commander, &stage.keys, change).await;
        eventually("ready", async || {
            stage.front.admin("/readyz").await.status == StatusCode::OK
        })
        .await;
        stage
    }

    pub(crate) async fn with_timeouts(one: Backend, two: Backend, place: u64, hold: u64) -> Self {
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
    pub(crate) async fn alice(&self) -> (Browser, String) {
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

    pub(crate) fn spawn(browser: &Browser, path: &str) -> tokio::task::JoinHandle<Answer> {
        let (mut browser, path) = (browser.clone(), path.to_owned());
        tokio::spawn(async move { browser.get(&path).await })
    }
}
