//! The CustomResourceDefinitions as the API server takes them; it applies nothing.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use super::{MAX_NAME, Pool, PoolGroup};

/// The definitions of PoolGroup and Pool, in this order.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let users_rule = json!([{
        "rule": format!(
            "!has(self.status) || !has(self.status.workers) || self.status.workers == 0 || {} == {}",
            users("self"),
            users("oldSelf")
        ),
        "message": "spec.users is fixed while the group has workers: make a new PoolGroup instead (its default follows spec.moves.mode)",
    }]);
    vec![
        finish(
            &PoolGroup::crd(),
            "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            Some(users_rule),
        ),
        finish(&Pool::crd(), "^[a-z]([-a-z0-9]*[a-z0-9])?$", None),
    ]
}

/// Both definitions as YAML documents, as `elastic-pool crd` prints them.
///
/// Errors: none in practice; a definition that cannot be written is left out, which the drift test would show.
pub fn crds_yaml() -> String {
    crds()
        .iter()
        .filter_map(|crd| crd_yaml(crd).ok())
        .fold(String::new(), |all, text| all + "---\n" + &text)
}

/// One definition as YAML, without a leading `---`.
pub fn crd_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(crd)
}

/// Effective `spec.users`: CEL.
fn users(object: &str) -> String {
    format!(
        "(has({object}.spec.users) ? {object}.spec.users : {object}.spec.moves.mode == 'Drain' ? 'Session' : 'Login')"
    )
}

fn finish(
    crd: &CustomResourceDefinition,
    name_pattern: &str,
    rules: Option<Value>,
) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(crd).unwrap_or_default();
    let schema = &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    tidy(schema);
    // Names of pods, labels and Services are made from it. The schema says so, not a CEL rule: matching a
    // pattern against a name costs more than the API server allows.
    schema["properties"]["metadata"] = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": MAX_NAME, "pattern": name_pattern}},
    });
    if let Some(rules) = rules {
        schema["x-kubernetes-validations"] = rules;
    }
    serde_json::from_value(value).unwrap_or_default()
}

/// Takes out what the API server warns of or what would let a null pass for a value.
fn tidy(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    // With `nullable` a null would be kept and reach the CEL rules; without it null is as good as absent
    // where there is a default, and refused by name where there is none.
    object.remove("nullable");
    object.remove("title");
    if object
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        object.remove("format");
    }
    for key in ["properties", "patternProperties"] {
        if let Some(properties) = object.get_mut(key).and_then(Value::as_object_mut) {
            properties.values_mut().for_each(tidy);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            tidy(inner);
        }
    }
    unwrap_lines(object);
}

/// Doc comments are wrapped for editors; `kubectl explain` wraps by itself.
fn unwrap_lines(schema: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text
            .replace("\n\n", "\u{0}")
            .replace('\n', " ")
            .replace('\u{0}', "\n\n");
    }
}
