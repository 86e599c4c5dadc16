//! Readings that cannot be: none of them ever becomes a number (M2), and the group does what it did before.

use serde_json::json;

use crate::run::{Run, condition, group, row};

const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/local/odd_app.py");
const GOOD: &str = r#"{"users": 3, "executor": {"busy": 1, "total": 4}, "rss": 1048576, "cpu": 0.25}"#;

#[tokio::test]
async fn an_impossible_reading_is_named_and_never_becomes_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    // A whole file or the one before it, never a part.
    let report = |text: &str| {
        let fresh = folder.path().join("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, &file).unwrap();
    };
    report(GOOD);
    let mut odd = group("odd", &["python3", APP]);
    odd["spec"]["thresholds"] = json!({ "smoothingRows": 1, "cpu": "1", "memory": "1Gi" });
    odd["spec"]["reports"] = json!({ "interval": "200ms" });
    let environment = odd.pointer_mut("/spec/template/spec/containers/0/env").unwrap();
    *environment = json!([{ "name": "ODD_REPORT", "value": file.to_str().unwrap() }]);
    let run = Run::start(&[odd], 1).await;
    run.until("the good report is read", |state| {
        let worker = &state["groups"][0]["workers"][0];
        worker["components"]["executor"] == 0.25 && worker["components"]["cpu"] == 0.25
    })
    .await;
    let name = run.workers()[0].name.clone();

    // The report, the field that is named (empty: nothing can be named), and what is left of it.
    for (text, field, component) in [
        (
            r#"{"executor": {"busy": -1, "total": 4}}"#,
            "executor",
            "executor",
        ),
        (
            r#"{"executor": {"busy": 1, "total": 1e300}}"#,
            "executor",
            "executor",
        ),
        (
            r#"{"executor": {"busy": "NaN", "total": 4}}"#,
            "executor",
            "executor",
        ),
        (r#"{"cpu": -0.5}"#, "cpu", "cpu"),
        (r#"{"cpu": [1]}"#, "cpu", "cpu"),
        (r#"{"rss": 1e17}"#, "rss", "memory"),
        (r#"{"rss": true}"#, "rss", "memory"),
        (
            r#"{"users": -3, "executor": {"busy": 0, "total": 0}}"#,
            "users",
            "executor",
        ),
        (
            r#"{"executor": {"busy": NaN, "total": Infinity}}"#,
            "",
            "executor",
        ),
        (r#"{"executor": {"busy": 3, "#, "", "executor"),
        (r#"["executor"]"#, "", "executor"),
        (r"{}", "", "executor"),
        ("", "", "executor"),
    ] {
        report(GOOD);
        run.until("the good report is read again", |state| {
            let components = &row(state, &name)["components"];
            components["executor"] == 0.25 && condition(&state["groups"][0], "ReportsFresh").0
        })
        .await;
        report(text);
        run.until(text, |state| {
            let (fresh, _, message) = condition(&state["groups"][0], "ReportsFresh");
            let named = field.is_empty() || !fresh && message.contains(field) && message.contains(&name);
            named && row(state, &name)["components"][component] != 0.25
        })
        .await;
        let state = run.state().await;
        let worker = row(&state, &name);
        assert!(worker["components"][component].is_null(), "{text}: {state:#}");
        let occupancy = worker["occupancy"].as_f64().unwrap();
        assert!((0.0..=0.5).contains(&occupancy), "{text}: {state:#}");
        let view = &state["groups"][0]["view"];
        assert_eq!(
            (&view["workers"], &view["ready_workers"]),
            (&json!(1), &json!(1)),
            "{text}"
        );
    }
    assert!(run.metric("elastic_pool_reports_rejected_total").await >= 8.0);
    assert_eq!(run.workers()[0].name, name);
}
