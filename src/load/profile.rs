//! How many users are there when: a list of phases, read from text; never looks at a clock.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Most users of a phase.
const MAX_USERS: usize = 50_000;

/// A number of users for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    /// Users who are there in this phase.
    pub(super) users: usize,
    /// How long it lasts.
    pub(super) lasts: Duration,
}

/// The phases of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profile(Vec<Phase>);

/// What is wrong with a profile.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ProfileError {
    /// A phase is not of the form `USERSxSECONDSs`.
    #[error("phase {0:?}: expected USERSxTIME such as 300x120s or 20x2m, with at most 50000 users and 24 h")]
    Phase(String),
    /// There is none.
    #[error("no phase given: expected for example 10x30s,300x120s,20x60s")]
    Empty,
}

impl FromStr for Profile {
    type Err = ProfileError;

    /// Phases between commas or on lines of their own; `#` starts a comment.
    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let phases: Vec<Phase> = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(|word| phase(word).ok_or_else(|| ProfileError::Phase(word.to_owned())))
            .collect::<Result<_, _>>()?;
        if phases.is_empty() {
            Err(ProfileError::Empty)
        } else {
            Ok(Self(phases))
        }
    }
}

fn phase(word: &str) -> Option<Phase> {
    let (users, time) = word.split_once('x')?;
    let users = users.trim().parse().ok().filter(|users| *users <= MAX_USERS)?;
    let (number, unit) = time
        .trim()
        .split_at(time.trim().find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    let lasts = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.checked_mul(60)?),
        _ => return None,
    };
    (lasts <= Duration::from_hours(24)).then_some(Phase { users, lasts })
}

impl Profile {
    /// Users wanted this long after the start; none when all phases are over.
    pub(super) fn users_at(&self, since_start: Duration) -> Option<usize> {
        let mut end = Duration::ZERO;
        self.0.iter().find_map(|phase| {
            end += phase.lasts;
            (since_start < end).then_some(phase.users)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::first(0, Some(10))]
    #[case::still_first(29, Some(10))]
    #[case::second(30, Some(300))]
    #[case::third(150, Some(20))]
    #[case::over(210, None)]
    fn a_profile_says_how_many_users_are_wanted(#[case] seconds: u64, #[case] wanted: Option<usize>) {
        let profile: Profile = "10x30s, 300x2m\n20x60000ms # few again".parse().unwrap();
        assert_eq!(profile.users_at(Duration::from_secs(seconds)), wanted);
    }

    #[rstest]
    #[case("")]
    #[case("10")]
    #[case("10x")]
    #[case("10x30")]
    #[case("-1x30s")]
    #[case("99999x1s")]
    #[case("1x99999999999999999999s")]
    #[case("1x1h")]
    fn what_is_no_profile_is_refused(#[case] text: &str) {
        assert!(text.parse::<Profile>().is_err());
    }
}
