//! What workers and gateways have in common: labels, owner references, the security context, the identity's volume.

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::api::labels::{
    APP_COMPONENT, APP_INSTANCE, APP_MANAGED_BY, APP_NAME, APP_PART_OF, IDENTITY_VOLUME, NAME, TOKEN_AUDIENCE,
};
use crate::api::measures::FieldError;
use crate::api::pool::SecretName;
use crate::api::{API_VERSION, Pool, PoolGroup};

/// A projected token is renewed by the kubelet after 80 % of this time; the API server's least is 10 minutes.
const TOKEN_SECONDS: u32 = 3600;

/// Kubernetes' recommended labels of an object of ours.
pub(super) fn app_labels(name: &str, instance: &str, component: &str, pool: &str) -> Map<String, Value> {
    [
        (APP_NAME, name),
        (APP_INSTANCE, instance),
        (APP_COMPONENT, component),
        (APP_PART_OF, pool),
        (APP_MANAGED_BY, NAME),
    ]
    .into_iter()
    .map(|(label, value)| (label.to_owned(), Value::from(value)))
    .collect()
}

/// The owner reference of what goes with `group`.
pub(super) fn group_owner(group: &PoolGroup) -> Value {
    owner("PoolGroup", &group.name_any(), group.uid(), true)
}

/// The owner reference of what goes with `pool`.
pub(super) fn pool_owner(pool: &Pool) -> Value {
    owner("Pool", &pool.name_any(), pool.uid(), true)
}

/// The owner reference of what `group` keeps alive without controlling it.
pub(super) fn group_co_owner(group: &PoolGroup) -> Value {
    owner("PoolGroup", &group.name_any(), group.uid(), false)
}

fn owner(kind: &str, name: &str, uid: Option<String>, controller: bool) -> Value {
    let mut owner = json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid.unwrap_or_default(),
    });
    if controller {
        owner["controller"] = true.into();
        owner["blockOwnerDeletion"] = true.into();
    }
    owner
}

/// Satisfies Pod Security `restricted`.
pub(super) fn container_security(uid: i64) -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": uid,
        "runAsGroup": uid,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The volume with the token that says to the operator who speaks.
pub(super) fn identity_volume() -> Value {
    json!({
        "name": IDENTITY_VOLUME,
        "projected": {"sources": [{"serviceAccountToken": {
            "audience": TOKEN_AUDIENCE,
            "expirationSeconds": TOKEN_SECONDS,
            "path": "token",
        }}]},
    })
}

/// An environment variable that the kubelet fills from the pod.
pub(super) fn env_field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// Adds pull secrets that `list` does not name yet.
pub(super) fn add_pull_secrets(list: &mut Vec<Value>, secrets: &[SecretName]) {
    for secret in secrets {
        if !list.iter().any(|known| known["name"] == secret.name.as_str()) {
            list.push(json!({"name": secret.name}));
        }
    }
}

/// The list `object[key]`, made where it is absent or null.
///
/// Errors: something else stands there; `path` is the object's.
pub(super) fn list_mut<'a>(
    object: &'a mut Value,
    key: &str,
    path: &str,
) -> Result<&'a mut Vec<Value>, FieldError> {
    if object.get(key).is_none_or(Value::is_null) {
        object[key] = json!([]);
    }
    let found = object[key].to_string();
    object[key]
        .as_array_mut()
        .ok_or_else(|| FieldError::new(format!("{path}.{key}"), found, "write a list"))
}
