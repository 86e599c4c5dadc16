//! People: browsers that log in and count, through either gateway.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool::net::TcpStream;
use elastic_pool::net::sim::Random;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::history::{Event, Outcome};
use crate::world::{GATEWAYS, Shared, gateway_host};

/// Longer than any hold, recovery and quiesce together.
const PATIENCE: Duration = Duration::from_secs(20);
const COOKIE: &str = "cookie";

/// One browser of one user.
pub(crate) struct Browser {
    shared: Arc<Shared>,
    user: String,
    name: String,
    cookie: Option<String>,
    logged_in: bool,
    random: Random,
}

impl Browser {
    pub(crate) fn new(shared: Arc<Shared>, user: &str, number: u64, random: Random) -> Self {
        let name = format!("{user}/{number}");
        Self {
            shared,
            user: user.to_owned(),
            name,
            cookie: None,
            logged_in: false,
            random,
        }
    }

    /// Logs in and asks, again and again, until told to stop; then says when it was served once more.
    pub(crate) async fn run(mut self, begins: Duration) {
        tokio::time::sleep(begins).await;
        loop {
            // Looked at before the request, so that it is one sent after the faults.
            let last = self.shared.has_stopped();
            let outcome = if self.logged_in {
                self.ask("count").await
            } else {
                self.ask("login").await
            };
            match outcome {
                Outcome::Counted { .. } if last => {
                    self.shared.served(&self.name);
                    if self.shared.is_over() {
                        return;
                    }
                }
                Outcome::Guest | Outcome::Stranger => self.logged_in = false,
                Outcome::LoggedIn { .. } => self.logged_in = true,
                _ => {}
            }
            if self.shared.is_over() {
                return;
            }
            tokio::time::sleep(self.random.millis(60, 500)).await;
        }
    }

    async fn ask(&mut self, what: &'static str) -> Outcome {
        let request = self.shared.new_request();
        self.shared.note(Event::Asked {
            request,
            browser: self.name.clone(),
            what,
        });
        let path = if what == "login" {
            format!("/login/{}", self.user)
        } else {
            "/count".to_owned()
        };
        let gateway = usize::try_from(self.random.below(GATEWAYS as u64)).unwrap_or_default();
        let outcome = match tokio::time::timeout(PATIENCE, self.exchange(gateway, &path, request)).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Outcome::Broken,
            Err(_) => Outcome::Silence,
        };
        self.shared.note(Event::Answered {
            request,
            outcome: outcome.clone(),
        });
        outcome
    }

    async fn exchange(&mut self, gateway: usize, path: &str, request: u64) -> Option<Outcome> {
        let mut builder = Request::post(path)
            .header("host", "shop")
            .header("x-sim-id", request.to_string());
        if let Some(cookie) = &self.cookie {
            builder = builder.header(COOKIE, cookie);
        }
        let (head, body) = send(gateway, builder.body(Empty::new()).ok()?).await?;
        if let Some(set) = head
            .headers
            .get("set-cookie")
            .and_then(|value| value.to_str().ok())
        {
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        let words: Vec<&str> = body.split_whitespace().collect();
        Some(match (head.status.as_u16(), words.as_slice()) {
            (200, ["count", life, count]) => Outcome::Counted {
                life: life.parse().ok()?,
                count: count.parse().ok()?,
            },
            (200, ["in", life]) => Outcome::LoggedIn {
                life: life.parse().ok()?,
            },
            (200, ["guest"]) => Outcome::Guest,
            (200, ["stranger"]) => Outcome::Stranger,
            (status, _) => Outcome::Status(status),
        })
    }
}

async fn send(gateway: usize, request: Request<Empty<Bytes>>) -> Option<(http::response::Parts, String)> {
    let stream = TcpStream::connect((gateway_host(gateway), crate::world::GATEWAY_PORT))
        .await
        .ok()?;
    exchange(stream, request).await
}

/// One request on a connection of its own.
pub(crate) async fn exchange(
    stream: TcpStream,
    request: Request<Empty<Bytes>>,
) -> Option<(http::response::Parts, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let answered = async {
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some((head, String::from_utf8_lossy(&body).into_owned()))
    };
    let answered = answered.await;
    connection.abort();
    answered
}
