//! The engine's fence, with this pod's key as the judge of tickets and its records as claims; what may be served is the engine's word.

use elastic_pool_engine::fence::Tickets;
pub(crate) use elastic_pool_engine::fence::{Fence, Record, Refusal, Shown, State, Step, Verdict};
use elastic_pool_engine::ids::{Epoch, UserId};

use crate::channel::proto::{Claim, claim};
use crate::credentials::Key;

impl Tickets for Key {
    fn is_true(&self, user: &UserId, epoch: Epoch, ticket: &str) -> bool {
        self.ticket_is_valid(user.as_str(), epoch, ticket)
    }
}

/// What Hello says of everybody.
pub(crate) fn claims(fence: &Fence) -> Vec<Claim> {
    fence
        .iter()
        .map(|(user, record)| claim_of(user, record))
        .collect()
}

fn claim_of(user: &UserId, record: &Record) -> Claim {
    let (state, mv, complete) = match record.state {
        State::Provisional => (claim::State::Provisional, Epoch(0), false),
        State::Owned { .. } => (claim::State::Owned, Epoch(0), false),
        State::Frozen { mv, .. } => (claim::State::Frozen, mv, false),
        State::Staged { mv, complete, .. } => (claim::State::Staged, mv, complete),
        State::Past { .. } => (claim::State::Past, Epoch(0), false),
    };
    Claim {
        user: user.as_str().to_owned(),
        epoch: record.epoch().0,
        state: state.into(),
        r#move: mv.0,
        complete,
        ticket: record.ticket.clone(),
        clients: record.clients.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_claim_says_the_state_the_move_and_the_ticket() {
        let key = Key::from_hex(&"07".repeat(32)).unwrap();
        let (mut fence, alice) = (Fence::default(), UserId::new("alice").unwrap());
        let ticket = key.ticket("alice", Epoch(11));
        let shown = Shown {
            epoch: Epoch(11),
            ticket: &ticket,
        };
        assert_eq!(
            fence.check(&alice, shown, Some(&key), false, Duration::ZERO),
            Verdict::Raised
        );
        fence.freeze(&alice, Epoch(20), Duration::ZERO).unwrap();
        let claim = claims(&fence).pop().unwrap();
        assert_eq!(
            (claim.epoch, claim.state(), claim.r#move, claim.ticket),
            (11, claim::State::Frozen, 20, ticket)
        );
    }
}
