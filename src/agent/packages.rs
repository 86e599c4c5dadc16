//! Packages that wait at the source for their Fetch, and the body that checks one on its way into the app.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use elastic_pool_engine::ids::{Epoch, UserId};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use ring::digest;

use crate::channel::proto::Package;
use crate::credentials::hex_encode;

/// All kept packages together: this many of the largest allowed.
const LARGEST_KEPT: u64 = 8;

/// A checksum under way.
#[derive(Clone)]
pub(crate) struct Sha256(digest::Context);

impl std::fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sha256")
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl Sha256 {
    /// More bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all that was added, lower-case hex.
    fn hex(self) -> String {
        hex_encode(self.0.finish().as_ref())
    }
}

/// One package at its source.
#[derive(Debug, Clone)]
pub(crate) struct KeptPackage {
    pub(crate) mv: Epoch,
    pub(crate) bytes: Bytes,
    sha256: String,
    pub(crate) format: String,
}

impl KeptPackage {
    /// `sha256` is the sum over all `bytes`.
    pub(crate) fn new(mv: Epoch, bytes: Bytes, sha256: Sha256, format: String) -> Self {
        Self {
            mv,
            bytes,
            sha256: sha256.hex(),
            format,
        }
    }

    /// For the Ack of its Snapshot.
    pub(crate) fn describe(&self) -> Package {
        Package {
            bytes: self.bytes.len() as u64,
            sha256: self.sha256.clone(),
            format: self.format.clone(),
        }
    }
}

/// True for exactly the bytes that were announced.
pub(crate) fn is_announced(bytes: &[u8], announced: &Package) -> bool {
    let mut sum = Sha256::default();
    sum.add(bytes);
    bytes.len() as u64 == announced.bytes && sum.hex() == announced.sha256
}

/// All of them, one per user at most.
#[derive(Debug, Default)]
pub(crate) struct Packages {
    kept: HashMap<UserId, KeptPackage>,
}

impl Packages {
    /// Keeps a package until it is dropped; false when all together would be too much.
    pub(crate) fn keep(&mut self, user: &UserId, package: KeptPackage, max_package: u64) -> bool {
        let others: u64 = self
            .kept
            .iter()
            .filter(|(other, _)| *other != user)
            .map(|(_, kept)| kept.bytes.len() as u64)
            .sum();
        if others + package.bytes.len() as u64 > max_package.saturating_mul(LARGEST_KEPT) {
            return false;
        }
        self.kept.insert(user.clone(), package);
        true
    }

    pub(crate) fn get(&self, user: &UserId, mv: Epoch) -> Option<&KeptPackage> {
        self.kept.get(user).filter(|package| package.mv == mv)
    }

    pub(crate) fn drop_of(&mut self, user: &UserId) {
        self.kept.remove(user);
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

/// Why a package was cut on its way.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntakeError {
    #[error("the package is longer than was said")]
    TooLong,
    #[error("the source broke off")]
    Source(#[source] hyper::Error),
}

/// What came through so far.
#[derive(Clone)]
struct Seen {
    bytes: u64,
    sum: Sha256,
}

/// Reads what an [`Intake`] let through.
#[derive(Clone)]
pub(crate) struct IntakeCheck(Arc<Mutex<Seen>>);

impl IntakeCheck {
    /// True when exactly the announced bytes came through.
    pub(crate) fn holds(&self, announced: &Package) -> bool {
        let seen = self.0.lock().clone();
        seen.bytes == announced.bytes && seen.sum.hex() == announced.sha256
    }
}

/// A package on its way from the source into the app: counted, hashed and cut beyond its length.
pub(crate) struct Intake {
    body: Incoming,
    announced: u64,
    seen: Arc<Mutex<Seen>>,
}

impl Intake {
    pub(crate) fn new(body: Incoming, announced: u64) -> (Self, IntakeCheck) {
        let seen = Seen {
            bytes: 0,
            sum: Sha256::default(),
        };
        let seen = Arc::new(Mutex::new(seen));
        (
            Self {
                body,
                announced,
                seen: Arc::clone(&seen),
            },
            IntakeCheck(seen),
        )
    }
}

impl Body for Intake {
    type Data = Bytes;
    type Error = IntakeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IntakeError>>> {
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(IntakeError::Source(error)))),
            Some(Ok(frame)) => frame,
        };
        if let Some(data) = frame.data_ref() {
            let mut seen = self.seen.lock();
            seen.bytes += data.len() as u64;
            if seen.bytes > self.announced {
                return Poll::Ready(Some(Err(IntakeError::TooLong)));
            }
            seen.sum.add(data);
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.announced.saturating_sub(self.seen.lock().bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_packages_are_bounded_and_one_per_user() {
        let mut packages = Packages::default();
        let package = |mv, size| {
            let bytes = Bytes::from(vec![0; size]);
            KeptPackage::new(Epoch(mv), bytes, Sha256::default(), String::new())
        };
        let user = |n: usize| UserId::new(&format!("u{n}")).unwrap();
        for n in 0..8 {
            assert!(packages.keep(&user(n), package(1, 10), 10));
        }
        assert!(!packages.keep(&user(8), package(1, 1), 10));
        assert!(packages.keep(&user(0), package(2, 10), 10));
        assert!(packages.get(&user(0), Epoch(1)).is_none());
        packages.drop_of(&user(0));
        assert!(packages.keep(&user(8), package(1, 1), 10));
    }
}
