//! The watches over everything that is observed, as one stream of events; it keeps nothing.

use std::fmt::Debug;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::shelf::Seen;
use crate::api::{Pool, PoolGroup, labels};

/// The server ends a watch after this many seconds; kube's watcher gives a silent one up 5 s later, so that a
/// connection which died without a word is noticed.
const WATCH_SECONDS: u32 = 240;

/// One event of one watch: its kind, its number among the watched namespaces.
#[derive(Debug)]
pub(crate) enum News {
    Group(usize, Seen<PoolGroup>),
    Pool(usize, Seen<Pool>),
    Worker(usize, Seen<Pod>),
    Gateway(usize, Seen<Pod>),
    Deployment(usize, Seen<Deployment>),
    Service(usize, Seen<Service>),
    Budget(usize, Seen<PodDisruptionBudget>),
    Node(usize, Seen<Node>),
    /// Nodes may not be read.
    NodesForbidden,
}

/// All watches over all watched namespaces, as one stream that never ends.
pub(crate) fn all(client: &Client, scopes: &[Option<String>]) -> SelectAll<BoxStream<'static, News>> {
    let ours = format!("{}={}", labels::APP_MANAGED_BY, labels::NAME);
    let gateways = format!("{}={}", labels::COMPONENT, labels::GATEWAY);
    let mut all = SelectAll::new();
    for (number, scope) in scopes.iter().map(Option::as_ref).enumerate() {
        all.push(watch(client, scope, "", number, News::Group));
        all.push(watch(client, scope, "", number, News::Pool));
        all.push(watch(client, scope, labels::BIRTH, number, News::Worker));
        all.push(watch(client, scope, &gateways, number, News::Gateway));
        all.push(watch(client, scope, &ours, number, News::Deployment));
        all.push(watch(client, scope, &ours, number, News::Service));
        all.push(watch(client, scope, &ours, number, News::Budget));
    }
    all.push(watch_nodes(client));
    all
}

/// Nodes are read where the operator may: without them workers are drained once their pods are told to stop.
fn watch_nodes(client: &Client) -> BoxStream<'static, News> {
    let api: Api<DeserializeGuard<Node>> = Api::all(client.clone());
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let events = watcher(api, config).default_backoff();
    let events = events.filter_map(|event| async move {
        match event {
            Ok(event) => Some(News::Node(0, event)),
            Err(error) if is_forbidden(&error) => Some(News::NodesForbidden),
            Err(error) => {
                tracing::warn!(kind = "Node", %error, "watch failed, it is tried again");
                None
            }
        }
    });
    events.boxed()
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => status.code == 403,
        _ => false,
    }
}

fn watch<K>(
    client: &Client,
    scope: Option<&String>,
    selector: &str,
    number: usize,
    wrap: fn(usize, Seen<K>) -> News,
) -> BoxStream<'static, News>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let api: Api<DeserializeGuard<K>> = match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
    if !selector.is_empty() {
        config = config.labels(selector);
    }
    let events = watcher(api, config).default_backoff();
    let events = events.filter_map(move |event| async move {
        match event {
            Ok(event) => Some(wrap(number, event)),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "watch failed, it is tried again");
                None
            }
        }
    });
    events.boxed()
}
