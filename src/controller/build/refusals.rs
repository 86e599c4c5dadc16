//! Refuses templates that no worker can be made from, by field; what the API server checks anyway it leaves alone.

use serde_json::Value;

use crate::api::PoolGroup;
use crate::api::labels::{
    AGENT_UID, LOOPBACK_PORT, NAME, PEER_PORT, PEER_PORT_NAME, PREFIX, TOKEN_DIR, TOKEN_FILE_ENV,
    TRAFFIC_PORT, TRAFFIC_PORT_NAME,
};
use crate::api::measures::FieldError;
use crate::api::resolve::AppTarget;

const POD: &str = "spec.template.spec";

/// The first thing in the template that stands in our way; `spec` is its pod spec as JSON.
pub(super) fn check(group: &PoolGroup, app: &AppTarget, spec: &Value) -> Result<(), FieldError> {
    check_pod(spec)?;
    check_metadata(group)?;
    for (kind, regular) in [("containers", true), ("initContainers", false)] {
        for (index, container) in items(spec, kind) {
            let path = format!("{POD}.{kind}[{index}]");
            check_container(container, &path)?;
            if regular && !container["lifecycle"]["preStop"].is_null() {
                return Err(FieldError::new(
                    format!("{path}.lifecycle.preStop"),
                    &container["lifecycle"]["preStop"],
                    "take it out: the agent's hook stands there, which keeps the app alive until its users have moved",
                ));
            }
        }
    }
    for (index, volume) in items(spec, "volumes") {
        ours("name", volume, &format!("{POD}.volumes[{index}]"))?;
    }
    check_app(group, app, spec)
}

fn items<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    object[key].as_array().into_iter().flatten().enumerate()
}

fn check_pod(spec: &Value) -> Result<(), FieldError> {
    let refuse = |field: &str, value: &Value, remedy: &str| {
        Err(FieldError::new(format!("{POD}.{field}"), value, remedy))
    };
    for field in ["hostNetwork", "hostPID"] {
        if spec[field] == true {
            return refuse(
                field,
                &spec[field],
                "take it out: workers of one node would meet each other's agents",
            );
        }
    }
    if spec["shareProcessNamespace"] == false {
        let remedy = "take it out: the agent measures the app's processes in the shared namespace";
        return refuse("shareProcessNamespace", &spec["shareProcessNamespace"], remedy);
    }
    let policy = &spec["restartPolicy"];
    if !policy.is_null() && policy != "Always" {
        return refuse("restartPolicy", policy, "write Always, or take it out");
    }
    if spec["os"]["name"] == "windows" {
        return refuse("os.name", &spec["os"]["name"], "write linux, or take it out");
    }
    let grace = &spec["terminationGracePeriodSeconds"];
    if !grace.is_null() && grace.as_u64().is_none_or(|seconds| seconds > 7 * 24 * 3600) {
        return refuse(
            "terminationGracePeriodSeconds",
            grace,
            "write whole seconds, at most a week",
        );
    }
    check_user(&spec["securityContext"], POD)
}

/// Who runs as the agent's user could read its memory and its files in the shared process namespace.
fn check_user(context: &Value, path: &str) -> Result<(), FieldError> {
    if context["runAsUser"] == AGENT_UID {
        return Err(FieldError::new(
            format!("{path}.securityContext.runAsUser"),
            AGENT_UID,
            "write another user: this one is the agent's",
        ));
    }
    Ok(())
}

fn check_metadata(group: &PoolGroup) -> Result<(), FieldError> {
    let metadata = &group.spec.template.metadata;
    for (kind, names) in [
        ("labels", &metadata.labels),
        ("annotations", &metadata.annotations),
    ] {
        if let Some((name, value)) = names.iter().find(|(name, _)| name.starts_with(PREFIX)) {
            return Err(FieldError::new(
                format!("spec.template.metadata.{kind}[{name}]"),
                value,
                format!("take it out: names that start with {PREFIX} are the operator's"),
            ));
        }
    }
    Ok(())
}

/// Refuses a name that starts like ours.
fn ours(key: &str, object: &Value, path: &str) -> Result<(), FieldError> {
    match object[key].as_str() {
        Some(name) if name.starts_with(NAME) => Err(FieldError::new(
            format!("{path}.{key}"),
            name,
            format!("write another name: those that start with {NAME} are the operator's"),
        )),
        _ => Ok(()),
    }
}

fn check_container(container: &Value, path: &str) -> Result<(), FieldError> {
    ours("name", container, path)?;
    check_user(&container["securityContext"], path)?;
    for (index, port) in items(container, "ports") {
        let path = format!("{path}.ports[{index}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name == TRAFFIC_PORT_NAME || name == PEER_PORT_NAME {
            return Err(FieldError::new(
                path + ".name",
                name,
                "write another name: this one is the agent's",
            ));
        }
        check_port(port["containerPort"].as_u64(), &(path + ".containerPort"))?;
    }
    Ok(())
}

fn check_port(port: Option<u64>, field: &str) -> Result<(), FieldError> {
    let agent = [TRAFFIC_PORT, PEER_PORT, LOOPBACK_PORT];
    match port {
        Some(port) if agent.iter().any(|own| u64::from(*own) == port) => Err(FieldError::new(
            field,
            port,
            format!("write another port: {TRAFFIC_PORT} to {LOOPBACK_PORT} are the agent's"),
        )),
        _ => Ok(()),
    }
}

fn check_app(group: &PoolGroup, app: &AppTarget, spec: &Value) -> Result<(), FieldError> {
    check_port(group.spec.app.port.map(u64::from), "spec.app.port")?;
    check_port(
        group.spec.app.contract_port.map(u64::from),
        "spec.app.contractPort",
    )?;
    let container = &spec["containers"][app.index];
    let path = format!("{POD}.containers[{}]", app.index);
    for (index, variable) in items(container, "env") {
        if variable["name"] == TOKEN_FILE_ENV {
            return Err(FieldError::new(
                format!("{path}.env[{index}].name"),
                TOKEN_FILE_ENV,
                "take it out: the operator sets it",
            ));
        }
    }
    for (index, mount) in items(container, "volumeMounts") {
        let at = mount["mountPath"]
            .as_str()
            .unwrap_or_default()
            .trim_end_matches('/');
        if at == TOKEN_DIR
            || at
                .strip_prefix(TOKEN_DIR)
                .is_some_and(|rest| rest.starts_with('/'))
        {
            return Err(FieldError::new(
                format!("{path}.volumeMounts[{index}].mountPath"),
                at,
                "write another path: the app's token is mounted here",
            ));
        }
    }
    Ok(())
}
