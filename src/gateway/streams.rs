//! Who has which stream open through this gateway, so that a move can end a user's streams politely; it copies no byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};

use elastic_pool_engine::ids::{ClientId, UserId};
use tokio_util::sync::CancellationToken;

use super::shards::Sharded;

/// WebSocket status: the service restarts, come again (a move).
pub(crate) const SERVICE_RESTART: u16 = 1012;
/// WebSocket status: this gateway goes away.
pub(crate) const GOING_AWAY: u16 = 1001;

/// One open stream.
pub(crate) struct Stream {
    id: u64,
    user: Option<UserId>,
    /// Cancelled when the stream is to end politely.
    pub(crate) close: CancellationToken,
    code: AtomicU16,
}

impl Stream {
    /// Status to close a WebSocket with.
    pub(crate) fn code(&self) -> u16 {
        self.code.load(Relaxed)
    }

    fn end(&self, code: u16) {
        self.code.store(code, Relaxed);
        self.close.cancel();
    }
}

/// All open streams, by client id.
#[derive(Default)]
pub(crate) struct Streams {
    clients: Sharded<ClientId, Vec<Arc<Stream>>>,
    open: AtomicUsize,
    next: AtomicU64,
}

/// Keeps a stream registered; dropping it takes it out.
pub(crate) struct Registered {
    streams: Arc<Streams>,
    client: ClientId,
    pub(crate) stream: Arc<Stream>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Relaxed);
        let id = self.stream.id;
        self.streams.clients.change(&self.client, |clients| {
            if let Some(streams) = clients.get_mut(&self.client) {
                streams.retain(|stream| stream.id != id);
                if streams.is_empty() {
                    clients.remove(&self.client);
                }
            }
        });
    }
}

impl Streams {
    pub(crate) fn open(self: &Arc<Self>, client: ClientId, user: Option<UserId>) -> Registered {
        let stream = Arc::new(Stream {
            id: self.next.fetch_add(1, Relaxed),
            user,
            close: CancellationToken::new(),
            code: AtomicU16::new(SERVICE_RESTART),
        });
        self.clients.change(&client, |clients| {
            clients.entry(client).or_default().push(Arc::clone(&stream));
        });
        self.open.fetch_add(1, Relaxed);
        Registered {
            streams: Arc::clone(self),
            client,
            stream,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Ends the streams of one client id.
    pub(crate) fn close_client(&self, client: &ClientId) {
        for stream in self.clients.get(client).unwrap_or_default() {
            stream.end(SERVICE_RESTART);
        }
    }

    /// Ends the streams of a user: those of his client ids, and those opened as him by a client id that no table
    /// names yet.
    pub(crate) fn close_user(&self, user: &UserId, clients: &[ClientId]) {
        if self.count() == 0 {
            return;
        }
        for client in clients {
            self.close_client(client);
        }
        self.clients.each(|_, streams| {
            for stream in streams.iter().filter(|stream| stream.user.as_ref() == Some(user)) {
                stream.end(SERVICE_RESTART);
            }
        });
    }

    /// Ends everything.
    pub(crate) fn close_all(&self, code: u16) {
        self.clients.each(|_, streams| {
            for stream in streams {
                stream.end(code);
            }
        });
    }
}
