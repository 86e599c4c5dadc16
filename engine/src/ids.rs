//! Identifiers that every part shares; never anything that acts.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Bits of an epoch or birth number that count within one term; the rest is the term.
pub const SEQUENCE_BITS: u32 = 40;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// Term of a leader: the Lease's transition count; grows with every acquisition.
    Term
}
number_id! {
    /// Birth number of a worker: term x 2^40 + n; never used twice, orders workers by age.
    Birth
}
number_id! {
    /// Epoch of an ownership: term x 2^40 + sequence; only grows (V8). 0 is provisional (P6).
    /// A move's id is the epoch that it will grant.
    Epoch
}
number_id! {
    /// One connected gateway, as the commander numbers them.
    GatewayId
}

impl Term {
    /// The `sequence`-th number of this term, as epochs and births are made.
    pub const fn number(self, sequence: u64) -> u64 {
        (self.0 << SEQUENCE_BITS) + sequence
    }
}

impl Epoch {
    /// The epoch of a user whom no commander has placed yet (P6).
    pub const PROVISIONAL: Self = Self(0);

    /// The term in which this epoch was granted.
    pub const fn term(self) -> Term {
        Term(self.0 >> SEQUENCE_BITS)
    }
}

impl Birth {
    /// The term in which this worker was born.
    pub const fn term(self) -> Term {
        Term(self.0 >> SEQUENCE_BITS)
    }
}

/// Somebody logged in: 1..=256 bytes of UTF-8 without control characters. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(Arc<str>);

/// A user id that breaks its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserIdError {
    /// Empty, or longer than [`UserId::MAX_BYTES`].
    #[error("user id has {0} bytes, allowed are 1 to 256")]
    Length(usize),
    /// Holds a control character.
    #[error("user id holds a control character")]
    Control,
}

impl UserId {
    /// Longest user id in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks the bounds and makes an id.
    pub fn new(text: &str) -> Result<Self, UserIdError> {
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return Err(UserIdError::Length(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(UserIdError::Control);
        }
        Ok(Self(Arc::from(text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::borrow::Borrow<str> for UserId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for UserId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for UserId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// The random id in a browser's cookie: 16 bytes, 32 lower-case hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// Reads the 32 hex digits that [`fmt::Display`] writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let four = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let (pairs, []) = text.as_bytes().as_chunks() else {
            return None;
        };
        let mut bytes = [0; 16];
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = four(*high)? << 4 | four(*low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ClientId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClientId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("a client id is 32 lower-case hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_reads_back_what_it_writes() {
        let id = ClientId([0xab; 16]);
        assert_eq!(ClientId::parse(&id.to_string()), Some(id));
        assert_eq!(ClientId::parse(&"AB".repeat(16)), None);
        assert_eq!(ClientId::parse("+a"), None);
        assert_eq!(ClientId::parse(&"+a".repeat(16)), None);
    }

    #[test]
    fn a_user_id_keeps_its_bounds() {
        assert_eq!(UserId::new(""), Err(UserIdError::Length(0)));
        assert_eq!(UserId::new(&"x".repeat(257)), Err(UserIdError::Length(257)));
        assert_eq!(UserId::new("a\nb"), Err(UserIdError::Control));
        assert_eq!(
            UserId::new("Ärzte 1").map(|user| user.to_string()),
            Ok("Ärzte 1".to_owned())
        );
    }

    #[test]
    fn numbers_of_a_later_term_are_greater() {
        assert!(Term(3).number(0) > Term(2).number((1 << SEQUENCE_BITS) - 1));
        assert_eq!(Epoch(Term(7).number(9)).term(), Term(7));
    }
}
