//! The sockets of the simulated network, with as much of tokio's surface as is used.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::{Conn, End, What};
use super::{Here, Inner, Listening, Net, Segment, ToSocketAddrs, here};

/// The port of a connection's client end is of no interest.
const CLIENT_PORT: u16 = 1;

fn resolve(address: impl ToSocketAddrs, here: &Here) -> Result<SocketAddr> {
    let mut address = address
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| Error::from(ErrorKind::AddrNotAvailable))?;
    if address.ip().is_unspecified() || address.ip().is_loopback() {
        address.set_ip(IpAddr::V4(here.host));
    }
    Ok(address)
}

/// Takes connections.
#[derive(Debug)]
pub struct TcpListener {
    net: Net,
    address: SocketAddr,
    number: u64,
}

impl TcpListener {
    /// Listens on a port of the present process's host; port 0 takes a free one.
    #[allow(clippy::unused_async, reason = "as tokio's")]
    pub async fn bind(address: impl ToSocketAddrs) -> Result<Self> {
        let here = here()?;
        let mut address = resolve(address, &here)?;
        let mut inner = here.net.0.lock();
        if address.port() == 0 {
            address.set_port(inner.port());
        }
        if inner.listeners.contains_key(&address) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let number = inner.number();
        let listening = Listening {
            process: here.process,
            number,
            queue: std::collections::VecDeque::new(),
            waker: None,
        };
        inner.listeners.insert(address, listening);
        drop(inner);
        Ok(Self {
            net: here.net,
            address,
            number,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.address)
    }

    /// The next connection.
    pub async fn accept(&self) -> Result<(TcpStream, SocketAddr)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The next connection.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<(TcpStream, SocketAddr)>> {
        let mut inner = self.net.0.lock();
        let Some(listening) = inner
            .listeners
            .get_mut(&self.address)
            .filter(|own| own.number == self.number)
        else {
            // Its process was killed and is about to be dropped.
            return Poll::Pending;
        };
        let Some(number) = listening.queue.pop_front() else {
            listening.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let peer = inner
            .conns
            .get(&number)
            .map_or(self.address, |conn| conn.ends[0].address);
        drop(inner);
        let stream = TcpStream {
            net: self.net.clone(),
            number,
            side: 1,
        };
        Poll::Ready(Ok((stream, peer)))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let mut inner = self.net.0.lock();
        if inner
            .listeners
            .get(&self.address)
            .is_some_and(|own| own.number == self.number)
            && let Some(listening) = inner.listeners.remove(&self.address)
        {
            for number in listening.queue {
                inner.close(number, 1);
            }
        }
    }
}

impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            if let Ok(accepted) = Self::accept(self).await {
                return accepted;
            }
        }
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct TcpStream {
    net: Net,
    number: u64,
    side: usize,
}

impl TcpStream {
    /// Connects from the present process.
    pub async fn connect(address: impl ToSocketAddrs) -> Result<Self> {
        let here = here()?;
        let dialled = resolve(address, &here)?;
        let stream = {
            let mut inner = here.net.0.lock();
            let server = inner.member(dialled);
            let number = inner.number();
            let client = SocketAddr::new(IpAddr::V4(here.host), CLIENT_PORT);
            let ends = [End::new(Some(here.process), client), End::new(None, server)];
            inner.conns.insert(
                number,
                Conn {
                    number,
                    dialled,
                    ends,
                },
            );
            inner.send(number, 0, What::Syn);
            Self {
                net: here.net.clone(),
                number,
                side: 0,
            }
        };
        std::future::poll_fn(|cx| {
            stream.with(|_, end| {
                if end.reset {
                    return Poll::Ready(Err(Error::from(ErrorKind::ConnectionRefused)));
                }
                if end.open {
                    return Poll::Ready(Ok(()));
                }
                end.writer = Some(cx.waker().clone());
                Poll::Pending
            })
        })
        .await?;
        Ok(stream)
    }

    fn with<T>(&self, act: impl FnOnce(u64, &mut End) -> T) -> T {
        let mut inner = self.net.0.lock();
        match inner.conns.get_mut(&self.number) {
            Some(conn) => act(self.number, &mut conn.ends[self.side]),
            None => {
                // Both ends were given up, this one by a kill.
                let mut end = End::new(None, SocketAddr::from(([0, 0, 0, 0], 0)));
                end.reset = true;
                act(self.number, &mut end)
            }
        }
    }

    /// Every write goes out at once anyway.
    pub fn set_nodelay(&self, _: bool) -> Result<()> {
        Ok(())
    }

    /// This end.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.with(|_, end| end.address))
    }

    /// The other end.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let inner = self.net.0.lock();
        let conn = inner.conns.get(&self.number).ok_or(ErrorKind::NotConnected)?;
        Ok(conn.ends[1 - self.side].address)
    }

    /// Reads what is here.
    pub fn try_read(&self, buffer: &mut [u8]) -> Result<usize> {
        let (count, writer) = {
            let mut inner = self.net.0.lock();
            let Some(conn) = inner.conns.get_mut(&self.number) else {
                return Err(ErrorKind::ConnectionReset.into());
            };
            let end = &mut conn.ends[self.side];
            if end.reset || end.gone {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if end.inbox.is_empty() {
                return if end.fin {
                    Ok(0)
                } else {
                    Err(ErrorKind::WouldBlock.into())
                };
            }
            let count = buffer.len().min(end.inbox.len());
            for (to, byte) in buffer.iter_mut().zip(end.inbox.drain(..count)) {
                *to = byte;
            }
            let other = &mut conn.ends[1 - self.side];
            other.unread = other.unread.saturating_sub(count);
            (count, other.writer.take())
        };
        writer.into_iter().for_each(std::task::Waker::wake);
        Ok(count)
    }

    /// Writes as much as there is room for.
    pub fn try_write(&self, bytes: &[u8]) -> Result<usize> {
        let mut inner = self.net.0.lock();
        let Some(conn) = inner.conns.get_mut(&self.number) else {
            return Err(ErrorKind::ConnectionReset.into());
        };
        let end = &mut conn.ends[self.side];
        if end.reset || end.gone || end.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(end.room());
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        end.unread += count;
        inner.write(self.number, self.side, bytes[..count].to_vec());
        Ok(count)
    }

    /// Writes as much as there is room for.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.try_write(&whole)
    }

    /// Ready once there is room, or an error to be had.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.with(|_, end| {
            if end.room() > 0 || end.reset || end.gone || end.shut {
                return Poll::Ready(Ok(()));
            }
            end.writer = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

impl Inner {
    /// One of a service's listening members by chance, else the address itself.
    fn member(&mut self, dialled: SocketAddr) -> SocketAddr {
        let Some(members) = self.services.get(&dialled) else {
            return dialled;
        };
        let listening: Vec<SocketAddr> = members
            .iter()
            .filter(|member| self.listeners.contains_key(*member))
            .copied()
            .collect();
        let among = if listening.is_empty() {
            members.clone()
        } else {
            listening
        };
        among[usize::try_from(self.random.below(among.len() as u64)).unwrap_or_default()]
    }

    fn write(&mut self, number: u64, side: usize, mut bytes: Vec<u8>) {
        if let (Some(observer), Some(conn)) = (self.observer.as_mut(), self.conns.get(&number)) {
            observer(Segment {
                conn: number,
                from: conn.ends[side].process.unwrap_or_default(),
                to: conn.ends[1 - side].process,
                server: conn.dialled,
                to_server: side == 0,
                bytes: &mut bytes,
            });
        }
        self.send(number, side, What::Bytes(bytes));
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        match self.try_read(buffer.initialize_unfilled()) {
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.with(|_, end| end.reader = Some(cx.waker().clone()));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.poll_write_ready(cx))?,
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let fin = self.with(|_, end| !std::mem::replace(&mut end.shut, true) && !end.reset && !end.gone);
        if fin {
            self.net.0.lock().send(self.number, self.side, What::Fin);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        self.net.0.lock().close(self.number, self.side);
    }
}

impl tonic::transport::server::Connected for TcpStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
