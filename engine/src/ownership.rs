//! Who is believed to own a user: at the commander, at a gateway, and what the one answers the other (V8, L6); holds nothing.

use crate::ids::Epoch;

/// Whether the commander's surface may name another owner: only under an epoch above the present one (V8).
pub fn supersedes(present: Option<Epoch>, offered: Epoch) -> bool {
    present.is_none_or(|present| offered > present)
}

/// Whether a gateway takes an ownership that reaches it: one that arrives late never replaces a newer one.
pub fn is_news(present: Option<Epoch>, offered: Epoch) -> bool {
    present.is_none_or(|present| offered >= present)
}

/// What the commander knows of a user whom a gateway asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The epoch under which he lives somewhere; `None`: nowhere.
    pub resident: Option<Epoch>,
    /// Every worker that may hold users was heard in this term, or the time for it is up (D3).
    pub live: bool,
    /// An agent told of a login that no gateway has asked to place yet (P6).
    pub born: bool,
    /// A move, join or leave of his is under way or waits (V11), or a new leader does not know yet where he lives (D3).
    pub busy: bool,
}

/// The answer to a gateway that does not know a user, or was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// He lives where the surface says.
    Owned {
        /// His agent refused what it was granted: it has not heard of the grant, so it is told again.
        tell_agent: bool,
    },
    /// He is a guest from now on.
    Gone,
    /// It cannot be said yet: ask again.
    Wait,
    /// He stays with the reception that took him in (P6).
    Provisional,
}

/// Answers a gateway (L6, V8); `refused` is the epoch that an agent refused, or that stands in the cookie.
pub fn answer(known: Known, refused: Epoch) -> Answer {
    match known.resident {
        None if !known.live || known.busy => Answer::Wait,
        None if known.born => Answer::Provisional,
        None => Answer::Gone,
        Some(epoch) if epoch <= refused && known.busy => Answer::Wait,
        Some(epoch) => Answer::Owned {
            tell_agent: epoch <= refused,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known {
        resident: Some(Epoch(5)),
        live: true,
        born: false,
        busy: false,
    };

    #[test]
    fn an_epoch_takes_a_user_only_upwards() {
        assert!(supersedes(None, Epoch(1)) && supersedes(Some(Epoch(1)), Epoch(2)));
        assert!(!supersedes(Some(Epoch(2)), Epoch(2)) && is_news(Some(Epoch(2)), Epoch(2)));
        assert!(!is_news(Some(Epoch(2)), Epoch(1)));
    }

    #[test]
    fn who_asks_is_told_no_more_than_is_known() {
        let owned = |tell_agent| Answer::Owned { tell_agent };
        assert_eq!(answer(KNOWN, Epoch(4)), owned(false));
        assert_eq!(answer(KNOWN, Epoch(5)), owned(true));
        let busy = Known { busy: true, ..KNOWN };
        assert_eq!(answer(busy, Epoch(4)), owned(false));
        assert_eq!(answer(busy, Epoch(5)), Answer::Wait);
        let nobody = Known {
            resident: None,
            ..KNOWN
        };
        assert_eq!(answer(nobody, Epoch(5)), Answer::Gone);
        assert_eq!(answer(Known { busy: true, ..nobody }, Epoch(5)), Answer::Wait);
        assert_eq!(
            answer(Known { born: true, ..nobody }, Epoch(5)),
            Answer::Provisional
        );
        assert_eq!(
            answer(
                Known {
                    live: false,
                    ..nobody
                },
                Epoch(5)
            ),
            Answer::Wait
        );
    }
}
