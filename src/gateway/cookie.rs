//! The affinity cookie: seals and opens what a client carries; it knows nothing of requests and of who owns whom.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::credentials::{Key, NoRandomness, random_bytes};

const VERSION: u8 = 1;
const AAD: &[u8] = b"elastic-pool affinity cookie";
/// Bytes before the group's name: version, client, epoch, reception, length of the group's name.
const FIXED: usize = 1 + 16 + 8 + 8 + 1;
/// Longest text that can be one of ours; longer ones are not even decoded.
const MAX_TEXT: usize = 1024;

/// What a client carries. It names no worker but for the birth number of a guest's reception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie {
    /// The browser.
    pub client: ClientId,
    /// Group that took the client in; at most 255 bytes.
    pub group: Arc<str>,
    /// Who logged in with it, if anybody.
    pub user: Option<UserId>,
    /// Epoch of that user's life at the login; 0 for guests and provisional users (P6).
    pub epoch: Epoch,
    /// Reception of a guest or of a provisional user.
    pub reception: Option<Birth>,
}

/// A cookie could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// No nonce.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The cipher refused the key or the text.
    #[error("seal the cookie")]
    Cipher,
}

struct SealKey {
    id: u8,
    cipher: LessSafeKey,
}

/// Seals with the present key and opens with the present and the previous one.
pub struct Seal {
    keys: Vec<SealKey>,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    /// `previous` is the key before the last rotation, still accepted.
    pub fn new(present: &Key, previous: Option<&Key>) -> Result<Self, SealError> {
        let keys = std::iter::once(present)
            .chain(previous)
            .map(|key| {
                let digest = ring::digest::digest(&ring::digest::SHA256, key.bytes());
                let unbound =
                    UnboundKey::new(&CHACHA20_POLY1305, key.bytes()).map_err(|_| SealError::Cipher)?;
                Ok(SealKey {
                    id: digest.as_ref()[0],
                    cipher: LessSafeKey::new(unbound),
                })
            })
            .collect::<Result<_, SealError>>()?;
        Ok(Self { keys })
    }

    /// The cookie's value: base64url of key id, nonce and sealed body.
    pub fn seal(&self, cookie: &Cookie) -> Result<String, SealError> {
        let key = self.keys.first().ok_or(SealError::Cipher)?;
        let nonce: [u8; NONCE_LEN] = random_bytes()?;
        let mut body = encode(cookie);
        key.cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(AAD), &mut body)
            .map_err(|_| SealError::Cipher)?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + body.len());
        sealed.push(key.id);
        sealed.extend_from_slice(&nonce);
        sealed.append(&mut body);
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// The cookie, when it is ours and unaltered; `None` for anything else.
    pub fn open(&self, text: &[u8]) -> Option<Cookie> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, rest) = sealed.split_first()?;
        let (nonce, body) = rest.split_at_checked(NONCE_LEN)?;
        self.keys.iter().filter(|key| key.id == *id).find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut body = body.to_vec();
            let plain = key.cipher.open_in_place(nonce, Aad::from(AAD), &mut body).ok()?;
            decode(plain)
        })
    }
}

fn encode(cookie: &Cookie) -> Vec<u8> {
    let user = cookie.user.as_ref().map_or("", UserId::as_str);
    // A group's name is bounded by the API at 63 bytes.
    let group_len = u8::try_from(cookie.group.len()).unwrap_or(0);
    let group = &cookie.group.as_bytes()[..usize::from(group_len)];
    let mut body = Vec::with_capacity(FIXED + group.len() + user.len() + CHACHA20_POLY1305.tag_len());
    body.push(VERSION);
    body.extend_from_slice(&cookie.client.0);
    body.extend_from_slice(&cookie.epoch.0.to_be_bytes());
    body.extend_from_slice(&cookie.reception.map_or(0, |birth| birth.0).to_be_bytes());
    body.push(group_len);
    body.extend_from_slice(group);
    body.extend_from_slice(user.as_bytes());
    body
}

fn decode(body: &[u8]) -> Option<Cookie> {
    let (fixed, names) = body.split_at_checked(FIXED)?;
    if fixed[0] != VERSION {
        return None;
    }
    let number = |at: usize| Some(u64::from_be_bytes(fixed.get(at..at + 8)?.try_into().ok()?));
    let client = ClientId(fixed[1..17].try_into().ok()?);
    let (epoch, reception) = (number(17)?, number(25)?);
    let (group, user) = names.split_at_checked(usize::from(fixed[33]))?;
    let user = match std::str::from_utf8(user).ok()? {
        "" => None,
        user => Some(UserId::new(user).ok()?),
    };
    Some(Cookie {
        client,
        group: Arc::from(std::str::from_utf8(group).ok()?),
        user,
        epoch: Epoch(epoch),
        reception: (reception != 0).then_some(Birth(reception)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> Cookie {
        Cookie {
            client: ClientId([7; 16]),
            group: Arc::from("shop-blue"),
            user: Some(UserId::new("alice").unwrap()),
            epoch: Epoch(1 << 41),
            reception: Some(Birth(9)),
        }
    }

    #[test]
    fn a_cookie_reads_back_and_a_rotated_key_still_opens_it() {
        let (old, new) = (Key::random().unwrap(), Key::random().unwrap());
        let text = Seal::new(&old, None).unwrap().seal(&cookie()).unwrap();
        assert!(text.len() < 256, "{}", text.len());
        assert_eq!(
            Seal::new(&new, Some(&old)).unwrap().open(text.as_bytes()),
            Some(cookie())
        );
        assert_eq!(Seal::new(&new, None).unwrap().open(text.as_bytes()), None);
    }

    #[test]
    fn no_flipped_bit_is_accepted() {
        let seal = Seal::new(&Key::random().unwrap(), None).unwrap();
        let text = seal.seal(&cookie()).unwrap().into_bytes();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(&flipped), None, "bit {bit}");
        }
        assert!(seal.open(&text).is_some());
        for length in 0..text.len() {
            assert_eq!(seal.open(&text[..length]), None);
        }
    }
}
