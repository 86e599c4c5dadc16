//! A worker's pod: the group's template and what we add to it; and the group's disruption budget.

use elastic_pool_engine::ids::Birth;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::OperatorEnv;
use super::refusals;
use super::shared::{
    add_pull_secrets, app_labels, container_security, env_field, group_owner, identity_volume, list_mut,
};
use crate::api::PoolGroup;
use crate::api::labels;
use crate::api::measures::FieldError;
use crate::api::pool_group::{DRAIN_TIMEOUT, MAX_PACKAGE};
use crate::api::remembered;
use crate::api::resolve::{self, AppTarget};

/// What Kubernetes gives a pod whose template says nothing.
const DEFAULT_GRACE_SECONDS: u64 = 30;
/// Time beyond drainTimeout for the app's own end and the agent's.
const GRACE_BEYOND_DRAIN_SECONDS: u64 = 15;
/// Where the agent answers the kubelet's preStop call: it returns once the worker is empty, or need not be.
const DRAINED_PATH: &str = "/drained";
const POD: &str = "spec.template.spec";

/// The pod of one worker, as JSON, for a create with strict field validation.
///
/// `name` is `<group>-<random>` and never used twice.
/// Errors: what the template may not have, or a field that cannot be used (condition TemplateInvalid).
pub fn worker_pod(
    group: &PoolGroup,
    birth: Birth,
    name: &str,
    env: &OperatorEnv,
) -> Result<Value, FieldError> {
    let app = resolve::app_target(group)?;
    let mut spec = serde_json::to_value(&group.spec.template.spec)
        .map_err(|error| FieldError::new(POD, error, "write a pod spec"))?;
    refusals::check(group, &app, &spec)?;
    let grace = grace_seconds(group, &spec)?;
    let agent = agent(group, &app, env, grace)?;
    let agent_hash = resolve::hash(&agent);
    spec["terminationGracePeriodSeconds"] = grace.into();
    spec["restartPolicy"] = "Always".into();
    spec["shareProcessNamespace"] = true.into();
    add_pull_secrets(list_mut(&mut spec, "imagePullSecrets", POD)?, &env.pull_secrets);
    // First, so that its startup probe holds back everything that may want the token.
    list_mut(&mut spec, "initContainers", POD)?.insert(0, agent);
    list_mut(&mut spec, "volumes", POD)?.extend([
        json!({"name": labels::TOKEN_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
        json!({"name": labels::STATE_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}),
        identity_volume(),
    ]);
    for container in list_mut(&mut spec, "containers", POD)? {
        if container.get("lifecycle").is_none_or(Value::is_null) {
            container["lifecycle"] = json!({});
        }
        // By number: a name would have to be a port of this container.
        container["lifecycle"]["preStop"] =
            json!({"httpGet": {"path": DRAINED_PATH, "port": labels::PEER_PORT, "scheme": "HTTP"}});
    }
    add_to_app(&mut spec["containers"][app.index], &app)?;
    if spec["imagePullSecrets"] == json!([]) {
        spec.as_object_mut().map(|spec| spec.remove("imagePullSecrets"));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(group, &app, birth, name, &agent_hash),
        "spec": spec,
    }))
}

/// Hash of the agent's container in the pods that this group's workers are made of now.
///
/// Errors: as for [`worker_pod`].
pub fn agent_hash(group: &PoolGroup, env: &OperatorEnv) -> Result<String, FieldError> {
    let app = resolve::app_target(group)?;
    let spec = serde_json::to_value(&group.spec.template.spec)
        .map_err(|error| FieldError::new(POD, error, "write a pod spec"))?;
    let grace = grace_seconds(group, &spec)?;
    Ok(resolve::hash(&agent(group, &app, env, grace)?))
}

/// The pod's grace: the template's, or what a drain takes.
fn grace_seconds(group: &PoolGroup, spec: &Value) -> Result<u64, FieldError> {
    let drain = DRAIN_TIMEOUT.read(&group.spec.moves.drain_timeout)?;
    let wanted = spec["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(DEFAULT_GRACE_SECONDS);
    Ok(wanted.max(drain.as_secs() + GRACE_BEYOND_DRAIN_SECONDS))
}

fn metadata(group: &PoolGroup, app: &AppTarget, birth: Birth, name: &str, agent_hash: &str) -> Value {
    let template = &group.spec.template.metadata;
    let (group_name, pool) = (group.name_any(), group.spec.pool.as_str());
    let text = |(name, value): (&String, &String)| (name.clone(), Value::from(value.as_str()));
    let mut pod_labels = app_labels(pool, &group_name, labels::WORKER, pool);
    pod_labels.extend(template.labels.iter().map(text));
    let ours = [
        (labels::COMPONENT, labels::WORKER.to_owned()),
        (labels::GROUP, group_name.clone()),
        (labels::POOL, pool.to_owned()),
        (labels::BIRTH, birth.to_string()),
        (labels::BUDGET, group_name),
    ];
    pod_labels.extend(ours.map(|(name, value)| (name.to_owned(), value.into())));
    let mut annotations = Map::from_iter([(labels::SAFE_TO_EVICT.to_owned(), "true".into())]);
    annotations.extend(template.annotations.iter().map(text));
    annotations.insert(
        labels::TEMPLATE_HASH.to_owned(),
        resolve::template_hash(group).into(),
    );
    annotations.insert(labels::AGENT_HASH.to_owned(), agent_hash.into());
    annotations.insert(labels::GROUP_SPEC.to_owned(), remembered::remember(group).into());
    annotations.insert(
        labels::DEFAULT_CONTAINER.to_owned(),
        app.container.as_str().into(),
    );
    json!({
        "name": name,
        "namespace": resolve::key(group).namespace,
        "labels": pod_labels,
        "annotations": annotations,
        "ownerReferences": [group_owner(group)],
    })
}

/// Where the app finds its token.
fn add_to_app(container: &mut Value, app: &AppTarget) -> Result<(), FieldError> {
    let path = format!("{POD}.containers[{}]", app.index);
    list_mut(container, "env", &path)?.push(json!({"name": labels::TOKEN_FILE_ENV, "value": token_file()}));
    list_mut(container, "volumeMounts", &path)?
        .push(json!({"name": labels::TOKEN_VOLUME, "mountPath": labels::TOKEN_DIR, "readOnly": true}));
    Ok(())
}

fn token_file() -> String {
    format!("{}/token", labels::TOKEN_DIR)
}

/// The agent's container: a native sidecar, so it starts before the app and ends after it.
fn agent(group: &PoolGroup, app: &AppTarget, env: &OperatorEnv, grace: u64) -> Result<Value, FieldError> {
    let spec = &group.spec.agent;
    let resources = match spec.resources.as_ref().or(env.agent_resources.as_ref()) {
        Some(resources) => json!(resources),
        None => agent_resources(group)?,
    };
    let probe = |path: &str, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": labels::PEER_PORT, "scheme": "HTTP"},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "failureThreshold": failures,
        })
    };
    // No livenessProbe: a restart of the agent cuts what it relays, and heals nothing that its own end would not.
    Ok(json!({
        "name": labels::AGENT_CONTAINER,
        "image": spec.image.as_ref().unwrap_or(&env.image),
        "imagePullPolicy": env.pull_policy,
        "restartPolicy": "Always",
        "args": agent_args(app, env, grace),
        "env": [
            env_field("POD_UID", "metadata.uid"),
            env_field("POD_NAME", "metadata.name"),
            env_field("POD_NAMESPACE", "metadata.namespace"),
            env_field("POD_IP", "status.podIP"),
        ],
        "ports": [
            {"name": labels::TRAFFIC_PORT_NAME, "containerPort": labels::TRAFFIC_PORT, "protocol": "TCP"},
            {"name": labels::PEER_PORT_NAME, "containerPort": labels::PEER_PORT, "protocol": "TCP"},
        ],
        "startupProbe": probe("/healthz", 120),
        "readinessProbe": probe("/readyz", 3),
        "resources": resources,
        "securityContext": container_security(labels::AGENT_UID),
        "volumeMounts": [
            {"name": labels::TOKEN_VOLUME, "mountPath": labels::TOKEN_DIR},
            {"name": labels::STATE_VOLUME, "mountPath": labels::STATE_DIR},
            {"name": labels::IDENTITY_VOLUME, "mountPath": labels::IDENTITY_DIR, "readOnly": true},
        ],
    }))
}

fn agent_args(app: &AppTarget, env: &OperatorEnv, grace: u64) -> Vec<String> {
    let mut args = vec!["agent".to_owned()];
    let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
    flag("channel", env.channel.clone());
    flag("token-file", format!("{}/token", labels::IDENTITY_DIR));
    flag("listen", format!("0.0.0.0:{}", labels::TRAFFIC_PORT));
    flag("peer-listen", format!("0.0.0.0:{}", labels::PEER_PORT));
    flag("loopback-listen", format!("127.0.0.1:{}", labels::LOOPBACK_PORT));
    flag("app-port", app.port.to_string());
    flag("app-token-file", token_file());
    // A folder below the mount: the mount itself belongs to root and everybody may write to it.
    flag("state-dir", format!("{}/agent", labels::STATE_DIR));
    if app.h2c {
        flag("app-protocol", "h2c".to_owned());
    }
    flag("contract", if app.contract { "auto" } else { "none" }.to_owned());
    if app.contract && app.contract_port != app.port {
        flag("contract-port", app.contract_port.to_string());
    }
    flag("app-container", app.container.clone());
    flag("drain-grace", grace.to_string());
    args
}

/// The agent holds packages and its memory volume in memory: the limit follows from what the group may move at once.
fn agent_resources(group: &PoolGroup) -> Result<Value, FieldError> {
    let package = MAX_PACKAGE.read(&group.spec.moves.max_package)? / f64::from(1 << 20);
    let mebibytes = 128.0 + (package * f64::from(group.spec.moves.parallelism)).ceil();
    Ok(json!({
        "requests": {"cpu": "20m", "memory": "24Mi"},
        "limits": {"memory": format!("{mebibytes:.0}Mi")},
    }))
}

/// The group's disruption budget: `min_available` labelled pods stay, so that evictions come one by one.
pub fn group_budget(group: &PoolGroup, min_available: u32) -> Value {
    let (name, pool) = (group.name_any(), group.spec.pool.as_str());
    let mut object_labels = app_labels(pool, &name, labels::WORKER, pool);
    object_labels.insert(labels::GROUP.to_owned(), name.as_str().into());
    object_labels.insert(labels::POOL.to_owned(), pool.into());
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": labels::budget_name(&name),
            "namespace": resolve::key(group).namespace,
            "labels": object_labels,
            "ownerReferences": [group_owner(group)],
        },
        "spec": {
            "minAvailable": min_available,
            "selector": {"matchLabels": {labels::BUDGET: name}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}
