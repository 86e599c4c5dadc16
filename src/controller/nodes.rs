//! Reads nodes: whether the workers on one must go; pure, it never asks the server.

use k8s_openapi::api::core::v1::Node;

/// Taints of autoscalers that take a node away.
const GOING: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

/// What becomes of the pods on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They stay.
    #[default]
    Stay,
    /// They are about to be told to stop (D2).
    Leave,
    /// Its kubelet stops them now, though nobody deletes them.
    Stop,
}

/// What a node's own state says of the pods on it.
pub(crate) fn fate(node: &Node) -> Fate {
    if is_shutting_down(node) {
        Fate::Stop
    } else if is_emptied(node) {
        Fate::Leave
    } else {
        Fate::Stay
    }
}

/// The machine is shut down in an orderly way. The kubelet keeps the pods' own conditions back until their containers
/// have ended: the node's is the only word there is (`nodeshutdown` in the kubelet's source).
fn is_shutting_down(node: &Node) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref());
    conditions.flatten().any(|condition| {
        let message = condition.message.as_deref().unwrap_or_default();
        condition.type_ == "Ready" && condition.status == "False" && message.contains("node is shutting down")
    })
}

/// Cordoned, or chosen by an autoscaler.
fn is_emptied(node: &Node) -> bool {
    let Some(spec) = &node.spec else { return false };
    let taints = spec.taints.iter().flatten();
    spec.unschedulable == Some(true)
        || taints
            .map(|taint| taint.key.as_str())
            .any(|key| GOING.contains(&key))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Fate, fate};

    fn emptied(spec: &Value) -> bool {
        let node = json!({"metadata": {"name": "n1"}, "spec": spec});
        fate(&serde_json::from_value(node).unwrap()) == Fate::Leave
    }

    #[test]
    fn a_node_that_shuts_down_stops_its_pods_now_and_one_that_is_only_not_ready_does_not() {
        let of = |status: &str, message: &str| {
            let ready =
                json!({"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": message});
            let node = json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}, "status": {"conditions": [ready]}});
            fate(&serde_json::from_value(node).unwrap())
        };
        assert_eq!(of("False", "node is shutting down"), Fate::Stop);
        assert_eq!(of("False", "[no network, node is shutting down]"), Fate::Stop);
        assert_eq!(of("False", "container runtime is down"), Fate::Leave);
        assert_eq!(of("True", "kubelet is posting ready status"), Fate::Leave);
    }

    #[test]
    fn a_node_is_emptied_when_it_is_cordoned_or_an_autoscaler_takes_it_away() {
        let tainted = |key: &str| json!({"taints": [{"key": key, "effect": "NoSchedule"}]});
        assert!(emptied(&json!({"unschedulable": true})));
        assert!(emptied(&tainted("ToBeDeletedByClusterAutoscaler")));
        assert!(emptied(&tainted("karpenter.sh/disrupted")));
        assert!(!emptied(&json!({})));
        assert!(!emptied(&json!({"unschedulable": false})));
        assert!(
            !emptied(&tainted("DeletionCandidateOfClusterAutoscaler")),
            "it may still change its mind"
        );
        assert!(!emptied(&tainted("node.kubernetes.io/disk-pressure")));
    }
}
