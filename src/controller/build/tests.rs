use elastic_pool_engine::ids::{Birth, Term};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::api::{Pool, PoolGroup, Quantity};
use crate::credentials::Key;

fn env() -> OperatorEnv {
    OperatorEnv {
        image: "example/elastic-pool:1".to_owned(),
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: vec![SecretName {
            name: "registry".to_owned(),
        }],
        channel: "elastic-pool-channel.system.svc:7443".to_owned(),
        agent_resources: None,
        gateway_resources: None,
    }
}

/// A group whose manifest was changed by `change`.
fn group(change: impl FnOnce(&mut Value)) -> PoolGroup {
    let mut manifest = json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": {"name": "shop-blue", "namespace": "shop", "uid": "uid-of-shop-blue"},
        "spec": {
            "pool": "shop",
            "runtime": {"version": "blue"},
            "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": "shop-app", "tier": "web"}},
                "spec": {
                    "serviceAccountName": "app",
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 1000},
                    "initContainers": [{"name": "migrate", "image": "example/app:1", "command": ["migrate"]}],
                    "containers": [
                        {"name": "log", "image": "example/log:1"},
                        {
                            "name": "app",
                            "image": "example/app:1",
                            "ports": [{"name": "http", "containerPort": 8080}, {"name": "debug", "containerPort": 9000}],
                            "env": [{"name": "A", "value": "1"}],
                            "lifecycle": {"postStart": {"exec": {"command": ["warm"]}}},
                            "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}},
                        },
                    ],
                },
            },
            "app": {"container": "app"},
        },
    });
    change(&mut manifest["spec"]);
    serde_json::from_value(manifest).unwrap()
}

fn pool(change: impl FnOnce(&mut Value)) -> Pool {
    let mut manifest = json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "Pool",
        "metadata": {"name": "shop", "namespace": "shop", "uid": "uid-of-shop"},
        "spec": {},
    });
    change(&mut manifest["spec"]);
    serde_json::from_value(manifest).unwrap()
}

fn build(group: &PoolGroup) -> Result<Value, String> {
    worker_pod(group, Birth(Term(3).number(7)), "shop-blue-x7k2p", &env()).map_err(|error| error.to_string())
}

/// `value` has the form of the Kubernetes type, and no field that the type does not know.
fn assert_is<T: DeserializeOwned + Serialize>(value: &Value) {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), value);
}

#[test]
fn a_worker_is_its_template_and_what_we_add() {
    let pod = build(&group(|_| {})).unwrap();
    assert_is::<Pod>(&pod);
    insta::assert_yaml_snapshot!("worker_pod", pod);
}

#[test]
fn a_small_template_gets_a_whole_worker() {
    let pod = build(&group(|spec| {
        spec["app"] = json!({"contract": "None"});
        spec["template"] =
            json!({"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 80}]}]}});
        spec["moves"] = json!({"drainTimeout": "10m", "maxPackage": "1Mi", "parallelism": 2});
    }))
    .unwrap();
    assert_is::<Pod>(&pod);
    insta::assert_yaml_snapshot!("small_worker_pod", pod["spec"]);
}

#[test]
fn the_longer_grace_counts() {
    let grace = |seconds: u32| {
        let group = group(|spec| spec["template"]["spec"]["terminationGracePeriodSeconds"] = seconds.into());
        build(&group).unwrap()["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!(grace(600), 600);
    assert_eq!(grace(5), 135);
}

#[test]
fn the_template_may_set_what_is_only_a_default_of_ours() {
    let pod = build(&group(|spec| {
        spec["template"]["metadata"]["annotations"] =
            json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "kubectl.kubernetes.io/default-container": "log"});
        spec["agent"] = json!({"image": "example/agent:2", "resources": {"limits": {"memory": "1Gi"}}});
    }))
    .unwrap();
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(
        annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"],
        "false"
    );
    // The controller reads from this one which container is the app's.
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "app");
    let agent = &pod["spec"]["initContainers"][0];
    assert_eq!(agent["image"], "example/agent:2");
    assert_eq!(agent["resources"], json!({"limits": {"memory": "1Gi"}}));
}

#[test]
fn the_operators_resources_stand_where_the_group_names_none() {
    let limits = [("memory".to_owned(), Quantity::from("99Mi"))].into();
    let resources = Resources {
        limits,
        ..Resources::default()
    };
    let env = OperatorEnv {
        agent_resources: Some(resources.clone()),
        gateway_resources: Some(resources),
        ..env()
    };
    let pod = worker_pod(&group(|_| {}), Birth(1), "w", &env).unwrap();
    assert_eq!(
        pod["spec"]["initContainers"][0]["resources"],
        json!({"limits": {"memory": "99Mi"}})
    );
    let deployment = gateway_deployment(&pool(|_| {}), &env);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"limits": {"memory": "99Mi"}}));
}

#[rstest]
#[case::host_network(|s: &mut Value| s["hostNetwork"] = true.into(), "spec.template.spec.hostNetwork: true")]
#[case::host_pid(|s: &mut Value| s["hostPID"] = true.into(), "spec.template.spec.hostPID: true")]
#[case::no_shared_processes(|s: &mut Value| s["shareProcessNamespace"] = false.into(), "spec.template.spec.shareProcessNamespace: false")]
#[case::restart_policy(|s: &mut Value| s["restartPolicy"] = "Never".into(), "spec.template.spec.restartPolicy: \"Never\": write Always")]
#[case::windows(|s: &mut Value| s["os"] = json!({"name": "windows"}), "spec.template.spec.os.name")]
#[case::grace(|s: &mut Value| s["terminationGracePeriodSeconds"] = "60".into(), "spec.template.spec.terminationGracePeriodSeconds: \"60\"")]
#[case::container_name(|s: &mut Value| s["containers"][0]["name"] = "elastic-pool-agent".into(), "spec.template.spec.containers[0].name: elastic-pool-agent")]
#[case::init_container_name(|s: &mut Value| s["initContainers"][0]["name"] = "elastic-pool-x".into(), "spec.template.spec.initContainers[0].name")]
#[case::volume_name(|s: &mut Value| s["volumes"] = json!([{"name": "elastic-pool-state", "emptyDir": {}}]), "spec.template.spec.volumes[0].name")]
#[case::port_name(|s: &mut Value| s["containers"][1]["ports"][1]["name"] = "elastic-pool".into(), "spec.template.spec.containers[1].ports[1].name")]
#[case::port(|s: &mut Value| s["containers"][0]["ports"] = json!([{"containerPort": 15081}]), "spec.template.spec.containers[0].ports[0].containerPort: 15081")]
#[case::pre_stop(|s: &mut Value| s["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}}), "spec.template.spec.containers[0].lifecycle.preStop")]
#[case::token_variable(|s: &mut Value| s["containers"][1]["env"] = json!([{"name": "POOL_TOKEN_FILE", "value": "x"}]), "spec.template.spec.containers[1].env[0].name")]
#[case::token_path(|s: &mut Value| s["containers"][1]["volumeMounts"] = json!([{"name": "v", "mountPath": "/var/run/elastic-pool/sub/"}]), "spec.template.spec.containers[1].volumeMounts[0].mountPath")]
#[case::agents_user(|s: &mut Value| s["securityContext"]["runAsUser"] = 65533.into(), "spec.template.spec.securityContext.runAsUser: 65533")]
#[case::agents_user_in_a_container(|s: &mut Value| s["containers"][1]["securityContext"] = json!({"runAsUser": 65533}), "spec.template.spec.containers[1].securityContext.runAsUser")]
#[case::no_list(|s: &mut Value| s["volumes"] = "none".into(), "spec.template.spec.volumes: \"none\": write a list")]
#[case::init_no_list(|s: &mut Value| s["initContainers"] = json!({}), "spec.template.spec.initContainers: {}: write a list")]
fn a_template_in_our_way_is_refused_by_field(#[case] change: fn(&mut Value), #[case] starts: &str) {
    let error = build(&group(|spec| change(&mut spec["template"]["spec"]))).unwrap_err();
    assert!(error.starts_with(starts), "{error}");
}

#[rstest]
#[case::label(|s: &mut Value| s["template"]["metadata"]["labels"]["elasticpool.dev/birth"] = "1".into(), "spec.template.metadata.labels[elasticpool.dev/birth]")]
#[case::annotation(|s: &mut Value| s["template"]["metadata"]["annotations"] = json!({"elasticpool.dev/template-hash": "1"}), "spec.template.metadata.annotations[elasticpool.dev/template-hash]")]
#[case::app_port(|s: &mut Value| s["app"]["port"] = 15080.into(), "spec.app.port: 15080")]
#[case::contract_port(|s: &mut Value| s["app"]["contractPort"] = 15082.into(), "spec.app.contractPort: 15082")]
#[case::no_such_container(|s: &mut Value| s["app"]["container"] = "apq".into(), "spec.app.container: apq: write one of log, app")]
#[case::no_port(|s: &mut Value| s["app"]["container"] = "log".into(), "spec.app.port: not set: container log has 0 ports")]
#[case::drain_timeout(|s: &mut Value| s["moves"] = json!({"drainTimeout": "2 min"}), "spec.moves.drainTimeout: \"2 min\"")]
fn a_group_that_makes_no_worker_is_refused_by_field(#[case] change: fn(&mut Value), #[case] starts: &str) {
    let error = build(&group(change)).unwrap_err();
    assert!(error.starts_with(starts), "{error}");
}

#[test]
fn harmless_neighbours_of_refused_values_are_taken() {
    let changes: [fn(&mut Value); 7] = [
        |s| s["hostNetwork"] = false.into(),
        |s| s["restartPolicy"] = "Always".into(),
        |s| s["shareProcessNamespace"] = true.into(),
        |s| s["os"] = json!({"name": "linux"}),
        |s| s["containers"][0]["ports"] = json!([{"containerPort": 15083}]),
        |s| s["initContainers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 5}}}),
        |s| {
            s["containers"][1]["volumeMounts"] =
                json!([{"name": "v", "mountPath": "/var/run/elastic-pools"}]);
        },
    ];
    for change in changes {
        let built = build(&group(|spec| change(&mut spec["template"]["spec"])));
        assert!(built.is_ok(), "{built:?}");
    }
}

#[test]
fn what_a_worker_runs_changes_its_hash_and_nothing_else_does() {
    let hash = |change: fn(&mut Value)| {
        build(&group(change)).unwrap()["metadata"]["annotations"]["elasticpool.dev/template-hash"].clone()
    };
    let plain = hash(|_| {});
    // A fixed value: a hash that changes between two versions of this program would make every worker outdated.
    insta::assert_snapshot!(plain.as_str().unwrap(), @"54dba2b18ae22335");
    assert_eq!(hash(|s| s["workers"] = json!({"min": 2})), plain);
    assert_ne!(hash(|s| s["app"]["contract"] = "None".into()), plain);
    assert_ne!(
        hash(|s| s["template"]["spec"]["containers"][1]["image"] = "example/app:2".into()),
        plain
    );
}

#[test]
fn a_gateway_is_a_deployment_a_service_a_budget_and_an_account() {
    let objects = gateway_objects(&pool(|_| {}), &env());
    assert_is::<ServiceAccount>(&objects[0]);
    assert_is::<Service>(&objects[1]);
    assert_is::<PodDisruptionBudget>(&objects[2]);
    assert_is::<Deployment>(&objects[3]);
    insta::assert_yaml_snapshot!("gateway", objects);
}

#[test]
fn a_pool_shapes_its_gateway() {
    let objects = gateway_objects(
        &pool(|spec| {
            *spec = json!({
                "gateway": {
                    "replicas": 3,
                    "service": {"type": "LoadBalancer", "annotations": {"lb": "internal"}},
                    "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
                    "trustedProxies": ["10.0.0.0/8", "fd00::/8"],
                },
                "cookie": {"name": "shop", "secure": "Always"},
            });
        }),
        &env(),
    );
    let pod = &objects[3]["spec"]["template"]["spec"];
    assert_eq!(objects[3]["spec"]["replicas"], 3);
    assert_eq!(objects[1]["spec"]["type"], "LoadBalancer");
    assert_eq!(objects[1]["metadata"]["annotations"], json!({"lb": "internal"}));
    assert_eq!(
        pod["imagePullSecrets"],
        json!([{"name": "registry"}, {"name": "mirror"}])
    );
    let args = pod["containers"][0]["args"].as_array().unwrap();
    let value = |name: &str| args[args.iter().position(|arg| arg == name).unwrap() + 1].clone();
    assert_eq!(value("--cookie-name"), "shop");
    assert_eq!(value("--cookie-secure"), "always");
    assert_eq!(value("--trusted-proxies"), "10.0.0.0/8,fd00::/8");
}

#[test]
fn a_pool_with_a_certificate_offers_https_alone_and_starts_without_it() {
    let pool = pool(|spec| *spec = json!({"gateway": {"tls": {"secretName": "shop-tls"}}}));
    let objects = gateway_objects(&pool, &env());
    let https = json!([{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}]);
    assert_eq!(objects[1]["spec"]["ports"], https);
    assert_is::<Deployment>(&objects[3]);
    let pod = &objects[3]["spec"]["template"]["spec"];
    let volume = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|volume| volume["name"] == "tls");
    let secret = &volume.unwrap()["secret"];
    assert_eq!(
        (&secret["secretName"], &secret["optional"]),
        (&json!("shop-tls"), &json!(true))
    );
    let container = &pod["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 8443);
    // Probes stay in cleartext on their own port.
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], "admin");
    let args = container["args"].to_string();
    assert!(args.contains(r#""--listen","0.0.0.0:8443""#), "{args}");
    assert!(args.contains(r#""--tls-dir","/etc/elastic-pool/tls""#), "{args}");
    assert_eq!(gateway_address(&pool), "shop.shop.svc:443");
}

#[test]
fn a_pool_whose_tokens_tell_clients_apart_mounts_their_keys() {
    for (source, volume) in [
        (
            json!({"secretName": "idp"}),
            json!({"secretName": "idp", "items": [{"key": "jwks.json", "path": "jwks"}], "defaultMode": 0o440}),
        ),
        (
            json!({"configMapName": "idp"}),
            json!({"name": "idp", "items": [{"key": "jwks.json", "path": "jwks"}]}),
        ),
    ] {
        let mut jwks = source;
        jwks["key"] = "jwks.json".into();
        let pool = pool(|spec| {
            *spec = json!({"identity": {"from": "JWT", "name": "email", "jwks": jwks, "issuer": "https://idp.example"}});
        });
        let deployment = gateway_deployment(&pool, &env());
        assert_is::<k8s_openapi::api::apps::v1::Deployment>(&deployment);
        let pod = &deployment["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let mounted = volumes.iter().find(|volume| volume["name"] == "jwks").unwrap();
        assert!(
            mounted["secret"] == volume || mounted["configMap"] == volume,
            "{mounted}"
        );
        let args: Vec<&str> = pod["containers"][0]["args"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|arg| arg.as_str())
            .collect();
        let value = |name: &str| args.iter().position(|arg| *arg == name).map(|at| args[at + 1]);
        assert_eq!(value("--identity-claim"), Some("email"));
        assert_eq!(value("--identity-jwks"), Some("/etc/elastic-pool/jwks/jwks"));
        assert_eq!(value("--identity-issuer"), Some("https://idp.example"));
        assert_eq!(value("--identity-audience"), None);
    }
    let pool = pool(|spec| *spec = json!({"identity": {"from": "Header", "name": "X-Api-User"}}));
    let args =
        gateway_deployment(&pool, &env())["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("\"--identity-header\",\"X-Api-User\""), "{args}");
}

#[test]
fn a_pool_whose_keys_are_published_tells_its_gateways_where() {
    let flags = |jwks: serde_json::Value| {
        let pool = pool(|spec| *spec = json!({"identity": {"from": "JWT", "jwks": jwks}}));
        let deployment = gateway_deployment(&pool, &env());
        assert_is::<Deployment>(&deployment);
        let pod = &deployment["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "jwks").cloned();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(
            mounts.iter().any(|mount| mount["name"] == "jwks"),
            volume.is_some()
        );
        let args: Vec<String> = serde_json::from_value(pod["containers"][0]["args"].clone()).unwrap();
        // The first argument is the subcommand, and has no value.
        let pairs = args[1..].chunks(2);
        let flags = pairs
            .filter(|pair| pair[0].starts_with("--identity-jwks"))
            .map(|pair| pair.join("="));
        (flags.collect::<Vec<_>>(), volume)
    };
    let (told, volume) = flags(json!({"url": "https://idp.example/keys"}));
    assert_eq!(
        (told, volume),
        (
            vec!["--identity-jwks-url=https://idp.example/keys".to_owned()],
            None
        )
    );
    let (told, volume) = flags(json!({"url": "https://idp.internal/keys", "caSecretName": "internal-ca"}));
    assert_eq!(told[1..], ["--identity-jwks-ca=/etc/elastic-pool/jwks/ca.crt"]);
    let secret = volume.unwrap()["secret"].clone();
    assert_eq!(
        (&secret["secretName"], &secret["optional"]),
        (&json!("internal-ca"), &json!(true))
    );
    let (told, _) = flags(json!({"url": "http://idp.shop/keys", "allowHttp": true}));
    assert_eq!(told[1..], ["--identity-jwks-allow-http=true"]);
}

#[test]
fn a_worker_cannot_pass_for_a_gateway() {
    let pod = build(&group(|spec| {
        spec["template"]["metadata"]["labels"]["app.kubernetes.io/component"] = "gateway".into();
    }))
    .unwrap();
    let selector = &gateway_service(&pool(|_| {}))["spec"]["selector"];
    let labels = &pod["metadata"]["labels"];
    assert!(
        selector
            .as_object()
            .unwrap()
            .iter()
            .any(|(name, value)| labels[name] != *value),
        "{labels}"
    );
}

#[test]
fn the_keys_stand_in_two_secrets_and_gateways_never_see_the_tickets() {
    let key = |digit: &str| Key::from_hex(&digit.repeat(64)).unwrap();
    let mut keys = PoolSecrets {
        cookie: key("1"),
        cookie_previous: None,
        pool: key("2"),
        ticket: key("3"),
    };
    let pool = pool(|_| {});
    let (gateway, tickets) = (gateway_secret(&pool, &keys), tickets_secret(&pool, &keys));
    assert_is::<Secret>(&gateway);
    assert_is::<Secret>(&tickets);
    insta::assert_yaml_snapshot!("secrets", [&gateway, &tickets]);
    assert_eq!(
        gateway["data"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["cookie-key", "pool-key"]
    );
    keys.cookie_previous = Some(key("4"));
    let gateway = gateway_secret(&pool, &keys);
    assert_eq!(gateway["data"].as_object().unwrap().len(), 3);
    assert!(
        !gateway
            .to_string()
            .contains(tickets["data"]["ticket-key"].as_str().unwrap())
    );
}

#[test]
fn a_groups_budget_counts_labelled_pods() {
    let budget = group_budget(&group(|_| {}), 2);
    assert_is::<PodDisruptionBudget>(&budget);
    insta::assert_yaml_snapshot!("group_budget", budget);
}

#[test]
fn a_pool_that_nobody_wrote_goes_with_its_last_group() {
    let (blue, mut green) = (group(|_| {}), group(|_| {}));
    green.metadata.name = Some("shop-green".to_owned());
    green.metadata.uid = Some("uid-of-shop-green".to_owned());
    let made = implicit_pool(&[&blue, &green]).unwrap();
    insta::assert_yaml_snapshot!("implicit_pool", made);
    let read: Pool = serde_json::from_value(made).unwrap();
    assert_eq!(read.spec, pool(|_| {}).spec);
    green.spec.pool = "other".to_owned();
    assert_eq!(implicit_pool(&[&blue, &green]), None);
    assert_eq!(implicit_pool(&[]), None);
}
