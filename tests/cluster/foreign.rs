//! Pods and addresses that are no part of a pool get nowhere: on the channel, at an agent, at the app's contract.

use serde_json::{Value, json};

use crate::harness::{SYSTEM, attempt, eventually, inside, metrics, run, sample};
use crate::shop::{Shop, app, image, manifest};

/// A pod that is no worker, in a namespace where workers live, with a valid token for our audience: an app and an agent, as a worker's are.
fn stranger() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "stranger", "labels": {"elasticpool.dev/group": "shop-blue", "elasticpool.dev/birth": "1", "elasticpool.dev/component": "worker"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [app(), {
                "name": "agent",
                "image": image(),
                "imagePullPolicy": "IfNotPresent",
                "command": ["elastic-pool"],
                "args": [
                    "agent", format!("--channel=elastic-pool-channel.{SYSTEM}.svc:7443"), "--token-file=/identity/token", "--app-port=8080",
                    "--app-token-file=/state/app-token", "--state-dir=/state/fence", "--contract=none", "--app-container=app"
                ],
                "env": [
                    {"name": "RUST_LOG", "value": "info,elastic_pool::channel=debug"},
                    field("POD_UID", "metadata.uid"), field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP")],
                "volumeMounts": [{"name": "identity", "mountPath": "/identity"}, {"name": "state", "mountPath": "/state"}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}
            }],
            "volumes": [
                {"name": "identity", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "elastic-pool", "expirationSeconds": 3600}}]}},
                {"name": "state", "emptyDir": {"medium": "Memory"}}
            ]
        }
    })
}

fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

#[test]
fn a_pod_that_is_no_worker_is_refused_on_the_channel_and_counted() {
    let shop = Shop::open("stranger", &manifest(), 1);
    let refused = || sample(&metrics(), "elastic_pool_peers_refused_total", "reason=\"token\"");
    let before = refused().unwrap_or(0.0);
    run(
        "kubectl",
        &["-n", shop.ns(), "apply", "-f", "-"],
        &stranger().to_string(),
    );
    eventually("it is told so, and the refusal is counted", 60, || {
        let now = refused().unwrap_or(0.0);
        let log = attempt(
            "kubectl",
            &["-n", shop.ns(), "logs", "stranger", "-c", "agent"],
            "",
        )?;
        if now > before && log.contains("token refused") {
            Ok(())
        } else {
            Err(format!("{now} after {before}, its log: {log}"))
        }
    });
    assert_eq!(shop.group()["status"]["workers"], 1, "it is no worker");
}

#[test]
fn nobody_but_a_gateway_reaches_an_agent_and_nobody_but_its_agent_the_contract() {
    let shop = Shop::open("outsider", &manifest(), 1);
    let pod = shop.workers().remove(0);
    let address = pod["status"]["podIP"].as_str().expect("an address");
    let agent = format!("http://{address}:15080/");
    assert_eq!(status(&[&agent]), "403");
    assert_eq!(status(&["-H", "pool-user: alice", &agent]), "403");
    let forged = format!("pool-hop: {}", "0".repeat(64));
    assert_eq!(status(&["-H", &forged, "-H", "pool-user: alice", &agent]), "403");
    for path in ["users", "report", "state"] {
        let contract = format!("http://{address}:8080/_pool/v1/{path}");
        let answers = ["403", "404"];
        assert!(
            answers.contains(&status(&[&contract]).as_str()),
            "{path} without a token"
        );
        let guessed = status(&["-H", "pool-token: 00", &contract]);
        assert!(
            answers.contains(&guessed.as_str()),
            "{path} with a guessed token: {guessed}"
        );
    }
    let package = format!("http://{address}:15081/packages/alice/1");
    let answer = status(&["-H", "pool-pass: 00", &package]);
    assert!(
        ["403", "404"].contains(&answer.as_str()),
        "a package without a pass: {answer}"
    );
    // The gateway itself is served, and the contract is not reachable through it.
    assert_eq!(status(&[&shop.url()]), "200");
    assert_eq!(status(&[&format!("{}/_pool/v1/users", shop.url())]), "404");
}

/// The status of an answer, asked for inside the cluster's network by somebody who is no gateway.
fn status(args: &[&str]) -> String {
    let fixed = ["curl", "-s", "-o", "/dev/null", "-m", "10", "-w", "%{http_code}"];
    let output = inside(&[&fixed[..], args].concat()).output().expect("curl");
    String::from_utf8(output.stdout).expect("UTF-8")
}
