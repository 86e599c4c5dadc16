//! The committed CRDs are what the types say, and what an API server takes.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::path::PathBuf;

use clap::Parser;
use elastic_pool::agent::AgentArgs;
use elastic_pool::api::pool::SecretName;
use elastic_pool::api::{self, Pool, PoolGroup, manifest, resolve};
use elastic_pool::controller::build::{OperatorEnv, gateway_deployment, worker_pod};
use elastic_pool::engine::ids::Birth;
use elastic_pool::gateway::GatewayArgs;
use serde_json::{Value, json};

/// Client-side `kubectl apply` keeps the whole object in an annotation of at most this size.
const MOST_BYTES: usize = 256 * 1024;

fn committed(plural: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("crds")
        .join(format!("{plural}.yaml"))
}

fn walk(path: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, inner)| walk(&format!("{path}.{name}"), inner, visit));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|inner| walk(&format!("{path}[]"), inner, visit)),
        _ => {}
    }
}

#[test]
fn the_committed_crds_have_not_drifted() {
    for crd in api::crds() {
        let file = committed(&crd.spec.names.plural);
        let generated = api::crd_yaml(&crd).unwrap();
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "{} differs from the types: run `UPDATE_CRDS=1 cargo test --test crd` and commit it",
            file.display()
        );
    }
}

#[test]
fn the_yaml_of_the_subcommand_reads_back_as_both_crds() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&api::crds_yaml()).unwrap();
    let names: Vec<_> = documents
        .iter()
        .map(|crd| crd["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["poolgroups.elasticpool.dev", "pools.elasticpool.dev"]);
    let direct: Vec<Value> = api::crds()
        .iter()
        .map(|crd| serde_json::to_value(crd).unwrap())
        .collect();
    assert_eq!(documents, direct);
}

#[test]
fn the_crds_stay_small_enough_for_client_side_apply() {
    for crd in api::crds() {
        let bytes = serde_json::to_string(&crd).unwrap().len();
        assert!(bytes < MOST_BYTES, "{} has {bytes} bytes", crd.spec.names.plural);
    }
}

#[test]
fn every_list_map_and_string_is_bounded() {
    for crd in api::crds() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        walk("", &schema["openAPIV3Schema"]["properties"], &mut |path, node| {
            // The root's apiVersion and kind are the API server's own, a date-time bounds itself.
            if path == ".apiVersion" || path == ".kind" || node["format"] == "date-time" {
                return;
            }
            match node["type"].as_str() {
                Some("array") => assert!(
                    node["maxItems"].is_u64() || node["maxItems"].is_i64(),
                    "{path} has no maxItems"
                ),
                Some("string") if node.get("enum").is_none() && !path.ends_with("additionalProperties") => {
                    assert!(
                        node["maxLength"].is_i64() || node["maxLength"].is_u64(),
                        "{path} has no maxLength"
                    );
                }
                Some("object") if node.get("additionalProperties").is_some() => {
                    assert!(node.get("maxProperties").is_some(), "{path} has no maxProperties");
                }
                Some("integer") if path.starts_with(".spec") => {
                    assert!(node.get("maximum").is_some(), "{path} has no maximum");
                }
                _ => {}
            }
        });
    }
}

#[test]
fn no_enum_word_is_a_boolean_to_yaml_1_1() {
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                // Conditions have them by Kubernetes' own convention; no person writes them.
                if path.contains(".conditions.") {
                    return;
                }
                for word in node["enum"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                {
                    assert!(!words.contains(&word.to_lowercase().as_str()), "{path}: {word}");
                }
            },
        );
    }
}

#[test]
fn unknown_fields_are_kept_in_the_pod_spec_alone() {
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                if node.get("x-kubernetes-preserve-unknown-fields").is_some() {
                    assert!(
                        path.contains(".template.properties.spec"),
                        "{path} keeps unknown fields"
                    );
                }
            },
        );
    }
}

#[test]
fn every_rule_has_a_message_that_names_its_field() {
    let mut rules = 0;
    for crd in api::crds() {
        walk(
            "",
            &serde_json::to_value(&crd.spec).unwrap(),
            &mut |path, node| {
                for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
                    rules += 1;
                    let message = rule["message"].as_str().unwrap_or_default();
                    assert!(
                        message.starts_with("spec.") || message.starts_with("metadata.name"),
                        "{path}: {message:?} names no field"
                    );
                }
            },
        );
    }
    assert!(rules >= 15, "only {rules} rules");
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} holds no YAML", folder.display());
    files
}

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

#[test]
fn every_sample_makes_workers() {
    let env = env();
    let mut files = yaml_files("manifests/samples");
    files.push(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/good.yaml"));
    for file in files {
        let name = file.display();
        let read = manifest::read(&std::fs::read_to_string(&file).unwrap());
        let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            read.groups.len() + read.pools.len() > 0,
            "{name} holds nothing of ours"
        );
        for group in read.groups {
            resolve::group_spec(&group, true).unwrap_or_else(|error| panic!("{name}: {error}"));
            worker_pod(&group, Birth(1), "w", &env).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Refused only beside the object that stands there already, or in a Pool, of which a local run reads little.
fn needs_an_api_server(name: &str) -> bool {
    name.starts_with("pool-") || name.starts_with("version-") || name == "class-set-later"
}

/// The first path of a field that `text` names.
fn path(text: &str) -> Option<&str> {
    let from = text.find("spec.").or_else(|| text.find("metadata.name"))?;
    let path = text[from..]
        .split(|c: char| !(c.is_alphanumeric() || ".[]".contains(c)))
        .next()?;
    Some(path.trim_end_matches('.'))
}

#[test]
fn what_kubectl_refuses_a_local_run_refuses_too_by_the_same_field() {
    for file in yaml_files("tests/cluster/bad-manifests") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if needs_an_api_server(name) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let refusal = match manifest::read(&text) {
            Err(error) => error.to_string(),
            Ok(read) => match resolve::group_spec(&read.groups[0], true) {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{name} was taken"),
            },
        };
        let expected = text
            .lines()
            .find_map(|line| line.strip_prefix("# expect: "))
            .unwrap();
        let theirs = path(expected).unwrap();
        let missing = theirs
            .rsplit('.')
            .next()
            .map(|field| format!("missing field `{field}`"));
        let named = path(&refusal).is_some_and(|ours| ours.starts_with(theirs));
        assert!(
            named || missing.is_some_and(|text| refusal.contains(&text)),
            "{name}: {refusal:?} does not name {theirs}"
        );
    }
}

/// The two subcommands that the operator starts in pods.
#[derive(Parser)]
enum Started {
    Agent(Box<AgentArgs>),
    Gateway(Box<GatewayArgs>),
}

/// Reads a container's arguments as the program would in its pod.
fn started(container: &Value) -> Started {
    let args = container["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let args = ["elastic-pool"].into_iter().chain(args).chain(["--pod-uid", "u"]);
    Started::try_parse_from(args).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn agents_and_gateways_understand_how_they_are_started() {
    let group: PoolGroup = serde_json::from_value(json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": {"name": "shop-blue", "namespace": "shop"},
        "spec": {
            "pool": "shop",
            "app": {"contractPort": 9000},
            "template": {"spec": {"containers": [{"name": "app", "ports": [{"containerPort": 8080}]}]}},
        },
    }))
    .unwrap();
    let pod = worker_pod(&group, Birth(1), "w", &env()).unwrap();
    let Started::Agent(agent) = started(&pod["spec"]["initContainers"][0]) else {
        panic!("no agent")
    };
    assert_eq!(
        (agent.app_port, agent.contract_port, agent.app_container.as_str()),
        (8080, Some(9000), "app")
    );
    assert_eq!((agent.drain_grace, agent.channel), (135, env().channel));
    let pool: Pool = serde_json::from_value(json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "Pool",
        "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {
            "gateway": {"trustedProxies": ["10.0.0.0/8", "fd00::/8"]},
            "cookie": {"name": "shop", "secure": "Never"},
        },
    }))
    .unwrap();
    let deployment = gateway_deployment(&pool, &env());
    let Started::Gateway(gateway) = started(&deployment["spec"]["template"]["spec"]["containers"][0]) else {
        panic!("no gateway")
    };
    assert_eq!(
        (gateway.pool.as_str(), gateway.cookie_name.as_str()),
        ("shop/shop", "shop")
    );
    assert_eq!(gateway.trusted_proxies.len(), 2);
}
