//! Who comes, how long he stays and what he needs meanwhile: the same people for every way of serving them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Settings;
use super::random::Random;
use super::trace::Trace;
use crate::share::Share;

/// How long an active phase lasts on average: some clicks.
const ACTIVE: Duration = Duration::from_secs(30);
/// Users differ in what they need: the deviation of its logarithm.
const SIGMA: f64 = 0.5;

/// One user of the day; times count from the trace's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) arrives: Duration,
    pub(super) leaves: Duration,
    /// Part of a worker that he needs in an active phase.
    load: Share,
    random: Random,
}

/// Everybody who logs in, in order of arrival: Poisson arrivals, exponential stays, lognormal needs.
pub(super) fn crowd(trace: &Trace, settings: &Settings) -> Vec<User> {
    let mut arrivals = Random::stream(settings.seed, u64::MAX);
    let mut users = Vec::new();
    let mut from = Duration::ZERO;
    for row in &trace.rows {
        let until = from + trace.step;
        let gap = trace.step.as_secs_f64() / row.logins;
        let mut at = from;
        loop {
            // A row without logins has its first one after 10^9 s.
            at += Duration::from_secs_f64(arrivals.exponential(gap).min(1e9));
            if at >= until {
                break;
            }
            let mut random = Random::stream(settings.seed, users.len() as u64);
            let need = row.cost.as_f64() * random.factor(SIGMA) / settings.active;
            users.push(User {
                arrives: at,
                leaves: at + random.span(row.mean_stay),
                load: Share::from_f64(need).unwrap_or(Share::ONE),
                random,
            });
        }
        from = until;
    }
    users
}

/// What happens to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// He logs in and needs this.
    Arrives(Share),
    /// From now on he needs this part of a worker.
    Needs(Share),
    /// He leaves.
    Leaves,
}

/// The day as a sequence of changes in order of time, until `end`.
#[derive(Clone, Debug)]
pub(super) struct Day<'a> {
    users: &'a [User],
    present: BinaryHeap<Reverse<(Duration, usize)>>,
    activity: Vec<(Random, bool)>,
    next: usize,
    idle: Duration,
    active: f64,
    end: Duration,
}

impl<'a> Day<'a> {
    pub(super) fn new(users: &'a [User], settings: &Settings, end: Duration) -> Self {
        Self {
            users,
            present: BinaryHeap::new(),
            activity: users.iter().map(|user| (user.random, false)).collect(),
            next: 0,
            idle: ACTIVE.mul_f64((1.0 - settings.active) / settings.active),
            active: settings.active,
            end,
        }
    }

    /// When the next change comes.
    pub(super) fn next_at(&self) -> Option<Duration> {
        let arrival = self.users.get(self.next).map(|user| user.arrives);
        let change = self.present.peek().map(|Reverse((at, _))| *at);
        arrival
            .into_iter()
            .chain(change)
            .min()
            .filter(|at| *at < self.end)
    }

    fn arrive(&mut self) -> (usize, Change) {
        let index = self.next;
        self.next += 1;
        let (random, active) = &mut self.activity[index];
        *active = random.unit() <= self.active;
        (
            index,
            Change::Arrives(self.schedule(index, self.users[index].arrives)),
        )
    }

    /// Plans the end of the phase that begins now and says what he needs in it.
    fn schedule(&mut self, index: usize, now: Duration) -> Share {
        let user = &self.users[index];
        let (random, active) = &mut self.activity[index];
        let lasts = random.span(if *active { ACTIVE } else { self.idle });
        self.present
            .push(Reverse(((now + lasts).min(user.leaves), index)));
        if *active { user.load } else { Share::ZERO }
    }
}

impl Iterator for Day<'_> {
    type Item = (Duration, usize, Change);

    fn next(&mut self) -> Option<Self::Item> {
        let now = self.next_at()?;
        if self.users.get(self.next).is_some_and(|user| user.arrives == now) {
            let (index, change) = self.arrive();
            return Some((now, index, change));
        }
        let Reverse((_, index)) = self.present.pop()?;
        if now >= self.users[index].leaves {
            return Some((now, index, Change::Leaves));
        }
        self.activity[index].1 ^= true;
        Some((now, index, Change::Needs(self.schedule(index, now))))
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Day, crowd};
    use crate::simulate::{Settings, Trace};
    use std::time::Duration;

    fn trace() -> Trace {
        let rows =
            "time,logins,mean_stay_seconds,cost_percent\n00:00,2000,600,1\n01:00,0,60,1\n02:00,0,60,1\n";
        Trace::parse(rows.as_bytes()).unwrap()
    }

    #[test]
    fn everybody_arrives_once_and_leaves_once_in_order_of_time() {
        let settings = Settings::default();
        let users = crowd(&trace(), &settings);
        let (mut last, mut state) = (Duration::ZERO, vec![0; users.len()]);
        for (at, user, change) in Day::new(&users, &settings, Duration::MAX) {
            assert!(at >= last);
            last = at;
            state[user] = match (change, state[user]) {
                (Change::Arrives(_), 0) | (Change::Needs(_), 1) => 1,
                (Change::Leaves, 1) => 2,
                (change, state) => panic!("{change:?} of user {user} in state {state}"),
            };
        }
        assert!(state.iter().all(|state| *state == 2));
    }

    #[test]
    fn logins_stays_and_needs_are_on_average_those_of_the_trace() {
        let settings = Settings::default();
        let users = crowd(&trace(), &settings);
        assert!((1850..2150).contains(&users.len()), "{}", users.len());
        let stays: f64 = users
            .iter()
            .map(|user| user.leaves.saturating_sub(user.arrives).as_secs_f64())
            .sum();
        assert!((stays / users.len() as f64 - 600.0).abs() < 45.0);
        let (mut total, mut needs, mut since) =
            (0.0, vec![0.0; users.len()], vec![Duration::ZERO; users.len()]);
        for (at, user, change) in Day::new(&users, &settings, Duration::MAX) {
            total += needs[user] * at.saturating_sub(since[user]).as_secs_f64();
            since[user] = at;
            needs[user] = match change {
                Change::Arrives(share) | Change::Needs(share) => share.as_f64(),
                Change::Leaves => 0.0,
            };
        }
        assert!((total / stays - 0.01).abs() < 0.0005, "{}", total / stays);
    }

    #[test]
    fn the_end_cuts_the_day() {
        let settings = Settings::default();
        let users = crowd(&trace(), &settings);
        let end = Duration::from_mins(10);
        assert!(Day::new(&users, &settings, end).all(|(at, _, _)| at < end));
    }
}
