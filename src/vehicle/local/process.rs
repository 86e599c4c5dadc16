//! One child process: started with its output on ours, ended with us; it knows nothing of what it runs.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::credentials::random_bytes;
use crate::net::{TcpListener, TcpStream};

/// How long a child may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// A probe that is not answered within this has failed.
const PROBE: Duration = Duration::from_secs(1);

/// A running child.
#[derive(Debug)]
pub(super) struct Child {
    child: tokio::process::Child,
    pid: u32,
}

impl Child {
    /// Starts `program`; it is killed when this value is dropped.
    pub(super) fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
        folder: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        // A group of its own: a Ctrl-C on the terminal reaches this process, which ends the children in order.
        command.process_group(0);
        if let Some(folder) = folder {
            command.current_dir(folder);
        }
        let child = command
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let pid = child.id().unwrap_or_default();
        Ok(Self { child, pid })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// True once it ended by itself or was killed.
    pub(super) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// How it ended, in words for a person; `None` while it runs.
    pub(super) fn end_seen(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// SIGTERM, then SIGKILL after the grace.
    pub(super) async fn end(mut self) {
        if self.ended() {
            return;
        }
        // The standard library cannot send SIGTERM and this crate forbids unsafe code.
        let pid = self.pid.to_string();
        let asked = Command::new("kill")
            .args(["-TERM", &pid])
            .stderr(Stdio::null())
            .status()
            .await;
        if asked.is_ok_and(|status| status.success())
            && tokio::time::timeout(GRACE, self.child.wait()).await.is_ok()
        {
            return;
        }
        let _ = self.child.kill().await;
    }
}

/// Where ports are taken from: below those that kernels give to whoever names none, so that nobody is given one of them
/// by chance between its choice and its use.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// Ports that are tried before there is said to be none.
const TRIES: usize = 1000;

/// Loopback addresses whose ports nobody uses now, each another.
pub(super) async fn free_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    // All are held until the last is found.
    let mut held = Vec::with_capacity(N);
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for address in &mut addresses {
        let listener = free_listener().await?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(addresses)
}

async fn free_listener() -> anyhow::Result<TcpListener> {
    let count = PORTS.end - PORTS.start;
    for _ in 0..TRIES {
        let port = PORTS.start + u16::from_le_bytes(random_bytes()?) % count;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.context("take a free port"),
        }
    }
    anyhow::bail!(
        "take a free port: of {TRIES} between {} and {} none is free",
        PORTS.start,
        PORTS.end
    )
}

/// True when `GET path` answers with a 2xx.
pub(super) async fn answers(address: SocketAddr, path: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await?;
        Ok::<_, std::io::Error>(start.starts_with(b"HTTP/1.1 2"))
    };
    matches!(tokio::time::timeout(PROBE, ask).await, Ok(Ok(true)))
}
