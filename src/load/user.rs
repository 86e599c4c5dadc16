//! The life of one virtual user: he comes as a guest, logs in, works with pauses, and leaves; every answer's counter is judged.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::browser::{Browser, Exchange, Target};
use super::checker::{Checker, Verdict};
use super::socket::{Echo, Socket};
use super::tally::{Met, Tally};
use crate::clock::Clock;

/// Most times kept per user.
const MAX_TIMES: usize = 20_000;
/// Work this often before a second browser comes.
const WORK_BEFORE_SECOND: u32 = 2;
/// Every so many steps a user with a WebSocket counts over it.
const ECHO_EVERY: u64 = 4;
const MAX_RETRY_AFTER: u64 = 5;

/// How users behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) cpu_ms: u64,
    pub(super) think: Duration,
    pub(super) websocket_share: f64,
    pub(super) second_browser_share: f64,
    pub(super) login: bool,
    pub(super) tolerate: bool,
}

/// What all users of a run share.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) target: Target,
    pub(super) manner: Manner,
    pub(super) clock: Clock,
    pub(super) tally: Arc<Mutex<Tally>>,
    pub(super) leave: CancellationToken,
}

/// What the app's JSON answers say.
#[derive(Debug, Deserialize)]
struct Answer {
    user: Option<String>,
    counter: u64,
    worker: String,
}

/// A small generator of numbers, seeded by the user's number, so that two runs behave alike.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 up to, not including, 1.
    fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What became of a request of the user.
enum Step {
    Answered(Answer, Duration),
    Failed,
}

pub(super) struct User {
    run: Run,
    name: String,
    dice: Dice,
    browsers: Vec<Browser>,
    socket: Option<Socket>,
    checker: Checker,
    worker: Option<String>,
    /// Works since the last login: the first one tells a placement from a later move.
    works: u32,
    met: Vec<(Met, Duration)>,
    others: Vec<Duration>,
    was_lost: bool,
    was_wrong: bool,
}

impl User {
    pub(super) fn new(run: Run, name: String, number: u64) -> Self {
        let browsers = vec![Browser::new(run.target.clone(), run.clock)];
        Self {
            run,
            name,
            dice: Dice(number),
            browsers,
            socket: None,
            checker: Checker::default(),
            worker: None,
            works: 0,
            met: Vec::new(),
            others: Vec::new(),
            was_lost: false,
            was_wrong: false,
        }
    }

    /// Lives until told to leave.
    pub(super) async fn live(mut self) {
        self.run.tally.lock().counts.users += 1;
        let manner = self.run.manner;
        let wants_socket = self.dice.share() < manner.websocket_share;
        let wants_second = manner.login && self.dice.share() < manner.second_browser_share;
        let mut arrived = !manner.login;
        let mut tried_second = false;
        while !self.run.leave.is_cancelled() {
            if !arrived {
                arrived = self.arrive(0).await;
            } else if wants_second && !tried_second && self.works >= WORK_BEFORE_SECOND {
                tried_second = true;
                self.second_browser().await;
            } else {
                if wants_socket && self.socket.is_none() && self.works > 0 {
                    let jar = self.browsers[0].jar.clone();
                    self.socket = Some(Socket::open(self.run.clone(), jar, self.name.clone()));
                }
                arrived = self.step().await;
            }
            self.think().await;
        }
        self.depart(arrived).await;
    }

    async fn think(&mut self) {
        let time = self.run.manner.think.mul_f64(0.5 + self.dice.share());
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.run.leave.cancelled() => {}
        }
    }

    /// A guest's request, then the login, from one browser. True when logged in.
    async fn arrive(&mut self, browser: usize) -> bool {
        if let Step::Answered(answer, _) = self.send(browser, Method::GET, "/work", None).await
            && answer.user.is_some_and(|user| user != self.name)
        {
            self.run.tally.lock().counts.foreign += 1;
        }
        let body = serde_json::json!({ "user": self.name }).to_string();
        let Step::Answered(answer, _) = self.send(browser, Method::POST, "/login", Some(body)).await else {
            return false;
        };
        let mut tally = self.run.tally.lock();
        tally.counts.logins += 1;
        if answer.user.as_deref() != Some(self.name.as_str()) {
            tally.counts.foreign += 1;
        }
        drop(tally);
        // A second browser logs in wherever guests are; what it finds there is not the resident's yet.
        if browser == 0 {
            // After a loss the user may find an older life of his again: only what he sees next is a base.
            if !self.was_lost {
                self.checker.base(answer.counter, &answer.worker);
            }
            self.worker = Some(answer.worker);
            self.works = 0;
        }
        true
    }

    async fn second_browser(&mut self) {
        self.browsers
            .push(Browser::new(self.run.target.clone(), self.run.clock));
        if self.arrive(1).await {
            self.run.tally.lock().counts.second_browsers += 1;
        } else {
            self.browsers.truncate(1);
        }
    }

    /// One counted request, by HTTP or WebSocket. False when the user has to log in anew.
    async fn step(&mut self) -> bool {
        if self.dice.roll().is_multiple_of(ECHO_EVERY)
            && let Some(socket) = &self.socket
        {
            match socket.echo().await {
                Echo::Counted(user, counter, worker) => {
                    // A guest's echo says nothing that the next request does not say too.
                    if user.is_some() || !self.run.manner.login {
                        self.judge(counter, &worker);
                    }
                    return true;
                }
                Echo::Unsure => {
                    self.checker.unsure();
                    return true;
                }
                Echo::NotSent => {}
            }
        }
        let browser = usize::try_from(self.dice.roll()).unwrap_or(0) % self.browsers.len();
        let path = format!("/work?cpu_ms={}&counter=1", self.run.manner.cpu_ms);
        match self.send(browser, Method::POST, &path, None).await {
            Step::Answered(answer, time) => self.worked(browser, &answer, time).await,
            Step::Failed => true,
        }
    }

    async fn worked(&mut self, browser: usize, answer: &Answer, time: Duration) -> bool {
        if self.run.manner.login {
            match answer.user.as_deref() {
                Some(user) if user == self.name => {}
                Some(_) => {
                    self.run.tally.lock().counts.foreign += 1;
                    return true;
                }
                None if browser > 0 => {
                    self.run.tally.lock().counts.second_browsers_lost += 1;
                    self.browsers.truncate(1);
                    return true;
                }
                None => {
                    self.found(Verdict::Lost);
                    self.lost().await;
                    return false;
                }
            }
        }
        self.judge(answer.counter, &answer.worker);
        let changed = self
            .worker
            .as_ref()
            .is_some_and(|before| *before != answer.worker);
        if changed {
            let met = if self.works == 0 {
                Met::Placement
            } else {
                Met::Live
            };
            self.run.tally.lock().moved(met);
            self.met.push((met, time));
        } else if self.others.len() < MAX_TIMES {
            self.others.push(time);
        }
        self.worker = Some(answer.worker.clone());
        self.works = self.works.saturating_add(1);
        true
    }

    fn judge(&mut self, counter: u64, worker: &str) {
        let verdict = self.checker.judge(counter, worker);
        self.found(verdict);
        self.was_lost |= verdict == Verdict::Lost;
        self.was_wrong |= matches!(verdict, Verdict::Back | Verdict::Forked);
    }

    fn found(&self, verdict: Verdict) {
        let mut tally = self.run.tally.lock();
        tally.found(verdict);
        if verdict == Verdict::Lost {
            tally.harmed(self.worker.as_deref(), &self.name, 0, 1);
        }
    }

    async fn lost(&mut self) {
        self.was_lost = true;
        self.checker.reset();
        self.worker = None;
        self.browsers.truncate(1);
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
    }

    async fn depart(mut self, arrived: bool) {
        if let Some(socket) = self.socket.take() {
            socket.close().await;
        }
        if self.run.manner.login && arrived {
            for browser in (0..self.browsers.len()).rev() {
                self.send(browser, Method::POST, "/logout", None).await;
            }
        }
        let mut tally = self.run.tally.lock();
        tally.pauses(&self.met, &mut self.others);
        tally.counts.users_lost += u64::from(self.was_lost);
        tally.counts.users_back_or_forked += u64::from(self.was_wrong);
    }

    /// Sends one request and counts how it went.
    async fn send(&mut self, browser: usize, method: Method, path: &str, body: Option<String>) -> Step {
        let exchange = self.browsers[browser].send(method, path, body).await;
        if exchange.unsure {
            self.checker.unsure();
        }
        let name = path.split('?').next().unwrap_or(path);
        let rest = match self.count(name, exchange) {
            Ok((answer, time)) => return Step::Answered(answer, time),
            Err(rest) => rest,
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = self.run.leave.cancelled() => {}
        }
        Step::Failed
    }

    /// Counts an exchange; without an answer of the app, how long to wait before the next request.
    fn count(&mut self, name: &str, exchange: Exchange) -> Result<(Answer, Duration), Duration> {
        let fail = |tally: &mut Tally, why: &str| {
            tally.fail(why);
            tally.harmed(self.worker.as_deref(), &self.name, 1, 0);
        };
        let mut tally = self.run.tally.lock();
        tally.counts.requests += 1;
        tally.counts.retried += u64::from(exchange.retried);
        let reply = match exchange.result {
            Ok(reply) => reply,
            Err(error) => {
                self.checker.unsure();
                fail(&mut tally, &format!("{name}: {error}"));
                return Err(Duration::ZERO);
            }
        };
        if reply.status.is_success() {
            if let Ok(answer) = serde_json::from_slice::<Answer>(&reply.body) {
                tally.answered(&answer.worker, reply.first_byte);
                return Ok((answer, reply.first_byte));
            }
            self.checker.unsure();
            fail(&mut tally, &format!("{name}: the answer is not the app's"));
            return Err(Duration::ZERO);
        }
        let after = reply
            .headers
            .get("retry-after")
            .and_then(|value| value.to_str().ok());
        if let Some(seconds) = after.filter(|_| reply.status == StatusCode::SERVICE_UNAVAILABLE) {
            tally.counts.unavailable += 1;
            if !self.run.manner.tolerate {
                fail(&mut tally, &format!("{name}: status 503, try again later"));
            }
            return Err(Duration::from_secs(
                seconds.parse().unwrap_or(1).min(MAX_RETRY_AFTER),
            ));
        }
        self.checker.unsure();
        fail(&mut tally, &format!("{name}: status {}", reply.status.as_u16()));
        Err(Duration::ZERO)
    }
}
