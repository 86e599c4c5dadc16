//! Pool: the groups that serve one application behind one gateway; types only.

#![allow(
    clippy::duplicated_attributes,
    reason = "several printer columns have one type"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::Condition;
use super::template::Resources;

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
    /// Group that takes newcomers; with one group in the pool, that one.
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
    /// Networks (CIDR) of proxies whose X-Forwarded-* headers are believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"), inner(length(min = 2, max = 43)))]
    pub trusted_proxies: Vec<String>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            replicas: 2,
            service: GatewayService::default(),
            resources: None,
            image_pull_secrets: Vec::new(),
            trusted_proxies: Vec::new(),
        }
    }
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
pub struct Cookie {
    /// Its name; with the prefix __Host- where it is Secure.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// SameSite attribute.
    pub same_site: SameSite,
    /// Secure attribute. Auto: where a trusted proxy says that the client came by https.
    pub secure: Secure,
}

impl Default for Cookie {
    fn default() -> Self {
        Self {
            name: "pool-affinity".to_owned(),
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
}

/// When a cookie is Secure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Secure {
    /// Where a trusted proxy says that the client came by https.
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
