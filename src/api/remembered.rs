//! What a worker's pod remembers of its group, so that a leader who comes after the group was deleted still knows how to
//! empty it: the group's spec, of the template only what is read; pure.

use serde_json::Map;

use super::resolve;
use super::template::{TemplateContainer, TemplateMetadata};
use super::{PoolGroup, PoolGroupSpec};
use crate::vehicle::{GroupSpec, ObjectKey};

/// The group's spec as the annotation of its pods carries it, about a kilobyte.
pub fn remember(group: &PoolGroup) -> String {
    let mut spec = group.spec.clone();
    spec.template.metadata = TemplateMetadata::default();
    spec.template.spec.rest = Map::new();
    for container in &mut spec.template.spec.containers {
        *container = TemplateContainer {
            name: std::mem::take(&mut container.name),
            ports: std::mem::take(&mut container.ports),
            resources: container.resources.take(),
            ..TemplateContainer::default()
        };
    }
    serde_json::to_string(&spec).unwrap_or_default()
}

/// The values of a group that is gone, from what a pod of its remembers; `None` where that cannot be read, or another
/// class of operator serves it.
pub fn recall(key: &ObjectKey, remembered: &str, class: &str) -> Option<GroupSpec> {
    let spec: PoolGroupSpec = serde_json::from_str(remembered).ok()?;
    if spec.class != class {
        return None;
    }
    let mut group = PoolGroup::new(&key.name, spec);
    group.metadata.namespace = Some(key.namespace.clone());
    resolve::group_spec(&group, false).ok()
}

/// The class of operator that served the group; `None` where that cannot be read.
pub fn class(remembered: &str) -> Option<String> {
    let spec: PoolGroupSpec = serde_json::from_str(remembered).ok()?;
    Some(spec.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn group() -> PoolGroup {
        let group = json!({
            "apiVersion": "elasticpool.dev/v1alpha1", "kind": "PoolGroup",
            "metadata": {"name": "blue", "namespace": "shop"},
            "spec": {"pool": "shop", "runtime": {"version": "1", "snapshotFormat": "cart/1"},
                "thresholds": {"receptionPercent": 30}, "moves": {"drainTimeout": "30s"},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"serviceAccountName": "app", "containers": [
                    {"name": "web", "image": "web:1", "env": [{"name": "SECRET", "value": "s"}],
                     "ports": [{"name": "http", "containerPort": 8000}], "resources": {"limits": {"memory": "64Mi"}}}]}}},
        });
        serde_json::from_value(group).unwrap()
    }

    #[test]
    fn a_pod_remembers_all_that_its_group_is_emptied_by() {
        let (group, text) = (group(), remember(&group()));
        let recalled = recall(&resolve::key(&group), &text, "default").unwrap();
        let told = resolve::group_spec(&group, false).unwrap();
        let template_hash = recalled.template_hash.clone();
        assert_eq!(
            recalled,
            GroupSpec {
                template_hash,
                ..told
            }
        );
        assert!(!text.contains("SECRET") && !text.contains("web:1"), "{text}");
        assert_eq!(recall(&resolve::key(&group), &text, "other"), None);
        assert_eq!(recall(&resolve::key(&group), "{}", "default"), None);
        assert_eq!(class(&text).as_deref(), Some("default"));
        assert_eq!(class("{}"), None);
    }
}
