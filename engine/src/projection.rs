//! What the others would carry if a worker's users went to them by C6, without moving one of them; decides nothing.
//!
//! Every user stands for the same share `s`, so worker `i` offers *slots* that begin at `l`, `l + s`, `l + 2s`, ... and C6 takes slots in
//! ascending order: first those that begin below their worker's threshold, then the others. Counting slots answers for all users at once,
//! and where the room of all others together is plain enough, nobody has to be looked at.

use crate::group::{Group, WorkerView};
use crate::ids::Birth;
use crate::share::Share;
use crate::thresholds::Policy;

/// The known others, once `users` of `share` each had been taken from a worker.
pub(crate) struct Projection<'a> {
    group: &'a Group,
    policy: &'a Policy,
    reception: Option<&'a WorkerView>,
    victim: &'a WorkerView,
    /// Units of 10^-12 of a worker that one user stands for.
    share: i128,
    users: i128,
}

impl<'a> Projection<'a> {
    /// `victim` is placeable. As much as is known: C2 and C8 ask only while nobody is stale (E5) and never about the reception.
    pub(crate) fn without(group: &'a Group, policy: &'a Policy, victim: &'a WorkerView) -> Self {
        let share = victim.share_per_user().units();
        // Who carries nothing leaves nothing behind, and neither do users too small to be counted.
        let users = if share > 0 { victim.users.max(1) } else { 0 };
        Self {
            group,
            policy,
            reception: group.reception(),
            victim,
            share,
            users: i128::try_from(users).unwrap_or(i128::MAX),
        }
    }

    /// The clause in bold of C2: G1, start-up grace aside, would not ask for a worker.
    pub(crate) fn places_well(&self) -> bool {
        let Some(reception) = self.reception else {
            return false;
        };
        let others = self.others();
        if others == 0 {
            let after = reception.load().units() + self.share * self.users;
            return after < self.policy.reception.units();
        }
        let admission = self.policy.admission.units();
        let spared = reception.load().units() + self.victim.load().units();
        let room = admission * others - (self.group.load_units() - spared);
        room > self.share * self.users || self.keeps_a_slot(reception, admission)
    }

    /// Whether the users leave a slot below the threshold on anybody but the reception.
    fn keeps_a_slot(&self, reception: &WorkerView, admission: i128) -> bool {
        let (mut slots, mut last) = (0, None);
        for (load, birth) in self.loads(admission) {
            if birth == reception.birth || load >= admission {
                continue;
            }
            if self.share == 0 {
                return true;
            }
            let own = self.slots(load, admission);
            slots += own;
            last = last.max(Some(load + (own - 1) * self.share));
            if slots > self.users {
                return true;
            }
        }
        // The reception, the oldest, takes its slots up to that one first.
        let (load, threshold) = (reception.load().units(), self.policy.reception.units());
        let first = last.filter(|last| *last >= load && load < threshold);
        let taken = first.map_or(0, |last| {
            self.slots(load, threshold).min((last - load) / self.share + 1)
        });
        self.users < slots + taken
    }

    /// C8's bound: a worker would be over 1.0 by more than the tolerance.
    pub(crate) fn overflows(&self) -> bool {
        let most = (Share::ONE + Share::TOLERANCE).units();
        if self
            .group
            .heaviest(self.victim.birth)
            .is_some_and(|load| load.units() > most)
        {
            return true;
        }
        if self.users == 0 {
            return false;
        }
        let survivors = self.others() + 1;
        let threshold = self.policy.reception.max(self.policy.admission).units();
        // The last beginning of a slot that a user may take.
        let limit = most - self.share;
        let room = most * survivors - (self.group.load_units() - self.victim.load().units());
        if limit >= threshold && room >= self.share * (self.users + survivors) {
            return false;
        }
        self.users > self.harmless_slots(limit, threshold)
    }

    /// Slots that C6 takes before the first that begins above `limit`, counted up to `users`.
    fn harmless_slots(&self, limit: i128, highest_threshold: i128) -> i128 {
        let (mut early, mut all, mut harm) = (0, 0, false);
        for (load, birth) in self.loads(limit.max(highest_threshold) + 1) {
            let is_reception = self.reception.is_some_and(|reception| reception.birth == birth);
            let threshold = self.policy.threshold(is_reception).units();
            let own = self.slots(load, limit + 1);
            early += own.min(self.slots(load, threshold));
            all += own;
            harm |= load + own * self.share < threshold;
            if early >= self.users || (limit >= highest_threshold && all >= self.users) {
                return self.users;
            }
            // From here on everybody is above the limit.
            if harm && own == 0 && !self.group.has_transit() {
                break;
            }
        }
        if harm { early } else { all }
    }

    /// Slots of a worker at `load` that begin below `end`.
    fn slots(&self, load: i128, end: i128) -> i128 {
        let room = (end - load).max(0);
        (room + self.share - 1) / self.share
    }

    /// Placeable workers beside the reception and the victim.
    fn others(&self) -> i128 {
        i128::try_from(self.group.placeable_count().saturating_sub(2)).unwrap_or_default()
    }

    /// The survivors that measured less than `end`, and what they carry, the least occupied first.
    fn loads(&self, end: i128) -> impl Iterator<Item = (i128, Birth)> {
        let laden = self.group.has_transit();
        self.group
            .occupancies()
            .take_while(move |(occupancy, _)| occupancy.units() < end)
            .filter(|(_, birth)| *birth != self.victim.birth)
            .map(move |(occupancy, birth)| {
                let worker = laden.then(|| self.group.get(birth)).flatten();
                (worker.map_or(occupancy, WorkerView::load).units(), birth)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::Projection;
    use crate::compaction::Survivors;
    use crate::group::{Group, WorkerView};
    use crate::ids::Birth;
    use crate::share::Share;
    use crate::thresholds::Policy;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Moves one user after the other, as a drain does, and looks at everybody.
    fn moved(group: &Group, policy: &Policy, victim: &WorkerView) -> BTreeMap<Birth, Share> {
        let transit: BTreeMap<Birth, Share> = group
            .placeable()
            .map(|worker| (worker.birth, worker.transit))
            .collect();
        let mut survivors = Survivors::without(group, policy, victim.birth, &transit);
        let mut loads: BTreeMap<Birth, Share> = group
            .placeable()
            .filter(|worker| worker.birth != victim.birth)
            .map(|worker| (worker.birth, worker.load()))
            .collect();
        let share = victim.share_per_user();
        if victim.load() > Share::ZERO {
            for _ in 0..victim.users.max(1) {
                *loads.get_mut(&survivors.take(share).unwrap()).unwrap() += share;
            }
        }
        loads
    }

    fn places_well(loads: &BTreeMap<Birth, Share>, policy: &Policy) -> bool {
        let mut others = loads.values().skip(1);
        match loads.len() {
            1 => loads.values().all(|load| *load < policy.reception),
            _ => others.any(|load| *load < policy.admission),
        }
    }

    fn workers() -> impl Strategy<Value = (Group, WorkerView)> {
        let load = prop_oneof![Just(0u32), 0u32..=1000, 700u32..=820, 950u32..=1000];
        let transit = prop_oneof![9 => Just(0u32), 1 => 0u32..400];
        let worker = (load, transit, 0usize..60);
        prop::collection::vec(worker, 2..9).prop_map(|workers| {
            let mille = |value: u32| Share::from_percent(value).divided(10);
            let view = |((load, transit, users), birth): (_, u64)| WorkerView {
                occupancy: mille(load),
                transit: mille(transit),
                users,
                ..WorkerView::new(Birth(birth), "w")
            };
            let group: Group = workers.into_iter().zip(1..).map(view).collect();
            let victim = group
                .fresh()
                .find(|worker| worker.birth != Birth(1))
                .unwrap()
                .clone();
            (group, victim)
        })
    }

    fn thresholds() -> impl Strategy<Value = Policy> {
        (0u32..=100, 1u32..=100).prop_map(|(reception, admission)| Policy {
            reception: Share::from_percent(reception.min(admission)),
            admission: Share::from_percent(admission),
            ..Policy::default()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn counting_slots_answers_like_moving_every_user(
            (group, victim) in workers(),
            policy in prop_oneof![Just(Policy::default()), thresholds()],
        ) {
            let loads = moved(&group, &policy, &victim);
            let projection = Projection::without(&group, &policy, &victim);
            prop_assert_eq!(projection.places_well(), places_well(&loads, &policy), "{:?}", loads);
            let over = loads.values().any(|load| load.exceeds(Share::ONE));
            prop_assert_eq!(projection.overflows(), over, "{:?}", loads);
        }
    }
}
