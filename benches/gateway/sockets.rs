//! WebSockets: CPU time per echoed message, and what an idle one holds in gateway and agent together.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use elastic_pool::clock::Clock;
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::backend::{FRAME, MESSAGE};
use crate::client::{CONNECTIONS, connect, head_end};
use crate::process::memory_mib;
use crate::proxy::Proxy;
use crate::stage::Stage;
use crate::{figure, ratio, rivals};

const ROUNDS: usize = 15;
const SLICE: Duration = Duration::from_millis(400);
const IDLE: usize = 5000;
/// Opened at a time.
const AT_ONCE: usize = 50;
const SETTLE: Duration = Duration::from_secs(2);

async fn open(address: SocketAddr, upgrade: &[u8]) -> anyhow::Result<TcpStream> {
    let mut stream = connect(address).await?;
    stream.write_all(upgrade).await.context("ask for a WebSocket")?;
    let mut buffer = [0; 2048];
    let mut have = 0;
    while head_end(&buffer[..have]).is_none() {
        let count = stream.read(&mut buffer[have..]).await.context("receive")?;
        ensure!(count > 0, "no WebSocket: the connection was closed");
        have += count;
    }
    let shown = String::from_utf8_lossy(&buffer[..have]);
    ensure!(shown.starts_with("HTTP/1.1 101"), "no WebSocket: {shown}");
    Ok(stream)
}

/// Echoes for so long on all sockets; how many messages there were.
async fn echo(sockets: &mut Vec<TcpStream>) -> anyhow::Result<u64> {
    let clock = Clock::start();
    let run = |mut socket: TcpStream| {
        tokio::spawn(async move {
            let mut frame = [0_u8; FRAME];
            // Last fragment, binary; masked with zeros.
            (frame[0], frame[1]) = (0x82, 0x80 | u8::try_from(MESSAGE)?);
            let mut answer = [0_u8; MESSAGE + 2];
            let mut count = 0;
            while clock.now() < SLICE {
                socket.write_all(&frame).await.context("send a message")?;
                socket
                    .read_exact(&mut answer)
                    .await
                    .context("receive a message")?;
                count += 1;
            }
            anyhow::Ok((socket, count))
        })
    };
    let mut sum = 0;
    for one in try_join_all(sockets.drain(..).map(run)).await? {
        let (socket, count) = one?;
        sockets.push(socket);
        sum += count;
    }
    Ok(sum)
}

async fn cost(stage: &Stage) -> anyhow::Result<()> {
    let proxies = [
        rivals::haproxy(stage.folder.path(), stage.backend).await?,
        stage
            .gateway(None, "gateway-sockets", stage.backend, true)
            .await?
            .proxy,
    ];
    let mut sockets = Vec::new();
    for proxy in &proxies {
        stage.pin(proxy).await?;
        let upgrades = stage.upgrades.iter().take(CONNECTIONS);
        sockets.push(try_join_all(upgrades.map(|upgrade| open(proxy.address, upgrade))).await?);
    }
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let mut each = [0.0; 2];
        for (at, proxy) in proxies.iter().enumerate() {
            let used = proxy.cpu_us()?;
            let messages = echo(&mut sockets[at]).await.context(proxy.name)?;
            each[at] = (proxy.cpu_us()? - used) / messages as f64;
        }
        // The first round warms up.
        if round > 0 {
            eprintln!(
                "sockets: haproxy {:.2} us, gateway {:.2} us a message",
                each[0], each[1]
            );
            rounds.push(each[1] / each[0]);
        }
    }
    ratio("websocket_cpu_vs_haproxy", &mut rounds);
    Ok(())
}

fn resident_kib(proxy: &Proxy) -> anyhow::Result<f64> {
    let each = proxy.pids().map(|pid| memory_mib(pid, "VmRSS"));
    Ok(each.sum::<anyhow::Result<f64>>()? * 1024.0)
}

async fn idle(stage: &Stage) -> anyhow::Result<()> {
    let path = stage.path(true).await?;
    let upgrades = &stage.upgrades;
    // One that ends again, so that what is made once is not counted.
    drop(open(path.address, &upgrades[0]).await?);
    tokio::time::sleep(SETTLE).await;
    let before = resident_kib(&path)?;
    let mut sockets = Vec::with_capacity(IDLE);
    while sockets.len() < IDLE {
        let some = (sockets.len()..(sockets.len() + AT_ONCE).min(IDLE))
            .map(|number| open(path.address, &upgrades[number % upgrades.len()]));
        sockets.extend(try_join_all(some).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let each = (resident_kib(&path)? - before) / IDLE as f64;
    figure("idle_websocket_kib", each, "KiB");
    Ok(())
}

/// Prints `websocket_cpu_vs_haproxy` and `idle_websocket_kib`.
pub(crate) async fn measure(stage: &Stage) -> anyhow::Result<()> {
    cost(stage).await?;
    idle(stage).await
}
