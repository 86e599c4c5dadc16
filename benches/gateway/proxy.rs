//! Processes that stand between client and backend: started, pinned, their CPU time read, ended with this process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::client::connect;
use crate::process::cpu_us;

const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// One or several processes behind one address.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) children: Vec<Child>,
}

impl Proxy {
    /// Of all its processes, in microseconds.
    pub(crate) fn cpu_us(&self) -> anyhow::Result<f64> {
        self.pids().map(cpu_us).sum()
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.children.iter().filter_map(Child::id)
    }

    /// Waits until it takes connections.
    pub(crate) async fn until_ready(self) -> anyhow::Result<Self> {
        let open = async {
            while connect(self.address).await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(LIMIT, open)
            .await
            .with_context(|| format!("{} takes no connection", self.name))?;
        Ok(self)
    }
}

/// A program that is told to end when this one dies in whatever way.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "TERM", "--"])
        .arg(program)
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Starts a program that says in one JSON line where it listens.
pub(crate) async fn announced(mut command: Command) -> anyhow::Result<(Child, serde_json::Value)> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("start the program")?;
    let mut lines = BufReader::new(child.stdout.as_mut().context("no standard output")?).lines();
    let line = tokio::time::timeout(LIMIT, lines.next_line())
        .await
        .context("it does not say where it listens")??
        .context("it ended at once")?;
    let said = serde_json::from_str(&line).context("it says no JSON")?;
    Ok((child, said))
}

/// An address out of such a line.
pub(crate) fn address(said: &serde_json::Value, pointer: &str) -> anyhow::Result<SocketAddr> {
    let text = said
        .pointer(pointer)
        .and_then(serde_json::Value::as_str)
        .context("no address")?;
    text.parse().with_context(|| format!("address {text}"))
}

/// A port that is free now, for programs that cannot choose one.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("look for a free port")?;
    Ok(listener.local_addr().context("read a port")?.port())
}
