use std::path::PathBuf;

use rstest::rstest;

use super::{Args, Output, run, within};

const GROUP: &str = "
apiVersion: elasticpool.dev/v1alpha1
kind: PoolGroup
metadata: {name: shop-blue}
spec:
  pool: shop
  template:
    spec:
      containers:
      - name: app
        ports: [{containerPort: 8080}]
";
const TRACE: &str = "time,logins,mean_stay_seconds,cost_percent
08:00,40,900,2
08:30,300,900,2
09:00,60,600,2
09:30,10,600,2
10:00,0,600,2
";

/// Runs with these files; the answer, or the error without the folder's name.
fn answer(trace: &[u8], group: &str, change: impl FnOnce(&mut Args)) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let mut args = Args {
        trace: file("day.csv", trace),
        group: file("group.yaml", group.as_bytes()),
        name: None,
        output: Output::Text,
        seed: 1,
        spawn_seconds: 20.0,
        move_seconds: 0.2,
        active_percent: 40.0,
        autoscaler_target_percent: 70.0,
    };
    change(&mut args);
    let mut out = Vec::new();
    let prefix = format!("{}/", folder.path().display());
    match run(&args, &mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap()),
        Err(error) => Err(error.to_string().replace(&prefix, "")),
    }
}

#[test]
fn the_chart_of_a_morning() {
    let text = answer(TRACE.as_bytes(), GROUP, |_| {}).unwrap();
    insta::assert_snapshot!(text);
}

#[test]
fn json_holds_every_figure_of_the_same_day() {
    let json = answer(TRACE.as_bytes(), GROUP, |args| args.output = Output::Json).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["day"]["hours"], 2.5);
    assert_eq!(value["assumed"]["admission_percent"], 80.0);
    for series in value["minutes"].as_object().unwrap().values() {
        assert_eq!(series.as_array().map(Vec::len), Some(150));
    }
}

#[test]
fn thresholds_min_max_and_moves_are_the_manifests() {
    let manifest = format!(
        "{GROUP}  workers: {{min: 2, max: 3}}\n  thresholds: {{receptionPercent: 30, admissionPercent: 60}}\n  moves: {{mode: Drain}}\n"
    );
    let json = answer(TRACE.as_bytes(), &manifest, |args| args.output = Output::Json).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let assumed = &value["assumed"];
    assert_eq!(
        (&assumed["reception_percent"], &assumed["admission_percent"]),
        (&30.0.into(), &60.0.into())
    );
    assert_eq!((&assumed["min"], &assumed["max"]), (&2.into(), &3.into()));
    assert_eq!(
        (&value["pool"]["most_workers"], &value["pool"]["moves"]),
        (&3.0.into(), &0.into())
    );
}

#[rstest]
#[case(
    "",
    GROUP,
    "day.csv:1: the trace is empty, must begin with the line time,logins"
)]
#[case("time,logins\n", GROUP, "day.csv:1: the header is \"time,logins\", must be")]
#[case(
    "time,logins,mean_stay_seconds,cost_percent\n08:00,1,x,1\n",
    GROUP,
    "day.csv:2: mean_stay_seconds is \"x\", must be"
)]
#[case(TRACE, "kind: [", "group.yaml: no YAML: ")]
#[case(TRACE, "", "group.yaml: no PoolGroup, write one")]
fn bad_input_names_file_line_and_what_would_be_right(
    #[case] trace: &str,
    #[case] group: &str,
    #[case] says: &str,
) {
    let error = answer(trace.as_bytes(), group, |_| {}).unwrap_err();
    assert!(error.starts_with(says), "{error}");
}

#[test]
fn a_line_of_ten_megabytes_is_refused() {
    let error = answer(&b"9".repeat(12 << 20), GROUP, |_| {}).unwrap_err();
    assert!(
        error.starts_with("day.csv:1: the line is longer than 200 bytes"),
        "{error}"
    );
}

#[test]
fn a_group_out_of_bounds_is_refused_by_field() {
    let manifest = format!("{GROUP}  thresholds: {{admissionPercent: 101}}\n");
    let error = answer(TRACE.as_bytes(), &manifest, |_| {}).unwrap_err();
    let says = "group.yaml: PoolGroup shop-blue: spec.thresholds.admissionPercent";
    assert!(error.starts_with(says), "{error}");
}

#[test]
fn one_of_several_groups_is_chosen_by_name() {
    let two = format!("{GROUP}---{}", GROUP.replace("shop-blue", "shop-green"));
    let choose = |name: Option<&str>| {
        answer(TRACE.as_bytes(), &two, |args| args.name = name.map(str::to_owned)).map(|_| ())
    };
    assert_eq!(choose(Some("shop-green")), Ok(()));
    assert_eq!(
        choose(None),
        Err("group.yaml: several PoolGroups: shop-blue, shop-green, choose one with --name".to_owned())
    );
    assert_eq!(
        choose(Some("shop-red")),
        Err("group.yaml: no PoolGroup shop-red, name one that is there with --name".to_owned())
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = answer(TRACE.as_bytes(), GROUP, |args| args.group.push("gone")).unwrap_err();
    assert!(error.starts_with("group.yaml/gone: cannot read: "), "{error}");
}

#[rstest]
#[case("-1")]
#[case("61")]
#[case("NaN")]
#[case("soon")]
fn an_option_out_of_bounds_says_them(#[case] text: &str) {
    assert_eq!(
        within::<0, 60>(text),
        Err("must be a number from 0 to 60".to_owned())
    );
}

#[rstest]
#[case("office", include_str!("../tests/traces/office.csv"))]
#[case("flash-crowd", include_str!("../tests/traces/flash-crowd.csv"))]
#[case("sawtooth", include_str!("../tests/traces/sawtooth.csv"))]
fn the_made_up_days_are_a_day_of_ten_thousand_users(#[case] day: &str, #[case] text: &str) {
    let trace = super::Trace::parse(text.as_bytes()).unwrap();
    let logins: f64 = trace.rows.iter().map(|row| row.logins).sum();
    assert!((logins - 10_000.0).abs() < 10.0, "{day}: {logins}");
    assert_eq!(trace.span(), std::time::Duration::from_hours(24), "{day}");
}
