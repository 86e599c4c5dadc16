//! The controller, the leader election and the authenticator on a real API server, with the chart's rights:
//! `tests/cluster/apiserver.sh cargo test --test apiserver -- --ignored`. Each test has a namespace of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::channel::LeaderState;
use elastic_pool::channel::server::{AuthError, Authenticator as _};
use elastic_pool::clock::Clock;
use elastic_pool::controller::auth::TokenReviewer;
use elastic_pool::controller::build::OperatorEnv;
use elastic_pool::controller::leader::{Elector, LeaderConfig, Leadership};
use elastic_pool::controller::roster::{Role, Roster};
use elastic_pool::controller::{ControllerConfig, ControllerError, Heartbeat, run};
use elastic_pool::vehicle::{
    ConditionView, DecisionNote, Desired, Fact, GroupView, ObjectKey, Orders, SpawnFailure, WorkerFact,
};
use elastic_pool_engine::ids::{Birth, Term};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const SYSTEM: &str = "pools-system";
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs kubectl or helm and gives what it printed.
fn tool(program: &str, args: &[&str], input: &str) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("the command reads");
    let output = child.wait_with_output().expect("the command ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

fn kubectl(args: &[&str], input: &str) -> String {
    tool("kubectl", args, input).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
}

/// The CRDs, the operator's namespace and the chart's rights, once for all tests.
fn install() {
    static DONE: std::sync::Once = std::sync::Once::new();
    DONE.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::new("elastic_pool=info,warn");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_test_writer()
            .init();
        assert!(
            std::env::var_os("KUBECONFIG").is_some(),
            "these tests need tests/cluster/apiserver.sh"
        );
        kubectl(&["apply", "-f", "crds"], "");
        kubectl(&["wait", "--for", "condition=Established", "-f", "crds"], "");
        kubectl(
            &["apply", "-f", "-"],
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}).to_string(),
        );
        let chart = [
            "template",
            "elastic-pool",
            "charts/elastic-pool",
            "-n",
            SYSTEM,
            "-s",
            "templates/rbac.yaml",
        ];
        let rights = tool("helm", &chart, "").unwrap_or_else(|error| panic!("helm: {error}"));
        kubectl(&["apply", "-f", "-"], &rights);
    });
}

/// The operator's client: it has the rights of the chart's service account and no others.
async fn operator() -> Client {
    let mut config = kube::Config::infer().await.expect("a kubeconfig");
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{SYSTEM}:elastic-pool"));
    Client::try_from(config).expect("a client")
}

struct Running {
    namespace: String,
    clock: Clock,
    leadership: Leadership,
    roster: Roster,
    facts: mpsc::Receiver<Fact>,
    orders: watch::Sender<Arc<Orders>>,
    stop: CancellationToken,
    electing: JoinHandle<Result<(), elastic_pool::controller::leader::LeaderError>>,
    controlling: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    /// A leading operator, of a class of its own so that tests do not meet, with one group `blue`.
    async fn start(name: &str) -> Self {
        install();
        let namespace = format!("{name}-{}", std::process::id());
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}});
        kubectl(&["create", "-f", "-"], &object.to_string());
        kubectl(&["-n", &namespace, "create", "serviceaccount", "default"], "");
        let clock = Clock::start();
        let client = operator().await;
        let config = LeaderConfig::new(SYSTEM, &namespace, "pod-uid", "boot", "10.0.0.1:7443");
        let (elector, leadership) = Elector::new(client.clone(), config, clock);
        let stop = CancellationToken::new();
        let electing = tokio::spawn(elector.run(stop.clone()));
        let leads = |state: &LeaderState| matches!(state, LeaderState::Leading { .. });
        tokio::time::timeout(PATIENCE, leadership.watch().wait_for(leads))
            .await
            .expect("it leads")
            .expect("it runs");
        let roster = Roster::default();
        let config = ControllerConfig {
            class: namespace.clone(),
            namespaces: Vec::new(),
            env: OperatorEnv {
                image: "elastic-pool:1".to_owned(),
                pull_policy: "IfNotPresent".to_owned(),
                pull_secrets: Vec::new(),
                channel: "channel:7443".to_owned(),
                agent_resources: None,
                gateway_resources: None,
            },
            instance: "operator-0".to_owned(),
            roster: roster.clone(),
            heartbeat: Heartbeat::new(clock),
        };
        let (facts, told) = mpsc::channel(16);
        let (orders, ordered) = watch::channel(Arc::default());
        let controlling = tokio::spawn(run(
            client,
            config,
            facts,
            ordered,
            leadership.clone(),
            clock,
            stop.clone(),
        ));
        let mut running = Self {
            namespace,
            clock,
            leadership,
            roster,
            facts: told,
            orders,
            stop,
            electing,
            controlling,
        };
        assert!(matches!(
            running.until(|fact| matches!(fact, Fact::Synced)).await,
            Fact::Synced
        ));
        running
    }

    fn kubectl(&self, args: &[&str], input: &str) -> String {
        let mut all = vec!["-n", &self.namespace];
        all.extend(args);
        kubectl(&all, input)
    }

    fn json(&self, what: &[&str]) -> Value {
        let mut args = vec!["get", "-o", "json"];
        args.extend(what);
        serde_json::from_str(&self.kubectl(&args, "")).expect("JSON")
    }

    fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], &object.to_string());
    }

    fn group(&self, image: &str) -> Value {
        let container = json!({
            "name": "app", "image": image, "ports": [{"name": "http", "containerPort": 8080}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        let pod = json!({"containers": [container], "securityContext": {"runAsNonRoot": true, "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"}}});
        json!({"apiVersion": "elasticpool.dev/v1alpha1", "kind": "PoolGroup", "metadata": {"name": "blue"},
            "spec": {"pool": "shop", "class": self.namespace, "runtime": {"version": "1.4"}, "template": {"spec": pod}}})
    }

    fn key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.namespace.clone(),
            name: "blue".to_owned(),
        }
    }

    fn order(&self, desired: Desired, view: GroupView) {
        let mut orders = Orders::default();
        orders.desired.insert(self.key(), desired);
        orders.views.insert(self.key(), Arc::new(view));
        self.orders.send_replace(Arc::new(orders));
    }

    /// The first fact that `is` accepts.
    async fn until(&mut self, is: impl Fn(&Fact) -> bool) -> Fact {
        let wait = async {
            loop {
                let fact = self.facts.recv().await.expect("the controller runs");
                if is(&fact) {
                    return fact;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("the fact comes")
    }

    async fn worker(&mut self, is: impl Fn(&WorkerFact) -> bool) -> WorkerFact {
        match self
            .until(|fact| matches!(fact, Fact::Worker(worker) if is(worker)))
            .await
        {
            Fact::Worker(worker) => *worker,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until `holds`, asking the server anew.
    async fn eventually<T>(&self, what: &str, holds: impl Fn(&Self) -> Option<T>) -> T {
        let wait = async {
            let mut again = tokio::time::interval(Duration::from_millis(100));
            loop {
                again.tick().await;
                if let Some(found) = holds(self) {
                    return found;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| panic!("never: {what}"))
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        let group = self.json(&["poolgroup", "blue"]);
        group["status"]["conditions"]
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == kind)
            .cloned()
    }

    async fn end(self) {
        self.stop.cancel();
        self.controlling.await.expect("no panic").expect("no error");
        self.electing.await.expect("no panic").expect("no error");
        assert!(!self.leadership.valid(self.clock.now()));
        kubectl(&["delete", "namespace", &self.namespace, "--wait=false"], "");
    }
}

fn births(numbers: &[u64]) -> Desired {
    Desired {
        spawn: numbers.iter().map(|number| Birth(*number)).collect(),
        ..Desired::default()
    }
}

fn view() -> GroupView {
    GroupView {
        workers: 2,
        ready_workers: 1,
        desired_workers: 2,
        users: 7,
        headroom_points: 50,
        reception: "blue-aaaaa".to_owned(),
        conditions: vec![ConditionView {
            kind: "Ready".to_owned(),
            status: Some(true),
            reason: "Serving".to_owned(),
            message: "one worker serves".to_owned(),
        }],
        decisions: vec![DecisionNote {
            at: 1_700_000_000,
            action: "Spawned".to_owned(),
            because: "G1: no worker is below 0.8".to_owned(),
            warning: false,
        }],
        decisions_seen: 1,
        ..GroupView::default()
    }
}

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
