//! Keys and the proofs made with them: Pool-Hop, ownership tickets, package passes; it stores nothing.
//!
//! All proofs are HMAC-SHA256, written as 64 lower-case hex digits and compared in constant time.

use elastic_pool_engine::ids::Epoch;
use ring::hmac;

use crate::net;

/// A secret of 32 bytes. Its `Debug` form shows nothing.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; 32],
}

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes from the operating system")]
pub struct NoRandomness;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A new random key.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(Self {
            bytes: random_bytes()?,
        })
    }

    /// Reads 64 hex digits; surrounding white space is ignored.
    pub fn from_hex(text: &str) -> Option<Self> {
        let bytes = hex_decode(text.trim())?;
        Some(Self {
            bytes: bytes.try_into().ok()?,
        })
    }

    /// The key as 64 hex digits, for a Secret or a message to its owner.
    pub fn to_hex(&self) -> String {
        hex_encode(&self.bytes)
    }

    /// The raw bytes, for an AEAD.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    fn sign(&self, parts: &[&[u8]]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.bytes);
        let mut context = hmac::Context::with_key(&key);
        for part in parts {
            // Each part with its length, so that no two lists of parts sign alike.
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign()
    }

    fn proof(&self, parts: &[&[u8]]) -> String {
        hex_encode(self.sign(parts).as_ref())
    }

    /// `Pool-Hop`: what a gateway shows to the agent of the pod `pod_uid`; `self` is the pool key.
    pub fn hop(&self, pod_uid: &str, generation: u32) -> String {
        self.proof(&[b"hop", pod_uid.as_bytes(), &generation.to_be_bytes()])
    }

    /// The pod's own ticket key; `self` is the pool's ticket key. An agent knows only its own.
    #[must_use]
    pub fn for_pod(&self, pod_uid: &str) -> Self {
        let tag = self.sign(&[b"ticket key", pod_uid.as_bytes()]);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(tag.as_ref());
        Self { bytes }
    }

    /// Ticket for an ownership; `self` is the pod's ticket key.
    pub fn ticket(&self, user: &str, epoch: Epoch) -> String {
        self.proof(&[b"ticket", user.as_bytes(), &epoch.0.to_be_bytes()])
    }

    /// True when `shown` is the ticket of this ownership; `self` is the pod's ticket key.
    pub fn ticket_is_valid(&self, user: &str, epoch: Epoch, shown: &str) -> bool {
        same(&self.ticket(user, epoch), shown)
    }

    /// What a target shows to the source of a move to get the package; `self` is the source pod's ticket key.
    pub fn package_pass(&self, user: &str, epoch: Epoch) -> String {
        self.proof(&[b"package", user.as_bytes(), &epoch.0.to_be_bytes()])
    }
}

/// Compares two secrets in a time that depends on their lengths only.
pub fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Random bytes from the operating system.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    net::fill_random(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// `bytes` as lower-case hex.
pub fn hex_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(hex_digits(*byte).map(char::from));
    }
    text
}

/// One byte as two lower-case hex digits.
pub(crate) fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Reads hex of an even length, upper or lower case; `None` for anything else.
pub fn hex_decode(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let digits = digits?;
    (digits.len() % 2 == 0).then(|| {
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_holds_for_one_user_epoch_and_pod_only() {
        let pool = Key::random().unwrap();
        let pod = pool.for_pod("uid-1");
        let ticket = pod.ticket("alice", Epoch(7));
        assert!(pod.ticket_is_valid("alice", Epoch(7), &ticket));
        assert!(!pod.ticket_is_valid("alice", Epoch(8), &ticket));
        assert!(!pod.ticket_is_valid("bob", Epoch(7), &ticket));
        assert!(!pool.for_pod("uid-2").ticket_is_valid("alice", Epoch(7), &ticket));
        assert_ne!(ticket, pod.package_pass("alice", Epoch(7)));
    }

    #[test]
    fn keys_read_back_and_show_nothing() {
        let key = Key::random().unwrap();
        assert_eq!(Key::from_hex(&key.to_hex()).unwrap().bytes(), key.bytes());
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert!(Key::from_hex("abc").is_none());
    }
}
