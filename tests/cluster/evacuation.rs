//! A version is retired: its users move to the other group of the pool while they work, its pods end, its object goes.

use serde_json::{Value, json};

use crate::harness::eventually;
use crate::load::{Load, assert_held};
use crate::shop::{Shop, manifest};

const USERS: u64 = 30;

fn coloured(colour: &str, mode: &str) -> Value {
    let mut group = manifest();
    group["metadata"]["name"] = format!("shop-{colour}").into();
    group["spec"]["runtime"] = json!({"version": colour, "snapshotFormat": "shop/1"});
    group["spec"]["updateStrategy"] = json!({"guestTimeout": "5s"});
    group["spec"]["mode"] = mode.into();
    group
}

fn status(shop: &Shop, group: &str, field: &str) -> u64 {
    shop.get(&format!("pgrp/{group}"))["status"][field]
        .as_u64()
        .unwrap_or(0)
}

fn wait(shop: &Shop, what: &str, seconds: u64, so: impl Fn(u64, u64, u64) -> bool) {
    eventually(what, seconds, || {
        let blue = (
            status(shop, "shop-blue", "workers"),
            status(shop, "shop-blue", "users"),
        );
        let green = status(shop, "shop-green", "users");
        if so(blue.0, blue.1, green) {
            Ok(())
        } else {
            Err(format!("blue {blue:?}, green {green}"))
        }
    });
}

#[test]
fn a_version_is_retired_under_load_without_a_lost_user_or_a_failed_request() {
    let shop = Shop::open("evacuation", &coloured("blue", "Active"), 1);
    shop.apply(&coloured("green", "Active"));
    eventually("a worker of green", 90, || {
        match status(&shop, "shop-green", "readyWorkers") {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    });
    let mut load = Load::start(&shop, &format!("{USERS}x150s"), "--cpu-ms 1 --arrivals 4");
    wait(&shop, "the users live in blue", 90, |_, users, _| users == USERS);
    shop.apply(&coloured("blue", "Evacuate"));
    wait(
        &shop,
        "blue is empty and its users live in green",
        120,
        |workers, users, green| workers == 0 && users == 0 && green == USERS,
    );
    assert!(load.goes_on(), "nobody was moved while users worked");
    let evacuating = shop.condition("shop-blue", "Evacuating").expect("a condition");
    assert_eq!(
        (&evacuating["status"], &evacuating["reason"]),
        (&json!("False"), &json!("Evacuated"))
    );
    shop.kubectl("delete pgrp shop-blue --timeout=30s");
    let summary = load.end();
    assert_held(&summary);
    assert!(summary["live_moves"].as_u64() > Some(0), "{summary}");
    assert!(
        shop.get_maybe("pool/shop").is_ok(),
        "green keeps the implicit Pool"
    );
    shop.kubectl("delete pgrp shop-green --timeout=30s");
    eventually("the implicit Pool went with the last group", 60, || {
        match shop.get_maybe("pool/shop") {
            Ok(pool) => Err(pool["metadata"].to_string()),
            Err(_) => Ok(()),
        }
    });
}
