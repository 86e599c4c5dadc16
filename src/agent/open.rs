//! The open requests and streams of this agent: a dictionary, never a counter (V2); it cuts nothing itself.

use std::collections::HashMap;
use std::time::Duration;

use elastic_pool_engine::ids::{ClientId, UserId};
use tokio_util::sync::CancellationToken;

/// How a stream is ended, and how one sees that it ended.
#[derive(Debug, Clone)]
pub(crate) struct StreamEnd {
    /// Cancelled: stop relaying both ways and end it towards the app.
    pub(crate) cancel: CancellationToken,
    /// Cancelled by the relay once the app's end was seen, or its connection is gone.
    pub(crate) ended: CancellationToken,
}

/// One entry.
#[derive(Debug)]
pub(crate) struct Open {
    /// The user whom the gateway named, if any.
    pub(crate) user: Option<UserId>,
    pub(crate) client: Option<ClientId>,
    /// By the agent's clock.
    pub(crate) since: Duration,
    /// Set for WebSocket, other upgrades and SSE.
    pub(crate) stream: Option<StreamEnd>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    entries: HashMap<u64, Open>,
    next: u64,
}

impl OpenRequests {
    pub(crate) fn insert(&mut self, open: Open) -> u64 {
        self.next += 1;
        self.entries.insert(self.next, open);
        self.next
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Open> {
        self.entries.remove(&id)
    }

    /// From now on this entry is a stream.
    pub(crate) fn becomes_stream(&mut self, id: u64, end: StreamEnd) {
        if let Some(open) = self.entries.get_mut(&id) {
            open.stream = Some(end);
        }
    }

    /// L1: every open request of the client counts as this user's.
    pub(crate) fn bind(&mut self, client: ClientId, user: &UserId) {
        for open in self
            .entries
            .values_mut()
            .filter(|open| open.client == Some(client))
        {
            open.user = Some(user.clone());
        }
    }

    fn of<'a>(&'a self, user: &'a UserId) -> impl Iterator<Item = &'a Open> {
        self.entries
            .values()
            .filter(move |open| open.user.as_ref() == Some(user))
    }

    /// Open requests (no streams) of one user.
    pub(crate) fn requests_of(&self, user: &UserId) -> usize {
        self.of(user).filter(|open| open.stream.is_none()).count()
    }

    /// Ends of all streams of one user.
    pub(crate) fn streams_of(&self, user: &UserId) -> Vec<StreamEnd> {
        self.of(user).filter_map(|open| open.stream.clone()).collect()
    }

    /// True when anything of the user is open.
    pub(crate) fn any_of(&self, user: &UserId) -> bool {
        self.of(user).next().is_some()
    }

    /// Requests and streams.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let streams = self.entries.values().filter(|open| open.stream.is_some()).count();
        (self.entries.len() - streams, streams)
    }

    /// Age of the oldest open request (streams left out).
    pub(crate) fn oldest(&self, now: Duration) -> Option<Duration> {
        let requests = self.entries.values().filter(|open| open.stream.is_none());
        requests.map(|open| now.saturating_sub(open.since)).max()
    }
}
