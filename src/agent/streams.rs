//! Tunnels of upgraded connections, and their polite end (V2); idle ones hold no buffer. It reads frames' lengths, never their content.

use std::pin::Pin;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::open::StreamEnd;
use super::relay::OpenGuard;
use crate::credentials::random_bytes;
use crate::exchange::Upgraded;

/// How long an app may take to end a stream that was ended towards it (V2).
pub(crate) const APP_END: Duration = Duration::from_millis(500);
/// Most bytes taken from one side at once.
const CHUNK: usize = 8 << 10;
/// Close code "service restart".
const RESTART: [u8; 2] = 1012_u16.to_be_bytes();

/// Follows the frames of one direction of a WebSocket, to know when a frame of ours may stand there.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; 14],
    have: usize,
    left: u64,
}

impl Frames {
    fn header_length(&self) -> usize {
        if self.have < 2 {
            return 2;
        }
        let extended = match self.header[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + extended + if self.header[1] & 0x80 == 0 { 0 } else { 4 }
    }

    fn payload_length(&self) -> u64 {
        match self.header[1] & 0x7f {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => self.header[2..10]
                .iter()
                .fold(0, |length, byte| length << 8 | u64::from(*byte)),
            short => u64::from(short),
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skipped as u64;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header[self.have] = bytes[0];
            self.have += 1;
            bytes = &bytes[1..];
            if self.have == self.header_length() {
                self.left = self.payload_length();
                self.have = 0;
            }
        }
    }

    fn at_boundary(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

/// A masked Close frame, as a client sends it.
fn close_frame() -> [u8; 8] {
    let mask = random_bytes::<4>().unwrap_or([0; 4]);
    let [high, low] = RESTART;
    [
        0x88,
        0x82,
        mask[0],
        mask[1],
        mask[2],
        mask[3],
        high ^ mask[0],
        low ^ mask[1],
    ]
}

/// The next bytes; empty at the end. The buffer lives on the stack until there is something to keep.
async fn read_some<R: AsyncRead + Unpin>(reader: &mut R) -> std::io::Result<Vec<u8>> {
    std::future::poll_fn(|cx| {
        let mut scratch = [0; CHUNK];
        let mut buffer = ReadBuf::new(&mut scratch);
        std::task::ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
        std::task::Poll::Ready(Ok(buffer.filled().to_vec()))
    })
    .await
}

/// How one direction stopped.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// Its reader ended, and so its writer was ended.
    End,
    /// Either side failed.
    Broken,
    /// Cancelled between two writes.
    Cancelled,
    /// Cancelled inside a write.
    Torn,
}

async fn pump<R, W>(reader: &mut R, writer: &mut W, frames: &mut Frames, cancel: &CancellationToken) -> Stop
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let bytes = tokio::select! {
            biased;
            () = cancel.cancelled() => return Stop::Cancelled,
            read = read_some(reader) => match read {
                Ok(bytes) => bytes,
                Err(_) => return Stop::Broken,
            },
        };
        if bytes.is_empty() {
            let _ = writer.shutdown().await;
            return Stop::End;
        }
        let written = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        tokio::select! {
            biased;
            written = written => if written.is_err() {
                return Stop::Broken;
            },
            () = cancel.cancelled() => return Stop::Torn,
        }
        frames.feed(&bytes);
    }
}

/// Relays both ways until an end or until cancelled; then the app's end is awaited, for [`APP_END`] at most.
pub(crate) async fn tunnel(
    gateway: hyper::upgrade::Upgraded,
    app: Upgraded,
    websocket: bool,
    end: StreamEnd,
    guard: OpenGuard,
) {
    let (mut from_app, mut to_app) = tokio::io::split(app);
    let (mut from_gateway, mut to_gateway) = tokio::io::split(TokioIo::new(gateway));
    let (mut up_frames, mut down_frames) = (Frames::default(), Frames::default());
    let up = pump(&mut from_gateway, &mut to_app, &mut up_frames, &end.cancel);
    let down = pump(&mut from_app, &mut to_gateway, &mut down_frames, &end.cancel);
    let (up, down) = both(up, down).await;
    if end.cancel.is_cancelled() && down != Some(Stop::End) {
        let may_speak = websocket && up == Some(Stop::Cancelled) && up_frames.at_boundary();
        let farewell = async {
            if may_speak {
                let _ = to_app.write_all(&close_frame()).await;
            }
            let _ = to_app.shutdown().await;
            while !read_some(&mut from_app).await.unwrap_or_default().is_empty() {}
        };
        if tokio::time::timeout(APP_END, farewell).await.is_ok() {
            end.ended.cancel();
        }
    } else {
        end.ended.cancel();
    }
    drop(guard);
}

/// Runs both directions. What the app ended is over; a gateway that ended leaves the app its time to end too.
async fn both(
    up: impl Future<Output = Stop>,
    down: impl Future<Output = Stop>,
) -> (Option<Stop>, Option<Stop>) {
    tokio::pin!(up, down);
    tokio::select! {
        stop = &mut up => match stop {
            Stop::Broken => (Some(stop), None),
            _ => (Some(stop), Some(down.await)),
        },
        stop = &mut down => match stop {
            Stop::Cancelled | Stop::Torn => (Some(up.await), Some(stop)),
            _ => (None, Some(stop)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        let mut wire = Vec::new();
        wire.extend([0x81, 0x83, 1, 2, 3, 4, 9, 9, 9]);
        wire.extend([0x82, 126, 1, 0]);
        wire.extend(vec![7; 256]);
        wire.extend([0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1]);
        wire.extend(vec![7; 65536]);
        let ends = [9, 9 + 260, wire.len()];
        for size in [1, 2, 3, 7, 4096] {
            let mut frames = Frames::default();
            let mut fed = 0;
            for chunk in wire.chunks(size) {
                frames.feed(chunk);
                fed += chunk.len();
                assert_eq!(
                    frames.at_boundary(),
                    ends.contains(&fed),
                    "after {fed} bytes by {size}"
                );
            }
            assert!(frames.at_boundary());
        }
    }

    #[test]
    fn the_close_frame_is_one_whole_masked_frame() {
        let frame = close_frame();
        let mut frames = Frames::default();
        frames.feed(&frame);
        assert!(frames.at_boundary());
        assert_eq!([frame[6] ^ frame[2], frame[7] ^ frame[3]], RESTART);
    }
}
