//! A pool on the local vehicle: started from a manifest of its own, asked for its state, ended with everything it started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::browser::Browser;

/// Starting workers, or emptying one, takes at most this long.
const LIMIT: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(50);

/// One run of `elastic-pool local`.
pub(crate) struct Vehicle {
    child: Child,
    state_file: PathBuf,
    _folder: tempfile::TempDir,
}

/// A worker and its processes.
#[derive(Debug, Clone)]
pub(crate) struct WorkerRow {
    pub(crate) agent_pid: u32,
    pub(crate) app_pid: u32,
}

fn manifest(workers: u32, interval: &str) -> String {
    // Thresholds that nothing here reaches: a measurement is over the same workers from its beginning to its end.
    format!(
        "apiVersion: elasticpool.dev/v1alpha1
kind: PoolGroup
metadata: {{name: bench-blue, namespace: bench}}
spec:
  pool: bench
  runtime: {{version: blue}}
  workers: {{min: {workers}, max: {workers}}}
  thresholds: {{receptionPercent: 99, admissionPercent: 100, smoothingRows: 6, cpu: \"1\", memory: 8Gi}}
  reports: {{interval: {interval}}}
  template:
    spec:
      containers:
        - name: app
          image: elastic-pool
          command: [elastic-pool]
          args: [worker]
          env: [{{name: SESSION_KEY, value: for-measurements-on-loopback}}]
          ports: [{{name: http, containerPort: 8080}}]
"
    )
}

impl Vehicle {
    /// Starts it and waits until all workers are routable.
    pub(crate) async fn start(binary: &Path, workers: u32, interval: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let (file, state_file) = (folder.path().join("group.yaml"), folder.path().join("state.json"));
        std::fs::write(&file, manifest(workers, interval)).context("write the manifest")?;
        // Told to end when this program dies in whatever way; its own children end with it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--"])
            .arg(binary)
            .arg("local")
            .arg("--file")
            .arg(&file)
            .args(["--listen=127.0.0.1:0", "--monitor=127.0.0.1:0"])
            .arg("--state-file")
            .arg(&state_file)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("start the local vehicle")?;
        let vehicle = Self {
            child,
            state_file,
            _folder: folder,
        };
        if let Err(error) = vehicle.until_ready(workers).await {
            vehicle.end().await;
            return Err(error);
        }
        Ok(vehicle)
    }

    /// The operator's stand-in.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    fn state(&self) -> anyhow::Result<Value> {
        let text = std::fs::read_to_string(&self.state_file).context("read the state file")?;
        serde_json::from_str(&text).context("parse the state file")
    }

    fn address(&self, of: &str) -> anyhow::Result<SocketAddr> {
        let state = self.state()?;
        let text = state.pointer(of).and_then(Value::as_str).context("no address")?;
        text.parse().with_context(|| format!("address {text}"))
    }

    /// Where users come in.
    pub(crate) fn gateway(&self) -> anyhow::Result<SocketAddr> {
        self.address("/gateways/0/address")
    }

    pub(crate) fn gateway_pid(&self) -> anyhow::Result<u32> {
        pid(self.state()?.pointer("/gateways/0/pid"))
    }

    /// Workers as processes.
    pub(crate) fn workers(&self) -> anyhow::Result<Vec<WorkerRow>> {
        let state = self.state()?;
        let rows = state["workers"].as_array().context("no workers")?;
        let row = |row: &Value| {
            Ok(WorkerRow {
                agent_pid: pid(row.get("agent_pid"))?,
                app_pid: pid(row.get("app_pid"))?,
            })
        };
        rows.iter().map(row).collect()
    }

    async fn monitor(&self, path: &str) -> anyhow::Result<String> {
        let mut browser = Browser::connect(self.address("/monitor")?).await?;
        Ok(browser.get(path).await?.body)
    }

    /// The operator's metrics.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        self.monitor("/metrics").await
    }

    /// Routable workers with the number of their users.
    pub(crate) async fn routable(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let state: Value = serde_json::from_str(&self.monitor("/_commander/state").await?)?;
        let workers = state.pointer("/groups/0/workers").and_then(Value::as_array);
        let open = |worker: &&Value| worker["state"] == "routable" && worker["connected"] == true;
        let row = |worker: &Value| {
            let name = worker["name"].as_str().unwrap_or_default().to_owned();
            (name, worker["users"].as_u64().unwrap_or_default())
        };
        Ok(workers
            .context("no workers")?
            .iter()
            .filter(open)
            .map(row)
            .collect())
    }

    /// Users of a worker, whatever it is doing; `None` once it is gone.
    pub(crate) async fn users_on(&self, name: &str) -> anyhow::Result<Option<u64>> {
        let state: Value = serde_json::from_str(&self.monitor("/_commander/state").await?)?;
        let workers = state.pointer("/groups/0/workers").and_then(Value::as_array);
        let of_name = |worker: &&Value| worker["name"] == name;
        let found = workers.context("no workers")?.iter().find(of_name);
        Ok(found.and_then(|worker| worker["users"].as_u64()))
    }

    /// Waits until as many workers are routable and there are no others.
    pub(crate) async fn until_ready(&self, wanted: u32) -> anyhow::Result<()> {
        let all = async {
            loop {
                let routable = self.routable().await.map_or(0, |workers| workers.len());
                let processes = self.workers().map_or(0, |workers| workers.len());
                if (routable, processes) == (wanted as usize, wanted as usize) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(LIMIT, all)
            .await
            .with_context(|| format!("{wanted} workers are not routable in time"))
    }

    /// Says that a worker must go, so that all its users move away.
    pub(crate) async fn drain(&self, worker: &str) -> anyhow::Result<()> {
        let mut browser = Browser::connect(self.address("/monitor")?).await?;
        browser.post(&format!("/_local/drain/{worker}")).await?;
        Ok(())
    }

    /// Ends it and all that it started.
    pub(crate) async fn end(mut self) {
        let asked = Command::new("kill")
            .args(["-TERM", &self.pid().to_string()])
            .status()
            .await;
        if asked.is_ok()
            && tokio::time::timeout(Duration::from_secs(15), self.child.wait())
                .await
                .is_ok()
        {
            return;
        }
        let _ = self.child.kill().await;
    }
}

fn pid(value: Option<&Value>) -> anyhow::Result<u32> {
    let number = value.and_then(Value::as_u64).context("no process id")?;
    Ok(u32::try_from(number)?)
}
