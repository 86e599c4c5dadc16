//! Tunnels a WebSocket and closes the client's side at a frame boundary when told to; it reads frame headers, never payloads.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::streams::{Registered, Stream};
use crate::exchange::Upgraded;

const BUFFER: usize = 4096;
/// After this long a client that was asked to close is cut.
const CUT_AFTER: Duration = Duration::from_secs(1);
const OPCODE_CLOSE: u8 = 8;
/// Longest frame header: 2 bytes, 8 of length, 4 of mask.
const HEADER_MAX: usize = 14;

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    header: [u8; HEADER_MAX],
    have: usize,
    payload: u64,
    close_seen: bool,
}

impl Frames {
    /// True between two frames.
    pub(crate) fn at_boundary(&self) -> bool {
        self.have == 0 && self.payload == 0
    }

    /// Follows `bytes`; with `stop` only to the next boundary. Returns how many were taken.
    pub(crate) fn advance(&mut self, bytes: &[u8], stop: bool) -> usize {
        let mut at = 0;
        while at < bytes.len() && !(stop && self.at_boundary()) {
            if self.payload > 0 {
                let left = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let part = self.payload.min(left);
                self.payload -= part;
                at += usize::try_from(part).unwrap_or(bytes.len() - at);
            } else {
                self.header[self.have] = bytes[at];
                self.have += 1;
                at += 1;
                self.read_header();
            }
        }
        at
    }

    fn read_header(&mut self) {
        if self.have < 2 {
            return;
        }
        let short = self.header[1] & 0x7f;
        let length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_bytes = if self.header[1] & 0x80 == 0 { 0 } else { 4 };
        if self.have < 2 + length_bytes + mask_bytes {
            return;
        }
        self.payload = if length_bytes == 0 {
            u64::from(short)
        } else {
            self.header[2..2 + length_bytes]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        self.close_seen |= self.header[0] & 0x0f == OPCODE_CLOSE;
        self.have = 0;
    }
}

/// An unmasked Close frame with a status.
fn close_frame(code: u16) -> [u8; 4] {
    let [high, low] = code.to_be_bytes();
    [0x80 | OPCODE_CLOSE, 2, high, low]
}

/// Waits for the client's side to switch, then relays until both ended or the stream is closed.
pub(crate) async fn run(client: OnUpgrade, worker: Upgraded, registered: Registered) {
    let client = match client.await {
        Ok(client) => client,
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "upgrade did not complete"
            );
            return;
        }
    };
    tunnel(TokioIo::new(client), worker, &registered.stream).await;
}

async fn tunnel<C, W>(client: C, worker: W, stream: &Arc<Stream>)
where
    C: AsyncRead + AsyncWrite,
    W: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (worker_read, worker_write) = tokio::io::split(worker);
    let both = async {
        tokio::join!(
            downward(worker_read, client_write, stream),
            upward(client_read, worker_write, stream)
        );
    };
    let cut = async {
        stream.close.cancelled().await;
        tokio::time::sleep(CUT_AFTER).await;
    };
    tokio::select! {
        () = both => {}
        () = cut => {}
    }
}

/// Worker to client, frame by frame as far as the end goes.
async fn downward<R, W>(mut worker: R, mut client: W, stream: &Stream)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut frames = Frames::default();
    let mut buffer = vec![0; BUFFER];
    let mut closing = false;
    loop {
        if closing && frames.at_boundary() {
            break;
        }
        let read = tokio::select! {
            biased;
            () = stream.close.cancelled(), if !closing => {
                closing = true;
                continue;
            }
            read = worker.read(&mut buffer) => read,
        };
        let Ok(count @ 1..) = read else { break };
        let taken = frames.advance(&buffer[..count], closing);
        if client.write_all(&buffer[..taken]).await.is_err() {
            stream.close.cancel();
            return;
        }
    }
    // Also a worker that just ended its side leaves the client with a word.
    if frames.at_boundary() && !frames.close_seen {
        let _ = client.write_all(&close_frame(stream.code())).await;
    }
    let _ = client.shutdown().await;
    // The other direction has a moment for the client's answer, then it is cut.
    stream.close.cancel();
}

/// Client to worker; after the close only what the client still says is read away.
async fn upward<R, W>(mut client: R, mut worker: W, stream: &Stream)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER];
    let mut closing = false;
    loop {
        let read = tokio::select! {
            biased;
            () = stream.close.cancelled(), if !closing => {
                closing = true;
                let _ = worker.shutdown().await;
                continue;
            }
            read = client.read(&mut buffer) => read,
        };
        let Ok(count @ 1..) = read else { break };
        if !closing && worker.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = worker.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::streams::Streams;
    use elastic_pool_engine::ids::ClientId;

    /// A text frame of `length` bytes as a server sends it.
    fn frame(length: usize) -> Vec<u8> {
        let mut bytes = vec![0x81];
        match length {
            0..126 => bytes.push(u8::try_from(length).unwrap()),
            126..65536 => {
                bytes.push(126);
                bytes.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(127);
                bytes.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        bytes.resize(bytes.len() + length, b'x');
        bytes
    }

    #[test]
    fn a_boundary_is_found_whatever_the_pieces() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let (first, second) = (frame(length), frame(3));
            let all = [first.clone(), second].concat();
            for piece in [1, 7, 4096] {
                let mut frames = Frames::default();
                let mut taken = frames.advance(&all[..1], false);
                for chunk in all[1..].chunks(piece) {
                    taken += frames.advance(chunk, true);
                }
                assert!(frames.at_boundary());
                assert_eq!(taken, first.len(), "frame of {length} in pieces of {piece}");
            }
        }
    }

    #[tokio::test]
    async fn a_close_comes_after_the_frame_that_was_begun() {
        let streams = Arc::new(Streams::default());
        let registered = streams.open(ClientId([1; 16]), None);
        let (mut client, client_side) = tokio::io::duplex(256);
        let (mut worker, worker_side) = tokio::io::duplex(256);
        let stream = Arc::clone(&registered.stream);
        let tunnel = tokio::spawn(async move { tunnel(client_side, worker_side, &stream).await });
        let whole = frame(100);
        worker.write_all(&whole[..50]).await.unwrap();
        let mut got = vec![0; 50];
        client.read_exact(&mut got).await.unwrap();
        streams.close_client(&ClientId([1; 16]));
        worker.write_all(&whole[50..]).await.unwrap();
        // Of the next frame nothing passes.
        let _ = worker.write_all(&frame(5)).await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [&whole[50..], &close_frame(1012)].concat());
        drop(client);
        tunnel.await.unwrap();
        drop(registered);
        assert_eq!(streams.count(), 0);
    }
}
