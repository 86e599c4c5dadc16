//! What happened in a world, in order, and what of it may not happen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A browser sent a request.
    Asked {
        request: u64,
        browser: String,
        what: &'static str,
    },
    /// It ended for the browser.
    Answered { request: u64, outcome: Outcome },
    /// A gateway forwarded it for a user.
    Forwarded { request: u64, epoch: u64 },
    /// An app counted it for a user.
    Executed {
        request: u64,
        user: String,
        life: u64,
        count: u64,
        app: String,
    },
    /// An app was asked for a user whom it holds frozen, or not yet.
    ServedUnready { request: u64, user: String, app: String },
    /// What an app holds of a user from now on.
    Holds {
        user: String,
        app: String,
        life: u64,
        standing: Standing,
    },
    /// All that an app held is gone.
    AppEnded { app: String },
    /// The commander has it deleted: nobody lives there any more.
    Retired { app: String },
    /// The worker is on its way out: what is left on it is lost (D2).
    Terminating { app: String },
    /// A message on the channel.
    Said { what: String },
    /// Something was broken on purpose.
    Fault { what: String },
    /// From here on nothing is broken any more.
    FaultsStop,
    /// Every browser was served after that.
    AllServed,
    /// Something panicked.
    Panicked { what: String },
    /// Requests that a gateway still holds at the end, and how many it counted without an outcome.
    Left {
        gateway: String,
        held: i64,
        unended: i64,
    },
}

/// How a request ended for its browser.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The app counted it.
    Counted { life: u64, count: u64 },
    /// Logged in.
    LoggedIn { life: u64 },
    /// The app took the browser for a guest's.
    Guest,
    /// The app was told of a user whom it does not hold.
    Stranger,
    /// Any other answer.
    Status(u16),
    /// The connection broke.
    Broken,
    /// No answer in time.
    Silence,
}

/// What a copy of a user is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Live,
    Frozen,
    Gone,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) now: u64,
    events: Vec<(u64, Event)>,
}

impl History {
    pub(crate) fn note(&mut self, event: Event) {
        self.events.push((self.now, event));
    }

    /// One line per event.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for (at, event) in &self.events {
            let _ = writeln!(out, "{at:>6} {event:?}");
        }
        out
    }

    /// What went wrong first.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let mut judge = Judge::default();
        for (at, event) in &self.events {
            judge.event(event).map_err(|what| Violation { at: *at, what })?;
        }
        judge.end().map_err(|what| Violation { at: self.now, what })
    }
}

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) at: u64,
    pub(crate) what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {} ms: {}", self.at, self.what)
    }
}

#[derive(Debug, Default)]
struct Life {
    count: u64,
    /// Served under epoch 0: a later, granted life may push it out.
    provisional: bool,
}

#[derive(Debug, Default)]
struct Asked {
    browser: String,
    what: &'static str,
    epoch: u64,
    executed: Option<(u64, u64)>,
    answered: bool,
    /// Told that it was not executed.
    refused: bool,
}

/// Goes through a history.
#[derive(Debug, Default)]
struct Judge {
    requests: BTreeMap<u64, Asked>,
    lives: BTreeMap<(String, u64), Life>,
    /// Lives of a user that were served, in order.
    served: BTreeMap<String, Vec<u64>>,
    /// Who holds what: (user, app).
    copies: BTreeMap<(String, String), (u64, Standing)>,
    /// Apps whose worker is told to stop.
    leaving: BTreeSet<String>,
    /// Life that each browser believes in.
    known: BTreeMap<String, u64>,
    /// Browsers that logged in and were not served since.
    joining: BTreeSet<String>,
    stopped: bool,
    all_served: bool,
}

impl Judge {
    fn event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Asked {
                request,
                browser,
                what,
            } => {
                let asked = Asked {
                    browser: browser.clone(),
                    what,
                    ..Asked::default()
                };
                self.requests.insert(*request, asked);
            }
            Event::Forwarded { request, epoch } => {
                if let Some(asked) = self.requests.get_mut(request) {
                    asked.epoch = *epoch;
                }
            }
            Event::Executed {
                request,
                user,
                life,
                count,
                app,
            } => {
                self.executed(*request, user, *life, *count, app)?;
            }
            Event::Answered { request, outcome } => self.answered(*request, outcome)?,
            Event::ServedUnready { user, app, .. } => {
                return Err(format!(
                    "{app} was asked for {user}, whom it holds frozen or staged"
                ));
            }
            Event::Holds {
                user,
                app,
                life,
                standing,
            } => self.holds(user, app, *life, *standing),
            Event::AppEnded { app } => self.copies.retain(|(_, of), _| of != app),
            Event::Retired { app } => self.retired(app)?,
            Event::Terminating { app } => {
                self.leaving.insert(app.clone());
            }
            Event::Panicked { what } => return Err(format!("a panic: {what}")),
            Event::FaultsStop => self.stopped = true,
            Event::AllServed => self.all_served = true,
            Event::Left {
                gateway,
                held,
                unended,
            } if *held != 0 || *unended != 0 => {
                return Err(format!(
                    "{gateway} still holds {held} requests, {unended} have no outcome"
                ));
            }
            Event::Said { .. } | Event::Fault { .. } | Event::Left { .. } => {}
        }
        Ok(())
    }

    /// Retirement takes nobody with it.
    fn retired(&self, app: &str) -> Result<(), String> {
        let served = |user: &String, life| {
            let life = self.lives.get(&(user.clone(), life));
            life.is_some_and(|life| !life.provisional)
        };
        let left = self.copies.iter().find(|((user, of), (life, standing))| {
            of == app && *standing == Standing::Live && served(user, *life)
        });
        match left {
            Some(((user, _), (life, _))) => Err(format!("{app} is retired with {user} (life {life}) on it")),
            None => Ok(()),
        }
    }

    fn holds(&mut self, user: &str, app: &str, life: u64, standing: Standing) {
        let key = (user.to_owned(), app.to_owned());
        if standing == Standing::Gone {
            self.copies.remove(&key);
        } else {
            self.copies.insert(key, (life, standing));
        }
    }

    fn executed(&mut self, request: u64, user: &str, life: u64, count: u64, app: &str) -> Result<(), String> {
        let asked = self.requests.entry(request).or_default();
        if asked.executed.replace((life, count)).is_some() {
            return Err(format!("request {request} of {user} was executed twice"));
        }
        if asked.refused {
            return Err(format!(
                "request {request} of {user} was executed after it was refused"
            ));
        }
        let epoch = asked.epoch;
        let of = self.lives.entry((user.to_owned(), life)).or_default();
        of.provisional |= epoch == 0;
        if count != of.count + 1 {
            return Err(format!(
                "{user}'s counter went from {} to {count} at {app} (life {life}): a fork or a loss",
                of.count
            ));
        }
        of.count = count;
        let served = self.served.entry(user.to_owned()).or_default();
        match served.iter().position(|known| *known == life) {
            None => served.push(life),
            // P6: a provisional user is served where he is until a join reaches him.
            Some(_) if epoch == 0 => {}
            Some(at) => {
                let granted = |later: &u64| {
                    self.lives
                        .get(&(user.to_owned(), *later))
                        .is_some_and(|life| !life.provisional)
                };
                if let Some(later) = served[at + 1..].iter().find(|later| granted(later)) {
                    return Err(format!(
                        "{user} is served as life {life} at {app} after life {later}: two owners"
                    ));
                }
            }
        }
        Ok(())
    }

    fn answered(&mut self, request: u64, outcome: &Outcome) -> Result<(), String> {
        let Some(asked) = self.requests.get_mut(&request) else {
            return Err(format!("an answer to request {request}, which nobody sent"));
        };
        if std::mem::replace(&mut asked.answered, true) {
            return Err(format!("request {request} was answered twice"));
        }
        let (browser, executed, what) = (asked.browser.clone(), asked.executed, asked.what);
        match outcome {
            Outcome::Counted { life, count } => {
                if executed != Some((*life, *count)) {
                    return Err(format!(
                        "request {request} was answered {count} of life {life}, executed was {executed:?}"
                    ));
                }
                self.lives_on(&browser, Some(*life), "was answered")?;
                // The app asks nobody who he is: a browser of an earlier life may be served until it is a guest (L6).
                if self.joining.remove(&browser) {
                    self.known.insert(browser, *life);
                } else if self.known.get(&browser) != Some(life) {
                    self.known.remove(&browser);
                }
            }
            // P5: should the join that follows fail, he stays a guest.
            Outcome::LoggedIn { .. } => {
                self.known.remove(&browser);
                self.joining.insert(browser);
            }
            Outcome::Guest => {
                self.lives_on(&browser, None, "is a guest")?;
                self.known.remove(&browser);
            }
            Outcome::Stranger => {
                self.lives_on(&browser, None, "came to an app that does not know him")?;
                self.known.remove(&browser);
            }
            Outcome::Status(status @ (421 | 503)) => {
                asked.refused = what == "count";
                if executed.is_some() && what == "count" {
                    return Err(format!(
                        "request {request} was answered {status} though it was executed"
                    ));
                }
            }
            // A refusal of the app itself: a login beside a move.
            Outcome::Status(409) if what == "login" => {}
            Outcome::Status(502) | Outcome::Broken => {}
            Outcome::Status(status) => return Err(format!("request {request} was answered {status}")),
            Outcome::Silence => return Err(format!("request {request} of {browser} got no answer at all")),
        }
        Ok(())
    }

    /// A browser was served as another life than it knew: right only where the life that it knew is nowhere any more.
    fn lives_on(&self, browser: &str, now: Option<u64>, how: &str) -> Result<(), String> {
        let Some(before) = self.known.get(browser).filter(|before| now != Some(**before)) else {
            return Ok(());
        };
        let lives = self.copies.iter().find(|((_, app), (life, standing))| {
            life == before && *standing == Standing::Live && !self.leaving.contains(app)
        });
        let user = browser.split('/').next().unwrap_or_default();
        let provisional = self
            .lives
            .get(&(user.to_owned(), *before))
            .is_none_or(|life| life.provisional);
        match lives {
            Some(((_, app), _)) if !provisional => Err(format!(
                "{browser} {how} ({now:?}) though his life {before} goes on at {app}"
            )),
            _ => Ok(()),
        }
    }

    fn end(&self) -> Result<(), String> {
        if let Some((request, asked)) = self
            .requests
            .iter()
            .find(|(_, asked)| !asked.answered && !asked.browser.is_empty())
        {
            return Err(format!("request {request} of {} had no outcome", asked.browser));
        }
        if !self.all_served {
            let left: Vec<String> = self.copies.iter().map(|copy| format!("{copy:?}")).collect();
            return Err(format!(
                "not every user is served again, or a move is still open: {}",
                left.join(", ")
            ));
        }
        Ok(())
    }
}
