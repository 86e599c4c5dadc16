//! What is shipped is accepted by a real API server: the chart, the samples, good and bad manifests.

use crate::harness::{Namespace, attempt, operator, run};
use crate::shop::{Shop, manifest};

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
    operator();
    let namespace = Namespace::create("samples");
    let samples = std::fs::read_dir("manifests/samples").expect("the samples' folder");
    let mut tried = 0;
    for sample in samples.flatten() {
        let text = std::fs::read_to_string(sample.path()).expect("a sample");
        // The samples' own namespaces may be in use: only what is inside them is tried, in one of this test.
        let parts = text.split("---\n");
        let parts = parts.filter(|part| !part.contains("\nkind: Namespace\n"));
        let parts: Vec<String> = parts.map(|part| in_namespace(part, &namespace.0)).collect();
        let objects = parts.join("---\n");
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

#[test]
fn bad_manifests_are_refused_by_field_and_leave_the_running_group_alone() {
    let shop = Shop::open("bad", &manifest(), 1);
    let state = || {
        let uids = shop
            .workers()
            .into_iter()
            .map(|pod| pod["metadata"]["uid"].clone());
        (
            shop.group()["spec"].clone(),
            shop.group()["metadata"]["generation"].clone(),
            uids.collect::<Vec<_>>(),
        )
    };
    let before = state();
    let files = std::fs::read_dir("tests/cluster/bad-manifests").expect("the folder");
    let mut tried = 0;
    for file in files.flatten() {
        let path = file.path();
        let path = path.to_str().expect("UTF-8");
        let refusal = attempt("kubectl", &["-n", shop.ns(), "apply", "-f", path], "");
        let refusal = refusal.expect_err(path);
        let text = std::fs::read_to_string(path).expect("a manifest");
        let mut expected = text.lines().filter_map(|line| line.strip_prefix("# expect: "));
        let said = |fragment| {
            assert!(
                refusal.contains(fragment),
                "{path} does not say {fragment:?}: {refusal}"
            );
        };
        assert!(expected.clone().count() > 0, "{path} expects nothing");
        expected.by_ref().for_each(said);
        tried += 1;
    }
    assert!(tried >= 42, "only {tried} bad manifests");
    assert_eq!(before, state());
}
