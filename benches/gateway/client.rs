//! The load: prepared requests on keep-alive connections, each with one request at a time; it parses only where an answer ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use elastic_pool::clock::Clock;
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Connections of the closed loop.
pub(crate) const CONNECTIONS: usize = 32;
const HEAD_MAX: usize = 4096;
/// An answer later than this is a failure.
const LIMIT: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Whose turn it is next.
    next: usize,
}

/// Where the head of an answer ends.
pub(crate) fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// Opens a connection.
pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address)
        .await
        .with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true).context("set nodelay")?;
    Ok(stream)
}

impl Client {
    /// Sends one request and reads its answer of `body` bytes.
    pub(crate) async fn exchange(&mut self, request: &[u8], body: usize) -> anyhow::Result<()> {
        self.stream.write_all(request).await.context("send")?;
        let (mut have, mut end) = (0, None);
        loop {
            let count = self
                .stream
                .read(&mut self.buffer[have..])
                .await
                .context("receive")?;
            ensure!(count > 0, "the proxy closed the connection");
            have += count;
            end = end.or_else(|| head_end(&self.buffer[..have]));
            if end.is_some_and(|end| have >= end + body) {
                break;
            }
        }
        if !self.buffer.starts_with(b"HTTP/1.1 200") || end.is_some_and(|end| have != end + body) {
            let shown = String::from_utf8_lossy(&self.buffer[..have.min(300)]).into_owned();
            bail!("unexpected answer: {shown}");
        }
        Ok(())
    }
}

/// All connections to one proxy, kept from round to round.
pub(crate) struct Load {
    clients: Vec<Client>,
    clock: Clock,
}

impl Load {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let client = async |number| {
            anyhow::Ok(Client {
                stream: connect(address).await?,
                buffer: vec![0; HEAD_MAX + crate::backend::BODIES[1]],
                next: number,
            })
        };
        Ok(Self {
            clients: try_join_all((0..CONNECTIONS).map(client)).await?,
            clock: Clock::start(),
        })
    }

    /// Requests for so long, as fast as they are answered; returns how many there were, and the time they took.
    pub(crate) async fn run(
        &mut self,
        requests: &Arc<Vec<Vec<u8>>>,
        body: usize,
        time: Duration,
    ) -> anyhow::Result<(u64, Duration)> {
        let clock = self.clock;
        let began = clock.now();
        let run = |mut client: Client| {
            let requests = Arc::clone(requests);
            tokio::spawn(async move {
                let mut count = 0_u64;
                while clock.now().saturating_sub(began) < time {
                    client
                        .exchange(&requests[client.next % requests.len()], body)
                        .await?;
                    client.next += CONNECTIONS;
                    count += 1;
                }
                anyhow::Ok((client, count))
            })
        };
        let running = try_join_all(self.clients.drain(..).map(run));
        let ended = tokio::time::timeout(time + LIMIT, running)
            .await
            .context("no answer in time")??;
        let mut sum = 0;
        for one in ended {
            let (client, count) = one?;
            self.clients.push(client);
            sum += count;
        }
        Ok((sum, clock.now().saturating_sub(began)))
    }
    /// So many requests, all connections at once.
    pub(crate) async fn count(
        &mut self,
        requests: &[Vec<u8>],
        body: usize,
        count: usize,
    ) -> anyhow::Result<()> {
        let each = count.div_ceil(self.clients.len());
        let run = async |client: &mut Client| {
            for _ in 0..each {
                client
                    .exchange(&requests[client.next % requests.len()], body)
                    .await?;
                client.next += CONNECTIONS;
            }
            anyhow::Ok(())
        };
        try_join_all(self.clients.iter_mut().map(run)).await?;
        Ok(())
    }
}
