//! From a manifest to what the commander works with, every default filled in; it repeats the CRD's bounds, for runs without an API server.

use kube::ResourceExt;
use ring::digest;
use serde_json::{Value, json};

use super::measures::FieldError;
use super::pool_group::{self, App, AppProtocol, Contract, MovesMode, PoolGroup, StreamsPolicy, Users};
use super::template::{ContainerPort, TemplateContainer};
use super::{MAX_NAME, Pool, update};
use crate::credentials::hex_encode;
use crate::vehicle::{GroupSpec, ObjectKey};

/// Longest name of a snapshot format, in bytes.
const MAX_FORMAT: usize = 63;

/// How the agent reaches the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppTarget {
    /// Index of the app's container in the template.
    pub index: usize,
    /// Name of the app's container.
    pub container: String,
    /// The app's port.
    pub port: u16,
    /// It speaks HTTP/2 there.
    pub h2c: bool,
    /// The app may answer the worker contract.
    pub contract: bool,
    /// Port of the contract; the app's where the manifest names none.
    pub contract_port: u16,
}

/// The app's process for a run without Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalApp {
    /// Program and its arguments: the container's `command`, then its `args`.
    pub command: Vec<String>,
    /// Environment, in the manifest's order; `PORT` is the vehicle's to set.
    pub env: Vec<(String, String)>,
    /// Working directory, where the container names one.
    pub working_dir: Option<String>,
    /// How the agent would reach it in a pod; the vehicle replaces the port by a free one.
    pub target: AppTarget,
}

/// The group's namespace and name; `default` where the manifest names no namespace.
pub fn key(group: &PoolGroup) -> ObjectKey {
    ObjectKey {
        namespace: group.namespace().unwrap_or_else(|| "default".to_owned()),
        name: group.name_any(),
    }
}

/// The group's values with every default filled in.
///
/// `default_group`: the pool names this group, or it is the only one of its pool.
/// Errors: the first field that cannot be used (condition TemplateInvalid).
pub fn group_spec(group: &PoolGroup, default_group: bool) -> Result<GroupSpec, FieldError> {
    let key = key(group);
    let spec = &group.spec;
    check_name("metadata.name", &key.name)?;
    check_name("spec.pool", &spec.pool)?;
    check_numbers(group)?;
    let app = app_target(group)?;
    let container = &spec.template.spec.containers[app.index];
    let hold_timeout = pool_group::HOLD_TIMEOUT.read(&spec.moves.hold_timeout)?;
    let quiesce_timeout = pool_group::QUIESCE_TIMEOUT.read(&spec.moves.quiesce_timeout)?;
    if quiesce_timeout > hold_timeout {
        return Err(FieldError::new(
            pool_group::QUIESCE_TIMEOUT.field,
            &spec.moves.quiesce_timeout.0,
            format!(
                "write at most spec.moves.holdTimeout, {}",
                spec.moves.hold_timeout.0
            ),
        ));
    }
    let live_moves = spec.moves.mode == MovesMode::Live;
    Ok(GroupSpec {
        uid: group.uid().unwrap_or_default(),
        pool: ObjectKey {
            namespace: key.namespace.clone(),
            name: spec.pool.clone(),
        },
        version: spec.runtime.version.clone().unwrap_or_else(|| key.name.clone()),
        snapshot_format: snapshot_format(group)?,
        generation: group.metadata.generation.unwrap_or_default(),
        default_group,
        mode: spec.mode.into(),
        session_users: spec.users.map_or(!live_moves, |users| users == Users::Session),
        session_timeout: pool_group::SESSION_TIMEOUT.read(&spec.session_timeout)?,
        min: spec.workers.min,
        max: spec.workers.max,
        max_surge: spec.workers.max_surge,
        spawn_timeout: pool_group::SPAWN_TIMEOUT.read(&spec.workers.spawn_timeout)?,
        reception_threshold: f64::from(spec.thresholds.reception_percent) / 100.0,
        admission_threshold: f64::from(spec.thresholds.admission_percent) / 100.0,
        margin_workers: f64::from(spec.thresholds.compaction_margin_percent) / 100.0,
        smoothing_rows: spec.thresholds.smoothing_rows,
        memory_limit: memory_limit(group, container, app.index)?,
        cpu_capacity: cpu_capacity(group, container, app.index)?,
        interval: pool_group::INTERVAL.read(&spec.reports.interval)?,
        dead_timeout: pool_group::DEAD_TIMEOUT.read(&spec.reports.dead_timeout)?,
        live_moves,
        hold_timeout,
        quiesce_timeout,
        drain_timeout: pool_group::DRAIN_TIMEOUT.read(&spec.moves.drain_timeout)?,
        max_package: bytes(pool_group::MAX_PACKAGE.read(&spec.moves.max_package)?),
        parallelism: spec.moves.parallelism,
        close_streams: spec
            .moves
            .streams
            .policy
            .map_or(live_moves, |policy| policy == StreamsPolicy::Close),
        template_hash: template_hash(group),
        agent_hash: String::new(),
        update: spec.update_strategy.kind.into(),
        guest_timeout: update::GUEST_TIMEOUT.read(&spec.update_strategy.guest_timeout)?,
        key,
    })
}

/// Which group of a pool takes newcomers: the one that the pool names, else the first of `groups` by name.
///
/// `None`: there is no group, or the pool names one that does not exist.
pub fn default_group<'a>(pool: Option<&Pool>, groups: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    match pool.and_then(|pool| pool.spec.default_group.as_deref()) {
        Some(named) => groups.into_iter().find(|group| *group == named),
        None => groups.into_iter().min(),
    }
}

/// The format in which users are handed out; empty where the manifest names none.
fn snapshot_format(group: &PoolGroup) -> Result<String, FieldError> {
    let format = group.spec.runtime.snapshot_format.clone().unwrap_or_default();
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_./+".contains(&b);
    if format.len() <= MAX_FORMAT && format.bytes().all(fits) {
        return Ok(format);
    }
    let field = "spec.runtime.snapshotFormat";
    let remedy = format!("write at most {MAX_FORMAT} letters, digits, '-', '_', '.', '/' or '+'");
    Err(FieldError::new(field, format!("{format:?}"), remedy))
}

/// Checks a name that pods, labels and Services are named after.
fn check_name(field: &str, name: &str) -> Result<(), FieldError> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let good = (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good {
        return Ok(());
    }
    Err(FieldError::new(
        field,
        format!("{name:?}"),
        format!("write 1 to {MAX_NAME} lower-case letters, digits or '-', with no '-' at either end"),
    ))
}

/// The bounds that the CRD gives to whole numbers.
fn check_numbers(group: &PoolGroup) -> Result<(), FieldError> {
    let (workers, thresholds) = (&group.spec.workers, &group.spec.thresholds);
    let ranges = [
        ("spec.workers.min", workers.min, 1, 10_000),
        ("spec.workers.max", workers.max.unwrap_or(1), 1, 10_000),
        ("spec.workers.maxSurge", workers.max_surge, 0, 1000),
        (
            "spec.thresholds.receptionPercent",
            thresholds.reception_percent,
            1,
            100,
        ),
        (
            "spec.thresholds.admissionPercent",
            thresholds.admission_percent,
            1,
            100,
        ),
        (
            "spec.thresholds.compactionMarginPercent",
            thresholds.compaction_margin_percent,
            100,
            1000,
        ),
        ("spec.thresholds.smoothingRows", thresholds.smoothing_rows, 1, 60),
        ("spec.moves.parallelism", group.spec.moves.parallelism, 1, 1000),
    ];
    for (field, value, min, max) in ranges {
        if !(min..=max).contains(&value) {
            return Err(FieldError::new(field, value, format!("write {min} to {max}")));
        }
    }
    if let Some(max) = workers.max.filter(|max| *max < workers.min) {
        return Err(FieldError::new(
            "spec.workers.min",
            workers.min,
            format!("write at most spec.workers.max, {max}"),
        ));
    }
    if thresholds.reception_percent > thresholds.admission_percent {
        return Err(FieldError::new(
            "spec.thresholds.receptionPercent",
            thresholds.reception_percent,
            format!(
                "write at most spec.thresholds.admissionPercent, {}",
                thresholds.admission_percent
            ),
        ));
    }
    Ok(())
}

/// The app's container and ports.
///
/// Errors: no such container, or no port to choose.
pub fn app_target(group: &PoolGroup) -> Result<AppTarget, FieldError> {
    let app = &group.spec.app;
    let containers = &group.spec.template.spec.containers;
    let index = match &app.container {
        Some(name) => containers.iter().position(|c| c.name == *name).ok_or_else(|| {
            FieldError::new(
                "spec.app.container",
                name,
                format!("write one of {}", names(containers)),
            )
        })?,
        None => 0,
    };
    check_unique(containers)?;
    let container = containers
        .get(index)
        .ok_or_else(|| FieldError::absent("spec.template.spec.containers", "write at least one container"))?;
    let port = match app.port {
        Some(port) => port,
        None => choose_port(container)?,
    };
    Ok(AppTarget {
        index,
        container: container.name.clone(),
        port,
        h2c: app.protocol == AppProtocol::H2C,
        contract: app.contract == Contract::Auto,
        contract_port: app.contract_port.unwrap_or(port),
    })
}

fn check_unique(containers: &[TemplateContainer]) -> Result<(), FieldError> {
    for (at, container) in containers.iter().enumerate() {
        if containers[..at]
            .iter()
            .any(|earlier| earlier.name == container.name)
        {
            let field = format!("spec.template.spec.containers[{at}].name");
            return Err(FieldError::new(
                field,
                &container.name,
                "write another name: this one is taken",
            ));
        }
    }
    Ok(())
}

fn names(containers: &[TemplateContainer]) -> String {
    containers
        .iter()
        .map(|container| container.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn choose_port(container: &TemplateContainer) -> Result<u16, FieldError> {
    let named = |port: &&ContainerPort| port.name.as_deref() == Some("http");
    match (container.ports.iter().find(named), container.ports.as_slice()) {
        (Some(port), _) | (None, [port]) => Ok(port.container_port),
        (None, ports) => Err(FieldError::absent(
            "spec.app.port",
            format!(
                "container {} has {} ports: write spec.app.port, or name one of its ports http",
                container.name,
                ports.len()
            ),
        )),
    }
}

/// A limit of the app's container, with the path it stands at.
fn limit(
    container: &TemplateContainer,
    index: usize,
    resource: &str,
) -> Result<Option<(String, f64)>, FieldError> {
    let Some(text) = container.resources.as_ref().and_then(|r| r.limits.get(resource)) else {
        return Ok(None);
    };
    let field = format!("spec.template.spec.containers[{index}].resources.limits.{resource}");
    match text.parse() {
        Some(value) if value > 0.0 => Ok(Some((field, value))),
        _ => Err(FieldError::new(
            field,
            &text.0,
            "write a quantity above 0, such as 512Mi or 200m",
        )),
    }
}

fn memory_limit(
    group: &PoolGroup,
    container: &TemplateContainer,
    index: usize,
) -> Result<Option<u64>, FieldError> {
    if let Some(memory) = &group.spec.thresholds.memory {
        return Ok(Some(bytes(pool_group::MEMORY.read(memory)?)));
    }
    Ok(limit(container, index, "memory")?.map(|(_, value)| bytes(value)))
}

fn cpu_capacity(group: &PoolGroup, container: &TemplateContainer, index: usize) -> Result<f64, FieldError> {
    if let Some(cpu) = &group.spec.thresholds.cpu {
        return pool_group::CPU.read(cpu);
    }
    Ok(limit(container, index, "cpu")?.map_or(1.0, |(_, value)| value.min(1.0)))
}

/// Whole bytes of a checked quantity.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: 0 <= value < 2^64"
)]
fn bytes(value: f64) -> u64 {
    value.clamp(0.0, 9e18) as u64
}

/// Hash of all that a worker is made from: the template, and how its app is reached.
///
/// Fields of `spec.app` at their default do not count, so that a later version with more of them gives the same hash.
pub fn template_hash(group: &PoolGroup) -> String {
    let mut app = json!(group.spec.app);
    let defaults = json!(App::default());
    if let Some(fields) = app.as_object_mut() {
        fields.retain(|name, value| defaults.get(name) != Some(value));
    }
    hash(&json!({"template": group.spec.template, "app": app}))
}

/// Hash of a JSON value, whatever order its keys have.
pub fn hash(value: &Value) -> String {
    let mut text = String::new();
    write_sorted(value, &mut text);
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hex_encode(&hash.as_ref()[..8])
}

/// JSON with sorted keys, whatever order the map type keeps.
fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(name, _)| name.as_str());
            text.push('{');
            for (name, inner) in entries {
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_sorted(inner, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for inner in items {
                write_sorted(inner, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// The app's process for a run without Kubernetes.
///
/// Errors: no command, or an environment variable that only a cluster can give.
pub fn local_app(group: &PoolGroup) -> Result<LocalApp, FieldError> {
    let target = app_target(group)?;
    let container = &group.spec.template.spec.containers[target.index];
    let field = |name: &str| format!("spec.template.spec.containers[{}].{name}", target.index);
    let mut command = strings(container.rest.get("command"), &field("command"))?;
    if command.is_empty() {
        return Err(FieldError::absent(
            field("command"),
            "write the program and its arguments: a local run has no image",
        ));
    }
    command.extend(strings(container.rest.get("args"), &field("args"))?);
    let env = local_env(container.rest.get("env"), &field("env"))?;
    let working_dir = container
        .rest
        .get("workingDir")
        .and_then(Value::as_str)
        .map(str::to_owned);
    Ok(LocalApp {
        command,
        env,
        working_dir,
        target,
    })
}

fn strings(value: Option<&Value>, field: &str) -> Result<Vec<String>, FieldError> {
    let list = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value
            .as_array()
            .ok_or_else(|| FieldError::new(field, value, "write a list of strings"))?,
    };
    list.iter()
        .map(|item| match item.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(FieldError::new(
                field,
                item,
                "write a list of strings: put it in quotes",
            )),
        })
        .collect()
}

fn local_env(value: Option<&Value>, field: &str) -> Result<Vec<(String, String)>, FieldError> {
    let list = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(value) => value
            .as_array()
            .ok_or_else(|| FieldError::new(field, value, "write a list"))?,
    };
    let entry = |(index, item): (usize, &Value)| {
        let field = format!("{field}[{index}]");
        let Some(name) = item["name"]
            .as_str()
            .filter(|name| !name.is_empty() && !name.contains('='))
        else {
            return Err(FieldError::new(
                field + ".name",
                &item["name"],
                "write the variable's name",
            ));
        };
        if let Some(from) = item.get("valueFrom") {
            return Err(FieldError::new(
                field + ".valueFrom",
                from,
                "write a plain value: a local run has no cluster to ask",
            ));
        }
        match item.get("value") {
            None | Some(Value::Null) => Ok((name.to_owned(), String::new())),
            Some(Value::String(text)) => Ok((name.to_owned(), text.clone())),
            Some(other) => Err(FieldError::new(
                field + ".value",
                other,
                "write a string: put it in quotes",
            )),
        }
    };
    list.iter().enumerate().map(entry).collect()
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
