//! Growth on measured CPU, and shrinking: by moves, and by waiting for clients of an app without contract to leave.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest};

#[test]
fn a_group_grows_on_measured_cpu_and_shrinks_by_moving_users() {
    let mut group = manifest();
    // The users of the end are 35 points: enough that some live on each worker that goes, and by this margin one worker holds them.
    group["spec"]["thresholds"]["compactionMarginPercent"] = 100.into();
    let shop = Shop::open("growth", &group, 1);
    let mut load = Load::start(&shop, "6x8s,120x42s,14x50s", "--cpu-ms 5 --arrivals 4");
    eventually("three workers or more", 65, || {
        let ready = shop.group()["status"]["readyWorkers"].as_u64();
        if ready >= Some(3) {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        }
    });
    let columns = shop.kubectl("get pgrp");
    println!("{columns}");
    let (header, row) = columns.split_once('\n').expect("a header and a row");
    let header: Vec<&str> = header.split_whitespace().collect();
    let expected = [
        "NAME",
        "VERSION",
        "READY",
        "DESIRED",
        "USERS",
        "HEADROOM",
        "RECEPTION",
        "MODE",
        "AGE",
    ];
    assert_eq!(header, expected);
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row.len(), expected.len(), "{columns}");
    assert_eq!((row[0], row[1], row[7]), ("shop-blue", "blue", "Active"));
    eventually("down to min while users are there", 90, || {
        let pods = shop.workers().len();
        assert!(load.goes_on(), "the load ended with {pods} workers left");
        if pods == 1 {
            Ok(())
        } else {
            Err(format!("{pods} workers"))
        }
    });
    let summary = load.finish();
    assert_held(&summary);
    assert!(
        summary["live_moves"].as_u64() > Some(0),
        "nobody met a move: {summary}"
    );
    assert_explained(&shop.events());
}

/// Each step has its event, and each event says why: the rule and the figures that it went by.
fn assert_explained(events: &[(String, String)]) {
    println!("{events:#?}");
    for (reason, rule) in [
        ("Spawned", "G"),
        ("CompactionStarted", "C2"),
        ("WorkerRetired", "C"),
    ] {
        let told: Vec<&String> = events
            .iter()
            .filter(|(of, _)| of == reason)
            .map(|(_, note)| note)
            .collect();
        assert!(!told.is_empty(), "no event {reason} in {events:#?}");
        let explained = |note: &&String| note.starts_with(rule) && note.chars().any(|c| c.is_ascii_digit());
        assert!(told.iter().all(explained), "{reason} is not explained: {told:#?}");
    }
}

#[test]
fn the_session_group_without_contract_drains_as_its_clients_leave() {
    let mut legacy = manifest();
    let spec = &mut legacy["spec"];
    spec["app"] = json!({"contract": "None"});
    spec["users"] = "Session".into();
    spec["sessionTimeout"] = "15s".into();
    spec["moves"] = json!({"mode": "Drain"});
    spec["template"]["spec"]["containers"][0]["args"] = json!(["worker", "--plain"]);
    let shop = Shop::open("session", &legacy, 1);
    let load = Load::start(&shop, "3x5s,60x30s", "--mode session --cpu-ms 5 --arrivals 4");
    eventually("a second worker", 45, || {
        let ready = shop.group()["status"]["readyWorkers"].as_u64();
        if ready >= Some(2) {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        }
    });
    let summary: Value = load.finish();
    assert_held(&summary);
    assert_eq!(summary["live_moves"], 0, "nobody can be moved: {summary}");
    eventually("down to min as the clients leave", 90, || {
        let pods = shop.workers().len();
        if pods == 1 {
            Ok(())
        } else {
            Err(format!("{pods} workers"))
        }
    });
}
