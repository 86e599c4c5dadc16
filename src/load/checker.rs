//! Judges the counters that one user sees: each answer must be exactly one more than the last; pure.

/// What an answer's counter says about the user's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One more than before, or as much more as requests without a known outcome allow.
    Good,
    /// The state is gone: the counter began anew.
    Lost,
    /// The same worker went back to an earlier state.
    Back,
    /// Two copies of the state count: another worker answers from an earlier state, or somebody else has counted.
    Forked,
}

/// The memory of one user's counter.
#[derive(Debug, Default)]
pub(super) struct Checker {
    last: Option<(u64, String)>,
    unsure: u64,
}

impl Checker {
    /// A request whose outcome nobody knows: it may have counted or not.
    pub(super) fn unsure(&mut self) {
        self.unsure += 1;
    }

    /// Begins anew after a loss.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Takes a counter as the base that later ones are compared with.
    pub(super) fn base(&mut self, counter: u64, worker: &str) {
        self.last = Some((counter, worker.to_owned()));
        self.unsure = 0;
    }

    /// Judges the counter of an answer, which is the base from then on.
    pub(super) fn judge(&mut self, counter: u64, worker: &str) -> Verdict {
        let verdict = match &self.last {
            None => Verdict::Good,
            Some((last, _)) if counter > last + 1 + self.unsure => Verdict::Forked,
            Some((last, _)) if counter > *last => Verdict::Good,
            Some(_) if counter <= 1 => Verdict::Lost,
            Some((_, before)) if before == worker => Verdict::Back,
            Some(_) => Verdict::Forked,
        };
        self.base(counter, worker);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::next(10, 0, 11, "a", Verdict::Good)]
    #[case::next_after_a_move(10, 0, 11, "b", Verdict::Good)]
    #[case::unsure_counted(10, 1, 12, "a", Verdict::Good)]
    #[case::unsure_not_counted(10, 1, 11, "a", Verdict::Good)]
    #[case::somebody_else_counted(10, 0, 12, "a", Verdict::Forked)]
    #[case::more_than_unsure(10, 1, 13, "a", Verdict::Forked)]
    #[case::repeated_here(10, 0, 10, "a", Verdict::Back)]
    #[case::earlier_here(10, 0, 7, "a", Verdict::Back)]
    #[case::repeated_elsewhere(10, 0, 10, "b", Verdict::Forked)]
    #[case::began_anew(10, 0, 1, "b", Verdict::Lost)]
    #[case::began_anew_at_once(1, 0, 1, "a", Verdict::Lost)]
    fn a_counter_is_judged_by_the_one_before(
        #[case] last: u64,
        #[case] unsure: u64,
        #[case] counter: u64,
        #[case] worker: &str,
        #[case] expected: Verdict,
    ) {
        let mut checker = Checker::default();
        checker.base(last, "a");
        (0..unsure).for_each(|_| checker.unsure());
        assert_eq!(checker.judge(counter, worker), expected);
        assert_eq!(checker.judge(counter + 1, worker), Verdict::Good);
    }
}
