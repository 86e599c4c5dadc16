//! Who speaks on the channel: asks the API server about a service account token; it decides nothing about roles.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::channel::AUDIENCE;
use crate::channel::server::{AuthError, Authenticator, PeerIdentity};
use crate::clock::Clock;

/// How long a token that was found good is not asked about again.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Tokens remembered at once; beyond it the oldest are forgotten.
const REMEMBERED_AT_MOST: usize = 4096;

/// Longest token that is asked about, in bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Reviews under way at once.
const REVIEWS_AT_ONCE: usize = 8;

/// How long one review may take, its wait for a free place included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Authenticates peers by TokenReview; a good token is remembered by its hash for a minute.
#[derive(Debug)]
pub struct TokenReviewer {
    api: Api<TokenReview>,
    clock: Clock,
    known: Mutex<HashMap<[u8; 32], (PeerIdentity, Duration)>>,
    places: Semaphore,
    reviews: AtomicU64,
}

impl TokenReviewer {
    /// An authenticator that remembers nothing yet.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            api: Api::all(client),
            clock,
            known: Mutex::new(HashMap::new()),
            places: Semaphore::new(REVIEWS_AT_ONCE),
            reviews: AtomicU64::new(0),
        }
    }

    /// How many reviews the API server was asked for.
    pub fn reviews(&self) -> u64 {
        self.reviews.load(Ordering::Relaxed)
    }

    async fn identify(&self, token: &str) -> Result<PeerIdentity, AuthError> {
        if token.is_empty()
            || token.len() > LONGEST_TOKEN
            || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(AuthError::Refused);
        }
        let hash = hash_of(token);
        if let Some(identity) = self.remembered(&hash) {
            return Ok(identity);
        }
        let status = match tokio::time::timeout(REVIEW_TIMEOUT, self.review(token)).await {
            Ok(status) => status?,
            Err(_) => {
                return Err(AuthError::Unavailable(
                    "the API server did not answer in time".to_owned(),
                ));
            }
        };
        let identity = identity_of(&status)?;
        self.remember(hash, identity.clone());
        Ok(identity)
    }

    async fn review(&self, token: &str) -> Result<TokenReviewStatus, AuthError> {
        let unavailable = |text: String| AuthError::Unavailable(text);
        let _place = self
            .places
            .acquire()
            .await
            .map_err(|closed| unavailable(closed.to_string()))?;
        self.reviews.fetch_add(1, Ordering::Relaxed);
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        // The error's text is the server's; it never holds the token.
        let answer = self.api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| unavailable(error.to_string()))?;
        answer
            .status
            .ok_or_else(|| unavailable("the API server left the review without a status".to_owned()))
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<PeerIdentity> {
        let known = self.known.lock();
        let (identity, until) = known.get(hash)?;
        (self.clock.now() < *until).then(|| identity.clone())
    }

    fn remember(&self, hash: [u8; 32], identity: PeerIdentity) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_AT_MOST {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= REMEMBERED_AT_MOST {
            let oldest = known
                .iter()
                .min_by_key(|(_, (_, until))| *until)
                .map(|(hash, _)| *hash);
            oldest.and_then(|hash| known.remove(&hash));
        }
        known.insert(hash, (identity, now + REMEMBERED));
    }
}

impl Authenticator for TokenReviewer {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>> {
        self.identify(token).boxed()
    }
}

fn hash_of(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// Reads a review: our audience, a service account, bound to a pod; anything else is refused.
fn identity_of(status: &TokenReviewStatus) -> Result<PeerIdentity, AuthError> {
    let ours = status
        .audiences
        .as_ref()
        .is_some_and(|all| all.iter().any(|audience| audience == AUDIENCE));
    if status.authenticated != Some(true) || !ours {
        return Err(AuthError::Refused);
    }
    let user = status.user.as_ref().ok_or(AuthError::Refused)?;
    let name = user
        .username
        .as_deref()
        .and_then(|name| name.strip_prefix("system:serviceaccount:"));
    let (namespace, account) = name
        .and_then(|name| name.split_once(':'))
        .ok_or(AuthError::Refused)?;
    let extra = |key: &str| {
        let values = user.extra.as_ref().and_then(|extra| extra.get(key));
        values
            .and_then(|values| values.first())
            .filter(|value| !value.is_empty())
            .cloned()
            .ok_or(AuthError::Refused)
    };
    Ok(PeerIdentity {
        namespace: namespace.to_owned(),
        service_account: account.to_owned(),
        pod_name: extra("authentication.kubernetes.io/pod-name")?,
        pod_uid: extra("authentication.kubernetes.io/pod-uid")?,
    })
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
