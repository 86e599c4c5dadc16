//! A pool's gateway: Deployment, Service, ServiceAccount, disruption budget, its Secrets; and the Pool that nobody wrote.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::OperatorEnv;
use super::shared::{
    add_pull_secrets, app_labels, container_security, env_field, group_co_owner, identity_volume, pool_owner,
};
use crate::api::labels::{
    self, ADMIN_PORT, COMPONENT, GATEWAY, GATEWAY_PORT, GATEWAY_TLS_PORT, GATEWAY_UID, IDENTITY_DIR,
    IDENTITY_VOLUME, IMPLICIT, KEYS_DIR, NAME, POOL,
};
use crate::api::pool::{IdentityFrom, Jwks, Secure};
use crate::api::{API_VERSION, Pool, PoolGroup};
use crate::credentials::Key;

/// Time that a gateway has to let its connections end.
const GRACE_SECONDS: u32 = 60;
const KEYS_VOLUME: &str = "keys";
const TLS_VOLUME: &str = "tls";
const TLS_DIR: &str = "/etc/elastic-pool/tls";
const JWKS_VOLUME: &str = "jwks";
const JWKS_DIR: &str = "/etc/elastic-pool/jwks";
/// Read by the file's group alone.
const KEYS_MODE: u32 = 0o440;

/// All of a pool's gateway but its Secrets, in the order in which they are applied.
pub fn gateway_objects(pool: &Pool, env: &OperatorEnv) -> Vec<Value> {
    vec![
        gateway_service_account(pool),
        gateway_service(pool),
        gateway_budget(pool),
        gateway_deployment(pool, env),
    ]
}

fn namespace(pool: &Pool) -> String {
    pool.namespace().unwrap_or_else(|| "default".to_owned())
}

fn object_labels(pool: &str) -> Map<String, Value> {
    let mut all = app_labels(NAME, pool, GATEWAY, pool);
    all.insert(POOL.to_owned(), pool.into());
    all.insert(COMPONENT.to_owned(), GATEWAY.into());
    all
}

/// Only names of our own: a template may carry any other label.
fn selector(pool: &str) -> Value {
    json!({POOL: pool, COMPONENT: GATEWAY})
}

fn metadata(pool: &Pool, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": namespace(pool),
        "labels": object_labels(&pool.name_any()),
        "ownerReferences": [pool_owner(pool)],
    })
}

/// The account that gateways speak under; it has no rights.
pub fn gateway_service_account(pool: &Pool) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(pool, &labels::gateway_name(&pool.name_any())),
        "automountServiceAccountToken": false,
    })
}

/// Port of the Service, its name, and the gateways' port behind it.
fn traffic(pool: &Pool) -> (u16, &'static str, u16) {
    match pool.spec.gateway.tls {
        Some(_) => (443, "https", GATEWAY_TLS_PORT),
        None => (80, "http", GATEWAY_PORT),
    }
}

/// Where clients of this pool connect, as host:port.
pub fn gateway_address(pool: &Pool) -> String {
    format!("{}.{}.svc:{}", pool.name_any(), namespace(pool), traffic(pool).0)
}

/// Where clients connect: port 80, or 443 with TLS, under the pool's name.
pub fn gateway_service(pool: &Pool) -> Value {
    let name = pool.name_any();
    let service = &pool.spec.gateway.service;
    let mut metadata = metadata(pool, &name);
    let (port, port_name, _) = traffic(pool);
    if !service.annotations.is_empty() {
        metadata["annotations"] = json!(service.annotations);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": service.kind.as_str(),
            "selector": selector(&name),
            "ports": [{"name": port_name, "port": port, "protocol": "TCP", "targetPort": port_name}],
        },
    })
}

/// Gateways leave one by one.
pub fn gateway_budget(pool: &Pool) -> Value {
    let name = pool.name_any();
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(pool, &labels::gateway_name(&name)),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(&name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    })
}

/// Over the nodes. The only such constraint: the scheduler ignores all of them on a node that lacks one's label, and
/// on many clusters no node names a zone.
fn spread(pool: &str) -> Value {
    json!({
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(pool)},
    })
}

/// In different zones, where there are some.
fn apart(pool: &str) -> Value {
    json!({
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "topology.kubernetes.io/zone",
            "labelSelector": {"matchLabels": selector(pool)},
        },
    })
}

/// The gateways.
pub fn gateway_deployment(pool: &Pool, env: &OperatorEnv) -> Value {
    let name = pool.name_any();
    let own = labels::gateway_name(&name);
    let mut pull_secrets = Vec::new();
    add_pull_secrets(&mut pull_secrets, &env.pull_secrets);
    add_pull_secrets(&mut pull_secrets, &pool.spec.gateway.image_pull_secrets);
    let mut pod = json!({
        "serviceAccountName": own,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": GATEWAY_UID,
            "runAsGroup": GATEWAY_UID,
            "fsGroup": GATEWAY_UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart(&name)]}},
        "topologySpreadConstraints": [spread(&name)],
        "containers": [container(pool, env)],
        "volumes": [
            {"name": KEYS_VOLUME, "secret": {"secretName": own, "defaultMode": KEYS_MODE}},
            identity_volume(),
        ],
    });
    if !pull_secrets.is_empty() {
        pod["imagePullSecrets"] = pull_secrets.into();
    }
    if let (Some(volume), Some(volumes)) = (jwks(pool).and_then(jwks_volume), pod["volumes"].as_array_mut()) {
        volumes.push(volume);
    }
    if let (Some(tls), Some(volumes)) = (&pool.spec.gateway.tls, pod["volumes"].as_array_mut()) {
        volumes.push(tls_volume(&tls.secret_name));
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(pool, &own),
        "spec": {
            "replicas": pool.spec.gateway.replicas,
            "selector": {"matchLabels": selector(&name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": object_labels(&name)}, "spec": pod},
        },
    })
}

fn container(pool: &Pool, env: &OperatorEnv) -> Value {
    let resources = pool
        .spec
        .gateway
        .resources
        .as_ref()
        .or(env.gateway_resources.as_ref());
    let probe = |path: &str, period: u32| {
        json!({
            "httpGet": {"path": path, "port": "admin", "scheme": "HTTP"},
            "periodSeconds": period,
            "timeoutSeconds": 2,
            "failureThreshold": 3,
        })
    };
    let mut mounts = vec![
        json!({"name": KEYS_VOLUME, "mountPath": KEYS_DIR, "readOnly": true}),
        json!({"name": IDENTITY_VOLUME, "mountPath": IDENTITY_DIR, "readOnly": true}),
    ];
    if jwks(pool).and_then(jwks_volume).is_some() {
        mounts.push(json!({"name": JWKS_VOLUME, "mountPath": JWKS_DIR, "readOnly": true}));
    }
    if pool.spec.gateway.tls.is_some() {
        mounts.push(json!({"name": TLS_VOLUME, "mountPath": TLS_DIR, "readOnly": true}));
    }
    let (_, port_name, port) = traffic(pool);
    json!({
        "name": GATEWAY,
        "image": env.image,
        "imagePullPolicy": env.pull_policy,
        "args": args(pool, env),
        "env": [env_field("POD_UID", "metadata.uid"), env_field("POD_NAME", "metadata.name")],
        "ports": [
            {"name": port_name, "containerPort": port, "protocol": "TCP"},
            {"name": "admin", "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": probe("/livez", 10),
        "readinessProbe": probe("/readyz", 1),
        "resources": resources.map_or_else(
            || json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}),
            |resources| json!(resources),
        ),
        "securityContext": container_security(GATEWAY_UID),
        "volumeMounts": mounts,
    })
}

fn args(pool: &Pool, env: &OperatorEnv) -> Vec<String> {
    let mut args = vec![GATEWAY.to_owned()];
    let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
    flag("pool", format!("{}/{}", namespace(pool), pool.name_any()));
    flag("channel", env.channel.clone());
    flag("token-file", format!("{IDENTITY_DIR}/token"));
    flag("secret-dir", KEYS_DIR.to_owned());
    flag("listen", format!("0.0.0.0:{}", traffic(pool).2));
    flag("admin-listen", format!("0.0.0.0:{ADMIN_PORT}"));
    flag("cookie-name", pool.spec.cookie.name.clone());
    let secure = match pool.spec.cookie.secure {
        Secure::Auto => "auto",
        Secure::Always => "always",
        Secure::Never => "never",
    };
    flag("cookie-secure", secure.to_owned());
    // Only what differs from the gateway's own defaults: a new operator restarts no gateway for a flag that says nothing.
    let cookie = &pool.spec.cookie;
    if cookie.same_site != crate::api::pool::SameSite::default() {
        flag("cookie-same-site", cookie.same_site.as_flag().to_owned());
    }
    if let Some(domain) = &cookie.domain {
        flag("cookie-domain", domain.clone());
    }
    if let Some(lifetime) = &cookie.lifetime {
        flag("cookie-lifetime", lifetime.0.clone());
    }
    if let Some(most) = pool.spec.gateway.max_body_bytes {
        flag("max-body", most.to_string());
    }
    if pool.spec.gateway.access_log {
        flag("access-log", "-".to_owned());
    }
    if pool.spec.gateway.tls.is_some() {
        flag("tls-dir", TLS_DIR.to_owned());
    }
    identity_args(pool, &mut flag);
    if !pool.spec.gateway.trusted_proxies.is_empty() {
        flag("trusted-proxies", pool.spec.gateway.trusted_proxies.join(","));
    }
    args
}

fn identity_args(pool: &Pool, flag: &mut impl FnMut(&str, String)) {
    let identity = &pool.spec.identity;
    match identity.from {
        IdentityFrom::Cookie => {}
        IdentityFrom::Header => {
            if let Some(name) = &identity.name {
                flag("identity-header", name.clone());
            }
        }
        IdentityFrom::JWT => {
            let Some(jwks) = jwks(pool) else { return };
            let claim = identity.name.clone().unwrap_or_else(|| "sub".to_owned());
            flag("identity-claim", claim);
            match &jwks.url {
                None => flag("identity-jwks", format!("{JWKS_DIR}/jwks")),
                Some(url) => flag("identity-jwks-url", url.clone()),
            }
            if jwks.ca_secret_name.is_some() {
                flag("identity-jwks-ca", format!("{JWKS_DIR}/ca.crt"));
            }
            if jwks.allow_http == Some(true) {
                flag("identity-jwks-allow-http", "true".to_owned());
            }
            if let Some(issuer) = &identity.issuer {
                flag("identity-issuer", issuer.clone());
            }
            if let Some(audience) = &identity.audience {
                flag("identity-audience", audience.clone());
            }
        }
    }
}

/// The key set that gateways read, when tokens tell clients apart.
fn jwks(pool: &Pool) -> Option<&Jwks> {
    let identity = &pool.spec.identity;
    identity
        .jwks
        .as_ref()
        .filter(|_| identity.from == IdentityFrom::JWT)
}

/// Optional: a gateway without its certificate starts, is not ready, and says why.
fn tls_volume(secret: &str) -> Value {
    let items = json!([{"key": "tls.crt", "path": "tls.crt"}, {"key": "tls.key", "path": "tls.key"}]);
    let source = json!({"secretName": secret, "items": items, "optional": true, "defaultMode": KEYS_MODE});
    json!({"name": TLS_VOLUME, "secret": source})
}

/// The keys themselves, or the authorities that are believed where they are fetched.
fn jwks_volume(jwks: &Jwks) -> Option<Value> {
    let item = |key: &str, path: &str| json!([{"key": key, "path": path}]);
    let source = match (jwks, jwks.key.as_deref()) {
        (
            Jwks {
                secret_name: Some(name),
                ..
            },
            Some(key),
        ) => {
            json!({"secret": {"secretName": name, "items": item(key, "jwks"), "defaultMode": KEYS_MODE}})
        }
        (
            Jwks {
                config_map_name: Some(name),
                ..
            },
            Some(key),
        ) => {
            json!({"configMap": {"name": name, "items": item(key, "jwks")}})
        }
        (
            Jwks {
                ca_secret_name: Some(name),
                ..
            },
            _,
        ) => {
            // Optional: a gateway without it starts, and says at each fetch what is missing.
            json!({"secret": {"secretName": name, "items": item("ca.crt", "ca.crt"), "optional": true, "defaultMode": KEYS_MODE}})
        }
        _ => return None,
    };
    let mut volume = source;
    volume["name"] = JWKS_VOLUME.into();
    Some(volume)
}

/// The keys of a pool, made once.
#[derive(Debug, Clone)]
pub struct PoolSecrets {
    /// Seals the cookie.
    pub cookie: Key,
    /// Opens cookies that the key before sealed, while a rotation runs.
    pub cookie_previous: Option<Key>,
    /// Pool-Hop is made with it.
    pub pool: Key,
    /// Tickets are made with it; no gateway has it.
    pub ticket: Key,
}

/// The Secret that gateways mount: cookie and hop keys.
pub fn gateway_secret(pool: &Pool, keys: &PoolSecrets) -> Value {
    let mut data = vec![(labels::COOKIE_KEY, &keys.cookie), (labels::POOL_KEY, &keys.pool)];
    data.extend(
        keys.cookie_previous
            .iter()
            .map(|key| (labels::COOKIE_KEY_PREVIOUS, key)),
    );
    secret(pool, &labels::gateway_name(&pool.name_any()), &data)
}

/// The Secret that the operator alone reads: the ticket key.
pub fn tickets_secret(pool: &Pool, keys: &PoolSecrets) -> Value {
    secret(
        pool,
        &labels::tickets_name(&pool.name_any()),
        &[(labels::TICKET_KEY, &keys.ticket)],
    )
}

fn secret(pool: &Pool, name: &str, keys: &[(&str, &Key)]) -> Value {
    let data: Map<String, Value> = keys
        .iter()
        .map(|(name, key)| ((*name).to_owned(), STANDARD.encode(key.to_hex()).into()))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(pool, name),
        "type": "Opaque",
        "data": data,
    })
}

/// The Pool of groups that name one which nobody wrote: all defaults, gone with the last of `groups`.
///
/// `None`: no group, or groups of several pools or namespaces.
pub fn implicit_pool(groups: &[&PoolGroup]) -> Option<Value> {
    let first = groups.first()?;
    let (name, namespace) = (&first.spec.pool, first.namespace());
    if groups
        .iter()
        .any(|group| group.spec.pool != *name || group.namespace() != namespace)
    {
        return None;
    }
    let mut labels = app_labels(NAME, name, "pool", name);
    labels.insert(POOL.to_owned(), name.as_str().into());
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": "Pool",
        "metadata": {
            "name": name,
            "namespace": namespace.unwrap_or_else(|| "default".to_owned()),
            "labels": labels,
            "annotations": {IMPLICIT: "true"},
            "ownerReferences": groups.iter().map(|group| group_co_owner(group)).collect::<Vec<_>>(),
        },
        "spec": {"class": first.spec.class},
    }))
}
