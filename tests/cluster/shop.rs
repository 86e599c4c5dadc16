//! A group under test: its manifest, its pods, its status; what they should be is the tests' business.

use serde_json::{Value, json};

use crate::harness::{Namespace, eventually, get, kubectl, metrics, operator, run, sample};

/// A group of the reference app in a namespace of its own, with a report each second.
pub(crate) struct Shop {
    pub(crate) namespace: Namespace,
}

/// The manifest of group `shop-blue`: two tenths of a core, three rows of a second.
pub(crate) fn manifest() -> Value {
    json!({
        "apiVersion": "elasticpool.dev/v1alpha1",
        "kind": "PoolGroup",
        "metadata": {"name": "shop-blue"},
        "spec": {
            "pool": "shop",
            "runtime": {"version": "blue"},
            "workers": {"min": 1, "max": 4},
            "thresholds": {"smoothingRows": 3},
            "reports": {"interval": "1s"},
            "template": {"spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [app()]
            }}
        }
    })
}

/// As [`manifest`], with workers on every node that takes some, and users on every worker: the reception keeps few.
pub(crate) fn spread(workers: u32) -> Value {
    let mut group = manifest();
    group["spec"]["workers"] = json!({"min": workers, "max": workers + 2});
    group["spec"]["thresholds"]["receptionPercent"] = 5.into();
    group["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"elasticpool.dev/group": "shop-blue"}}
    }]);
    group
}

/// The container of the reference app.
pub(crate) fn app() -> Value {
    json!({
        "name": "app",
        "image": image(),
        "imagePullPolicy": "IfNotPresent",
        "command": ["elastic-pool"],
        "args": ["worker"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}
    })
}

/// The image under test.
pub(crate) fn image() -> String {
    std::env::var("ELASTIC_POOL_TEST_IMAGE")
        .unwrap_or_else(|_| "docker.io/elastic-pool/elastic-pool:dev".to_owned())
}

impl Shop {
    /// Installs the operator where needed, applies the manifest in a new namespace, and waits for `workers` and gateways.
    pub(crate) fn open(name: &str, manifest: &Value, workers: usize) -> Self {
        operator();
        let shop = Self {
            namespace: Namespace::create(name),
        };
        shop.apply(manifest);
        shop.wait_ready(workers);
        eventually("gateways", 90, || {
            let deployment = shop.get_maybe("deployment/shop-gateway")?;
            let ready = deployment["status"]["availableReplicas"].as_u64().unwrap_or(0);
            if ready == 2 {
                Ok(())
            } else {
                Err(deployment["status"].to_string())
            }
        });
        shop
    }

    pub(crate) fn ns(&self) -> &str {
        &self.namespace.0
    }

    pub(crate) fn apply(&self, manifest: &Value) {
        run(
            "kubectl",
            &["-n", self.ns(), "apply", "-f", "-"],
            &manifest.to_string(),
        );
    }

    pub(crate) fn kubectl(&self, line: &str) -> String {
        kubectl(&format!("-n {} {line}", self.ns()))
    }

    pub(crate) fn get(&self, what: &str) -> Value {
        get(&format!("-n {} {what}", self.ns()))
    }

    pub(crate) fn get_maybe(&self, what: &str) -> Result<Value, String> {
        let line = format!("-n {} get {what} -o json", self.ns());
        let text = crate::harness::attempt("kubectl", &line.split_whitespace().collect::<Vec<_>>(), "")?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// The group's object.
    pub(crate) fn group(&self) -> Value {
        self.get("pgrp/shop-blue")
    }

    /// Its pods that are not going, oldest birth first.
    pub(crate) fn workers(&self) -> Vec<Value> {
        let pods = self.get("pods -l elasticpool.dev/group=shop-blue");
        let mut pods: Vec<Value> = pods["items"].as_array().expect("pods").clone();
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.sort_by_key(|pod| {
            let birth = pod["metadata"]["labels"]["elasticpool.dev/birth"].as_str();
            birth.and_then(|birth| birth.parse::<u64>().ok())
        });
        pods
    }

    /// Names of its workers that are not going.
    pub(crate) fn names(&self) -> Vec<String> {
        self.workers().iter().map(name).collect()
    }

    /// Users who live in the group, by the leader's metrics.
    pub(crate) fn users(&self) -> Option<f64> {
        let label = format!("namespace=\"{}\"", self.ns());
        sample(&metrics(), "elastic_pool_group_users", &label)
    }

    /// Waits until so many users live there.
    pub(crate) fn wait_users(&self, users: u32) {
        eventually(&format!("{users} users"), 120, || {
            let now = self.users();
            if now == Some(f64::from(users)) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        });
    }

    /// How often an event of that reason was told about the group.
    pub(crate) fn told(&self, reason: &str) -> u64 {
        let events = self.get("events.events.k8s.io");
        let events = events["items"].as_array().expect("events").iter();
        let told =
            events.filter(|event| event["regarding"]["kind"] == "PoolGroup" && event["reason"] == reason);
        told.map(|event| event["series"]["count"].as_u64().unwrap_or(1))
            .sum()
    }

    /// Names of the gateway's pods that are not going.
    pub(crate) fn gateways(&self) -> Vec<String> {
        let pods = self.get("pods -l elasticpool.dev/component=gateway");
        let pods = pods["items"].as_array().expect("pods").iter();
        pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .map(name)
            .collect()
    }

    pub(crate) fn wait_ready(&self, workers: usize) {
        eventually(&format!("{workers} ready workers"), 90, || {
            let group = self.group();
            let ready = group["status"]["readyWorkers"].as_u64().unwrap_or(0);
            let found = self.workers().len();
            if ready == workers as u64 && found == workers {
                Ok(())
            } else {
                Err(format!("{found} pods, status {}", group["status"]))
            }
        });
    }

    /// The gateway's address inside the cluster.
    pub(crate) fn url(&self) -> String {
        let service = self.get("service/shop");
        let address = service["spec"]["clusterIP"].as_str().expect("an address");
        let port = service["spec"]["ports"][0]["port"].as_u64().expect("a port");
        format!("http://{address}:{port}")
    }

    /// The condition of that type, or what stands there instead.
    pub(crate) fn condition(&self, group: &str, kind: &str) -> Result<Value, String> {
        let group = self.get(&format!("pgrp/{group}"));
        let conditions = group["status"]["conditions"].clone();
        let mut found = conditions.as_array().into_iter().flatten();
        let found = found.find(|condition| condition["type"] == kind);
        found.cloned().ok_or_else(|| conditions.to_string())
    }

    /// Reasons and notes of the events about the group, one line each, in order.
    pub(crate) fn events(&self) -> Vec<(String, String)> {
        let events = self.get("events.events.k8s.io");
        let mut events: Vec<&Value> = events["items"].as_array().expect("events").iter().collect();
        events.retain(|event| event["regarding"]["kind"] == "PoolGroup");
        events.sort_by_key(|event| event["eventTime"].as_str().map(str::to_owned));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .map(|event| (text(&event["reason"]), text(&event["note"])))
            .collect()
    }
}

/// An object's name.
pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").to_owned()
}
