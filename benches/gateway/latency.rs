//! Tail latency at half of HAProxy's maximum: an open loop, whose arrivals do not wait for answers.
//!
//! A request that finds all connections busy waits for one, and its time counts from its arrival. One whose connection was free counts
//! from the moment it was sent: that the pacing thread woke late is nobody's latency.
//!
//! Tails are made by what a machine does besides. So rounds are short and many, both sides in each, and a round in which the pacing thread
//! itself, which goes before all others of its core, was kept waiting by more than [`LATE`] says nothing and is done again.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use elastic_pool::clock::Clock;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::backend::BODIES;
use crate::client::{Load, connect, head_end};
use crate::process::urgent;
use crate::proxy::Proxy;
use crate::stage::Stage;
use crate::stats::{median_and_spread, percentile};
use crate::{ratio, rivals};

const ROUNDS: usize = 41;
/// Rounds that may be done again.
const AGAIN: usize = 80;
const SLICE: Duration = Duration::from_millis(400);
/// A pacing thread that is later than this was kept from its core.
const LATE: Duration = Duration::from_millis(1);
const WARM: Duration = Duration::from_millis(700);
const CONNECTIONS: usize = 64;
/// For the last answers of a round to arrive.
const LIMIT: Duration = Duration::from_secs(10);

/// Who is free, who waits, and when each connection's request began.
#[derive(Default)]
struct Desk {
    free: Vec<usize>,
    waiting: VecDeque<Duration>,
    began: Vec<Duration>,
    took_us: Vec<f64>,
}

struct Line {
    writer: std::net::TcpStream,
    request: Vec<u8>,
}

impl Line {
    /// A few hundred bytes always fit into an idle connection's send buffer.
    fn send(&self) -> anyhow::Result<()> {
        (&self.writer).write_all(&self.request).context("send")
    }
}

/// What one proxy did in one round.
struct Slice {
    p99_us: f64,
    p999_us: f64,
    /// By how much the pacing thread was late at worst.
    late: Duration,
}

async fn slice(stage: &Stage, proxy: &Proxy, rate: f64) -> anyhow::Result<Slice> {
    let clock = Clock::start();
    let desk = Arc::new(Mutex::new(Desk {
        free: (0..CONNECTIONS).collect(),
        began: vec![Duration::ZERO; CONNECTIONS],
        ..Desk::default()
    }));
    let (mut lines, mut readers) = (Vec::new(), Vec::new());
    for number in 0..CONNECTIONS {
        let reader = connect(proxy.address).await?.into_std().context("share")?;
        lines.push(Line {
            writer: reader.try_clone().context("share a connection")?,
            request: stage.requests[0][number].clone(),
        });
        readers.push(TcpStream::from_std(reader).context("share a connection")?);
    }
    let lines: Arc<[Line]> = lines.into();
    let mut reading = tokio::task::JoinSet::new();
    for (number, reader) in readers.into_iter().enumerate() {
        reading.spawn(read(number, reader, Arc::clone(&lines), Arc::clone(&desk), clock));
    }
    let pacing = {
        let (lines, desk) = (Arc::clone(&lines), Arc::clone(&desk));
        tokio::task::spawn_blocking(move || pace(&lines, &desk, clock, rate))
    };
    let late = pacing.await.context("the pacing thread broke")??;
    let all = async {
        while desk.lock().free.len() < CONNECTIONS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, all)
        .await
        .context("answers are missing")?;
    let mut took = std::mem::take(&mut desk.lock().took_us);
    let p99_us = percentile(&mut took, 99).context("no requests")?;
    let rank = (took.len() * 999).div_ceil(1000).saturating_sub(1);
    Ok(Slice {
        p99_us,
        p999_us: took[rank],
        late,
    })
}

/// Exponential pauses of a fixed seed, the same for every proxy. Returns by how much it was late at worst.
fn pace(lines: &[Line], desk: &Mutex<Desk>, clock: Clock, rate: f64) -> anyhow::Result<Duration> {
    urgent();
    let mut late = Duration::ZERO;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut due = clock.now();
    let end = due + SLICE;
    while due < end {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let uniform = ((state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        due += Duration::from_secs_f64(-uniform.ln() / rate);
        let now = clock.now();
        if due > now {
            std::thread::sleep(due.saturating_sub(now));
        }
        late = late.max(clock.now().saturating_sub(due));
        let free = {
            let mut desk = desk.lock();
            let free = desk.free.pop();
            match free {
                Some(number) => desk.began[number] = clock.now(),
                None => desk.waiting.push_back(due),
            }
            free
        };
        if let Some(number) = free {
            lines[number].send()?;
        }
    }
    Ok(late)
}

async fn read(
    number: usize,
    stream: TcpStream,
    lines: Arc<[Line]>,
    desk: Arc<Mutex<Desk>>,
    clock: Clock,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; 4096];
    let mut have = 0;
    loop {
        stream.readable().await.context("wait for an answer")?;
        match stream.try_read(&mut buffer[have..]) {
            Ok(0) => return Ok(()),
            Ok(count) => have += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error).context("receive"),
        }
        if head_end(&buffer[..have]).is_none_or(|end| have < end + BODIES[0]) {
            continue;
        }
        have = 0;
        let now = clock.now();
        let next = {
            let mut desk = desk.lock();
            let took = now.saturating_sub(desk.began[number]);
            desk.took_us.push(took.as_secs_f64() * 1e6);
            let next = desk.waiting.pop_front();
            match next {
                Some(due) => desk.began[number] = due,
                None => desk.free.push(number),
            }
            next
        };
        if next.is_some() {
            lines[number].send()?;
        }
    }
}

/// Prints `gateway_p99_vs_haproxy` and `gateway_p999_vs_haproxy`.
pub(crate) async fn measure(stage: &Stage) -> anyhow::Result<()> {
    let haproxy = rivals::haproxy(stage.folder.path(), stage.backend).await?;
    let gateway = stage
        .gateway(None, "gateway-latency", stage.backend, true)
        .await?
        .proxy;
    stage.pin(&haproxy).await?;
    stage.pin(&gateway).await?;
    let mut load = Load::connect(haproxy.address).await?;
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let (count, took) = load.run(&stage.requests[0], BODIES[0], WARM).await?;
        best = best.max(count as f64 / took.as_secs_f64());
    }
    drop(load);
    let rate = best / 2.0;
    eprintln!("latency: {rate:.0} requests a second arrive");
    let (mut p99, mut p999, mut again) = (Vec::new(), Vec::new(), 0);
    let (mut theirs_us, mut ours_us) = (Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS + AGAIN {
        let theirs = slice(stage, &haproxy, rate).await.context("haproxy")?;
        let ours = slice(stage, &gateway, rate).await.context("gateway")?;
        if round == 0 || theirs.late > LATE || ours.late > LATE {
            again += 1;
            continue;
        }
        p99.push(ours.p99_us / theirs.p99_us);
        p999.push(ours.p999_us / theirs.p999_us);
        theirs_us.push(theirs.p99_us);
        ours_us.push(ours.p99_us);
        if p99.len() == ROUNDS {
            break;
        }
    }
    eprintln!(
        "latency: {} rounds, {again} were disturbed or the first",
        p99.len()
    );
    for (name, rounds) in [("haproxy", &mut theirs_us), ("gateway", &mut ours_us)] {
        if let Some((median, spread)) = median_and_spread(rounds) {
            eprintln!("latency: {name} p99 {median:.0} us, middle half within {spread:.0} %");
        }
    }
    if p99.len() < ROUNDS {
        eprintln!("latency: this machine is not quiet enough");
    }
    ratio("gateway_p99_vs_haproxy", &mut p99);
    ratio("gateway_p999_vs_haproxy", &mut p999);
    Ok(())
}
