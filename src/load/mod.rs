//! The load program: drives virtual users through a gateway and judges every answer; knows nothing of Kubernetes or of the operator.

mod browser;
mod checker;
mod profile;
mod report;
mod socket;
mod tally;
#[cfg(test)]
mod tests;
mod user;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::browser::Target;
use self::profile::Profile;
pub use self::report::{progress, table};
use self::tally::Tally;
pub use self::tally::{Counts, Harm, Moment, Spread, Summary};
use self::user::{Manner, Run, User};
use crate::clock::Clock;

/// Who a user is to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Users log in and out; the counter is the user's
    Login,
    /// There is no login; the counter is the browser's
    Session,
}

/// What the load program is started with.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "pool-load",
    version,
    about = "Drives real users through a gateway and checks that nobody is lost"
)]
pub struct LoadArgs {
    /// The gateway, such as http://127.0.0.1:8080
    #[arg(long)]
    url: Target,
    /// Phases as USERSxTIME, in order
    #[arg(long, default_value = "10x30s,100x60s,10x30s")]
    users_profile: Profile,
    /// File with such phases, on lines of their own; wins over --users-profile
    #[arg(long)]
    plan: Option<PathBuf>,
    /// CPU that each request burns, in milliseconds
    #[arg(long, default_value_t = 20)]
    cpu_ms: u64,
    /// Mean pause between two requests of a user, in milliseconds
    #[arg(long, default_value_t = 1000)]
    think_ms: u64,
    /// Share of users who hold a WebSocket open
    #[arg(long, default_value_t = 0.33)]
    websocket_share: f64,
    /// Share of users who log in from a second browser too
    #[arg(long, default_value_t = 0.05)]
    second_browser_share: f64,
    /// Most users who come, or go, in a second
    #[arg(long, default_value_t = 20.0)]
    arrivals: f64,
    /// Whether users log in
    #[arg(long, value_enum, default_value_t = Mode::Login)]
    mode: Mode,
    /// First part of the users' names; two runs against one pool need two
    #[arg(long, default_value = "user")]
    prefix: String,
    /// Writes the summary to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Does not count a 503 with Retry-After as failed
    #[arg(long)]
    tolerate: bool,
    /// Ends with exit code 1 unless everything held
    #[arg(long)]
    pub assert: bool,
}

const BEAT: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_secs(5);
/// Users who leave get this long to finish what they do.
const FAREWELL: Duration = Duration::from_secs(40);

/// Runs the load to its end, or until `stop`; `tell` gets a moment every five seconds.
pub async fn drive(
    args: &LoadArgs,
    stop: CancellationToken,
    mut tell: impl FnMut(&Moment),
) -> anyhow::Result<Summary> {
    let profile = match &args.plan {
        Some(path) => tokio::fs::read_to_string(path)
            .await
            .context("read the plan")?
            .parse()?,
        None => args.users_profile.clone(),
    };
    let mut crowd = Crowd::new(args);
    let clock = crowd.clock;
    let mut beats = tokio::time::interval(BEAT);
    let mut next_moment = INTERVAL;
    loop {
        tokio::select! {
            _ = beats.tick() => {}
            () = stop.cancelled() => break,
        }
        let Some(wanted) = profile.users_at(clock.now()) else {
            break;
        };
        crowd.approach(wanted);
        if clock.now() >= next_moment {
            next_moment += INTERVAL;
            tell(&crowd.moment());
        }
    }
    crowd.farewell().await;
    tell(&crowd.moment());
    let summary = crowd.tally.lock().finish(clock.now());
    if let Some(path) = &args.json {
        let text = serde_json::to_vec_pretty(&summary).context("write the summary as JSON")?;
        tokio::fs::write(path, text).await.context("write the summary")?;
    }
    Ok(summary)
}

/// The users who are there.
struct Crowd {
    target: Target,
    manner: Manner,
    prefix: String,
    arrivals: f64,
    clock: Clock,
    tally: Arc<Mutex<Tally>>,
    users: JoinSet<()>,
    present: VecDeque<CancellationToken>,
    departed: usize,
    born: u64,
    /// How many more may come or go now; grows with time.
    allowance: f64,
    counted: Duration,
}

impl Crowd {
    fn new(args: &LoadArgs) -> Self {
        let login = args.mode == Mode::Login;
        let manner = Manner {
            cpu_ms: args.cpu_ms,
            think: Duration::from_millis(args.think_ms),
            websocket_share: args.websocket_share,
            second_browser_share: args.second_browser_share,
            login,
            tolerate: args.tolerate,
        };
        Self {
            target: args.url.clone(),
            manner,
            prefix: args.prefix.clone(),
            arrivals: args.arrivals.max(0.1),
            clock: Clock::start(),
            tally: Arc::default(),
            users: JoinSet::new(),
            present: VecDeque::new(),
            departed: 0,
            born: 0,
            allowance: 1.0,
            counted: Duration::ZERO,
        }
    }

    /// Lets users come or go, as fast as they may, until as many are there as are wanted.
    fn approach(&mut self, wanted: usize) {
        let now = self.clock.now();
        let grown = self.allowance + now.saturating_sub(self.counted).as_secs_f64() * self.arrivals;
        // What was not used up in quiet times is not made up for at once.
        self.allowance = grown.min(self.arrivals.max(1.0));
        self.counted = now;
        while self.allowance >= 1.0 && self.present.len() != wanted {
            self.allowance -= 1.0;
            if self.present.len() < wanted {
                self.arrive();
            } else {
                self.depart();
            }
        }
        while self.users.try_join_next().is_some() {}
    }

    fn arrive(&mut self) {
        self.born += 1;
        let leave = CancellationToken::new();
        let run = Run {
            target: self.target.clone(),
            manner: self.manner,
            clock: self.clock,
            tally: self.tally.clone(),
            leave: leave.clone(),
        };
        let name = format!("{}-{}", self.prefix, self.born);
        self.users.spawn(User::new(run, name, self.born).live());
        self.present.push_back(leave);
    }

    /// Somebody leaves. The order is scattered but the same in each run: those who stay live on all workers.
    fn depart(&mut self) {
        self.departed += 1;
        let place = self.departed.wrapping_mul(7919) % self.present.len().max(1);
        if let Some(leave) = self.present.remove(place) {
            leave.cancel();
        }
    }

    fn moment(&self) -> Moment {
        self.tally.lock().moment(self.clock.now(), self.present.len())
    }

    async fn farewell(&mut self) {
        for leave in self.present.drain(..) {
            leave.cancel();
        }
        let all = async { while self.users.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            self.tally.lock().fail("a user did not come to an end");
            self.users.abort_all();
        }
    }
}
