//! Pool: the groups that serve one application behind one gateway; types only.

#![allow(
    clippy::duplicated_attributes,
    reason = "several printer columns have one type"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::measures::{DurationBounds, DurationText};
use super::status::Condition;
use super::template::Resources;

/// Bounds of `spec.cookie.lifetime`.
pub const COOKIE_LIFETIME: DurationBounds = DurationBounds {
    field: "spec.cookie.lifetime",
    min: "1m",
    max: "9600h",
};

fn cookie_rules() -> Value {
    json!([{
        "rule": "self.sameSite != 'None' || self.secure != 'Never'",
        "message": "spec.cookie.sameSite is None and spec.cookie.secure is Never: browsers take that from Secure cookies only; write secure: Auto or Always",
    }])
}

fn identity_rules() -> Value {
    json!([
        {
            "rule": "self.from != 'Header' || has(self.name)",
            "message": "spec.identity.name is not set: name the header that tells clients apart, such as X-Api-User",
        },
        {
            "rule": "self.from != 'Header' || !has(self.name) || !self.name.matches('(?i)^(pool[-_].*|host|cookie|connection|content-length|transfer-encoding)$')",
            "message": "spec.identity.name is a header that says something else already: name one of your own, such as X-Api-User",
        },
        {
            "rule": "self.from != 'JWT' || has(self.jwks)",
            "message": "spec.identity.jwks is not set: say where the keys are, as {url}, {secretName, key} or {configMapName, key}",
        },
        {
            "rule": "self.from == 'JWT' || (!has(self.jwks) && !has(self.issuer) && !has(self.audience))",
            "message": "spec.identity.from is not JWT: take jwks, issuer and audience out, or write from: JWT",
        },
    ])
}

fn jwks_rules() -> Value {
    json!([
        {
            "rule": "[has(self.url), has(self.secretName), has(self.configMapName)].filter(said, said).size() == 1",
            "message": "spec.identity.jwks: write exactly one of url, secretName and configMapName",
        },
        {
            "rule": "has(self.url) != has(self.key)",
            "message": "spec.identity.jwks.key: write it beside secretName or configMapName, and not beside url",
        },
        {
            "rule": "has(self.url) || (!has(self.caSecretName) && !has(self.allowHttp))",
            "message": "spec.identity.jwks.caSecretName, spec.identity.jwks.allowHttp: write them beside url alone",
        },
        {
            "rule": "!has(self.url) || self.url.startsWith('https://') || (has(self.allowHttp) && self.allowHttp)",
            "message": "spec.identity.jwks.url is not https: write https://, or allowHttp: true where nobody else can answer",
        },
    ])
}

/// What the gateway of an application is like. A group whose pool does not exist gets one with defaults.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "elasticpool.dev",
    version = "v1alpha1",
    kind = "Pool",
    plural = "pools",
    namespaced,
    status = "PoolStatus",
    derive = "PartialEq",
    category = "elasticpool",
    doc = "A Pool is one application: its groups share one gateway.",
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyGateways",
        description = "gateways that serve"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".spec.gateway.replicas",
        description = "gateways wanted"
    ),
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".status.address",
        description = "where clients connect"
    ),
    printcolumn(
        name = "Default-Group",
        type_ = "string",
        json_path = ".spec.defaultGroup",
        description = "takes newcomers",
        priority = "1"
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.class",
        description = "operator that serves it",
        priority = "1"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSpec {
    /// Which operator serves it; immutable.
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = super::pool_group::immutable("spec.class"))
    )]
    pub class: String,
    /// The pods that clients talk to.
    pub gateway: Gateway,
    /// The cookie that keeps a client at its worker.
    pub cookie: Cookie,
    /// What keeps API clients, which keep no cookies, at their workers.
    pub identity: Identity,
    /// Group that takes newcomers; absent, the oldest that is not evacuated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 50))]
    pub default_group: Option<String>,
}

impl Default for PoolSpec {
    fn default() -> Self {
        Self {
            class: super::DEFAULT_CLASS.to_owned(),
            gateway: Gateway::default(),
            cookie: Cookie::default(),
            identity: Identity::default(),
            default_group: None,
        }
    }
}

/// The gateway's Deployment and Service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// Gateway pods; 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub replicas: u32,
    /// The Service in front of them.
    pub service: GatewayService,
    /// Resources of a gateway's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Secrets that the image is pulled with, besides the operator's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<SecretName>,
    /// TLS from clients, HTTP/1.1 and HTTP/2: the Service then offers port 443 instead of 80.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<GatewayTls>,
    /// Networks (CIDR) of proxies whose X-Forwarded-* headers are believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"), inner(length(min = 2, max = 43)))]
    pub trusted_proxies: Vec<String>,
    /// One line of JSON per request on the gateways' standard output.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub access_log: bool,
    /// Bytes of a request's body; longer ones are answered with 413. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_099_511_627_776_u64))]
    pub max_body_bytes: Option<u64>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            replicas: 2,
            service: GatewayService::default(),
            resources: None,
            image_pull_secrets: Vec::new(),
            tls: None,
            trusted_proxies: Vec::new(),
            access_log: false,
            max_body_bytes: None,
        }
    }
}

/// The certificate of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayTls {
    /// A Secret of type kubernetes.io/tls in the pool's namespace: tls.crt (the chain) and tls.key. It may be renewed at
    /// any time; until it holds a usable pair no gateway is ready.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")
    )]
    pub secret_name: String,
}

/// A Secret in the pool's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The Service of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayService {
    /// How it is reached.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// Annotations, for load balancers and the like.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// `type` of a Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Inside the cluster.
    #[default]
    ClusterIP,
    /// A port on every node.
    NodePort,
    /// A load balancer of the cluster's provider.
    LoadBalancer,
}

impl ServiceType {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// The cookie that keeps a client at its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = cookie_rules()))]
pub struct Cookie {
    /// Its name; with the prefix __Host- where it is Secure.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// Domain whose hosts share it; absent: the one host that set it. With a domain a Secure cookie has the prefix
    /// __Secure- instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$"
        )
    )]
    pub domain: Option<String>,
    /// After this time a browser forgets it, whether used or not; absent: when it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = COOKIE_LIFETIME.rules()))]
    pub lifetime: Option<DurationText>,
    /// SameSite attribute.
    pub same_site: SameSite,
    /// Secure attribute. Auto: where the gateway speaks TLS, or a trusted proxy says that the client came by https.
    pub secure: Secure,
}

impl Default for Cookie {
    fn default() -> Self {
        Self {
            name: "pool-affinity".to_owned(),
            domain: None,
            lifetime: None,
            same_site: SameSite::default(),
            secure: Secure::default(),
        }
    }
}

/// SameSite attribute of a cookie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SameSite {
    /// Sent along on navigation from other sites.
    #[default]
    Lax,
    /// Never sent along from other sites.
    Strict,
    /// Always sent along, as inside other sites' frames; Lax where the cookie is not Secure.
    None,
}

impl SameSite {
    /// As the gateway's flag says it.
    pub fn as_flag(self) -> &'static str {
        match self {
            Self::Lax => "lax",
            Self::Strict => "strict",
            Self::None => "none",
        }
    }
}

/// What tells API clients apart. It routes and never authenticates: the app keeps checking who somebody is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = identity_rules()))]
pub struct Identity {
    /// Where it stands. A request without it is told apart by its cookie.
    pub from: IdentityFrom,
    /// Name of the header, or of the token's claim; sub where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128), regex(pattern = "^[A-Za-z0-9_.:/-]+$"))]
    pub name: Option<String>,
    /// Keys that tokens are signed with (RS256, ES256, EdDSA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks: Option<Jwks>,
    /// Wanted iss of a token; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub issuer: Option<String>,
    /// Wanted aud of a token; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub audience: Option<String>,
}

/// Where an identity stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityFrom {
    /// In the gateway's own cookie alone.
    #[default]
    Cookie,
    /// In a header; who sends it is believed.
    Header,
    /// In a claim of a bearer token, once its signature and its times are right.
    JWT,
}

/// A JSON Web Key Set: at a URL, or in the pool's namespace; it may change at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = jwks_rules()))]
pub struct Jwks {
    /// Where it is published; https. Gateways fetch it every 5 min, and at most every 30 s when a token names a key that is
    /// not there; the last one stays while it cannot be had. Redirects are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 9, max = 2048),
        regex(pattern = "^https?://[^/@?#\\s]+(/[^#\\s]*)?$")
    )]
    pub url: Option<String>,
    /// A Secret whose ca.crt holds the authorities that are believed at the URL; absent: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ca_secret_name: Option<String>,
    /// Take it by http too: whoever is in between may then say who anybody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_http: Option<bool>,
    /// A Secret that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// A ConfigMap that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map_name: Option<String>,
    /// Its key there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._A-Za-z0-9]+$"))]
    pub key: Option<String>,
}

/// When a cookie is Secure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Secure {
    /// Where the gateway speaks TLS, or a trusted proxy says that the client came by https.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the operator knows of a pool's gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// Generation of the manifest that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Gateways that serve.
    pub ready_gateways: u32,
    /// Where clients connect, as host:port.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 300))]
    pub address: String,
    /// Conditions by type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
