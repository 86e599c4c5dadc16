//! Every case of tests/cases holds, and bad lines are refused with the place and what would be right.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use elastic_pool_engine::cases::Case;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

const GIVEN: &str = include_str!("../../tests/cases/decisions.jsonl");
const RULES: &str = include_str!("../../tests/cases/rules.jsonl");

#[rstest]
#[case::given(GIVEN, 55)]
#[case::rules(RULES, 120)]
fn every_case_is_answered_as_expected_and_explained_by_a_rule(#[case] lines: &str, #[case] at_least: usize) {
    let mut failed = Vec::new();
    for line in lines.lines() {
        let case = Case::parse(line).unwrap();
        assert!(case.expects(), "{} expects nothing", case.name());
        let answer = case.answer();
        let because = answer["because"].as_str().unwrap();
        if !because.starts_with(|first: char| "MEPLGCVD".contains(first)) || because.contains('\n') {
            failed.push(format!("{}: no rule in {because:?}", case.name()));
        }
        let mismatches = case.check(&answer);
        failed.extend(mismatches.iter().map(|it| format!("{}: {it}", case.name())));
    }
    assert!(lines.lines().count() >= at_least);
    assert!(failed.is_empty(), "{failed:#?}");
}

fn refusal(category: &str, input: &str) -> String {
    Case::parse(&format!(
        r#"{{"name":"x","category":"{category}","input":{input}}}"#
    ))
    .unwrap_err()
    .to_string()
}

#[rstest]
#[case(
    r#"{"workers":[{"name":"w1","occupancy":1.2}]}"#,
    "input.workers[0].occupancy is 1.2, must be a number from 0 to 1"
)]
#[case(
    r#"{"workers":[{"name":"w1"},{"name":"w1"}]}"#,
    "input.workers[1].name is \"w1\", must be a name that no other worker has"
)]
#[case(r#"{"workers":[{}]}"#, "input.workers[0].name is missing, must be a string")]
#[case(r#"{"workers":{}}"#, "input.workers is {}, must be an array")]
#[case(
    r#"{"workers":[{"name":"w1","rows":[{"report":{}}]}]}"#,
    "input.workers[0].rows[0].ts is missing, must be a time in seconds"
)]
#[case(
    r#"{"workers":[{"name":"w1","rows":[{"ts":1,"report":{"cpu":"hot"}}]}]}"#,
    "input.workers[0].rows[0].report.cpu is \"hot\", must be a number or null"
)]
#[case(
    r#"{"thresholds":{"admission_threshold":80}}"#,
    "input.thresholds.admission_threshold is 80, must be a number from 0 to 1"
)]
#[case(
    r#"{"thresholds":{"min_workers":1.5}}"#,
    "input.thresholds.min_workers is 1.5, must be a whole number from 0 to 1000000000"
)]
#[case(
    r#"{"thresholds":{"min_workers":3,"max_workers":2}}"#,
    "input.thresholds.max_workers is 2, must be at least min_workers, which is 3, or null"
)]
#[case(
    r#"{"event":{"type":"drain","worker":"w9"}}"#,
    "input.event.worker is \"w9\", must be the name of a worker of this case, or null"
)]
#[case(
    r#"{"workers":[{"name":"w1","users":["a","b","a"]}]}"#,
    "input.workers[0].users is [\"a\",\"b\",\"a\"], must be a list in which nobody stands twice"
)]
#[case(
    r#"{"workers":[{"name":"w1","users":"a"}]}"#,
    "input.workers[0].users is \"a\", must be a list of users, a map of users to open requests, or their number"
)]
#[case(
    r#"{"workers":[{"name":"w1","users":2000000}]}"#,
    "input.workers[0].users is 2000000, must be at most 1000000 users"
)]
#[case(
    r#"{"workers":[{"name":"w1"}],"open_requests":{"a":-1}}"#,
    "input.open_requests.a is -1, must be a whole number from 0 to 1000000000"
)]
#[case(r"[]", "input is [], must be an object")]
fn a_bad_field_is_named_with_what_would_be_right(#[case] input: &str, #[case] expected: &str) {
    assert_eq!(refusal("fixture", input), expected);
}

#[test]
fn an_unknown_event_or_category_is_refused_with_the_known_ones() {
    assert!(
        refusal("fixture", r#"{"event":{"type":"nap"}}"#).contains("must be login, request, check_capacity")
    );
    assert!(refusal("weather", "{}").starts_with("category is \"weather\", must be evaluator"));
}

/// What a case answers, without name and sentence.
fn answer(category: &str, input: &str) -> serde_json::Value {
    let case = Case::parse(&format!(
        r#"{{"name":"x","category":"{category}","input":{input}}}"#
    ))
    .unwrap();
    let mut answer = case.answer();
    answer.remove("name");
    answer.remove("because").unwrap();
    answer.into()
}

#[rstest]
#[case::m2_a_refused_reading_is_absent(
    "evaluator",
    r#"{"workers":[{"name":"w1","rows":[{"ts":1,"report":{"cpu":NaN,"rss":-5}},{"ts":2,"report":{"cpu":0.4}}]}]}"#,
    r#"{"components":{"cpu":0.4},"occupancy":0.4,"rejected_readings":{"w1":["cpu","rss"]}}"#
)]
#[case::e2_a_mean_is_over_the_rows_that_carry_it(
    "evaluator",
    r#"{"workers":[{"name":"w1","rows":[{"ts":1,"report":{"cpu":0.2}},{"ts":2,"report":{}},{"ts":3,"report":{"cpu":0.4,"executor":{"total":4}}}]}]}"#,
    r#"{"components":{"cpu":0.3,"executor":0.0},"occupancy":0.3}"#
)]
#[case::e5_who_holds_users_and_measures_nothing_is_no_candidate(
    "placement",
    r#"{"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","users":["a"],"rows":[{"ts":1,"report":{}}]},{"name":"w3","occupancy":0.7}],"event":{"type":"login","user":"n"}}"#,
    r#"{"decision":"pass","worker":"w3","warning":false,"placement_evaluated":true}"#
)]
#[case::e5_nothing_is_compacted_while_one_is_stale(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","stale":true,"occupancy":0}]}"#,
    r#"{"ledger":{"C":2.1,"O":0.0,"H":2.1,"margin":1.2},"retire":null}"#
)]
#[case::e5_nothing_is_compacted_before_all_are_warm(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","occupancy":0,"routable_for_s":29}]}"#,
    r#"{"ledger":{"C":2.1,"O":0.0,"H":2.1,"margin":1.2},"retire":null}"#
)]
#[case::e5_a_smoothing_window_makes_warm(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","occupancy":0,"routable_for_s":30}]}"#,
    r#"{"ledger":{"C":2.1,"O":0.0,"H":2.1,"margin":1.2},"retire":"w2"}"#
)]
#[case::p1_a_guest_stays_where_he_was_taken_in(
    "routing",
    r#"{"workers":[{"name":"w1"},{"name":"w2"}],"event":{"type":"request","user":"g","guest":true,"currently_on":"w2"}}"#,
    r#"{"worker":"w2","placement_evaluated":false}"#
)]
#[case::p1_who_lived_on_a_dead_worker_is_a_guest(
    "routing",
    r#"{"workers":[{"name":"w1","state":"dead","users":["a"]},{"name":"w2"}],"event":{"type":"request","user":"a"}}"#,
    r#"{"worker":"w2","placement_evaluated":false}"#
)]
#[case::p1_a_user_stays_on_a_draining_worker(
    "routing",
    r#"{"workers":[{"name":"w1"},{"name":"w2","state":"draining","users":["a"]}],"event":{"type":"request","user":"a"}}"#,
    r#"{"worker":"w2","placement_evaluated":false}"#
)]
#[case::p4_draining_and_retiring_workers_are_no_candidates(
    "placement",
    r#"{"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0,"state":"draining"},{"name":"w3","occupancy":0,"state":"retiring"},{"name":"w4","occupancy":0.5}]}"#,
    r#"{"decision":"pass","worker":"w4","warning":false,"placement_evaluated":true}"#
)]
#[case::l5_another_worker_keeps_who_logged_in_there(
    "placement",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0.79}],"event":{"type":"login","user":"n","arriving_on":"w2"}}"#,
    r#"{"decision":"keep","worker":"w2","warning":false,"placement_evaluated":true}"#
)]
#[case::l5_a_draining_worker_passes_to_the_reception_too(
    "placement",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0.1,"state":"draining"},{"name":"w3","occupancy":0}],"event":{"type":"login","user":"n","arriving_on":"w2"}}"#,
    r#"{"decision":"pass","worker":"w1","warning":false,"placement_evaluated":true}"#
)]
#[case::g1_start_up_load_spawns_no_chain(
    "scale_up",
    r#"{"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0.9},{"name":"w3","occupancy":0.9,"routable_for_s":10}]}"#,
    r#"{"spawn":0,"reason":"room"}"#
)]
#[case::g2_a_compaction_drain_is_cancelled_before_anybody_is_spawned(
    "scale_up",
    r#"{"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0.9},{"name":"w3","occupancy":0.1,"state":"evacuating"}]}"#,
    r#"{"spawn":0,"reason":"room","cancel_drain":["w3"]}"#
)]
#[case::g2_max_counts_every_living_worker(
    "scale_up",
    r#"{"thresholds":{"max_workers":3},"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0.9},{"name":"w3","state":"retiring"}]}"#,
    r#"{"spawn":0,"reason":"max_workers"}"#
)]
#[case::g2_a_replacement_may_exceed_max_by_the_surge(
    "scale_up",
    r#"{"thresholds":{"max_workers":2},"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0.9,"state":"draining"}]}"#,
    r#"{"spawn":1,"reason":"cannot_place"}"#
)]
#[case::g5_a_dead_group_is_replaced_at_once(
    "scale_up",
    r#"{"thresholds":{"min_workers":2},"workers":[{"name":"w1","state":"dead"}]}"#,
    r#"{"spawn":2,"reason":"no_routable_worker"}"#
)]
#[case::g5_min_is_a_floor(
    "scale_up",
    r#"{"thresholds":{"min_workers":3},"workers":[{"name":"w1","occupancy":0}]}"#,
    r#"{"spawn":2,"reason":"cannot_place"}"#
)]
#[case::c2_a_spawn_that_is_not_needed_any_more_goes_first(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","state":"nascent"}]}"#,
    r#"{"ledger":{"C":1.3,"O":0.0,"H":1.3,"margin":1.2},"retire":null,"cancel_spawn":"w3"}"#
)]
#[case::c2_nobody_goes_where_growth_would_bring_him_back(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","occupancy":0.85}]}"#,
    r#"{"ledger":{"C":2.1,"O":0.85,"H":1.25,"margin":1.2},"retire":null}"#
)]
#[case::c2_one_drain_at_a_time(
    "compaction",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0},{"name":"w3","occupancy":0,"state":"evacuating"}]}"#,
    r#"{"ledger":{"C":1.3,"O":0.0,"H":1.3,"margin":1.2},"retire":null}"#
)]
#[case::c6_idle_first_then_busy_each_to_the_lowest_below_its_threshold(
    "drain",
    r#"{"workers":[{"name":"w1","occupancy":0.4},{"name":"w2","occupancy":0.45},{"name":"w3","occupancy":0.4,"users":["a","b","c","d"],"open_requests":{"a":2}}],"event":{"type":"drain","worker":"w3"}}"#,
    r#"{"move_order":["b","c","d","a"],"target":{"b":"w1","c":"w2","d":"w2","a":"w2"}}"#
)]
#[case::c6_none_below_takes_the_lowest_anyway(
    "drain",
    r#"{"workers":[{"name":"w1","occupancy":0.7},{"name":"w2","occupancy":0.9},{"name":"w3","occupancy":0.5,"users":["a"]}],"event":{"type":"drain","worker":"w3"}}"#,
    r#"{"move_order":["a"],"target":{"a":"w1"}}"#
)]
#[case::c8_above_max_one_goes_whatever_the_headroom(
    "compaction",
    r#"{"thresholds":{"max_workers":2},"workers":[{"name":"w1","occupancy":0.5},{"name":"w2","occupancy":0.6},{"name":"w3","occupancy":0.3}]}"#,
    r#"{"ledger":{"C":2.1,"O":1.4,"H":0.7,"margin":1.2},"retire":"w3"}"#
)]
#[case::c8_not_while_a_survivor_would_overflow(
    "compaction",
    r#"{"thresholds":{"max_workers":2},"workers":[{"name":"w1","occupancy":0.9},{"name":"w2","occupancy":0.9},{"name":"w3","occupancy":0.3}]}"#,
    r#"{"ledger":{"C":2.1,"O":2.1,"H":0.0,"margin":1.2},"retire":null}"#
)]
#[case::c6_users_may_be_objects_with_their_open_requests(
    "drain",
    r#"{"workers":[{"name":"w1","occupancy":0},{"name":"w2","occupancy":0.2,"users":[{"user":"a","open_requests":1},"b"]}],"event":{"type":"drain","worker":"w2"}}"#,
    r#"{"move_order":["b","a"],"target":{"a":"w1","b":"w1"}}"#
)]
#[case::what_nobody_knows_changes_nothing_and_is_said(
    "scale_up",
    r#"{"thresholds":{"recepton_threshold":0.9},"colour":"red","workers":[{"name":"w1","occupancy":0.6,"room":4}],"event":{"type":"check_capacity","why":"?"}}"#,
    r#"{"spawn":1,"reason":"cannot_place","ignored_fields":["input.colour","input.thresholds.recepton_threshold","input.event.why","input.workers[0].room"]}"#
)]
#[case::a_fixture_is_the_whole_picture(
    "fixture",
    r#"{"workers":[{"name":"w1","occupancy":0.6},{"name":"w2","occupancy":0.9}]}"#,
    r#"{"occupancy":{"w1":0.6,"w2":0.9},"placement_of_next_login":{"decision":"pass","worker":"w2","warning":true},
        "scale_up":{"spawn":1,"reason":"cannot_place"},"ledger":{"C":1.3,"O":1.5,"H":-0.2,"margin":1.2},"retire":null}"#
)]
fn rules_hold_in_cases(#[case] category: &str, #[case] input: &str, #[case] expected: &str) {
    let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
    assert_eq!(answer(category, input), expected);
}

proptest! {
    #[test]
    fn a_spoilt_line_is_answered_or_refused_and_never_panics(
        line in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![
            any::<char>().prop_map(String::from),
            any::<f64>().prop_map(|number| number.to_string()),
            prop::sample::select(vec!["", "null", "NaN", "1e999", "-", "{", "]", "\"", "18446744073709551615", "1e-320"])
                .prop_map(str::to_owned),
        ],
    ) {
        let lines: Vec<&str> = RULES.lines().collect();
        let line = *line.get(&lines);
        let starts: Vec<(usize, char)> = line.char_indices().collect();
        let (start, old) = *at.get(&starts);
        let spoilt = format!("{}{with}{}", &line[..start], &line[start + old.len_utf8()..]);
        if let Ok(case) = Case::parse(&spoilt) {
            prop_assert!(case.answer().contains_key("because"));
        }
    }
}

fn any_worker() -> impl Strategy<Value = serde_json::Value> {
    let states = vec![
        "routable",
        "routable",
        "routable",
        "nascent",
        "draining",
        "evacuating",
        "retiring",
        "dead",
        "quitting",
        "quitted",
        "aborted",
    ];
    let reading = prop::option::of(prop_oneof![-1.0f64..2.0, Just(0.0), Just(0.8)]);
    let row = (reading.clone(), reading)
        .prop_map(|(cpu, busy)| json!({"cpu": cpu, "executor": {"busy": busy, "total": 4}}));
    let measured = prop_oneof![
        3 => (0u32..=100).prop_map(|percent| json!({"occupancy": f64::from(percent) / 100.0})),
        2 => prop::collection::vec(row, 0..9).prop_map(|reports| {
            let rows = reports.into_iter().zip(0..);
            json!({"rows": rows.map(|(report, i)| json!({"ts": 5 * i, "report": report})).collect::<Vec<_>>()})
        }),
        1 => Just(json!({})),
    ];
    let users = prop_oneof![
        Just(json!([])),
        Just(json!(["ann", "bob"])),
        Just(json!({"ann": 1, "bob": 0})),
        Just(json!(3)),
        Just(json!(null)),
    ];
    let age = prop::option::weighted(0.2, 0u32..60);
    (prop::sample::select(states), measured, users, age).prop_map(|(state, mut worker, users, age)| {
        worker["state"] = state.into();
        worker["users"] = users;
        worker["routable_for_s"] = json!(age);
        worker
    })
}

/// What the answer to each question must hold, in any of these sets.
const QUESTIONS: [(&str, &str, &[&[&str]]); 12] = [
    ("evaluator", "", &[&["components", "occupancy"], &["error"]]),
    ("history", "", &[&["history"], &["error"]]),
    ("rates", "", &[&["rps", "latency_ms"], &["error"]]),
    (
        "window",
        "",
        &[&["rows_kept", "first_users", "last_users"], &["error"]],
    ),
    (
        "",
        "login",
        &[
            &["decision", "worker", "warning"],
            &["worker", "placement_evaluated"],
            &["error"],
        ],
    ),
    (
        "",
        "login_then_check",
        &[
            &["worker", "spawn", "reason", "order"],
            &["error", "spawn", "reason", "order"],
        ],
    ),
    ("", "request", &[&["worker"], &["error"]]),
    ("", "check_capacity", &[&["spawn", "reason"]]),
    ("", "occupancy_report", &[&["ledger", "retire"]]),
    (
        "",
        "occupancy_reports_until_stable",
        &[&["retire_order", "final_ledger"]],
    ),
    ("", "drain", &[&["move_order", "target"]]),
    (
        "fixture",
        "",
        &[&[
            "occupancy",
            "placement_of_next_login",
            "scale_up",
            "ledger",
            "retire",
        ]],
    ),
];
const REASONS: [&str; 5] = [
    "room",
    "spawn_in_flight",
    "max_workers",
    "cannot_place",
    "no_routable_worker",
];

proptest! {
    #[test]
    fn every_question_about_any_workers_has_all_its_fields(
        mut workers in prop::collection::vec(any_worker(), 1..7),
        (category, event, fields) in prop::sample::select(QUESTIONS.to_vec()),
        (min, max) in (0usize..4, prop::option::of(4usize..7)),
        user in prop::sample::select(vec!["ann", "newcomer"]),
    ) {
        for (worker, i) in workers.iter_mut().zip(1..) {
            worker["name"] = format!("w{i}").into();
        }
        let mut case = json!({
            "name": "any", "category": category,
            "input": {"workers": workers, "thresholds": {"min_workers": min, "max_workers": max}},
        });
        if !event.is_empty() {
            case["input"]["event"] = json!({"type": event, "user": user, "worker": "w1"});
        }
        let answer = Case::parse(&case.to_string()).unwrap().answer();
        let holds = |names: &&[&str]| names.iter().all(|name| answer.contains_key(*name));
        prop_assert!(fields.iter().any(holds), "{event}{category}: {answer:?}");
        let because = answer["because"].as_str().unwrap();
        prop_assert!(because.chars().nth(2) == Some(':') || because.starts_with("the case has no worker"), "{because}");
        if let Some(reason) = answer.get("reason") {
            prop_assert!(REASONS.contains(&reason.as_str().unwrap()), "{reason}");
        }
    }
}
