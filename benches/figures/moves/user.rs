//! One user at work: asks at a beat, holds every counter against the last one, and says what he saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;

/// What goes on around the users just now.
#[derive(Debug, Default)]
pub(crate) struct Stage(AtomicUsize);

/// Nothing that is measured.
pub(crate) const BETWEEN: usize = 0;
/// Nobody moves.
pub(crate) const QUIET: usize = 1;
/// Users move.
pub(crate) const MOVING: usize = 2;

impl Stage {
    pub(crate) fn enter(&self, stage: usize) {
        self.0.store(stage, Relaxed);
    }

    fn now(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What one user saw, times in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Of requests that were held: to the first byte, less the median of his others.
    pub(crate) pauses: Vec<f64>,
    /// Of all others, by [`Stage`] from their beginning to their end.
    pub(crate) others: [Vec<f64>; 3],
    /// Requests without an answer of 2xx.
    pub(crate) errors: usize,
    /// Answers that knew nothing of him, or less than he had.
    pub(crate) lost: usize,
    /// Answers that counted more than he had asked for.
    pub(crate) double: usize,
}

impl Seen {
    /// Both together.
    pub(crate) fn and(mut self, mut other: Self) -> Self {
        self.pauses.append(&mut other.pauses);
        for (mine, theirs) in self.others.iter_mut().zip(&mut other.others) {
            mine.append(theirs);
        }
        self.errors += other.errors;
        self.lost += other.lost;
        self.double += other.double;
        self
    }
}

/// What the app says of the user and of itself.
#[derive(Debug, Deserialize)]
struct Work {
    user: Option<String>,
    counter: u64,
    worker: String,
}

/// A logged-in user.
pub(crate) struct User {
    browser: Browser,
    name: String,
    /// His counter; `None` after a request of which nobody knows whether it was done.
    counter: Option<u64>,
    pub(crate) worker: String,
    pub(crate) seen: Seen,
    held: Vec<f64>,
}

impl User {
    /// Logs in and takes some ballast.
    pub(crate) async fn new(gateway: SocketAddr, name: String, ballast: usize) -> anyhow::Result<Self> {
        let mut browser = Browser::log_in(gateway, &name).await?;
        if ballast > 0 {
            browser.post(&format!("/ballast?bytes={ballast}")).await?;
        }
        let mut user = Self {
            browser,
            name,
            counter: None,
            worker: String::new(),
            seen: Seen::default(),
            held: Vec::new(),
        };
        user.ask(&Stage::default()).await;
        Ok(user)
    }

    /// One counted request; true when it was held.
    pub(crate) async fn ask(&mut self, stage: &Stage) -> bool {
        let at = stage.now();
        let answer = match self.browser.get("/work?counter=1").await {
            Ok(answer) => answer,
            Err(error) => {
                eprintln!("{}: {error:#}", self.name);
                self.seen.errors += 1;
                self.counter = None;
                // Without a connection every further request is an error too.
                let _ = self.browser.reconnect().await;
                return false;
            }
        };
        match serde_json::from_str::<Work>(&answer.body) {
            Ok(work) if work.user.as_deref() == Some(&self.name) => {
                if let Some(before) = self.counter {
                    self.seen.lost += usize::from(work.counter <= before);
                    self.seen.double += usize::from(work.counter > before + 1);
                }
                self.counter = Some(work.counter);
                self.worker = work.worker;
            }
            _ => self.seen.lost += 1,
        }
        let milliseconds = answer.first_byte.as_secs_f64() * 1000.0;
        if answer.held {
            self.held.push(milliseconds);
        } else {
            let at = if stage.now() == at { at } else { BETWEEN };
            self.seen.others[at].push(milliseconds);
        }
        answer.held
    }

    /// Asks once in each `beat`, beginning at a moment of his own, until told to stop.
    pub(crate) async fn work(
        mut self,
        beat: Duration,
        begin: Duration,
        stage: Arc<Stage>,
        stop: CancellationToken,
    ) -> Self {
        let mut beats = tokio::time::interval_at(tokio::time::Instant::now() + begin, beat);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return self,
                _ = beats.tick() => {}
            }
            self.ask(&stage).await;
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What he saw since the last call; `ordinary` is the median of requests that nothing held.
    pub(crate) fn take_seen(&mut self, ordinary: f64) -> Seen {
        let held = std::mem::take(&mut self.held).into_iter();
        self.seen
            .pauses
            .extend(held.map(|time| (time - ordinary).max(0.0)));
        std::mem::take(&mut self.seen)
    }
}
