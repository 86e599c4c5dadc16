//! The token by which the agent proves itself: read from its file, read again when that changes; never logged.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use parking_lot::RwLock;
use ring::hmac;
use ring::rand::SystemRandom;

const MAX_TOKEN_BYTES: u64 = 4096;

/// What a presented token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the file's.
    Right,
    /// It is not.
    Wrong,
    /// There is no token to compare with, so there is no contract.
    NoToken,
}

/// The token file of this worker.
pub(super) struct TokenFile {
    path: PathBuf,
    key: Option<hmac::Key>,
    /// Only a keyed digest is kept, so that comparing two of them takes the same time whatever they share.
    digest: RwLock<Option<hmac::Tag>>,
}

impl TokenFile {
    /// The token in this file, which may come later.
    pub(super) fn new(path: PathBuf) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        let file = Self {
            path,
            key,
            digest: RwLock::new(None),
        };
        file.reload();
        file
    }

    /// Reads the file again.
    pub(super) fn reload(&self) {
        let digest = self
            .key
            .as_ref()
            .and_then(|key| Some(hmac::sign(key, self.read()?.as_bytes())));
        *self.digest.write() = digest;
    }

    /// Compares in constant time; a token that does not fit is compared with the file once more before it is refused.
    pub(super) fn check(&self, presented: &[u8]) -> Verdict {
        if self.matches(presented) == Some(true) {
            return Verdict::Right;
        }
        self.reload();
        match self.matches(presented) {
            Some(true) => Verdict::Right,
            Some(false) => Verdict::Wrong,
            None => Verdict::NoToken,
        }
    }

    fn matches(&self, presented: &[u8]) -> Option<bool> {
        let held = self.digest.read();
        let (key, tag) = (self.key.as_ref()?, held.as_ref()?);
        Some(hmac::verify(key, presented, tag.as_ref()).is_ok())
    }

    /// The token, for a call to the agent.
    pub(super) fn read(&self) -> Option<String> {
        let mut text = String::new();
        File::open(&self.path)
            .ok()?
            .take(MAX_TOKEN_BYTES)
            .read_to_string(&mut text)
            .ok()?;
        let token = text.trim();
        (!token.is_empty()).then(|| token.to_owned())
    }
}
