//! A network in memory whose every delay, loss and order comes from a seed; it knows hosts, processes and connections, and no protocol.
//!
//! A process is whatever runs inside [`enter`]. Time is the simulation's: [`Net::advance`] delivers what is due. As with
//! TCP nothing is lost from a connection that lives: a held link delays, a reset ends.

mod conn;
mod socket;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use self::conn::{Conn, Packet, What};
pub use self::socket::{TcpListener, TcpStream};
pub use std::net::ToSocketAddrs;

use super::Protection;

/// A process; numbers are never used twice in a network.
pub type Process = u32;
/// A host: processes that share an address.
pub type Host = Ipv4Addr;

/// Bytes that may be under way or unread in one direction.
const WINDOW: usize = 256 * 1024;
/// Ports that are given out start here.
const FIRST_PORT: u16 = 20_000;

/// Numbers from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A time in milliseconds from `low` to below `high`.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high.saturating_sub(low)))
    }

    /// True `percent` times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
    static RANDOM: RefCell<Random> = const { RefCell::new(Random(0)) };
    static LACKING: Cell<Option<Protection>> = const { Cell::new(None) };
}

#[derive(Clone)]
struct Here {
    net: Net,
    process: Process,
    host: Host,
}

/// Begins a simulation on this thread: what the operating system calls random comes from `seed` from now on, hashers'
/// keys and tokio's choices included. Call it on a thread that has made no hasher yet, and one at a time in a process.
pub fn begin(seed: u64, without: Option<Protection>) {
    use mad_turmoil::rand as os;
    use rand::SeedableRng as _;

    RANDOM.with(|random| *random.borrow_mut() = Random::new(seed));
    LACKING.with(|lacking| lacking.set(without));
    let fresh = rand::rngs::StdRng::seed_from_u64(seed);
    if os::try_rng().is_none() {
        os::set_rng(fresh);
    } else {
        *os::get_rng() = fresh;
    }
}

pub(crate) fn lacks(protection: Protection) -> bool {
    LACKING.with(Cell::get) == Some(protection)
}

/// Fills `bytes` from the simulation's seed.
#[allow(clippy::unnecessary_wraps, reason = "as the operating system's")]
pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), ring::error::Unspecified> {
    RANDOM.with(|random| {
        let mut random = random.borrow_mut();
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
        }
    });
    Ok(())
}

/// Runs `work` as part of a process.
pub fn enter<T>(net: &Net, process: Process, host: Host, work: impl FnOnce() -> T) -> T {
    let here = Here {
        net: net.clone(),
        process,
        host,
    };
    let before = HERE.with(|now| now.borrow_mut().replace(here));
    let done = work();
    HERE.with(|now| *now.borrow_mut() = before);
    done
}

fn here() -> std::io::Result<Here> {
    HERE.with(|now| now.borrow().clone())
        .ok_or_else(|| std::io::Error::other("outside of every simulated process"))
}

/// Bytes on their way, as an observer sees them when they are written.
#[derive(Debug)]
pub struct Segment<'a> {
    /// The connection, never used twice.
    pub conn: u64,
    /// Who writes and who will read; the reader of what a client sent first may not be known yet.
    pub from: Process,
    /// See `from`.
    pub to: Option<Process>,
    /// The address that the client dialled.
    pub server: SocketAddr,
    /// From the client.
    pub to_server: bool,
    /// May be altered, not lengthened.
    pub bytes: &'a mut Vec<u8>,
}

/// Looks at every segment when it is written.
pub type Observer = Box<dyn FnMut(Segment<'_>) + Send>;

/// How fast packets travel: milliseconds, evenly between the two.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    held: bool,
    slow: u64,
}

struct Listening {
    process: Process,
    number: u64,
    queue: std::collections::VecDeque<u64>,
    waker: Option<Waker>,
}

struct Inner {
    now: u64,
    random: Random,
    delay: (u64, u64),
    listeners: BTreeMap<SocketAddr, Listening>,
    services: BTreeMap<SocketAddr, Vec<SocketAddr>>,
    conns: BTreeMap<u64, Conn>,
    /// Connections with packets under way.
    busy: BTreeSet<u64>,
    links: BTreeMap<(Host, Host), Link>,
    numbers: u64,
    ports: u16,
    observer: Option<Observer>,
}

/// The network; clones are the same one.
#[derive(Clone)]
pub struct Net(Arc<Mutex<Inner>>);

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    /// A network whose packets take between `delay.0` and `delay.1` milliseconds.
    pub fn new(seed: u64, delay: (u64, u64)) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            now: 0,
            random: Random::new(seed),
            delay,
            listeners: BTreeMap::new(),
            services: BTreeMap::new(),
            conns: BTreeMap::new(),
            busy: BTreeSet::new(),
            links: BTreeMap::new(),
            numbers: 0,
            ports: FIRST_PORT,
            observer: None,
        })))
    }

    /// Has `observer` see every segment.
    pub fn observe(&self, observer: Observer) {
        self.0.lock().observer = Some(observer);
    }

    /// Whoever dials `address` reaches one of `members` that listens.
    pub fn service(&self, address: SocketAddr, members: Vec<SocketAddr>) {
        self.0.lock().services.insert(address, members);
    }

    /// Time goes on to `now` milliseconds: what is due by then is delivered.
    pub fn advance(&self, now: u64) {
        let wakers = self.0.lock().advance(now);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Nothing passes from `from` to `to` until it is released; what is written waits.
    pub fn hold(&self, from: Host, to: Host, held: bool) {
        self.0.lock().links.entry((from, to)).or_default().held = held;
    }

    /// Packets from `from` to `to` take so many milliseconds more.
    pub fn slow(&self, from: Host, to: Host, slow: u64) {
        self.0.lock().links.entry((from, to)).or_default().slow = slow;
    }

    /// Every link is as it was at first.
    pub fn heal(&self) {
        self.0.lock().links.clear();
    }

    /// Ends every connection between two hosts; what was under way is lost.
    pub fn reset(&self, one: Host, other: Host) {
        let wakers = self.0.lock().reset(|conn| conn.is_between(one, other));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends one connection; what was under way is lost.
    pub fn reset_one(&self, conn: u64) {
        let wakers = self.0.lock().reset(|of| of.number == conn);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The process is gone: its host closes what it left open.
    pub fn kill(&self, process: Process) {
        let wakers = self.0.lock().kill(process);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn port(&mut self) -> u16 {
        self.ports = self.ports.checked_add(1).unwrap_or(FIRST_PORT);
        self.ports
    }

    fn send(&mut self, number: u64, side: usize, what: What) {
        let Some(conn) = self.conns.get_mut(&number) else {
            return;
        };
        let (from, to) = (conn.ends[side].address.ip(), conn.ends[1 - side].address.ip());
        let link = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.links.get(&(from, to)).copied().unwrap_or_default(),
            _ => Link::default(),
        };
        let own = if from == to {
            1
        } else {
            self.delay.0 + self.random.below(self.delay.1 - self.delay.0 + 1)
        };
        let end = &mut conn.ends[side];
        let at = (self.now + own + link.slow).max(end.last);
        end.last = at;
        end.sent.push_back(Packet { at, what });
        self.busy.insert(number);
    }

    fn is_held(&self, from: IpAddr, to: IpAddr) -> bool {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.links.get(&(from, to)).is_some_and(|link| link.held),
            _ => false,
        }
    }

    fn advance(&mut self, now: u64) -> Vec<Waker> {
        self.now = now;
        let mut wakers = Vec::new();
        for number in self.busy.iter().copied().collect::<Vec<_>>() {
            for side in [0, 1] {
                while let Some(what) = self.due(number, side) {
                    self.arrive(number, side, what, &mut wakers);
                }
            }
            let idle = |conn: &Conn| conn.ends.iter().all(|end| end.sent.is_empty());
            if self.conns.get(&number).is_none_or(idle) {
                self.busy.remove(&number);
                if self
                    .conns
                    .get(&number)
                    .is_some_and(|conn| conn.ends.iter().all(|end| end.gone))
                {
                    self.conns.remove(&number);
                }
            }
        }
        wakers
    }

    /// The next packet from `side` whose time has come.
    fn due(&mut self, number: u64, side: usize) -> Option<What> {
        let conn = self.conns.get(&number)?;
        let (from, to) = (conn.ends[side].address.ip(), conn.ends[1 - side].address.ip());
        let front = conn.ends[side].sent.front()?;
        if front.at > self.now || self.is_held(from, to) {
            return None;
        }
        let packet = self.conns.get_mut(&number)?.ends[side].sent.pop_front()?;
        Some(packet.what)
    }

    fn arrive(&mut self, number: u64, side: usize, what: What, wakers: &mut Vec<Waker>) {
        let Some(conn) = self.conns.get_mut(&number) else {
            return;
        };
        let server = conn.ends[1].address;
        let end = &mut conn.ends[1 - side];
        match what {
            What::Syn => match self.listeners.get_mut(&server) {
                Some(listening) => {
                    end.process = Some(listening.process);
                    listening.queue.push_back(number);
                    wakers.extend(listening.waker.take());
                    self.send(number, 1, What::Accepted);
                }
                None => {
                    end.gone = true;
                    self.send(number, 1, What::Reset);
                }
            },
            What::Accepted => {
                end.open = true;
                end.wake(wakers);
            }
            What::Bytes(bytes) if end.gone => {
                drop(bytes);
                self.send(number, 1 - side, What::Reset);
            }
            What::Bytes(bytes) => {
                end.inbox.extend(bytes);
                end.wake(wakers);
            }
            What::Fin => {
                end.fin = true;
                end.wake(wakers);
            }
            What::Reset => {
                end.reset = true;
                end.inbox.clear();
                end.wake(wakers);
            }
        }
    }

    fn reset(&mut self, which: impl Fn(&Conn) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for conn in self.conns.values_mut().filter(|conn| which(conn)) {
            for end in &mut conn.ends {
                end.sent.clear();
                end.inbox.clear();
                end.reset = true;
                end.wake(&mut wakers);
            }
        }
        wakers
    }

    fn kill(&mut self, process: Process) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let left: Vec<u64> = self
            .listeners
            .extract_if(.., |_, listening| listening.process == process)
            .flat_map(|(_, listening)| listening.queue)
            .collect();
        let open: Vec<(u64, usize)> = self
            .conns
            .iter()
            .flat_map(|(number, conn)| {
                [
                    (*number, 0, conn.ends[0].process),
                    (*number, 1, conn.ends[1].process),
                ]
            })
            .filter(|(_, _, of)| *of == Some(process))
            .map(|(number, side, _)| (number, side))
            .chain(left.into_iter().map(|number| (number, 1)))
            .collect();
        for (number, side) in open {
            self.close(number, side);
            if let Some(conn) = self.conns.get_mut(&number) {
                conn.ends[side].wake(&mut wakers);
            }
        }
        wakers
    }

    /// An end is given up, by its process or because that is gone.
    fn close(&mut self, number: u64, side: usize) {
        let Some(conn) = self.conns.get_mut(&number) else {
            return;
        };
        let end = &mut conn.ends[side];
        if std::mem::replace(&mut end.gone, true) {
            return;
        }
        let (was_reset, unread, shut) = (end.reset, !end.inbox.is_empty(), end.shut);
        end.shut = true;
        if was_reset {
            self.busy.insert(number);
        } else if unread {
            self.send(number, side, What::Reset);
        } else if !shut {
            self.send(number, side, What::Fin);
        } else {
            self.busy.insert(number);
        }
    }
}
