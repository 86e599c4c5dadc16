//! The same day behind sticky sessions and a plain CPU autoscaler: who logs in goes to the ready pod with the fewest users
//! and stays there; a pod that is removed takes its sessions with it, and those users log in anew elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Settings;
use super::agenda::Agenda;
use super::autoscaler::{Autoscaler, SYNC};
use super::crowd::{Change, Day, User};
use super::curve::{Curve, Means};
use super::meter::{Meter, Overload, first_report};
use crate::share::Share;
use crate::thresholds::Policy;

/// What the day came to.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// Pods, from the order to make one until it is told to go.
    pub(super) pods: Means,
    /// Sessions that died with their pod, per minute.
    pub(super) killed_per_minute: Vec<u32>,
    pub(super) killed: usize,
    /// First logins and those after a kill.
    pub(super) logins: usize,
    /// Logins that went to a pod whose smoothed occupancy was not below the admission threshold.
    pub(super) placed_above: usize,
    pub(super) overload: Overload,
    pub(super) users_at_end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready(u64),
    Report(u64),
    Sync,
}

#[derive(Clone, Debug)]
struct Pod {
    /// `None` while it starts.
    meter: Option<Meter>,
    users: BTreeSet<usize>,
}

struct Rival<'a> {
    policy: &'a Policy,
    settings: &'a Settings,
    now: Duration,
    agenda: Agenda<Event>,
    scaler: Autoscaler,
    pods: BTreeMap<u64, Pod>,
    /// Ready pods by their users.
    ready: BTreeSet<(usize, u64)>,
    births: u64,
    homes: Vec<Option<(u64, Share)>>,
    count: Curve,
    served: Served,
}

/// Serves the whole day until `end`.
pub(super) fn serve(users: &[User], policy: &Policy, settings: &Settings, end: Duration) -> Served {
    let mut rival = Rival::open(users.len(), policy, settings, end);
    let mut day = Day::new(users, settings, end);
    loop {
        let own = rival.agenda.next_before(end);
        match (day.next_at(), own) {
            (Some(change), own) if own.is_none_or(|own| change <= own) => {
                if let Some((at, user, change)) = day.next() {
                    rival.now = at;
                    rival.changed(user, change);
                }
            }
            (_, Some(_)) => rival.step(),
            _ => break,
        }
    }
    rival.served.pods = rival.count.finish();
    rival.served.users_at_end = rival.pods.values().map(|pod| pod.users.len()).sum();
    rival.served
}

impl<'a> Rival<'a> {
    fn open(users: usize, policy: &'a Policy, settings: &'a Settings, end: Duration) -> Self {
        let count = Curve::new(end);
        let mut rival = Self {
            policy,
            settings,
            now: Duration::ZERO,
            agenda: Agenda::new(),
            scaler: Autoscaler::new(settings.autoscaler_target, policy.min, policy.max),
            pods: BTreeMap::new(),
            ready: BTreeSet::new(),
            births: 0,
            homes: vec![None; users],
            count: count.clone(),
            served: Served {
                pods: count.clone().finish(),
                killed_per_minute: vec![0; count.finish().minutes.len()],
                killed: 0,
                logins: 0,
                placed_above: 0,
                overload: Overload::default(),
                users_at_end: 0,
            },
        };
        for _ in 0..policy.min.max(1) {
            let pod = rival.start();
            rival.ready(pod);
        }
        rival.agenda.add(SYNC, Event::Sync);
        rival
    }

    fn step(&mut self) {
        let Some((at, event)) = self.agenda.next() else {
            return;
        };
        self.now = at;
        match event {
            Event::Ready(pod) => self.ready(pod),
            Event::Report(pod) => {
                if let Some(meter) = self.pods.get_mut(&pod).and_then(|pod| pod.meter.as_mut()) {
                    meter.report(self.policy, at, &mut self.served.overload);
                    self.agenda.add(at + self.policy.interval, Event::Report(pod));
                }
            }
            Event::Sync => {
                self.sync();
                self.agenda.add(at + SYNC, Event::Sync);
            }
        }
    }

    fn start(&mut self) -> u64 {
        self.births += 1;
        let pod = Pod {
            meter: None,
            users: BTreeSet::new(),
        };
        self.pods.insert(self.births, pod);
        self.count.set(self.pods.len() as f64, self.now);
        self.births
    }

    fn ready(&mut self, birth: u64) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&birth) else {
            return;
        };
        pod.meter = Some(Meter::new(self.policy, now));
        self.ready.insert((0, birth));
        self.agenda.add(
            first_report(self.policy, self.settings, birth, now),
            Event::Report(birth),
        );
    }

    fn changed(&mut self, user: usize, change: Change) {
        let now = self.now;
        match change {
            Change::Arrives(load) => self.login(user, load),
            Change::Needs(load) => {
                if let Some((home, before)) = &mut self.homes[user]
                    && let Some(meter) = self.pods.get_mut(home).and_then(|pod| pod.meter.as_mut())
                {
                    meter.change(*before, load, now);
                    *before = load;
                }
            }
            Change::Leaves => {
                if let Some((home, load)) = self.homes[user].take()
                    && let Some(pod) = self.pods.get_mut(&home)
                    && let Some(meter) = &mut pod.meter
                {
                    self.ready.remove(&(pod.users.len(), home));
                    pod.users.remove(&user);
                    self.ready.insert((pod.users.len(), home));
                    meter.leave(load, now);
                }
            }
        }
    }

    /// To the ready pod with the fewest users; there is always one, the last is never removed.
    fn login(&mut self, user: usize, load: Share) {
        self.served.logins += 1;
        let Some(&(users, home)) = self.ready.first() else {
            return;
        };
        let Some(pod) = self.pods.get_mut(&home) else {
            return;
        };
        let Some(meter) = &mut pod.meter else {
            return;
        };
        if meter.reading.occupancy >= self.policy.admission {
            self.served.placed_above += 1;
        }
        self.ready.remove(&(users, home));
        pod.users.insert(user);
        self.ready.insert((pod.users.len(), home));
        meter.enter(load, self.now);
        self.homes[user] = Some((home, load));
    }

    fn sync(&mut self) {
        let interval = self.policy.interval.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to 150 reports of at least 100 ms in 15 s"
        )]
        let rows = (SYNC.as_secs_f64() / interval).ceil() as usize;
        let meters = self.pods.values().filter_map(|pod| pod.meter.as_ref());
        let measured: Vec<f64> = meters
            .filter_map(|meter| meter.mean(rows, self.policy))
            .map(Share::as_f64)
            .collect();
        let current = self.pods.len();
        let wanted = self
            .scaler
            .sync(self.now, current, &measured, current - measured.len());
        for _ in current..wanted {
            let pod = self.start();
            self.agenda.add(self.now + self.settings.spawn, Event::Ready(pod));
        }
        self.kill(current.saturating_sub(wanted));
    }

    /// As a ReplicaSet chooses: those that are not ready first, then the youngest.
    fn kill(&mut self, count: usize) {
        let mut victims: Vec<(bool, u64)> = self
            .pods
            .iter()
            .map(|(birth, pod)| (pod.meter.is_some(), *birth))
            .collect();
        victims.sort_by_key(|(ready, birth)| (*ready, Reverse(*birth)));
        let mut homeless = BTreeSet::new();
        for (_, victim) in victims.into_iter().take(count) {
            if let Some(pod) = self.pods.remove(&victim) {
                self.ready.remove(&(pod.users.len(), victim));
                homeless.extend(pod.users);
            }
        }
        self.count.set(self.pods.len() as f64, self.now);
        self.served.killed += homeless.len();
        let minute = usize::try_from(self.now.as_secs() / 60).unwrap_or(usize::MAX);
        if let Some(killed) = self.served.killed_per_minute.get_mut(minute) {
            *killed += u32::try_from(homeless.len()).unwrap_or(u32::MAX);
        }
        for user in homeless {
            if let Some((_, load)) = self.homes[user].take() {
                self.login(user, load);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::serve;
    use crate::simulate::crowd::{Change, Day, crowd};
    use crate::simulate::{Settings, Trace};
    use crate::thresholds::Policy;

    fn trace() -> Trace {
        let rows = "00:00,400,900,2\n00:30,0,60,1\n01:00,0,60,1\n";
        Trace::parse(format!("{}\n{rows}", crate::simulate::HEADER).as_bytes()).unwrap()
    }

    #[test]
    fn a_removed_pod_kills_its_sessions_and_they_log_in_anew() {
        let (trace, settings) = (trace(), Settings::default());
        let users = crowd(&trace, &settings);
        let served = serve(&users, &Policy::default(), &settings, trace.span());
        assert!(served.pods.highest >= 3.0 && served.killed > 0);
        assert_eq!(served.logins, users.len() + served.killed);
        assert_eq!(
            served.killed_per_minute.iter().sum::<u32>() as usize,
            served.killed
        );
    }

    #[test]
    fn everybody_is_on_a_pod_until_he_leaves() {
        let (trace, settings) = (trace(), Settings::default());
        let users = crowd(&trace, &settings);
        for minutes in [10, 31, 45, 60] {
            let end = Duration::from_mins(minutes);
            let changes = Day::new(&users, &settings, end).map(|(.., change)| match change {
                Change::Arrives(_) => 1,
                Change::Needs(_) => 0,
                Change::Leaves => -1,
            });
            let present: i64 = changes.sum();
            let served = serve(&users, &Policy::default(), &settings, end);
            assert_eq!(i64::try_from(served.users_at_end), Ok(present));
        }
    }
}
