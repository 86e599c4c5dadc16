//! What all virtual users have seen so far: counts, times, and the sums of a run; decides nothing about a single answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::checker::Verdict;

/// Most times kept; a run of more requests goes on without them.
const MAX_TIMES: usize = 4_000_000;
const MAX_EXAMPLES: usize = 10;
/// Most workers that harm is told of, and most users of each.
const MAX_HARMED: usize = 1000;

/// Everything that is counted while a run goes on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Users who came.
    pub users: u64,
    /// Logins that were answered, second browsers included.
    pub logins: u64,
    /// Users who logged in from a second browser.
    pub second_browsers: u64,
    /// Requests and WebSocket handshakes.
    pub requests: u64,
    /// Requests that ended in anything but 2xx, or in no answer.
    pub failed: u64,
    /// 503 with Retry-After; among the failed unless tolerated.
    pub unavailable: u64,
    /// Sent once more after a refusal or a reset before any answer.
    pub retried: u64,
    /// Times a user's state was gone.
    pub lost: u64,
    /// Times a second browser alone became a guest.
    pub second_browsers_lost: u64,
    /// Times a counter went back on one worker.
    pub back: u64,
    /// Times a counter showed two copies of a state.
    pub forked: u64,
    /// Answers that spoke of another user.
    pub foreign: u64,
    /// Users who were lost at least once.
    pub users_lost: u64,
    /// Users whose counter went back or forked at least once.
    pub users_back_or_forked: u64,
    /// Changes of worker with the first request after a login.
    pub placement_moves: u64,
    /// Changes of worker at any later request.
    pub live_moves: u64,
    /// WebSockets opened, reconnects included.
    pub ws_opened: u64,
    /// WebSockets opened again after a close with code 1012.
    pub ws_reconnects: u64,
    /// WebSockets that the other side closed politely with another code.
    pub ws_closed: u64,
    /// WebSockets that ended without a close frame.
    pub ws_unclean: u64,
    /// WebSocket handshakes that failed; among the failed.
    pub ws_failed: u64,
    /// Messages that arrived on WebSockets.
    pub ws_messages: u64,
}

/// Which kind of move a user met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// From the reception to his worker, right after a login.
    Placement,
    /// Any later one.
    Live,
}

/// One line of the timeline: what was so at the end of an interval.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Seconds since the start.
    pub seconds: f64,
    /// Users who are there.
    pub users: usize,
    /// Requests so far.
    pub requests: u64,
    /// Failed so far.
    pub failed: u64,
    /// Changes of worker so far, both kinds.
    pub moves: u64,
    /// Workers that answered inside the interval.
    pub workers: usize,
}

/// What went wrong for users of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Harm {
    /// Requests that failed.
    pub failed: u64,
    /// Times a user's state was gone.
    pub lost: u64,
    /// Users whom either happened to, by name.
    pub users: BTreeSet<String>,
}

/// Median, 99th percentile and maximum of some times, in milliseconds; null without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many times.
    pub count: usize,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Spread {
    /// Of times in microseconds.
    fn of(times: impl IntoIterator<Item = u32>) -> Self {
        let mut times: Vec<u32> = times.into_iter().collect();
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(rank).map(|micros| f64::from(*micros) / 1000.0)
        };
        Self {
            count: times.len(),
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

/// The sums of a run; the JSON summary.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// All counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time to first byte of all answered requests, in milliseconds.
    pub first_byte_ms: Spread,
    /// Pause of all moves that users met: send to first byte less the median of the same user's other requests.
    pub pause_ms: Spread,
    /// Of those, the moves right after a login.
    pub placement_pause_ms: Spread,
    /// Of those, all others.
    pub live_pause_ms: Spread,
    /// Most workers that answered inside one interval.
    pub workers_max: usize,
    /// Every five seconds.
    pub timeline: Vec<Moment>,
    /// The first few different failures.
    pub failures: BTreeMap<String, u64>,
    /// What went wrong with requests, by the worker that had served the user last; empty for one who was never served.
    pub harm: BTreeMap<String, Harm>,
    /// Whether nothing failed and nobody was lost, set back, forked or mixed up.
    pub held: bool,
}

/// Counts and times of a run in progress.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    first_bytes: Vec<u32>,
    pauses: Vec<(Met, u32)>,
    workers: BTreeSet<String>,
    timeline: Vec<Moment>,
    failures: BTreeMap<String, u64>,
    harm: BTreeMap<String, Harm>,
}

impl Tally {
    /// Notes whom a failed request, or a loss, happened to, and at which worker.
    pub(super) fn harmed(&mut self, worker: Option<&str>, user: &str, failed: u64, lost: u64) {
        let worker = worker.unwrap_or_default();
        if self.harm.len() >= MAX_HARMED && !self.harm.contains_key(worker) {
            return;
        }
        let harm = self.harm.entry(worker.to_owned()).or_default();
        harm.failed += failed;
        harm.lost += lost;
        if harm.users.len() < MAX_HARMED {
            harm.users.insert(user.to_owned());
        }
    }

    /// Counts a failed request with its reason.
    pub(super) fn fail(&mut self, why: &str) {
        self.counts.failed += 1;
        if let Some(count) = self.failures.get_mut(why) {
            *count += 1;
        } else if self.failures.len() < MAX_EXAMPLES {
            self.failures.insert(why.to_owned(), 1);
        }
    }

    /// Notes who answered, and how soon.
    pub(super) fn answered(&mut self, worker: &str, first_byte: Duration) {
        if self.workers.len() < 10_000 && !self.workers.contains(worker) {
            self.workers.insert(worker.to_owned());
        }
        if self.first_bytes.len() < MAX_TIMES {
            self.first_bytes.push(micros(first_byte));
        }
    }

    /// Counts what the checker found.
    pub(super) fn found(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Good => {}
            Verdict::Lost => self.counts.lost += 1,
            Verdict::Back => self.counts.back += 1,
            Verdict::Forked => self.counts.forked += 1,
        }
    }

    /// Counts a change of worker.
    pub(super) fn moved(&mut self, met: Met) {
        match met {
            Met::Placement => self.counts.placement_moves += 1,
            Met::Live => self.counts.live_moves += 1,
        }
    }

    /// Adds the pauses of a user who leaves; without other requests to compare with there are none.
    pub(super) fn pauses(&mut self, met: &[(Met, Duration)], others: &mut [Duration]) {
        others.sort_unstable();
        let Some(median) = others.get(others.len() / 2) else {
            return;
        };
        let room = MAX_TIMES.saturating_sub(self.pauses.len());
        self.pauses.extend(
            met.iter()
                .take(room)
                .map(|(kind, time)| (*kind, micros(time.saturating_sub(*median)))),
        );
    }

    /// Closes an interval of the timeline.
    pub(super) fn moment(&mut self, at: Duration, users: usize) -> Moment {
        let moment = Moment {
            seconds: (at.as_secs_f64() * 10.0).round() / 10.0,
            users,
            requests: self.counts.requests,
            failed: self.counts.failed,
            moves: self.counts.placement_moves + self.counts.live_moves,
            workers: std::mem::take(&mut self.workers).len(),
        };
        self.timeline.push(moment.clone());
        moment
    }

    /// The sums; nothing is counted after it.
    pub(super) fn finish(&mut self, took: Duration) -> Summary {
        let of = |met: Met| {
            Spread::of(
                self.pauses
                    .iter()
                    .filter(|(kind, _)| *kind == met)
                    .map(|(_, t)| *t),
            )
        };
        let c = &self.counts;
        let wrong = c.failed + c.lost + c.second_browsers_lost + c.back + c.forked + c.foreign;
        Summary {
            seconds: took.as_secs_f64(),
            first_byte_ms: Spread::of(self.first_bytes.iter().copied()),
            pause_ms: Spread::of(self.pauses.iter().map(|(_, time)| *time)),
            placement_pause_ms: of(Met::Placement),
            live_pause_ms: of(Met::Live),
            workers_max: self
                .timeline
                .iter()
                .map(|moment| moment.workers)
                .max()
                .unwrap_or_default(),
            held: wrong == 0 && c.requests > 0,
            counts: self.counts.clone(),
            timeline: std::mem::take(&mut self.timeline),
            failures: std::mem::take(&mut self.failures),
            harm: std::mem::take(&mut self.harm),
        }
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_exceeds_the_median_of_the_users_other_requests() {
        let ms = Duration::from_millis;
        let mut tally = Tally::default();
        tally.pauses(
            &[(Met::Live, ms(120)), (Met::Placement, ms(5))],
            &mut [ms(30), ms(10), ms(20)],
        );
        tally.pauses(&[(Met::Live, ms(500))], &mut []);
        let summary = tally.finish(ms(1000));
        assert_eq!(summary.live_pause_ms.max, Some(100.0));
        assert_eq!(summary.placement_pause_ms.max, Some(0.0));
        assert_eq!(summary.pause_ms.count, 2);
    }

    #[test]
    fn harm_is_told_by_worker_with_the_users_whom_it_met() {
        let mut tally = Tally::default();
        tally.harmed(Some("a"), "ann", 1, 0);
        tally.harmed(Some("a"), "ann", 0, 1);
        tally.harmed(None, "bob", 1, 0);
        let summary = tally.finish(Duration::ZERO);
        let harm = |failed, lost, user: &str| Harm {
            failed,
            lost,
            users: [user.to_owned()].into(),
        };
        let expected = [("a", harm(1, 1, "ann")), ("", harm(1, 0, "bob"))];
        assert_eq!(
            summary.harm,
            expected.map(|(worker, harm)| (worker.to_owned(), harm)).into()
        );
    }

    #[test]
    fn percentiles_are_taken_from_the_sorted_times() {
        let spread = Spread::of((1..=200).rev().map(|ms| ms * 1000));
        assert_eq!(
            (spread.p50, spread.p99, spread.max),
            (Some(100.0), Some(198.0), Some(200.0))
        );
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn a_run_without_requests_or_with_anything_wrong_has_not_held() {
        assert!(!Tally::default().finish(Duration::ZERO).held);
        let mut tally = Tally::default();
        tally.counts.requests = 1;
        assert!(tally.finish(Duration::ZERO).held);
        tally.found(Verdict::Forked);
        assert!(!tally.finish(Duration::ZERO).held);
    }
}
