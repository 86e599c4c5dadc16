//! An accepted connection as its bytes arrive: keeps a raw head for what the parser does not tell, and answers 408 to half a head; it parses no request.
//!
//! Two things are out of a handler's sight with hyper: of a request with both Transfer-Encoding and Content-Length it drops the
//! length without a word, and a connection whose head does not arrive in time it closes without an answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::TRANSFER_ENCODING;
use http::{Request, Version};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a head that are kept; a longer head is refused elsewhere.
const KEPT: usize = 32 * 1024;
/// Until this many bytes have come, the connection's protocol may still be undecided (HTTP/2's preface).
const PREFACE: u64 = 24;
/// Head and body of an answer up to this size go out as one piece: copying them costs less than a gathering write does.
const SHORT: usize = 1024;
/// The answer to half a head that took too long.
pub(crate) const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How the length of a request's body was announced, as far as that tells an honest client from a smuggler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By one length or none, or by HTTP/2's frames.
    Plain,
    /// In chunks, and by nothing else.
    Chunked,
    /// In chunks, and what else its head said was not kept: such a connection is closed after the answer.
    Unseen,
    /// In chunks and by a length, or by a coding other than `chunked`.
    Ambiguous,
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct State {
    /// Raw bytes since the last request's head and the last write.
    recent: Vec<u8>,
    /// Not while a request's body arrives, and never on HTTP/2 or a tunnel.
    keeps: bool,
    over: bool,
    bytes: u64,
    /// A request was read: the protocol is decided, however few bytes it took.
    decided: bool,
    /// Something came that no request has been made of yet.
    unanswered: bool,
    ended: bool,
    late: bool,
}

/// What is known of a connection's bytes; shared with whoever serves it.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
}

impl Watch {
    /// How the body of `request`, whose head has just been parsed, was announced; what was kept of the head goes.
    pub(crate) fn framing<B>(&self, request: &Request<B>) -> Framing {
        let mut state = self.state.lock();
        (state.decided, state.unanswered) = (true, false);
        if request.version() == Version::HTTP_2 {
            state.over = true;
            state.recent = Vec::new();
            return Framing::Plain;
        }
        let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
        let framing = match (codings.next(), codings.next()) {
            (None, _) => Framing::Plain,
            (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
                chunked(&state.recent, request.method().as_str())
            }
            _ => Framing::Ambiguous,
        };
        state.recent.clear();
        // A body's bytes are of no interest; the next head comes after an answer.
        state.keeps =
            framing == Framing::Plain && !request.headers().contains_key(http::header::CONTENT_LENGTH);
        framing
    }

    /// From here on the bytes are a tunnel's.
    pub(crate) fn becomes_tunnel(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.recent = Vec::new();
    }

    /// Resolves `limit` after the connection began, when not even its protocol was told by then.
    pub(crate) async fn silent(&self, limit: Duration) {
        tokio::time::sleep(limit).await;
        if self.is_decided() {
            std::future::pending::<()>().await;
        }
    }

    fn is_decided(&self) -> bool {
        let state = self.state.lock();
        state.decided || state.bytes >= PREFACE
    }

    /// The head did not come in time: what has come of it is answered with 408 when the connection is dropped.
    pub(crate) fn gave_up(&self) {
        self.state.lock().late = true;
    }

    fn read(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        if state.over {
            return;
        }
        state.ended |= bytes.is_empty();
        state.unanswered |= !bytes.is_empty();
        state.bytes += bytes.len() as u64;
        if state.keeps && state.recent.len() + bytes.len() <= KEPT {
            state.recent.extend_from_slice(bytes);
        } else {
            // Half a head tells nothing.
            state.keeps = false;
            state.recent.clear();
        }
    }

    fn wrote(&self) {
        let mut state = self.state.lock();
        state.unanswered = false;
        state.keeps = !state.over;
        // What came before an answer is a body's, or of a head that nobody will ask about.
        state.recent.clear();
    }
}

/// Looks for a length in a raw head that announces chunks.
fn chunked(raw: &[u8], method: &str) -> Framing {
    let start = raw
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    let raw = &raw[start..];
    if !raw
        .strip_prefix(method.as_bytes())
        .is_some_and(|rest| rest.starts_with(b" "))
    {
        return Framing::Unseen;
    }
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            break;
        };
        match line.strip_suffix(b"\r").unwrap_or(line) {
            [] => return Framing::Chunked,
            line if names_length(line) => return Framing::Ambiguous,
            _ => {}
        }
    }
    Framing::Unseen
}

fn names_length(line: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    line.get(..NAME.len())
        .is_some_and(|name| name.eq_ignore_ascii_case(NAME))
}

/// A stream that a [`Watch`] looks on.
pub(crate) struct Wire<S: AsyncWrite + Unpin> {
    stream: S,
    watch: Arc<Watch>,
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<Watch>) {
        let state = State {
            keeps: true,
            ..State::default()
        };
        let watch = Arc::new(Watch {
            state: Mutex::new(state),
        });
        let own = Arc::clone(&watch);
        (Self { stream, watch: own }, watch)
    }
}

impl<S: AsyncWrite + Unpin> Drop for Wire<S> {
    fn drop(&mut self) {
        let is_due = {
            let state = self.watch.state.lock();
            state.late && state.unanswered && !state.ended && !state.over
        };
        if is_due {
            // What a socket does not take at once is not worth waiting for.
            let mut now = Context::from_waker(Waker::noop());
            let _ = Pin::new(&mut self.stream).poll_write(&mut now, LATE);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.watch.read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.watch.wrote();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.watch.wrote();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if length > SHORT || slices.len() < 2 {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        let (mut whole, mut have) = ([0; SHORT], 0);
        for slice in slices {
            whole[have..have + slice.len()].copy_from_slice(slice);
            have += slice.len();
        }
        Pin::new(&mut self.stream).poll_write(cx, &whole[..have])
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_few_bytes_decides_the_protocol_all_the_same() {
        let watch = Watch::default();
        watch.read(b"GET / HTTP/1.0\r\n\r\n");
        assert!(!watch.is_decided());
        watch.framing(&Request::new(()));
        assert!(watch.is_decided());
    }

    #[test]
    fn a_length_beside_chunks_is_found_in_the_head_and_nowhere_else() {
        let of = |raw: &str| chunked(raw.as_bytes(), "POST");
        assert_eq!(
            of("POST / HTTP/1.1\r\nte: a\r\n\r\nContent-Length: 5\r\n"),
            Framing::Chunked
        );
        assert_eq!(
            of("\r\nPOST / HTTP/1.1\r\nCONTENT-length : 5\r\n\r\n"),
            Framing::Ambiguous
        );
        assert_eq!(of("POST / HTTP/1.1\ncontent-length: 5\n\n"), Framing::Ambiguous);
        assert_eq!(
            of("POST / HTTP/1.1\r\nx-content-length: 5\r\n\r\n"),
            Framing::Chunked
        );
        for unseen in [
            "",
            "T / HTTP/1.1\r\n\r\n",
            "POSTX / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: a\r\n",
        ] {
            assert_eq!(of(unseen), Framing::Unseen, "{unseen}");
        }
    }
}
