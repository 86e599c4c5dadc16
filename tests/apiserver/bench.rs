//! What the tests share: the tools, the operator's client, an operator that leads and runs; it asserts nothing of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::channel::LeaderState;
use elastic_pool::clock::Clock;
use elastic_pool::controller::build::OperatorEnv;
use elastic_pool::controller::leader::{Elector, LeaderConfig, Leadership};
use elastic_pool::controller::roster::Roster;
use elastic_pool::controller::{ControllerConfig, ControllerError, Heartbeat, run};
use elastic_pool::vehicle::{
    ConditionView, DecisionNote, Desired, Fact, GroupView, ObjectKey, Orders, WorkerFact,
};
use elastic_pool_engine::ids::Birth;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const SYSTEM: &str = "pools-system";
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs kubectl or helm and gives what it printed.
pub(crate) fn tool(program: &str, args: &[&str], input: &str) -> Result<String, String> {
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

pub(crate) fn kubectl(args: &[&str], input: &str) -> String {
    tool("kubectl", args, input).unwrap_or_else(|error| panic!("kubectl {args:?}: {error}"))
}

/// The CRDs, the operator's namespace and the chart's rights, once for all tests.
pub(crate) fn install() {
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
pub(crate) async fn operator() -> Client {
    let mut config = kube::Config::infer().await.expect("a kubeconfig");
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{SYSTEM}:elastic-pool"));
    Client::try_from(config).expect("a client")
}

pub(crate) struct Running {
    pub(crate) namespace: String,
    pub(crate) clock: Clock,
    pub(crate) leadership: Leadership,
    pub(crate) roster: Roster,
    pub(crate) facts: mpsc::Receiver<Fact>,
    pub(crate) orders: watch::Sender<Arc<Orders>>,
    pub(crate) stop: CancellationToken,
    pub(crate) electing: JoinHandle<Result<(), elastic_pool::controller::leader::LeaderError>>,
    pub(crate) controlling: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    /// A leading operator, of a class of its own so that tests do not meet, with one group `blue`.
    pub(crate) async fn start(name: &str) -> Self {
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

    pub(crate) fn kubectl(&self, args: &[&str], input: &str) -> String {
        let mut all = vec!["-n", &self.namespace];
        all.extend(args);
        kubectl(&all, input)
    }

    pub(crate) fn json(&self, what: &[&str]) -> Value {
        let mut args = vec!["get", "-o", "json"];
        args.extend(what);
        serde_json::from_str(&self.kubectl(&args, "")).expect("JSON")
    }

    pub(crate) fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], &object.to_string());
    }

    pub(crate) fn group(&self, image: &str) -> Value {
        let container = json!({
            "name": "app", "image": image, "ports": [{"name": "http", "containerPort": 8080}],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        let pod = json!({"containers": [container], "securityContext": {"runAsNonRoot": true, "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"}}});
        json!({"apiVersion": "elasticpool.dev/v1alpha1", "kind": "PoolGroup", "metadata": {"name": "blue"},
            "spec": {"pool": "shop", "class": self.namespace, "runtime": {"version": "1.4"}, "template": {"spec": pod}}})
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey {
            namespace: self.namespace.clone(),
            name: "blue".to_owned(),
        }
    }

    pub(crate) fn order(&self, desired: Desired, view: GroupView) {
        let mut orders = Orders::default();
        orders.desired.insert(self.key(), desired);
        orders.views.insert(self.key(), Arc::new(view));
        self.orders.send_replace(Arc::new(orders));
    }

    /// The first fact that `is` accepts.
    pub(crate) async fn until(&mut self, is: impl Fn(&Fact) -> bool) -> Fact {
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

    pub(crate) async fn worker(&mut self, is: impl Fn(&WorkerFact) -> bool) -> WorkerFact {
        match self
            .until(|fact| matches!(fact, Fact::Worker(worker) if is(worker)))
            .await
        {
            Fact::Worker(worker) => *worker,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until `holds`, asking the server anew.
    pub(crate) async fn eventually<T>(&self, what: &str, holds: impl Fn(&Self) -> Option<T>) -> T {
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

    pub(crate) fn condition(&self, kind: &str) -> Option<Value> {
        let group = self.json(&["poolgroup", "blue"]);
        group["status"]["conditions"]
            .as_array()?
            .iter()
            .find(|condition| condition["type"] == kind)
            .cloned()
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.controlling.await.expect("no panic").expect("no error");
        self.electing.await.expect("no panic").expect("no error");
        assert!(!self.leadership.valid(self.clock.now()));
        kubectl(&["delete", "namespace", &self.namespace, "--wait=false"], "");
    }
}

pub(crate) fn births(numbers: &[u64]) -> Desired {
    Desired {
        spawn: numbers.iter().map(|number| Birth(*number)).collect(),
        ..Desired::default()
    }
}

pub(crate) fn view() -> GroupView {
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
