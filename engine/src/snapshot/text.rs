//! An answer for people at a terminal; says nothing that the JSON does not.

use std::fmt;

use super::answer::{Answer, Decided, Worker};
use super::leave::Move;

/// Lines of users and of workers that a terminal is given; the JSON holds all of them.
const MOST: usize = 20;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = &self.ledger;
        writeln!(
            f,
            "{}: {} {} users, capacity {:.2} - occupied {:.2} = headroom {:.2}, margin {:.2}",
            self.group,
            ledger.workers,
            if ledger.workers == 1 {
                "worker takes"
            } else {
                "workers take"
            },
            ledger.c,
            ledger.o,
            ledger.h,
            ledger.margin
        )?;
        self.write_now(f, "now")?;
        let login = &self.next_login;
        let place = match (&login.worker, login.decision) {
            (Some(worker), Some("keep")) => format!("stays on {worker}"),
            (Some(worker), _) => format!("passes to {worker}{}", warned(login.warning)),
            (None, _) => "has no worker to go to".to_owned(),
        };
        item(f, "a login", &place, &login.because)?;
        self.write_leaving(f)?;
        for condition in &self.conditions {
            item(f, "condition", condition.kind, &condition.message)?;
        }
        if let Some(seconds) = &self.wake_in_s {
            let seconds = tenths(seconds);
            writeln!(f, "asked again  in {seconds} s, if nothing is reported before")?;
        }
        write_workers(f, &self.workers)
    }
}

impl Answer {
    /// Only what was decided and why, for a list of many.
    pub fn brief(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            writeln!(
                f,
                "{}, {} s after its commander's start",
                self.group,
                tenths(&self.taken_at_s)
            )?;
            self.write_drains(f, false)?;
            self.write_now(f, "decided")
        })
    }
}

/// Exact seconds as people read them.
fn tenths(seconds: &str) -> String {
    seconds
        .parse::<f64>()
        .map_or_else(|_| seconds.to_owned(), |seconds| format!("{seconds:.1}"))
}

fn warned(warning: bool) -> &'static str {
    if warning { ", with a warning" } else { "" }
}

/// What it is about, what there is, and below it the reason.
fn item(f: &mut fmt::Formatter<'_>, about: &str, what: &str, because: &str) -> fmt::Result {
    writeln!(f, "{about:<12} {what}\n             {because}")
}

impl Answer {
    fn write_now(&self, f: &mut fmt::Formatter<'_>, when: &str) -> fmt::Result {
        let growth = &self.growth;
        for decided in &self.decisions {
            item(f, when, &act(decided), &decided.because)?;
        }
        for decided in &self.advice {
            item(f, "advised", &act(decided), &decided.because)?;
        }
        let told = self
            .decisions
            .iter()
            .any(|decided| decided.because == growth.because);
        if !told {
            item(f, "growth", &growth.reason.replace('_', " "), &growth.because)?;
        }
        if let Some(withheld) = &growth.withheld {
            writeln!(f, "             not done: {withheld}")?;
        }
        Ok(())
    }

    fn write_drains(&self, f: &mut fmt::Formatter<'_>, moves: bool) -> fmt::Result {
        for drained in &self.drains {
            let what = format!(
                "{} ({}, {}), for {} s, users left: {}",
                drained.worker,
                drained.kind.replace('_', " "),
                drained.progress,
                drained.for_s,
                drained.users
            );
            writeln!(f, "{:<12} {what}", "draining")?;
            if moves {
                write_moves(f, &drained.moves)?;
            }
        }
        Ok(())
    }

    fn write_leaving(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_drains(f, true)?;
        let Some(victim) = &self.next_victim else {
            return item(f, "next to go", "nobody", &self.compaction.because);
        };
        let what = format!("{}, users: {}", victim.worker, victim.users);
        item(f, "next to go", &what, &victim.because)?;
        for blocked in &victim.blocked_by {
            writeln!(f, "             not now: {blocked}")?;
        }
        write_moves(f, &victim.moves)
    }
}

fn act(decided: &Decided) -> String {
    match (decided.action, &decided.worker, decided.count) {
        (Some(action), Some(worker), _) => format!("{} {worker}", action.replace('_', " ")),
        (Some(action), None, Some(count)) => format!("{action} {count}"),
        (Some(action), None, None) => action.to_owned(),
        (None, ..) => format!("nothing ({})", decided.reason.replace('_', " ")),
    }
}

fn write_moves(f: &mut fmt::Formatter<'_>, moves: &[Move]) -> fmt::Result {
    let shown = || moves.iter().take(MOST);
    let names = width(shown().map(|user| &*user.user));
    for user in shown() {
        let busy = match user.open_requests {
            0 => "idle".to_owned(),
            open => format!("{open} open"),
        };
        let way = match (&user.to, user.projected, &user.stays) {
            (Some(to), Some(projected), _) => format!("-> {to}, then at {projected:.2}"),
            (_, _, Some(stays)) => format!("stays: {stays}"),
            _ => String::new(),
        };
        writeln!(f, "             {:<names$}  {busy:<8} {way}", user.user)?;
    }
    more(f, moves.len(), "users")
}

fn write_workers(f: &mut fmt::Formatter<'_>, workers: &[Worker]) -> fmt::Result {
    let shown = || workers.iter().take(MOST);
    let names = width(shown().map(|worker| &*worker.name));
    writeln!(
        f,
        "\n{:<names$}  {:<8} {:>9} {:>6}",
        "worker", "state", "occupancy", "users"
    )?;
    for worker in shown() {
        let mut notes = worker.notes.clone();
        if worker.reception {
            notes.insert(0, "reception".to_owned());
        }
        let line = format!(
            "{:<names$}  {:<8} {:>9.2} {:>6}  {}",
            worker.name,
            worker.state,
            worker.occupancy,
            worker.users,
            notes.join("; ")
        );
        writeln!(f, "{}", line.trim_end())?;
    }
    more(f, workers.len(), "workers")
}

/// The longest name, and no less than a heading needs.
fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names
        .map(|name| name.chars().count())
        .max()
        .unwrap_or_default()
        .max(6)
}

fn more(f: &mut fmt::Formatter<'_>, all: usize, what: &str) -> fmt::Result {
    match all.checked_sub(MOST) {
        None | Some(0) => Ok(()),
        Some(left) => writeln!(f, "             and {left} more {what}: --output json shows all"),
    }
}
