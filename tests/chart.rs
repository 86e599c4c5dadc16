//! Renders the Helm chart and checks what the API server and the operator will get; it never talks to a cluster.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

const ALL: &[&str] = &["-f", "tests/chart/all-values.in"];

fn helm(args: &[&str]) -> Output {
    static PATH: OnceLock<String> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let tools = Command::new("scripts/tools.sh")
            .arg("path")
            .output()
            .expect("scripts/tools.sh starts");
        let own = String::from_utf8(tools.stdout).expect("a path in UTF-8");
        format!("{}:{}", own.trim(), std::env::var("PATH").unwrap_or_default())
    });
    Command::new("/usr/bin/env")
        .env("PATH", path)
        .arg("helm")
        .args(args)
        .output()
        .expect("env starts")
}

fn template(args: &[&str]) -> Output {
    let mut all = vec![
        "template",
        "elastic-pool",
        "charts/elastic-pool",
        "--namespace",
        "pools-system",
        "--kube-version",
        "1.36.0",
    ];
    all.extend(args);
    helm(&all)
}

fn text(args: &[&str]) -> String {
    let output = template(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm template (make tools?): {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn objects(args: &[&str]) -> Vec<Value> {
    let mut with_no_crds = vec!["--set", "crds.install=false"];
    with_no_crds.extend(args);
    serde_saphyr::from_multiple::<Option<Value>>(&text(&with_no_crds))
        .expect("the chart renders YAML")
        .into_iter()
        .flatten()
        .collect()
}

fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects
        .iter()
        .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name} in the chart"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn environment(container: &Value, name: &str) -> String {
    list(&container["env"])
        .iter()
        .find(|e| e["name"] == name)
        .and_then(|e| e["value"].as_str())
        .unwrap_or_else(|| panic!("no {name} in the environment"))
        .to_owned()
}

/// Whether one of the object's rules gives a verb on a resource.
fn grants(role: &Value, resource: &str, verb: &str) -> bool {
    list(&role["rules"]).iter().any(|rule| {
        list(&rule["resources"]).iter().any(|r| r == resource || r == "*")
            && list(&rule["verbs"]).iter().any(|v| v == verb || v == "*")
    })
}

fn refused(args: &[&str], field: &str) {
    let output = template(args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(
        message.contains(field),
        "{args:?}: the message does not name {field}: {message}"
    );
}

#[test]
fn no_number_is_rendered_in_float_notation() {
    let rendered = text(ALL);
    let floats: Vec<&str> = rendered
        .lines()
        .filter(|line| {
            let digits = line.split(['e', 'E']).collect::<Vec<_>>();
            digits.windows(2).any(|pair| {
                pair[0].ends_with(|c: char| c.is_ascii_digit())
                    && pair[1].starts_with('+')
                    && pair[1][1..].starts_with(|c: char| c.is_ascii_digit())
            })
        })
        .collect();
    assert_eq!(floats, Vec::<&str>::new());
}

#[test]
fn numbers_reach_the_objects_as_integers() {
    let objects = objects(ALL);
    let deployment = one(&objects, "Deployment", "pools");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(pod["terminationGracePeriodSeconds"], 1000);
    assert_eq!(pod["tolerations"][0]["tolerationSeconds"], 1_000_000);
    let container = &pod["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], 17443);
    assert_eq!(container["resources"]["requests"]["memory"], 134_217_728);
    assert_eq!(
        environment(container, "ELASTIC_POOL_AGENT_RESOURCES"),
        r#"{"limits":{"memory":1048576000},"requests":{"cpu":"20m","memory":"16Mi"}}"#
    );
    assert_eq!(
        environment(container, "ELASTIC_POOL_GATEWAY_RESOURCES"),
        r#"{"limits":{"memory":1073741824},"requests":{"cpu":"50m","memory":"32Mi"}}"#
    );
}

#[test]
fn the_channel_address_is_the_channel_services() {
    for (args, name) in [(&[][..], "elastic-pool"), (ALL, "pools")] {
        let objects = objects(args);
        let service = one(&objects, "Service", &format!("{name}-channel"));
        let deployment = one(&objects, "Deployment", name);
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let port = &service["spec"]["ports"][0]["port"];
        assert_eq!(
            environment(container, "ELASTIC_POOL_CHANNEL"),
            format!("{name}-channel.pools-system.svc:{port}")
        );
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
        assert_eq!(
            service["spec"]["selector"],
            deployment["spec"]["selector"]["matchLabels"]
        );
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (key, value) in service["spec"]["selector"].as_object().expect("a selector") {
            assert_eq!(&labels[key], value);
        }
    }
}

#[test]
fn every_container_meets_pod_security_restricted() {
    for args in [&[][..], ALL] {
        for object in objects(args) {
            let pod = &object["spec"]["template"]["spec"];
            for container in list(&pod["containers"])
                .iter()
                .chain(list(&pod["initContainers"]))
            {
                let context = &container["securityContext"];
                assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
                assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
                assert_eq!(context["allowPrivilegeEscalation"], false);
                assert_eq!(context["readOnlyRootFilesystem"], true);
                assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
            }
        }
    }
}

#[test]
fn the_operator_may_neither_evict_nor_list_secrets_nor_grant_rights() {
    for args in [&[][..], ALL] {
        let roles: Vec<Value> = objects(args)
            .into_iter()
            .filter(|o| o["kind"] == "ClusterRole" || o["kind"] == "Role")
            .collect();
        assert!(
            roles.iter().any(|r| grants(r, "pods", "delete")),
            "the check sees no rules at all"
        );
        for role in &roles {
            for rule in list(&role["rules"]) {
                let rule = rule.to_string();
                assert!(!rule.contains("\"*\""), "a wildcard: {rule}");
            }
            for (resource, verb) in [
                ("pods/eviction", "create"),
                ("secrets", "list"),
                ("secrets", "watch"),
                ("secrets", "delete"),
                ("roles", "create"),
                ("clusterroles", "create"),
                ("serviceaccounts/token", "create"),
                ("nodes", "patch"),
                ("poolgroups", "delete"),
                ("pods/exec", "create"),
            ] {
                assert!(!grants(role, resource, verb), "{verb} {resource}");
            }
        }
    }
}

#[test]
fn watched_namespaces_narrow_the_rights_to_them() {
    let objects = objects(ALL);
    let cluster = one(&objects, "ClusterRole", "pools-system-pools");
    assert!(grants(cluster, "tokenreviews", "create"));
    assert!(!grants(cluster, "pods", "get"));
    assert!(!grants(cluster, "nodes", "get"));
    let mut namespaces: Vec<&str> = objects
        .iter()
        .filter(|o| o["kind"] == "Role" && grants(o, "pods", "delete"))
        .filter_map(|o| o["metadata"]["namespace"].as_str())
        .collect();
    namespaces.sort_unstable();
    assert_eq!(namespaces, ["legacy", "shop"]);
}

#[test]
fn a_digest_wins_over_a_tag() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let objects = objects(&["--set", &format!("image.digest={digest}")]);
    let container = &one(&objects, "Deployment", "elastic-pool")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["image"],
        format!("docker.io/elastic-pool/elastic-pool@{digest}")
    );
    assert_eq!(
        environment(container, "ELASTIC_POOL_IMAGE"),
        container["image"].as_str().expect("a string")
    );
}

#[test]
fn a_wrong_value_is_refused_with_its_name() {
    refused(&["--set", "replicas=1.5"], "replicas");
    refused(&["--set", "replicas=0"], "replicas");
    refused(&["--set-string", "replicas=2"], "replicas");
    refused(&["--set", "image.tag=20161216"], "tag");
    refused(&["--set", "image.digest=latest"], "digest");
    refused(&["--set", "ports.channel=80"], "channel");
    refused(&["--set", "gateway.resources.limits.memory=1e9"], "memory");
    refused(&["--set", "agent.resources.limits.memory=a lot"], "memory");
    refused(&["--set", "watchNamespaces={Shop}"], "watchNamespaces");
    refused(&["--set", "namespace.podSecurity=strict"], "podSecurity");
    refused(&["--set", "replicaCount=2"], "replicaCount");
    refused(&["--set", "operator.replicas=2"], "replicas");
}

#[test]
fn custom_resources_stay_when_the_release_goes() {
    let mut crds = 0;
    for document in serde_saphyr::from_multiple::<Option<Value>>(&text(&[]))
        .expect("YAML")
        .iter()
        .flatten()
    {
        if document["kind"] == "CustomResourceDefinition" {
            crds += 1;
            assert_eq!(
                document["metadata"]["annotations"]["helm.sh/resource-policy"],
                "keep"
            );
        }
    }
    assert_eq!(crds, 2, "Pool and PoolGroup");
}
