//! Names that this project writes on Kubernetes objects: labels, annotations, containers, ports, volumes; nothing else.

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "elastic-pool";
/// Audience of the projected tokens with which agents and gateways speak to the operator.
pub const TOKEN_AUDIENCE: &str = "elastic-pool";
/// Prefix of all labels and annotations of our own; a template must not use it.
pub const PREFIX: &str = "elasticpool.dev/";

/// Label: name of the PoolGroup that a worker belongs to.
pub const GROUP: &str = "elasticpool.dev/group";
/// Label: name of the Pool that an object belongs to.
pub const POOL: &str = "elasticpool.dev/pool";
/// Label: birth number of a worker, decimal.
pub const BIRTH: &str = "elasticpool.dev/birth";
/// Label: the group whose disruption budget counts this pod; taken off when it may be evicted at once.
pub const BUDGET: &str = "elasticpool.dev/budget";

/// Label: which part of us an object is; selectors use it, since templates cannot set it.
pub const COMPONENT: &str = "elasticpool.dev/component";
/// Value of [`COMPONENT`] and [`APP_COMPONENT`] on a worker's pod.
pub const WORKER: &str = "worker";
/// Value of [`COMPONENT`] and [`APP_COMPONENT`] on all of a pool's gateway.
pub const GATEWAY: &str = "gateway";

/// Annotation: hash of the template that a worker was made from.
pub const TEMPLATE_HASH: &str = "elasticpool.dev/template-hash";
/// Annotation: hash of the agent's container that a worker was made with.
pub const AGENT_HASH: &str = "elasticpool.dev/agent-hash";
/// Annotation: the spec of a worker's group when it was made, without the rest of its template; for a leader who comes
/// after the group was deleted.
pub const GROUP_SPEC: &str = "elasticpool.dev/group-spec";
/// Annotation of a Pool that was made because its groups named it: it goes with the last of them.
pub const IMPLICIT: &str = "elasticpool.dev/implicit";
/// Annotation of cluster-autoscaler; set on workers unless the template does.
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";
/// Annotation that tells kubectl which container is meant: on workers always the app's.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Kubernetes' recommended label: the application.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Kubernetes' recommended label: which installation of it.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// Kubernetes' recommended label: which part of it.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// Kubernetes' recommended label: the larger application.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// Kubernetes' recommended label: who looks after it.
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`APP_NAME`] and [`APP_MANAGED_BY`].
pub const NAME: &str = "elastic-pool";

/// Name of the agent's container; names that start with [`NAME`] are ours.
pub const AGENT_CONTAINER: &str = "elastic-pool-agent";
/// Name of the agent's traffic port (at most 15 characters).
pub const TRAFFIC_PORT_NAME: &str = "elastic-pool";
/// Name of the agent's peer port (at most 15 characters).
pub const PEER_PORT_NAME: &str = "elastic-peer";
/// Agent: gateway -> agent -> app.
pub const TRAFFIC_PORT: u16 = 15080;
/// Agent: probes, packages, preStop waits, metrics.
pub const PEER_PORT: u16 = 15081;
/// Agent: the app's calls, on loopback.
pub const LOOPBACK_PORT: u16 = 15082;
/// Volume with the app's token.
pub const TOKEN_VOLUME: &str = "elastic-pool-token";
/// Volume with the agent's fence.
pub const STATE_VOLUME: &str = "elastic-pool-state";
/// Volume with the projected service account token.
pub const IDENTITY_VOLUME: &str = "elastic-pool-identity";
/// Where [`TOKEN_VOLUME`] is mounted, in the app read-only.
pub const TOKEN_DIR: &str = "/var/run/elastic-pool";
/// Where [`STATE_VOLUME`] is mounted.
pub const STATE_DIR: &str = "/var/lib/elastic-pool";
/// User and group of the agent; no container of the template may run as it.
pub const AGENT_UID: i64 = 65533;
/// User and group of a gateway.
pub const GATEWAY_UID: i64 = 65532;
/// Where [`IDENTITY_VOLUME`] is mounted.
pub const IDENTITY_DIR: &str = "/var/run/secrets/elastic-pool";
/// Environment variable that tells the app where its token file is.
pub const TOKEN_FILE_ENV: &str = "POOL_TOKEN_FILE";

/// Gateway: traffic.
pub const GATEWAY_PORT: u16 = 8080;
/// Gateway: traffic by TLS, then instead of the other.
pub const GATEWAY_TLS_PORT: u16 = 8443;
/// Gateway and operator: metrics and probes.
pub const ADMIN_PORT: u16 = 9090;
/// Where the pool's Secret is mounted in a gateway.
pub const KEYS_DIR: &str = "/etc/elastic-pool/keys";

/// Key in the pool's Secret: the cookie's key, 64 hex digits.
pub const COOKIE_KEY: &str = "cookie-key";
/// Key in the pool's Secret: the cookie's previous key, while a rotation runs.
pub const COOKIE_KEY_PREVIOUS: &str = "cookie-key-previous";
/// Key in the pool's Secret: Pool-Hop is made with it.
pub const POOL_KEY: &str = "pool-key";
/// Key in the tickets' Secret: ownership tickets are made with it.
pub const TICKET_KEY: &str = "ticket-key";

/// Name of a pool's gateway: Deployment, ServiceAccount, PodDisruptionBudget and Secret. Its Service has the pool's.
pub fn gateway_name(pool: &str) -> String {
    format!("{pool}-gateway")
}

/// Name of the Secret with a pool's ticket key; only the operator reads it.
pub fn tickets_name(pool: &str) -> String {
    format!("{pool}-tickets")
}

/// Name of a group's disruption budget.
pub fn budget_name(group: &str) -> String {
    format!("{group}-workers")
}
