//! Tokens of the local vehicle's own children, instead of a TokenReview; known to this process alone.

use std::collections::HashMap;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::channel::server::{AuthError, Authenticator, PeerIdentity};
use crate::credentials::{hex_encode, random_bytes};

/// Who was given which token.
#[derive(Debug, Default)]
pub(super) struct LocalTokens(Mutex<HashMap<String, PeerIdentity>>);

impl LocalTokens {
    /// A new token for this child.
    pub(super) fn issue(&self, identity: PeerIdentity) -> anyhow::Result<String> {
        let token = hex_encode(&random_bytes::<32>()?);
        self.0.lock().insert(token.clone(), identity);
        Ok(token)
    }

    /// The child is gone, its token with it.
    pub(super) fn revoke(&self, pod_uid: &str) {
        self.0.lock().retain(|_, identity| identity.pod_uid != pod_uid);
    }
}

impl Authenticator for LocalTokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>> {
        let known = self.0.lock().get(token).cloned().ok_or(AuthError::Refused);
        async move { known }.boxed()
    }
}
