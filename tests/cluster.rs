//! The tests on a real cluster, run as `tests/cluster/with.sh NAME cargo nextest run -E 'binary(cluster)'`; none of them makes or removes a cluster.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a command with `input`, and gives its output; a failure shows what it said.
fn run(program: &str, args: &[&str], input: &str) -> String {
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
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    written.expect("the command reads its input");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A namespace that refuses, and warns of, every pod that Pod Security `restricted` does not allow.
struct Namespace(String);

impl Namespace {
    fn create(name: &str) -> Self {
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
        let arguments = ["delete", "namespace", &self.0, "--wait=false"];
        let _ = Command::new("kubectl").args(arguments).output();
    }
}

#[test]
fn the_chart_is_accepted_whole_and_without_a_warning() {
    let namespace = Namespace::create("chart");
    let chart = run(
        "helm",
        &[
            "template",
            "elastic-pool",
            "charts/elastic-pool",
            "--namespace",
            &namespace.0,
        ],
        "",
    );
    let accepted = run(
        "kubectl",
        &[
            "apply",
            "--dry-run=server",
            "--validate=strict",
            "--warnings-as-errors",
            "-f",
            "-",
        ],
        &chart,
    );
    for object in [
        "deployment.apps/elastic-pool ",
        "service/elastic-pool-channel ",
        "poddisruptionbudget.policy/elastic-pool ",
    ] {
        assert!(accepted.contains(object), "no {object} in {accepted}");
    }
}

#[test]
fn every_sample_is_accepted_whole() {
    run("kubectl", &["apply", "--server-side", "-f", "crds/"], "");
    for crd in ["crd/poolgroups.elasticpool.dev", "crd/pools.elasticpool.dev"] {
        run(
            "kubectl",
            &["wait", "--for=condition=Established", crd, "--timeout=60s"],
            "",
        );
    }
    let namespace = Namespace::create("samples");
    let samples = std::fs::read_dir("manifests/samples").expect("the samples' folder");
    let mut tried = 0;
    for sample in samples.flatten() {
        let text = std::fs::read_to_string(sample.path()).expect("a sample");
        // The samples' own namespaces may be in use: only what is inside them is tried, in one of this test.
        let objects: String = text
            .split("---\n")
            .filter(|part| !part.contains("\nkind: Namespace\n"))
            .map(|part| ["---\n".to_owned(), in_namespace(part, &namespace.0)].concat())
            .collect();
        run(
            "kubectl",
            &[
                "apply",
                "--dry-run=server",
                "--validate=strict",
                "--warnings-as-errors",
                "-f",
                "-",
            ],
            &objects,
        );
        tried += 1;
    }
    assert!(tried >= 3, "only {tried} samples");
}

fn in_namespace(object: &str, namespace: &str) -> String {
    let lines = object
        .lines()
        .map(|line| match line.strip_prefix("  namespace: ") {
            Some(_) => format!("  namespace: {namespace}\n"),
            None => format!("{line}\n"),
        });
    lines.collect()
}
