//! Tail latency at half of HAProxy's maximum: an open loop, whose arrivals do not wait for answers.
//!
//! A request that finds all connections busy waits for one, and its time counts from its arrival. One whose connection was free counts
//! from the moment it was sent: that the pacing thread woke late is nobody's latency.

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
use crate::proxy::Proxy;
use crate::stage::Stage;
use crate::stats::percentile;
use crate::{ratio, rivals};

const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_secs(2);
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

/// p99 and p99.9 in microseconds at `rate` requests per second.
async fn slice(stage: &Stage, proxy: &Proxy, rate: f64) -> anyhow::Result<(f64, f64)> {
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
    pacing.await.context("the pacing thread broke")??;
    let all = async {
        while desk.lock().free.len() < CONNECTIONS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, all)
        .await
        .context("answers are missing")?;
    let mut took = std::mem::take(&mut desk.lock().took_us);
    let p99 = percentile(&mut took, 99).context("no requests")?;
    let rank = (took.len() * 999).div_ceil(1000).saturating_sub(1);
    Ok((p99, took[rank]))
}

/// Exponential pauses of a fixed seed, the same for every proxy.
fn pace(lines: &[Line], desk: &Mutex<Desk>, clock: Clock, rate: f64) -> anyhow::Result<()> {
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
            std::thread::sleep(due - now);
        }
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
    Ok(())
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
    let (mut p99, mut p999) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let theirs = slice(stage, &haproxy, rate).await.context("haproxy")?;
        let ours = slice(stage, &gateway, rate).await.context("gateway")?;
        eprintln!(
            "latency: haproxy p99 {:.0} us p99.9 {:.0} us, gateway p99 {:.0} us p99.9 {:.0} us",
            theirs.0, theirs.1, ours.0, ours.1
        );
        // The first round warms up.
        if round > 0 {
            p99.push(ours.0 / theirs.0);
            p999.push(ours.1 / theirs.1);
        }
    }
    ratio("gateway_p99_vs_haproxy", &mut p99);
    ratio("gateway_p999_vs_haproxy", &mut p999);
    Ok(())
}
