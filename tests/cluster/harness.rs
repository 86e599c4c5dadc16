//! Commands against the cluster of KUBECONFIG, waiting on conditions, namespaces and the shared operator; it asserts nothing about pools.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use elastic_pool::clock::Clock;
use serde_json::Value;

/// Namespace of the operator.
pub(crate) const SYSTEM: &str = "elastic-pool-system";
const BEAT: Duration = Duration::from_millis(250);

/// Runs a command with `input`, and gives its output, or what it said of its failure.
pub(crate) fn attempt(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    assert!(
        std::env::var_os("KUBECONFIG").is_some(),
        "these tests need a cluster: tests/cluster/with.sh NAME COMMAND"
    );
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let written = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the command ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} {args:?}: {errors}{text}"));
    }
    written.expect("the command reads its input");
    Ok(text)
}

/// As [`attempt`]; a failure ends the test and shows what it said.
pub(crate) fn run(program: &str, args: &[&str], input: &str) -> String {
    attempt(program, args, input).unwrap_or_else(|error| panic!("{error}"))
}

/// `kubectl` with arguments between spaces.
pub(crate) fn kubectl(line: &str) -> String {
    run("kubectl", &line.split_whitespace().collect::<Vec<_>>(), "")
}

/// What `kubectl get ... -o json` says.
pub(crate) fn get(what: &str) -> Value {
    serde_json::from_str(&kubectl(&format!("get {what} -o json"))).expect("JSON")
}

/// Runs a command inside the cluster's network, where services and pods have their addresses.
pub(crate) fn inside(args: &[&str]) -> Command {
    let mut command = Command::new("tests/cluster/cluster.sh");
    command.arg("exec").args(args);
    command
}

/// The folder of the cluster's state, where its containerd listens.
pub(crate) fn cluster_dir() -> String {
    std::env::var("CLUSTER_DIR").unwrap_or_else(|_| {
        let name = std::env::var("CLUSTER").expect("CLUSTER names the cluster");
        format!("/var/tmp/pool-cluster/{name}")
    })
}

/// Waits until `look` finds something; after `seconds` the test ends, with what was seen last.
pub(crate) fn eventually<T>(what: &str, seconds: u64, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begin = Clock::start();
    loop {
        match look() {
            Ok(found) => {
                let took = begin.now();
                if took > BEAT * 4 {
                    println!("{what}: after {:.1} s", took.as_secs_f64());
                }
                return found;
            }
            Err(seen) => assert!(
                begin.now().as_secs() < seconds,
                "{what}: not in {seconds} s; last seen: {seen}"
            ),
        }
        std::thread::sleep(BEAT);
    }
}

/// Looks again and again for `time`; `look` ends the test itself when what it sees is wrong.
pub(crate) fn throughout(time: Duration, mut look: impl FnMut()) {
    let begin = Clock::start();
    while begin.now() < time {
        look();
        std::thread::sleep(BEAT * 4);
    }
}

/// A namespace that refuses, and warns of, every pod that Pod Security `restricted` does not allow.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    pub(crate) fn create(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let level = "pod-security.kubernetes.io";
        let manifest = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{{level}/enforce: restricted, {level}/warn: restricted}}\n"
        );
        run("kubectl", &["create", "-f", "-"], &manifest);
        Self(name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for what in [
                "get pods,pgrp -o wide",
                "describe pgrp",
                "get events.events.k8s.io",
            ] {
                let line = format!("-n {} {what}", self.0);
                let args: Vec<&str> = line.split_whitespace().collect();
                println!(
                    "== kubectl {line}\n{}",
                    attempt("kubectl", &args, "").unwrap_or_else(|error| error)
                );
            }
        }
        // Groups first, so that their workers are gone before the next test measures.
        let ns = &self.0;
        for line in [
            format!("-n {ns} delete pgrp,pool --all --wait=false"),
            format!("-n {ns} delete pods --all --grace-period=1 --wait=false"),
            format!("delete namespace {ns} --wait=false"),
        ] {
            let _ = attempt("kubectl", &line.split_whitespace().collect::<Vec<_>>(), "");
        }
    }
}

/// The operator that all tests share; the first test installs it, from the chart, with its CRDs.
pub(crate) fn operator() {
    let installed = format!("-n {SYSTEM} rollout status deployment/elastic-pool --timeout=90s");
    if attempt("kubectl", &installed.split_whitespace().collect::<Vec<_>>(), "").is_ok() {
        return;
    }
    let image = std::env::var("ELASTIC_POOL_TEST_IMAGE")
        .unwrap_or_else(|_| "docker.io/elastic-pool/elastic-pool:dev".to_owned());
    let (repository, tag) = image.rsplit_once(':').expect("an image with a tag");
    let manifest = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {SYSTEM}\n  labels: {{pod-security.kubernetes.io/enforce: restricted}}\n"
    );
    run("kubectl", &["apply", "-f", "-"], &manifest);
    let (repository, tag) = (
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
    );
    let args = [
        "install",
        "elastic-pool",
        "charts/elastic-pool",
        "--namespace",
        SYSTEM,
        "--wait",
        "--timeout",
        "2m",
    ];
    run(
        "helm",
        &[&args[..], &["--set", &repository, "--set-string", &tag]].concat(),
        "",
    );
}

/// The name of the operator's pod that leads; waits for it.
pub(crate) fn leader() -> String {
    eventually("an operator leads", 60, || {
        let pods = get(&format!("-n {SYSTEM} pods"));
        let names = pods["items"].as_array().expect("pods").iter();
        let names = names.filter_map(|pod| pod["metadata"]["name"].as_str());
        let mut leaders: Vec<String> = names
            .filter(|name| {
                try_metrics(name).is_ok_and(|text| sample(&text, "elastic_pool_leader", "") == Some(1.0))
            })
            .map(str::to_owned)
            .collect();
        match leaders.len() {
            1 => Ok(leaders.remove(0)),
            _ => Err(format!("{leaders:?}")),
        }
    })
}

/// The lease's count of transitions: the term.
pub(crate) fn term() -> u64 {
    let lease = get(&format!("-n {SYSTEM} lease"));
    let transitions = lease["items"][0]["spec"]["leaseTransitions"].as_u64();
    transitions.unwrap_or(0)
}

fn try_metrics(pod: &str) -> Result<String, String> {
    let path = format!("/api/v1/namespaces/{SYSTEM}/pods/http:{pod}:9090/proxy/metrics");
    // A pod that is cut off answers never.
    attempt("kubectl", &["get", "--raw", &path, "--request-timeout=5s"], "")
}

/// What the leader's `/metrics` says.
pub(crate) fn metrics() -> String {
    try_metrics(&leader()).unwrap_or_else(|error| panic!("{error}"))
}

/// The sum of the samples of `metric` whose labels contain `label`; none where there is no such sample.
pub(crate) fn sample(text: &str, metric: &str, label: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(metric)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        ((labels.is_empty() || labels.starts_with('{')) && labels.contains(label))
            .then(|| value.parse::<f64>().ok())?
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}
