//! One connection: two ends, and what is under way between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::task::Waker;

use super::{Host, Process, WINDOW};

/// What travels.
#[derive(Debug)]
pub(super) enum What {
    Syn,
    Accepted,
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// Something on its way; it arrives at `at` milliseconds, or once its link is released.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) at: u64,
    pub(super) what: What,
}

/// One of the two ends.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct End {
    pub(super) process: Option<Process>,
    pub(super) address: SocketAddr,
    /// Arrived and not read.
    pub(super) inbox: VecDeque<u8>,
    /// Under way to the other end, in order.
    pub(super) sent: VecDeque<Packet>,
    /// When the last of them arrives.
    pub(super) last: u64,
    /// Written here and not read there.
    pub(super) unread: usize,
    /// The other end took the connection.
    pub(super) open: bool,
    /// The other end sends no more.
    pub(super) fin: bool,
    pub(super) reset: bool,
    /// This end sends no more.
    pub(super) shut: bool,
    /// Nobody holds this end any more.
    pub(super) gone: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl End {
    pub(super) fn new(process: Option<Process>, address: SocketAddr) -> Self {
        Self {
            process,
            address,
            inbox: VecDeque::new(),
            sent: VecDeque::new(),
            last: 0,
            unread: 0,
            open: false,
            fin: false,
            reset: false,
            shut: false,
            gone: false,
            reader: None,
            writer: None,
        }
    }

    pub(super) fn wake(&mut self, wakers: &mut Vec<Waker>) {
        wakers.extend(self.reader.take());
        wakers.extend(self.writer.take());
    }

    /// How much may be written now.
    pub(super) fn room(&self) -> usize {
        WINDOW.saturating_sub(self.unread)
    }
}

/// A connection; the client's end is the first.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) number: u64,
    /// The address that was dialled.
    pub(super) dialled: SocketAddr,
    pub(super) ends: [End; 2],
}

impl Conn {
    pub(super) fn is_between(&self, one: Host, other: Host) -> bool {
        let hosts = [self.ends[0].address.ip(), self.ends[1].address.ip()];
        hosts == [one, other] || hosts == [other, one]
    }
}
