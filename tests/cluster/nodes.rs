//! The second node of the test's cluster: cordoned, tainted, drained, shut down or cut off, and always put back; never a node of another cluster.

use serde_json::Value;

use crate::containers;
use crate::harness::{attempt, cluster_dir, eventually, get, kubectl, run};
use crate::shop::{Shop, name};

/// Taints by which autoscalers say that they take a node away.
pub(crate) const TAINTS: [&str; 2] = ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"];

/// A node that a test takes out of service. It is back in service when the test ends, however it ends.
pub(crate) struct Node(pub(crate) String);

impl Node {
    /// The node that cluster DNS does not run on: what is tested is not that a cluster without DNS finds nothing.
    pub(crate) fn without_dns() -> Self {
        let dns = get("-n kube-system pods -l k8s-app=kube-dns");
        let taken = containers::node(&dns["items"][0]);
        Self(other(taken))
    }

    /// The node of a pod.
    pub(crate) fn of(pod: &Value) -> Self {
        Self(containers::node(pod).to_owned())
    }

    /// The other node.
    pub(crate) fn other(&self) -> Self {
        Self(other(&self.0))
    }

    /// The pods of a group that run here, those that are going too.
    pub(crate) fn workers(&self, shop: &Shop) -> Vec<Value> {
        let pods = shop.get("pods -l elasticpool.dev/group=shop-blue");
        let mut pods = pods["items"].as_array().expect("pods").clone();
        pods.retain(|pod| pod["spec"]["nodeName"] == self.0.as_str());
        pods
    }

    /// Waits until none of the group's workers is left here, and as many as wanted are ready elsewhere.
    pub(crate) fn wait_left(&self, shop: &Shop, workers: u64) {
        eventually(&format!("{workers} workers, none on {}", self.0), 150, || {
            let group = shop.group();
            let left: Vec<String> = self.workers(shop).iter().map(name).collect();
            let ready = group["status"]["readyWorkers"].as_u64().unwrap_or(0);
            if left.is_empty() && ready >= workers {
                Ok(())
            } else {
                Err(format!("{left:?}, {}", group["status"]))
            }
        });
    }

    pub(crate) fn cordon(&self) {
        kubectl(&format!("cordon {}", self.0));
    }

    pub(crate) fn uncordon(&self) {
        kubectl(&format!("uncordon {}", self.0));
    }

    pub(crate) fn taint(&self, key: &str) {
        kubectl(&format!("taint node {} {key}=:NoSchedule", self.0));
    }

    pub(crate) fn untaint(&self, key: &str) {
        kubectl(&format!("taint node {} {key}-", self.0));
    }

    /// `kubectl drain`, as people do it.
    pub(crate) fn drain(&self) {
        let options = "--ignore-daemonsets --delete-emptydir-data --timeout=240s";
        println!("{}", kubectl(&format!("drain {} {options}", self.0)));
    }

    /// Sends a signal to one of the node's own processes: `kubelet`, `containerd` or `logind`.
    pub(crate) fn signal(&self, part: &str, signal: &str) {
        run("kill", &[signal, &self.pid(part)], "");
    }

    fn pid(&self, part: &str) -> String {
        let number = self.0.trim_start_matches("node");
        let file = format!("{}/{part}{number}.pid", cluster_dir());
        let pid = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        pid.trim().to_owned()
    }

    /// Whether the API server calls it ready.
    pub(crate) fn is_ready(&self) -> Result<(), String> {
        let node = get(&format!("node/{}", self.0));
        let conditions = node["status"]["conditions"]
            .as_array()
            .expect("conditions")
            .iter();
        let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
        let ready = ready.next().expect("a Ready condition");
        if ready["status"] == "True" {
            Ok(())
        } else {
            Err(ready.to_string())
        }
    }
}

fn other(taken: &str) -> String {
    let nodes = get("nodes");
    let nodes = nodes["items"].as_array().expect("nodes");
    assert_eq!(
        nodes.len(),
        2,
        "these tests need NODES=2 tests/cluster/with.sh NAME COMMAND"
    );
    let name = nodes.iter().map(name).find(|name| name != taken);
    name.expect("another node")
}

impl Drop for Node {
    fn drop(&mut self) {
        let taints = TAINTS.map(|key| format!("{key}-")).join(" ");
        let lines = [
            format!("uncordon {}", self.0),
            format!("taint node {} {taints}", self.0),
        ];
        for line in lines {
            let _ = attempt("kubectl", &line.split_whitespace().collect::<Vec<_>>(), "");
        }
    }
}
