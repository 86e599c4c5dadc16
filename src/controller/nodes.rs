//! Reads nodes: whether the workers on one must go; pure, it never asks the server.

use k8s_openapi::api::core::v1::Node;

/// Taints of autoscalers that take a node away.
const GOING: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
];

/// Cordoned, or chosen by an autoscaler: what runs there is about to be told to stop (D2).
pub(crate) fn is_emptied(node: &Node) -> bool {
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

    use super::is_emptied;

    fn emptied(spec: &Value) -> bool {
        is_emptied(&serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": spec})).unwrap())
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
