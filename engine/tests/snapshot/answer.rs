//! The answer: who goes and where his users go, what blocks it, and what people read at a terminal.

use elastic_pool_engine::snapshot::Saved;
use serde_json::{Value, json};

use super::{KEPT, changed, four_workers, json_of};

#[test]
fn the_next_victim_is_named_with_each_users_way_out() {
    let answer: Value = serde_json::from_str(&four_workers().answer().to_json()).unwrap();
    assert_eq!(
        answer["next_victim"],
        json!({
            "worker": "w4", "occupancy": 0.2, "users": 3,
            "because": "C2: w4 at 0.20 is the least occupied of 3 workers beside the reception, ties go to the oldest",
            "blocked_by": [],
            "moves": [
                {"user": "bob", "open_requests": 0, "to": "w1", "projected": 0.466_666_666_667},
                {"user": "cid", "open_requests": 0, "stays": "a move of his failed, the next try is in 31 s (V6)"},
                {"user": "ann", "open_requests": 1, "to": "w3", "projected": 0.466_666_666_667},
            ],
        })
    );
    assert_eq!(answer["decisions"][1]["action"], "drain");
    assert_eq!(
        answer["ledger"],
        json!({"workers": 4, "C": 2.9, "O": 1.5, "H": 1.4, "margin": 1.2})
    );
}

#[test]
fn growth_that_the_mode_withholds_says_so() {
    let mut value: Value = serde_json::from_str(&four_workers().to_json()).unwrap();
    for worker in value["workers"].as_array_mut().unwrap() {
        worker["occupancy"] = "0.9".into();
    }
    value["policy"]["mode"] = "Frozen".into();
    value["policy"]["max"] = 3.into();
    let answer = |value: &Value| -> Value {
        serde_json::from_str(&Saved::parse(&value.to_string()).unwrap().answer().to_json()).unwrap()
    };
    let limited = answer(&value);
    assert_eq!(limited["conditions"][0]["type"], "ScalingLimited");
    assert_eq!(
        limited["conditions"][1],
        json!({"type": "AboveMax", "message": "C8: 4 take users and max is 3"})
    );
    value["policy"]["max"] = Value::Null;
    assert_eq!(
        answer(&value)["growth"]["withheld"],
        "spec.mode is Frozen: nobody is spawned"
    );
    value["policy"]["mode"] = "Active".into();
    assert_eq!(answer(&value)["growth"].get("withheld"), None);
}

#[test]
fn what_blocks_the_next_victim_is_said() {
    let blocked = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_str(&four_workers().to_json()).unwrap();
        change(&mut value);
        let answer = Saved::parse(&value.to_string()).unwrap().answer().to_json();
        serde_json::from_str::<Value>(&answer).unwrap()["next_victim"]["blocked_by"].clone()
    };
    assert_eq!(blocked(&|_| {}), json!([]));
    assert_eq!(
        blocked(&|value| value["policy"]["mode"] = "Recommend".into()),
        json!(["spec.mode is Recommend: nobody is compacted"])
    );
    assert_eq!(
        blocked(&|value| value["workers"][1]["stale"] = true.into()),
        json!(["E5: w2 is stale, its load unknown, so nobody goes"])
    );
    let grows = blocked(&|value| value["policy"]["min"] = 5.into());
    assert!(
        grows[0].as_str().unwrap().starts_with("growth comes first: G5:"),
        "{grows}"
    );
}

#[test]
fn people_read_the_same_at_a_terminal() {
    let text = four_workers().answer().to_string();
    let lines = [
        "shop/blue: 4 workers take users, capacity 2.90 - occupied 1.50 = headroom 1.40, margin 1.20",
        "now          drain w4",
        "a login      stays on w1",
        "next to go   w4, users: 3",
        "             bob     idle     -> w1, then at 0.47",
        "             cid     idle     stays: a move of his failed, the next try is in 31 s (V6)",
        "             ann     1 open   -> w3, then at 0.47",
        "w1      routable      0.40      4  reception",
        "w4      routable      0.20      3",
    ];
    let missing: Vec<&str> = lines
        .into_iter()
        .filter(|line| !text.lines().any(|found| found == *line))
        .collect();
    assert_eq!(missing, [""; 0], "{text}");
}

#[test]
fn what_makes_a_worker_special_is_noted_and_said_only_while_it_lasts() {
    let answer = json_of(&changed(KEPT, |value| {
        let worker = &mut value["workers"][0];
        worker["stale"] = true.into();
        worker["warm"] = false.into();
        worker["room_until_s"] = "820.5".into();
        worker["passed_over_until_s"] = "812.004000001".into();
        worker["outdated"] = true.into();
        value["workers"][1]["room_until_s"] = "812.004000001".into();
        value["workers"][1]["passed_over_until_s"] = "1".into();
    }));
    let notes = |worker: usize| answer["workers"][worker]["notes"].clone();
    assert_eq!(
        notes(0),
        json!([
            "E5: stale, its figures are unknown",
            "E5: has not filled a smoothing window in this term",
            "G1: counts as room for 9 s",
            "G2: of an older template, to be replaced",
        ])
    );
    assert_eq!(notes(1), json!(["C4: 0.05 moved here is not measured yet"]));
    assert_eq!(notes(2), json!([]));
    assert_eq!(
        notes(3),
        json!(["G4: does not come up, it cannot run as declared"])
    );
    assert_eq!(
        answer["conditions"][1],
        json!({"type": "ReportsStale", "message": "E5: 1 stale, the oldest is shop-blue-a"})
    );
}

#[test]
fn a_drain_is_told_with_who_is_left_and_why_he_stays() {
    let answer = json_of(&Saved::parse(KEPT).unwrap());
    assert_eq!(
        answer["drains"],
        json!([{
            "worker": "shop-blue-b", "kind": "must_go", "progress": "running", "for_s": 22, "users": 1,
            "moves": [{"user": "cid", "open_requests": 0, "stays": "an open stream pins him (C7)"}],
        }])
    );
    assert_eq!(answer["wake_in_s"], "8.495999999");
    let moves =
        |change: &dyn Fn(&mut Value)| json_of(&changed(KEPT, change))["drains"][0]["moves"][0].clone();
    assert_eq!(
        moves(&|value| value["workers"][1]["residents"][0]["stays"] = Value::Null),
        json!({"user": "cid", "open_requests": 0, "to": "shop-blue-a", "projected": 0.483_333_333_333})
    );
    assert_eq!(
        moves(&|value| value["workers"][1]["residents"][0]["stays"] = "package_too_large".into())["stays"],
        "his package is too large (C7)"
    );
    assert_eq!(
        moves(&|value| value["policy"]["moves"] = "Drain".into())["stays"],
        "moves.mode is Drain: he leaves by himself (C7)"
    );
    let alone = moves(&|value| {
        value["workers"][1]["residents"][0]["stays"] = Value::Null;
        value["workers"][0]["state"] = "retiring".into();
        value["workers"][0]["must_go"] = true.into();
    });
    assert_eq!(alone["stays"], "no other worker is there to take him (C6)");
    let text = Saved::parse(KEPT).unwrap().answer().to_string();
    let lines = [
        "shop/shop-blue: 1 worker takes users, capacity 0.50 - occupied 0.33 = headroom 0.17, margin 1.20",
        "draining     shop-blue-b (must go, running), for 22 s, users left: 1",
        "             cid     idle     stays: an open stream pins him (C7)",
        "next to go   nobody",
        "condition    SpawnsFailing",
        "asked again  in 8.5 s, if nothing is reported before",
        "spawn-1099511627780  nascent       0.00      0  G4: does not come up, it cannot run as declared",
    ];
    let missing: Vec<&&str> = lines
        .iter()
        .filter(|line| !text.lines().any(|found| found == **line))
        .collect();
    assert!(missing.is_empty(), "{missing:?} in\n{text}");
}

#[test]
fn a_terminal_gets_twenty_users_and_workers_and_the_number_of_the_others() {
    let many = |users: u64, workers: u64| {
        changed(&four_workers().to_json(), |value| {
            let user = |i| json!({"user": format!("user-{i}"), "open_requests": 0});
            value["workers"][3]["residents"] = (0..users).map(user).collect();
            let all = value["workers"].as_array_mut().unwrap();
            for birth in 5..=workers {
                let mut worker = all[0].clone();
                worker["birth"] = birth.to_string().into();
                worker["name"] = format!("worker-{birth}").into();
                all.push(worker);
            }
        })
        .answer()
        .to_string()
    };
    let (few, more) = (many(20, 20), many(23, 22));
    assert!(!few.contains(" more "), "{few}");
    assert!(
        more.contains("\n             and 3 more users: --output json shows all\n"),
        "{more}"
    );
    assert!(
        more.ends_with("\n             and 2 more workers: --output json shows all\n"),
        "{more}"
    );
    assert_eq!(more.matches("-> ").count(), 20);
    assert!(
        more.contains("\nworker-20  routable      0.40      4\n"),
        "{more}"
    );
}

#[test]
fn a_cancelled_drain_and_an_advice_are_told() {
    let full = |value: &mut Value| {
        for worker in value["workers"].as_array_mut().unwrap() {
            worker["occupancy"] = "0.9".into();
        }
    };
    let saved = changed(&four_workers().to_json(), |value| {
        full(value);
        value["workers"][3]["state"] = "draining".into();
        value["workers"][3]["drain"] = "compaction".into();
        value["workers"][3]["since_s"] = "90".into();
        value["workers"][3]["progress"] = "running".into();
    });
    let answer = json_of(&saved);
    assert_eq!(answer["growth"]["cancel"], json!(["w4"]));
    assert_eq!(answer["decisions"][0]["action"], "cancel_drain");
    assert!(
        saved
            .answer()
            .to_string()
            .contains("\nnow          cancel drain w4\n")
    );
    let advised = changed(&four_workers().to_json(), |value| {
        full(value);
        value["policy"]["mode"] = "Recommend".into();
    });
    let text = advised.answer().to_string();
    assert!(text.contains("\nadvised      spawn 1\n"), "{text}");
    assert!(
        text.contains("\na login      passes to w4, with a warning\n"),
        "{text}"
    );
    assert!(
        text.contains("\n             not done: spec.mode is Recommend: nobody is spawned\n"),
        "{text}"
    );
    let nobody = changed(&four_workers().to_json(), |value| value["workers"] = json!([]));
    assert!(
        nobody
            .answer()
            .to_string()
            .contains("\na login      has no worker to go to\n")
    );
    let brief = four_workers().answer().brief().to_string();
    assert!(
        brief.starts_with("shop/blue, 100.0 s after its commander's start\ndecided      nothing (room)\n"),
        "{brief}"
    );
    assert!(!brief.contains("worker   "), "{brief}");
}
