//! The pod template of a PoolGroup: what is read of it is typed, the rest is kept as it comes; types only.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::measures::Quantity;

/// A pod template. Metadata and the containers' name, image, ports and resources are typed here; the rest of
/// the pod spec is passed on as it is and checked by the API server before any worker is touched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Labels and annotations of the workers' pods.
    #[serde(default)]
    pub metadata: TemplateMetadata,
    /// A PodSpec.
    pub spec: TemplatePod,
}

/// Labels and annotations of the workers' pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Labels; the prefix elasticpool.dev/ is the operator's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Annotations; the prefix elasticpool.dev/ is the operator's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// A PodSpec, of which only the containers are read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplatePod {
    /// The containers; the app is the first unless spec.app.container names another.
    #[schemars(
        length(min = 1, max = 32),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub containers: Vec<TemplateContainer>,
    /// Everything else of the PodSpec, as it comes.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A container, of which only these fields are read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateContainer {
    /// Name, unique in the pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ContainerPort>,
    /// Requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Everything else of the container, as it comes.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A port of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    /// Name; the app's port is the one named http, or the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 15))]
    pub name: Option<String>,
    /// Number, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: u16,
    /// TCP, UDP or SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8))]
    pub protocol: Option<String>,
    /// Port on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub host_port: Option<u16>,
    /// Address on the node.
    #[serde(default, rename = "hostIP", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub host_ip: Option<String>,
}

/// Requests and limits of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// At most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub limits: BTreeMap<String, Quantity>,
    /// At least.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: BTreeMap<String, Quantity>,
    /// Claims of spec.resourceClaims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub claims: Vec<ResourceClaim>,
}

/// Names a claim of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceClaim {
    /// The claim's name in spec.resourceClaims.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// One request of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub request: Option<String>,
}
