use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::vehicle::Mode;

/// A group whose spec was changed by `change`.
fn group(change: impl FnOnce(&mut Value)) -> PoolGroup {
    let mut spec = json!({
        "pool": "shop",
        "template": {"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}},
    });
    change(&mut spec);
    let manifest = json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": {"name": "shop-blue", "namespace": "shop", "uid": "u1", "generation": 4},
        "spec": spec,
    });
    serde_json::from_value(manifest).unwrap()
}

fn resolved(change: impl FnOnce(&mut Value)) -> GroupSpec {
    group_spec(&group(change), true).unwrap()
}

#[test]
fn a_manifest_that_says_nothing_gets_every_default_of_the_rules() {
    let plain = group(|_| {});
    let expected = GroupSpec {
        key: ObjectKey {
            namespace: "shop".into(),
            name: "shop-blue".into(),
        },
        uid: "u1".into(),
        pool: ObjectKey {
            namespace: "shop".into(),
            name: "shop".into(),
        },
        version: "shop-blue".into(),
        snapshot_format: String::new(),
        generation: 4,
        default_group: true,
        mode: Mode::Active,
        session_users: false,
        session_timeout: Duration::from_mins(30),
        min: 1,
        max: None,
        max_surge: 1,
        spawn_timeout: Duration::from_mins(2),
        reception_threshold: 0.5,
        admission_threshold: 0.8,
        margin_workers: 1.5,
        smoothing_rows: 6,
        memory_limit: None,
        cpu_capacity: 1.0,
        interval: Duration::from_secs(5),
        dead_timeout: Duration::from_mins(1),
        live_moves: true,
        hold_timeout: Duration::from_secs(5),
        quiesce_timeout: Duration::from_secs(2),
        drain_timeout: Duration::from_mins(2),
        max_package: 16 << 20,
        parallelism: 8,
        close_streams: true,
        template_hash: template_hash(&plain),
        agent_hash: String::new(),
        update: elastic_pool_engine::UpdateType::Move,
        guest_timeout: Duration::from_mins(10),
    };
    assert_eq!(group_spec(&plain, true), Ok(expected));
}

#[test]
fn what_is_written_counts() {
    let spec = resolved(|s| {
        s["runtime"] = json!({"version": "1.4", "snapshotFormat": "cart/2"});
        s["mode"] = "Evacuate".into();
        s["workers"] = json!({"min": 2, "max": 9, "maxSurge": 0, "spawnTimeout": "1m30s"});
        s["thresholds"] = json!({"receptionPercent": 30, "admissionPercent": 70, "compactionMarginPercent": 200, "smoothingRows": 1});
        s["moves"] = json!({"maxPackage": "1Mi", "streams": {"policy": "Pin"}});
    });
    assert_eq!((spec.version.as_str(), spec.mode), ("1.4", Mode::Evacuate));
    assert_eq!(spec.snapshot_format, "cart/2");
    assert_eq!((spec.min, spec.max, spec.max_surge), (2, Some(9), 0));
    assert_eq!(spec.spawn_timeout, Duration::from_secs(90));
    let thresholds = [
        spec.reception_threshold,
        spec.admission_threshold,
        spec.margin_workers,
    ];
    assert!(
        thresholds
            .iter()
            .zip([0.3, 0.7, 2.0])
            .all(|(a, b)| (a - b).abs() < 1e-12),
        "{thresholds:?}"
    );
    assert_eq!(
        (spec.max_package, spec.close_streams, spec.live_moves),
        (1 << 20, false, true)
    );
}

#[rstest]
#[case(json!({}), false, true)]
#[case(json!({"moves": {"mode": "Drain"}}), true, false)]
#[case(json!({"moves": {"mode": "Drain"}, "users": "Login"}), false, false)]
#[case(json!({"users": "Session"}), true, true)]
#[case(json!({"moves": {"mode": "Drain", "streams": {"policy": "Close"}}}), true, true)]
fn users_and_streams_follow_the_moves_mode(#[case] add: Value, #[case] sessions: bool, #[case] close: bool) {
    let spec = resolved(|s| {
        let fields = s.as_object_mut().unwrap();
        fields.extend(add.as_object().unwrap().clone());
    });
    assert_eq!((spec.session_users, spec.close_streams), (sessions, close));
}

#[rstest]
#[case(json!({}), json!({}), None, 1.0)]
#[case(json!({"cpu": "200m", "memory": "512Mi"}), json!({}), Some(512 << 20), 0.2)]
#[case(json!({"cpu": 4, "memory": "1G"}), json!({}), Some(1_000_000_000), 1.0)]
#[case(json!({"cpu": "200m", "memory": "512Mi"}), json!({"cpu": "100m", "memory": "256Mi"}), Some(256 << 20), 0.1)]
#[case(json!({}), json!({"memory": 1_048_576}), Some(1 << 20), 1.0)]
fn a_worker_is_full_at_its_thresholds_else_at_the_apps_limits(
    #[case] limits: Value,
    #[case] thresholds: Value,
    #[case] memory: Option<u64>,
    #[case] cpu: f64,
) {
    let spec = resolved(|s| {
        s["template"]["spec"]["containers"][0]["resources"] = json!({"limits": limits});
        s["thresholds"] = thresholds;
    });
    assert_eq!(spec.memory_limit, memory);
    assert!((spec.cpu_capacity - cpu).abs() < 1e-12, "{}", spec.cpu_capacity);
}

#[rstest]
#[case(|s: &mut Value| s["workers"] = json!({"min": 0}), "spec.workers.min: 0: write 1 to 10000")]
#[case(|s: &mut Value| s["workers"] = json!({"min": 10_001}), "spec.workers.min: 10001: write 1 to 10000")]
#[case(|s: &mut Value| s["workers"] = json!({"min": 3, "max": 2}), "spec.workers.min: 3: write at most spec.workers.max, 2")]
#[case(|s: &mut Value| s["workers"] = json!({"max": 0}), "spec.workers.max: 0: write 1 to 10000")]
#[case(|s: &mut Value| s["workers"] = json!({"maxSurge": 1001}), "spec.workers.maxSurge: 1001")]
#[case(|s: &mut Value| s["workers"] = json!({"spawnTimeout": "0s"}), "spec.workers.spawnTimeout: \"0s\"")]
#[case(|s: &mut Value| s["thresholds"] = json!({"receptionPercent": 90}), "spec.thresholds.receptionPercent: 90: write at most spec.thresholds.admissionPercent, 80")]
#[case(|s: &mut Value| s["thresholds"] = json!({"admissionPercent": 101}), "spec.thresholds.admissionPercent: 101: write 1 to 100")]
#[case(|s: &mut Value| s["thresholds"] = json!({"compactionMarginPercent": 99}), "spec.thresholds.compactionMarginPercent: 99")]
#[case(|s: &mut Value| s["thresholds"] = json!({"smoothingRows": 61}), "spec.thresholds.smoothingRows: 61")]
#[case(|s: &mut Value| s["thresholds"] = json!({"cpu": "1500m"}), "spec.thresholds.cpu: \"1500m\": write a quantity from 1m to 1")]
#[case(|s: &mut Value| s["thresholds"] = json!({"memory": "64 MB"}), "spec.thresholds.memory: \"64 MB\"")]
#[case(|s: &mut Value| s["reports"] = json!({"interval": "10m"}), "spec.reports.interval: \"10m\"")]
#[case(|s: &mut Value| s["reports"] = json!({"deadTimeout": "soon"}), "spec.reports.deadTimeout: \"soon\"")]
#[case(|s: &mut Value| s["sessionTimeout"] = "30".into(), "spec.sessionTimeout: \"30\": write a duration from 1s to 168h")]
#[case(|s: &mut Value| s["moves"] = json!({"quiesceTimeout": "6s"}), "spec.moves.quiesceTimeout: 6s: write at most spec.moves.holdTimeout, 5s")]
#[case(|s: &mut Value| s["moves"] = json!({"maxPackage": "2Gi"}), "spec.moves.maxPackage: \"2Gi\"")]
#[case(|s: &mut Value| s["moves"] = json!({"parallelism": 0}), "spec.moves.parallelism: 0")]
#[case(|s: &mut Value| s["pool"] = "a.b".into(), "spec.pool: \"a.b\"")]
#[case(|s: &mut Value| s["pool"] = "".into(), "spec.pool: \"\"")]
#[case(|s: &mut Value| s["app"] = json!({"container": "web"}), "spec.app.container: web: write one of app")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"] = json!([]), "spec.template.spec.containers: not set")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"][0]["ports"] = json!([]), "spec.app.port: not set: container app has 0 ports")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"][0]["ports"] = json!([{"containerPort": 1}, {"containerPort": 2}]), "spec.app.port: not set: container app has 2 ports")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "lots"}}), "spec.template.spec.containers[0].resources.limits.memory: lots")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": 0}}), "spec.template.spec.containers[0].resources.limits.cpu: 0")]
#[case(|s: &mut Value| s["template"]["spec"]["containers"] = json!([{"name": "a"}, {"name": "a"}]), "spec.template.spec.containers[1].name: a: write another name")]
fn what_the_crd_would_refuse_is_refused_here_too(#[case] change: fn(&mut Value), #[case] starts: &str) {
    let error = group_spec(&group(change), false).unwrap_err().to_string();
    assert!(error.starts_with(starts), "{error}");
}

#[test]
fn a_name_that_makes_no_pod_names_is_refused() {
    for name in ["x".repeat(51).as_str(), "Shop", "shop.blue", "-shop", "shop-", ""] {
        let mut group = group(|_| {});
        group.metadata.name = Some(name.to_owned());
        let error = group_spec(&group, true).unwrap_err();
        assert_eq!(error.field, "metadata.name", "{name}");
    }
}

#[rstest]
#[case(json!({}), ("app", 8080, true, 8080))]
#[case(json!({"container": "web", "contract": "None"}), ("web", 3000, false, 3000))]
#[case(json!({"container": "web", "port": 4000, "contractPort": 4001}), ("web", 4000, true, 4001))]
fn the_app_is_found(#[case] app: Value, #[case] expected: (&str, u16, bool, u16)) {
    let target = app_target(&group(|s| {
        s["app"] = app;
        s["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({
                "name": "web",
                "ports": [{"name": "admin", "containerPort": 1}, {"name": "http", "containerPort": 3000}],
            }));
    }))
    .unwrap();
    assert_eq!(
        (
            target.container.as_str(),
            target.port,
            target.contract,
            target.contract_port
        ),
        expected
    );
}

#[test]
fn the_hash_is_of_what_a_worker_is_made_from_in_any_order() {
    let hash = |text: &str| {
        let container: Value = serde_json::from_str(text).unwrap();
        template_hash(&group(|s| s["template"]["spec"]["containers"][0] = container))
    };
    let one = hash(r#"{"name": "app", "env": [{"name": "A", "value": "1"}], "command": ["x"]}"#);
    assert_eq!(
        one,
        hash(r#"{"command": ["x"], "env": [{"value": "1", "name": "A"}], "name": "app"}"#)
    );
    assert_ne!(
        one,
        hash(r#"{"name": "app", "env": [{"name": "A", "value": "2"}], "command": ["x"]}"#)
    );
    assert_ne!(
        hash(r#"{"name": "app", "args": ["ab"]}"#),
        hash(r#"{"name": "app", "args": ["a", "b"]}"#)
    );
    let with = |change: fn(&mut Value)| template_hash(&group(change));
    assert_eq!(with(|_| {}), with(|s| s["app"] = json!({"contract": "Auto"})));
    assert_eq!(with(|_| {}), with(|s| s["workers"] = json!({"min": 5})));
    assert_ne!(with(|_| {}), with(|s| s["app"] = json!({"port": 8081})));
}

#[test]
fn the_pool_names_the_group_of_newcomers_or_the_first_by_name_is() {
    let mut pool = Pool::new("shop", crate::api::PoolSpec::default());
    assert_eq!(default_group(None, ["green", "blue"]), Some("blue"));
    assert_eq!(default_group(Some(&pool), ["green", "blue"]), Some("blue"));
    pool.spec.default_group = Some("green".into());
    assert_eq!(default_group(Some(&pool), ["green", "blue"]), Some("green"));
    pool.spec.default_group = Some("red".into());
    assert_eq!(default_group(Some(&pool), ["green", "blue"]), None);
    assert_eq!(default_group(None, []), None);
}

#[test]
fn a_local_run_takes_command_args_env_and_folder() {
    let app = local_app(&group(|s| {
        let container = &mut s["template"]["spec"]["containers"][0];
        container["command"] = json!(["python3", "app.py"]);
        container["args"] = json!(["--fast"]);
        container["env"] = json!([{"name": "B", "value": "2"}, {"name": "A"}]);
        container["workingDir"] = "/srv".into();
    }))
    .unwrap();
    assert_eq!(app.command, ["python3", "app.py", "--fast"]);
    assert_eq!(
        app.env,
        [("B".to_owned(), "2".to_owned()), ("A".to_owned(), String::new())]
    );
    assert_eq!(
        (app.working_dir.as_deref(), app.target.port),
        (Some("/srv"), 8080)
    );
}

#[rstest]
#[case(json!({}), "command: not set")]
#[case(json!({"command": "app"}), "command: \"app\": write a list")]
#[case(json!({"command": ["sleep", 5]}), "command: 5: write a list of strings")]
#[case(json!({"command": ["app"], "env": [{"name": "A", "value": 5}]}), "env[0].value: 5: write a string")]
#[case(json!({"command": ["app"], "env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}), "env[0].valueFrom:")]
#[case(json!({"command": ["app"], "env": [{"value": "x"}]}), "env[0].name: null")]
#[case(json!({"command": ["app"], "env": {}}), "env: {}: write a list")]
fn a_local_run_names_what_it_cannot_use(#[case] add: Value, #[case] starts: &str) {
    let error = local_app(&group(|s| {
        let container = s["template"]["spec"]["containers"][0].as_object_mut().unwrap();
        container.extend(add.as_object().unwrap().clone());
    }))
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with(&format!("spec.template.spec.containers[0].{starts}")),
        "{error}"
    );
}
