//! Reads the `use` lines: dependencies point one way, and the parts that judge know neither Kubernetes nor a clock.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

/// Lines of `folder` that name one of `forbidden`, outside comments.
fn offenders(folder: &str, forbidden: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for path in sources(folder) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (number, line) in code {
            if forbidden.iter().any(|word| line.contains(word)) {
                lines.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    lines
}

#[test]
fn the_engine_knows_no_io_no_clock_and_no_kubernetes() {
    let forbidden = [
        "kube",
        "tokio",
        "hyper",
        "Instant::now",
        "SystemTime",
        "std::net",
        "std::fs",
    ];
    assert_eq!(offenders("engine/src", &forbidden), Vec::<String>::new());
}

#[test]
fn the_commander_knows_neither_kubernetes_nor_http() {
    let forbidden = [
        "kube::",
        "k8s_openapi",
        "hyper::",
        "axum::",
        "crate::controller",
        "crate::gateway",
        "crate::agent",
    ];
    assert_eq!(offenders("src/commander", &forbidden), Vec::<String>::new());
}

#[test]
fn gateway_and_agent_know_neither_each_other_nor_the_commander() {
    let of = |part: &str, other: &str| {
        let other = format!("crate::{other}::");
        offenders(
            part,
            &[
                "kube::",
                "crate::commander::Commander",
                "crate::controller",
                &other,
            ],
        )
    };
    assert_eq!(of("src/gateway", "agent"), Vec::<String>::new());
    assert_eq!(of("src/agent", "gateway"), Vec::<String>::new());
}

#[test]
fn the_controller_judges_no_load() {
    let forbidden = [
        "engine::plan",
        "engine::placement",
        "engine::compaction",
        "engine::capacity",
        "crate::commander",
    ];
    assert_eq!(offenders("src/controller", &forbidden), Vec::<String>::new());
}
