//! Decisions of a running group: asked about live, saved, and given again by the same bytes.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::browser;
use crate::run::{PATIENCE, PROGRAM, Run, shop, until};

fn decide(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("decide")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_live_group_can_be_asked_what_it_would_do() {
    let run = Run::ready(shop(), 1).await;
    let commander = format!("http://{}", run.monitor());
    let asked = decide(&["--group", "shop", "--commander", &commander, "--output", "json"]);
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    let answer: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(answer["group"], "shop/shop");
    assert_eq!(answer["growth"]["spawn"], 0);
    assert_eq!(answer["workers"].as_array().unwrap().len(), 1);
    let unknown = decide(&["--group", "nobody", "--commander", &commander]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("shop/shop"),
        "{}",
        text(&unknown.stderr)
    );
}

#[tokio::test]
async fn decisions_taken_live_are_saved_and_replay_to_the_same_bytes() {
    let mut group = shop();
    group["spec"]["workers"] = json!({ "min": 2, "max": 4 });
    let run = Run::ready(group, 2).await;
    let state = run.state().await;
    let second = state["groups"][0]["workers"][1]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    run.drain(&second).await;
    run.until("the drained worker is replaced", |state| {
        let names = state["groups"][0]["workers"].as_array().unwrap();
        names.len() == 2
            && names
                .iter()
                .all(|row| row["name"] != second.as_str() && row["state"] == "routable")
    })
    .await;

    let answer = browser::get(run.monitor(), "/_commander/decisions?group=shop")
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    let served = text(&answer.body).to_owned();
    for reason in ["\"below_min\"", "\"empty\"", "\"room\""] {
        assert!(served.contains(reason), "{reason} in {served}");
    }
    let file = run.path("served.jsonl");
    std::fs::write(&file, &served).unwrap();
    let replayed = decide(&["--check", "--snapshot", file.to_str().unwrap()]);
    assert!(
        replayed.status.success(),
        "{} {}",
        text(&replayed.stdout),
        text(&replayed.stderr)
    );

    let saved = run.path("decisions").join("shop_shop.jsonl");
    let lines = || {
        std::fs::read_to_string(&saved)
            .unwrap_or_default()
            .lines()
            .count()
    };
    until("all of them are saved", PATIENCE, async || {
        lines() >= served.lines().count()
    })
    .await;
    let replayed = decide(&["--check", "--snapshot", saved.to_str().unwrap()]);
    assert!(
        replayed.status.success(),
        "{} {}",
        text(&replayed.stdout),
        text(&replayed.stderr)
    );
}
