//! One run of the local vehicle: its manifest, its processes, what its monitor says; it ends with the test, whatever happens.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use elastic_pool::clock::Clock;
use serde_json::{Value, json};

use crate::browser;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_elastic-pool");
/// How long a condition may take that has no time of its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(50);
/// More than the vehicle gives its children.
const GRACE: Duration = Duration::from_secs(15);

/// The shop with a fast heartbeat; tests change what they are about.
pub(crate) fn shop() -> Value {
    group("shop", &["elastic-pool", "worker"])
}

/// A group of this name in a pool of the same name, which runs `command`.
pub(crate) fn group(name: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": {
            "pool": name,
            "runtime": { "version": "blue" },
            "workers": { "min": 1, "max": 4 },
            "thresholds": { "smoothingRows": 2, "cpu": "1", "memory": "8Gi" },
            "reports": { "interval": "500ms" },
            "template": { "spec": { "containers": [{
                "name": "app",
                "image": "docker.io/elastic-pool/elastic-pool:dev",
                "command": command,
                "env": [{ "name": "SESSION_KEY", "value": "for-tests-on-loopback-only" }],
                "ports": [{ "name": "http", "containerPort": 8080 }],
            }] } },
        },
    })
}

/// A worker of the local vehicle, as its state file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) agent_pid: u64,
    pub(crate) app_pid: u64,
    pub(crate) agent: SocketAddr,
    pub(crate) app: SocketAddr,
}

/// JSON is YAML.
fn documents(groups: &[Value]) -> String {
    let documents: Vec<String> = groups.iter().map(Value::to_string).collect();
    documents.join("\n---\n")
}

/// A running vehicle.
#[derive(Debug)]
pub(crate) struct Run {
    child: Child,
    folder: tempfile::TempDir,
}

impl Run {
    /// Starts the vehicle on these groups and waits until each pool has its gateways.
    pub(crate) async fn start(groups: &[Value], gateways: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("manifest.yaml");
        std::fs::write(&manifest, documents(groups)).unwrap();
        let pools: BTreeSet<&str> = groups
            .iter()
            .filter_map(|group| group["spec"]["pool"].as_str())
            .collect();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(PROGRAM)
            .args(["local", "--listen", "127.0.0.1:0", "--monitor", "127.0.0.1:0"])
            .arg("--file")
            .arg(&manifest)
            .arg("--state-file")
            .arg(folder.path().join("state.json"))
            .arg(format!("--gateways={gateways}"))
            .arg("--save-decisions")
            .arg(folder.path().join("decisions"))
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let run = Self { child, folder };
        until("the vehicle runs", PATIENCE, async || {
            run.table()["gateways"]
                .as_array()
                .is_some_and(|list| list.len() == pools.len() * gateways)
        })
        .await;
        run
    }

    /// Writes the manifest anew, as an editor does.
    pub(crate) fn write(&self, groups: &[Value]) {
        let fresh = self.path("manifest.new");
        std::fs::write(&fresh, documents(groups)).unwrap();
        std::fs::rename(&fresh, self.path("manifest.yaml")).unwrap();
    }

    /// A run of one group behind one gateway, once the gateway is ready and `workers` are routable.
    pub(crate) async fn ready(group: Value, workers: u64) -> Self {
        let run = Self::start(&[group], 1).await;
        run.settled(workers).await;
        run
    }

    /// Waits until this many workers of the first group are routable and every gateway serves.
    pub(crate) async fn settled(&self, workers: u64) {
        self.until("the workers are routable", |state| {
            state["groups"][0]["view"]["ready_workers"].as_u64() == Some(workers)
        })
        .await;
        let all = self.table()["gateways"].as_array().unwrap().len();
        for number in 0..all {
            let address = self.gateway(number);
            until("the gateway serves", PATIENCE, async || {
                browser::get(address, "/healthz")
                    .await
                    .is_ok_and(|answer| answer.status == 200)
            })
            .await;
        }
    }

    /// A file or folder of this run alone.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn table(&self) -> Value {
        let text = std::fs::read(self.path("state.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Address of the monitor.
    pub(crate) fn monitor(&self) -> SocketAddr {
        self.table()["monitor"].as_str().unwrap().parse().unwrap()
    }

    /// Address of a gateway, in the order of their pools' names.
    pub(crate) fn gateway(&self, number: usize) -> SocketAddr {
        let table = self.table();
        table["gateways"][number]["address"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Process of the commander.
    pub(crate) fn pid(&self) -> u64 {
        u64::from(self.child.id())
    }

    /// Process of a gateway.
    pub(crate) fn gateway_pid(&self, number: usize) -> u64 {
        self.table()["gateways"][number]["pid"].as_u64().unwrap()
    }

    /// The workers whose processes run.
    pub(crate) fn workers(&self) -> Vec<Worker> {
        let table = self.table();
        let address = |row: &Value, field: &str| row[field].as_str().unwrap().parse().unwrap();
        let worker = |row: &Value| Worker {
            name: row["name"].as_str().unwrap().to_owned(),
            agent_pid: row["agent_pid"].as_u64().unwrap(),
            app_pid: row["app_pid"].as_u64().unwrap(),
            agent: address(row, "agent"),
            app: address(row, "app"),
        };
        table["workers"].as_array().unwrap().iter().map(worker).collect()
    }

    /// The worker of this name; it is there.
    pub(crate) fn worker(&self, name: &str) -> Worker {
        self.workers()
            .into_iter()
            .find(|worker| worker.name == name)
            .unwrap()
    }

    /// The monitor's state.
    pub(crate) async fn state(&self) -> Value {
        let answer = browser::get(self.monitor(), "/_commander/state").await.unwrap();
        assert_eq!(answer.status, 200);
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// The metrics as text.
    pub(crate) async fn metrics(&self) -> String {
        let answer = browser::get(self.monitor(), "/metrics").await.unwrap();
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    /// The sum of all series whose line starts with `series`.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let text = self.metrics().await;
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        // An empty sum of floats is -0.
        text.lines()
            .filter(|line| line.starts_with(series))
            .map(value)
            .sum::<f64>()
            + 0.0
    }

    /// Waits until the monitor's state is so.
    pub(crate) async fn until(&self, what: &str, so: impl Fn(&Value) -> bool) {
        self.within(PATIENCE, what, so).await;
    }

    /// As `until`, with a limit of its own.
    pub(crate) async fn within(&self, limit: Duration, what: &str, so: impl Fn(&Value) -> bool) {
        let began = Clock::start();
        loop {
            let state = self.state().await;
            if so(&state) {
                return;
            }
            assert!(began.now() < limit, "never: {what}: {state:#}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A worker must go (D2), as after a drain of its node.
    pub(crate) async fn drain(&self, name: &str) {
        let path = format!("/_local/drain/{name}");
        let answer = browser::post(self.monitor(), &path, "").await.unwrap();
        assert_eq!(answer.status, 202);
    }

    fn log(&self) -> String {
        let mut text = String::new();
        let _ = std::fs::File::open(self.path("log")).and_then(|mut file| file.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(120)..].join("\n")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of the vehicle's log:\n{}", self.log());
        }
        signal("-TERM", self.pid());
        // A test that failed may have left it stopped.
        signal("-CONT", self.pid());
        let began = Clock::start();
        while began.now() < GRACE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        // Its children are not ended by its death.
        let table = self.table();
        let _ = self.child.kill();
        let _ = self.child.wait();
        let rows = |list: &str| table[list].as_array().cloned().unwrap_or_default();
        for row in rows("gateways").iter().chain(&rows("workers")) {
            for pid in ["pid", "agent_pid", "app_pid"] {
                if let Some(pid) = row[pid].as_u64() {
                    signal("-KILL", pid);
                }
            }
        }
        assert!(std::thread::panicking(), "the vehicle did not end when told to");
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(name: &str, pid: u64) {
    let _ = Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, limit: Duration, so: impl AsyncFn() -> bool) {
    let began = Clock::start();
    while !so().await {
        assert!(began.now() < limit, "never: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The group's workers on the monitor.
pub(crate) fn rows(state: &Value) -> &Vec<Value> {
    state["groups"][0]["workers"].as_array().unwrap()
}

/// The row of this worker, null when it is gone.
pub(crate) fn row<'a>(state: &'a Value, name: &str) -> &'a Value {
    rows(state)
        .iter()
        .find(|row| row["name"] == name)
        .unwrap_or(&Value::Null)
}

/// A group's condition: its status, its reason, its message.
pub(crate) fn condition(group: &Value, kind: &str) -> (bool, String, String) {
    let conditions = group["view"]["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|entry| entry["kind"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (found["status"] == true, text("reason"), text("message"))
}
