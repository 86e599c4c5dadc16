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
    /// When a guest asked for something last; zero, the agent's start, before one did.
    guest_at: Duration,
}

impl OpenRequests {
    pub(crate) fn insert(&mut self, open: Open) -> u64 {
        if open.user.is_none() {
            self.guest_at = open.since;
        }
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

    /// Since the last request of a guest; nothing while one is open.
    pub(crate) fn guest_idle(&self, now: Duration) -> Duration {
        if self.entries.values().any(|open| open.user.is_none()) {
            return Duration::ZERO;
        }
        now.saturating_sub(self.guest_at)
    }

    /// Age of the oldest open request (streams left out).
    pub(crate) fn oldest(&self, now: Duration) -> Option<Duration> {
        let requests = self.entries.values().filter(|open| open.stream.is_none());
        requests.map(|open| now.saturating_sub(open.since)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_idle_since_their_last_request_and_not_while_one_is_open() {
        let seconds = Duration::from_secs;
        let open = |user: Option<&str>, since| Open {
            user: user.map(|user| UserId::new(user).unwrap()),
            client: Some(ClientId([1; 16])),
            since,
            stream: None,
        };
        let mut all = OpenRequests::default();
        all.insert(open(Some("alice"), seconds(3)));
        assert_eq!(all.guest_idle(seconds(5)), seconds(5), "since the agent's start");
        let guest = all.insert(open(None, seconds(6)));
        assert_eq!(all.guest_idle(seconds(8)), Duration::ZERO);
        all.remove(guest);
        assert_eq!(all.guest_idle(seconds(9)), seconds(3));
        all.insert(open(None, seconds(10)));
        all.bind(ClientId([1; 16]), &UserId::new("bob").unwrap());
        assert_eq!(all.guest_idle(seconds(12)), seconds(2), "he logged in");
    }
}
