//! The fewest workers that could have done: per minute, with moves that cost nothing and the day known in advance.

use std::time::Duration;

use super::Settings;
use super::crowd::{Change, Day, User};
use super::curve::{Curve, Means};
use crate::share::Share;
use crate::thresholds::Policy;

/// The day as it came, and what it would have taken.
#[derive(Clone, Debug)]
pub(super) struct Optimum {
    /// Users present.
    pub(super) users: Means,
    /// What they needed, in workers.
    pub(super) load: Means,
    /// The fewest workers, minute by minute.
    pub(super) workers: Vec<usize>,
    /// Minutes for which even `max` workers were too few.
    pub(super) short_minutes: usize,
}

/// Looks at the whole day.
pub(super) fn optimum(users: &[User], policy: &Policy, settings: &Settings, end: Duration) -> Optimum {
    let (mut present, mut load) = (Curve::new(end), Curve::new(end));
    let (mut count, mut sum) = (0usize, Share::ZERO);
    let mut needs = vec![Share::ZERO; users.len()];
    for (now, user, change) in Day::new(users, settings, end) {
        let need = match change {
            Change::Arrives(need) => {
                count += 1;
                need
            }
            Change::Needs(need) => need,
            Change::Leaves => {
                count -= 1;
                Share::ZERO
            }
        };
        sum = sum + need - std::mem::replace(&mut needs[user], need);
        present.set(count as f64, now);
        load.set(sum.as_f64(), now);
    }
    let load = load.finish();
    let most = policy.max.unwrap_or(usize::MAX);
    let fewest: Vec<usize> = load
        .minutes
        .iter()
        .map(|load| fewest(Share::from_f64(*load).unwrap_or_default(), policy))
        .collect();
    Optimum {
        users: present.finish(),
        load,
        short_minutes: fewest.iter().filter(|fewest| **fewest > most).count(),
        workers: fewest.into_iter().map(|fewest| fewest.min(most)).collect(),
    }
}

/// The fewest workers, `min` at least, whose capacity (C1) holds this load.
fn fewest(load: Share, policy: &Policy) -> usize {
    let mut workers = 1;
    let mut capacity = policy.reception;
    while capacity < load && policy.admission > Share::ZERO {
        capacity += policy.admission;
        workers += 1;
    }
    workers.max(policy.min)
}

#[cfg(test)]
mod tests {
    use super::fewest;
    use crate::share::Share;
    use crate::thresholds::Policy;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, 1)]
    #[case(50, 1)]
    #[case(51, 2)]
    #[case(130, 2)]
    #[case(290, 4)]
    #[case(291, 5)]
    fn the_fewest_workers_hold_the_load_below_their_thresholds(#[case] percent: u32, #[case] workers: usize) {
        assert_eq!(fewest(Share::from_percent(percent), &Policy::default()), workers);
        let three = Policy {
            min: 3,
            ..Policy::default()
        };
        assert_eq!(fewest(Share::from_percent(percent), &three), workers.max(3));
    }

    proptest! {
        /// Whoever has room for a load has at least the optimum's workers.
        #[test]
        fn no_group_that_holds_a_load_is_smaller(load in 0u32..2000, workers in 1usize..30, min in 1usize..4) {
            let policy = Policy { min, ..Policy::default() };
            let load = Share::from_percent(load);
            let workers = workers.max(min);
            let capacity = policy.reception + policy.admission.times_count(workers - 1);
            if capacity >= load {
                prop_assert!(fewest(load, &policy) <= workers);
            } else {
                prop_assert!(fewest(load, &policy) > workers);
            }
        }
    }
}
