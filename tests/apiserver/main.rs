//! The controller, the leader election and the authenticator on a real API server, with the chart's rights:
//! `tests/cluster/apiserver.sh cargo test --test apiserver -- --ignored`. Each test has a namespace of its own.
#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod bench;
mod ownership;

use bench::{PATIENCE, Running, SYSTEM, births, install, operator, tool, view};
use elastic_pool::channel::LeaderState;
use elastic_pool::channel::server::{AuthError, Authenticator as _};
use elastic_pool::clock::Clock;
use elastic_pool::controller::auth::TokenReviewer;
use elastic_pool::controller::leader::{Elector, LeaderConfig, Leadership};
use elastic_pool::controller::roster::Role;
use elastic_pool::vehicle::{Desired, Fact, GroupView, SpawnFailure};
use elastic_pool_engine::ids::{Birth, Term};
use kube::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_group_becomes_pods_a_gateway_and_a_status_with_the_chart_s_rights_alone() {
    let mut running = Running::start("whole").await;
    running.apply(&running.group("app:1"));
    let told = running.until(|fact| matches!(fact, Fact::Group(_))).await;
    assert!(matches!(told, Fact::Group(spec) if spec.default_group && spec.key == running.key()));
    running.until(|fact| matches!(fact, Fact::Keys(..))).await;
    running.order(births(&[11, 12]), view());
    let first = running.worker(|worker| worker.birth == Birth(11)).await;
    running.worker(|worker| worker.birth == Birth(12)).await;
    assert_eq!(
        running.roster.role(&running.namespace, &first.pod_uid),
        Some(Role::Worker(running.key(), Birth(11)))
    );
    assert_eq!(running.json(&["pdb", "blue-workers"])["spec"]["minAvailable"], 1);
    for what in [
        "deployment/shop-gateway",
        "service/shop",
        "serviceaccount/shop-gateway",
        "pdb/shop-gateway",
        "pool/shop",
    ] {
        running
            .eventually(what, |running| {
                tool("kubectl", &["-n", &running.namespace, "get", what], "").ok()
            })
            .await;
    }
    let row = running.eventually("status", |running| {
        let rows = running.kubectl(&["get", "pgrp", "--no-headers"], "");
        rows.contains("blue-aaaaa").then_some(rows)
    });
    let row = row.await;
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(
        columns[..8],
        ["blue", "1.4", "1", "2", "7", "50", "blue-aaaaa", "Active"]
    );
    let events = running.kubectl(&["get", "events.events.k8s.io", "--no-headers"], "");
    assert!(events.contains("Spawned"), "{events}");

    let ready = json!({"status": {"phase": "Running", "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}], "conditions": [{"type": "Ready", "status": "True"}]}});
    running.kubectl(
        &[
            "patch",
            "pod",
            &first.name,
            "--subresource",
            "status",
            "--type",
            "merge",
            "-p",
            &ready.to_string(),
        ],
        "",
    );
    let seen = running.worker(|worker| worker.ready).await;
    assert_eq!((seen.name, seen.address.as_str()), (first.name, "10.1.2.3:15080"));

    running.order(
        Desired {
            retire: vec![(Birth(12), "another".to_owned()), (Birth(11), first.pod_uid)],
            ..Desired::default()
        },
        view(),
    );
    assert_eq!(
        running.until(|fact| matches!(fact, Fact::WorkerGone(_))).await,
        Fact::WorkerGone(Birth(11))
    );
    assert_eq!(
        running.json(&["pods"])["items"].as_array().map(Vec::len),
        Some(1),
        "the other UID protects its pod"
    );
    running.kubectl(&["delete", "poolgroup", "blue", "--wait=false"], "");
    running.until(|fact| matches!(fact, Fact::GroupGone(_))).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_template_that_makes_no_pod_is_named_by_its_field() {
    let mut running = Running::start("templates").await;
    running.apply(&running.group("app:1"));
    running.until(|fact| matches!(fact, Fact::Group(_))).await;
    let verdict = |running: &Running, status: &str| {
        running
            .condition("TemplateInvalid")
            .filter(|c| c["status"] == status)
    };
    running
        .eventually("accepted", |running| verdict(running, "False"))
        .await;
    let unknown = {
        let mut group = running.group("app:1");
        group["spec"]["template"]["spec"]["colour"] = json!("blue");
        group
    };
    let invalid = {
        let mut group = running.group("app:1");
        group["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"] = json!("Sometimes");
        group
    };
    let insecure = {
        let mut group = running.group("app:1");
        group["spec"]["template"]["spec"]["containers"][0]["securityContext"] =
            json!({"allowPrivilegeEscalation": true});
        group
    };
    let reserved = {
        let mut group = running.group("app:1");
        group["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
        group
    };
    for (group, named) in [
        (unknown, "spec.template.spec.colour"),
        (
            invalid,
            "spec.template.spec.containers[0].terminationMessagePolicy",
        ),
        (insecure, "PodSecurity"),
        (reserved, "spec.template.spec.hostNetwork"),
    ] {
        running.apply(&running.group("app:1"));
        running
            .eventually("accepted again", |running| verdict(running, "False"))
            .await;
        running.apply(&group);
        let refused = running
            .eventually(named, |running| verdict(running, "True"))
            .await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains(named), "{named}: {message}");
    }
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_changed_template_outdates_what_runs_and_makes_what_comes() {
    let mut running = Running::start("updates").await;
    running.apply(&running.group("app:1"));
    running.until(|fact| matches!(fact, Fact::Group(_))).await;
    running.order(births(&[11]), view());
    let old = running.worker(|worker| worker.birth == Birth(11)).await;
    running.apply(&running.group("app:2"));
    let told = running.until(|fact| matches!(fact, Fact::Group(_))).await;
    assert!(
        matches!(&told, Fact::Group(spec) if spec.outdates(&old)),
        "{told:?}"
    );
    let outdated = GroupView {
        outdated_workers: 1,
        ..view()
    };
    running.order(births(&[12]), outdated);
    let new = running.worker(|worker| worker.birth == Birth(12)).await;
    assert!(
        matches!(&told, Fact::Group(spec) if !spec.outdates(&new)),
        "{new:?}"
    );
    let image = running.json(&["pod", &new.name])["spec"]["containers"][0]["image"].clone();
    assert_eq!(image, "app:2");
    running
        .eventually("status.outdatedWorkers", |running| {
            let group = running.json(&["poolgroup", "blue"]);
            (group["status"]["outdatedWorkers"] == 1).then_some(())
        })
        .await;
    let mut moved = running.group("app:2");
    moved["spec"]["agentUpdate"] = json!("Move");
    moved["spec"]["agent"] = json!({"image": "agent:2"});
    running.apply(&moved);
    let told = running.until(|fact| matches!(fact, Fact::Group(_))).await;
    assert!(
        matches!(&told, Fact::Group(spec) if spec.outdates(&new)),
        "another agent counts"
    );
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_quota_is_a_lack_of_room() {
    let mut running = Running::start("quota").await;
    running.apply(&json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}));
    // Nobody counts here: the controller that would is not running.
    let counted = json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}).to_string();
    running.kubectl(
        &[
            "patch",
            "quota",
            "none",
            "--subresource",
            "status",
            "--type",
            "merge",
            "-p",
            &counted,
        ],
        "",
    );
    running.apply(&running.group("app:1"));
    running.until(|fact| matches!(fact, Fact::Group(_))).await;
    running.order(births(&[11]), view());
    let failed = running.until(|fact| matches!(fact, Fact::SpawnFailed(..))).await;
    assert!(
        matches!(&failed, Fact::SpawnFailed(_, Birth(11), SpawnFailure::NoCapacity(text)) if text.contains("quota")),
        "{failed:?}"
    );
    let verdict = running
        .eventually("a verdict", |running| running.condition("TemplateInvalid"))
        .await;
    assert_ne!(verdict["status"], "True", "a quota says nothing of the template");
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn what_never_changes_is_never_written() {
    let mut running = Running::start("steady").await;
    running.apply(&running.group("app:1"));
    running.until(|fact| matches!(fact, Fact::Keys(..))).await;
    running.order(births(&[11]), view());
    running.worker(|worker| worker.birth == Birth(11)).await;
    let versions = |running: &Running| {
        let kinds =
            "poolgroups,pools,pods,deployments,services,serviceaccounts,pdb,secrets,events.events.k8s.io";
        running.kubectl(
            &[
                "get",
                kinds,
                "-o",
                "jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion} {end}",
            ],
            "",
        )
    };
    running
        .eventually("status", |running| running.condition("Ready"))
        .await;
    // The implicit pool's own status comes last; from here on nothing changes.
    running
        .eventually("pool status", |running| {
            running.json(&["pool", "shop"])["status"]["address"]
                .as_str()
                .map(str::to_owned)
        })
        .await;
    let before = versions(&running);
    for round in 0..20 {
        running.order(
            births(&[11]),
            GroupView {
                headroom_points: 50 + round % 5,
                ..view()
            },
        );
        // Each order is seen: the receiver's end is read before the next is sent.
        running
            .eventually("a look", |running| Some(versions(running)))
            .await;
    }
    assert_eq!(versions(&running), before);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn leadership_passes_on_under_a_higher_term() {
    install();
    let clock = Clock::start();
    let class = format!("election-{}", std::process::id());
    let elect = |pod: &'static str, client: Client| {
        let config = LeaderConfig::new(SYSTEM, &class, pod, "boot", &format!("{pod}:7443"));
        let (elector, leadership) = Elector::new(client, config, clock);
        let stop = CancellationToken::new();
        (tokio::spawn(elector.run(stop.clone())), leadership, stop)
    };
    let reaches = |leadership: &Leadership, wanted: LeaderState| {
        let mut states = leadership.watch();
        async move {
            let wait = states.wait_for(|state| *state == wanted);
            tokio::time::timeout(PATIENCE, wait)
                .await
                .expect("in time")
                .expect("it runs");
        }
    };
    let (first, one, stop_one) = elect("a", operator().await);
    reaches(&one, LeaderState::Leading { term: Term(1) }).await;
    let (_second, two, stop_two) = elect("b", operator().await);
    reaches(
        &two,
        LeaderState::Following {
            address: "a:7443".to_owned(),
            term: Term(1),
        },
    )
    .await;
    one.raise_term(Term(7));
    reaches(&one, LeaderState::Leading { term: Term(8) }).await;
    stop_one.cancel();
    first.await.expect("no panic").expect("released");
    reaches(&two, LeaderState::Leading { term: Term(9) }).await;
    assert!(two.valid(clock.now()) && !one.valid(clock.now()));
    stop_two.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server: tests/cluster/apiserver.sh"]
async fn a_pod_s_token_for_our_audience_names_the_pod_and_no_other_token_does() {
    let mut running = Running::start("tokens").await;
    running.apply(&running.group("app:1"));
    running.until(|fact| matches!(fact, Fact::Group(_))).await;
    running.order(births(&[11]), view());
    let worker = running.worker(|worker| worker.birth == Birth(11)).await;
    running.kubectl(&["create", "serviceaccount", "app"], "");
    // A bound token is for a pod of the account that it speaks for.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"serviceAccountName": "app",
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}});
    running.apply(&pod);
    let token = |args: &[&str]| {
        let mut all = vec!["create", "token", "app"];
        all.extend(args);
        running.kubectl(&all, "").trim().to_owned()
    };
    let bound = ["--bound-object-kind", "Pod", "--bound-object-name", "other"];
    let reviewer = TokenReviewer::new(operator().await, running.clock);
    let good = token(&[&bound[..], &["--audience", "elastic-pool"]].concat());
    let identity = reviewer.authenticate(&good).await.expect("a good token");
    assert_eq!(
        (identity.pod_name.as_str(), identity.service_account.as_str()),
        ("other", "app")
    );
    assert_eq!(identity.namespace, running.namespace);
    assert_eq!(
        running.roster.role(&identity.namespace, &identity.pod_uid),
        None,
        "a pod that is no worker has no role"
    );
    assert!(running.roster.role(&running.namespace, &worker.pod_uid).is_some());
    for bad in [
        token(&bound),
        token(&["--audience", "elastic-pool"]),
        "rubbish".to_owned(),
    ] {
        assert!(matches!(
            reviewer.authenticate(&bad).await,
            Err(AuthError::Refused)
        ));
    }
    running.end().await;
}
