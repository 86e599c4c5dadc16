//! What stands in for Kubernetes: a lease with compare-and-swap, pods with their facts, who shows which token.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::channel::gateway_account;
use elastic_pool::channel::server::{AuthError, Authenticator, PeerIdentity};
use elastic_pool::credentials::Key;
use elastic_pool::engine::UpdateType;
use elastic_pool::engine::ids::Birth;
use elastic_pool::vehicle::{GroupSpec, Mode, ObjectKey, PoolKeys, WorkerFact};
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::world::{AGENT_PEER, AGENT_PORT, OPERATORS, Shared};

/// A lease that was not renewed for so long may be taken; its holder gives up earlier.
pub(crate) const LEASE: Duration = Duration::from_millis(2500);
pub(crate) const RENEWED_EVERY: Duration = Duration::from_millis(400);
pub(crate) const GIVEN_UP_AFTER: Duration = Duration::from_millis(1800);

#[derive(Debug, Default, Clone)]
pub(crate) struct Lease {
    pub(crate) holder: String,
    pub(crate) address: String,
    pub(crate) term: u64,
    /// Changes with every write.
    pub(crate) version: u64,
}

#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) fact: WorkerFact,
    pub(crate) host: Ipv4Addr,
    /// Milliseconds at which its containers start.
    pub(crate) starts: u64,
    /// Name of the present app process.
    pub(crate) app: String,
    pub(crate) apps: u32,
    /// preStop came back, or the grace period is over.
    pub(crate) stopped: bool,
    pub(crate) asked_to_drain: bool,
}

/// The API server's content.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) lease: Lease,
    pub(crate) pods: BTreeMap<Birth, Pod>,
    pub(crate) made: BTreeSet<Birth>,
    /// Operators that do not reach the API server.
    pub(crate) cut: BTreeSet<String>,
    /// Names of the operators' present processes.
    pub(crate) present: [String; OPERATORS],
    pub(crate) keys: PoolKeys,
    pub(crate) cookie_key: Key,
    pub(crate) spec: GroupSpec,
    hosts: u8,
}

pub(crate) fn pool() -> ObjectKey {
    ObjectKey {
        namespace: "sim".into(),
        name: "shop".into(),
    }
}

fn spec(min: u32) -> GroupSpec {
    GroupSpec {
        key: ObjectKey {
            namespace: "sim".into(),
            name: "blue".into(),
        },
        uid: "group".into(),
        pool: pool(),
        version: "blue".into(),
        snapshot_format: String::new(),
        generation: 1,
        default_group: true,
        mode: Mode::Active,
        session_users: false,
        session_timeout: Duration::from_mins(30),
        min,
        max: Some(4),
        max_surge: 1,
        spawn_timeout: Duration::from_secs(30),
        reception_threshold: 0.5,
        admission_threshold: 0.8,
        margin_workers: 1.5,
        smoothing_rows: 2,
        memory_limit: None,
        cpu_capacity: 1.0,
        interval: Duration::from_millis(500),
        dead_timeout: Duration::from_mins(2),
        live_moves: true,
        hold_timeout: Duration::from_secs(4),
        quiesce_timeout: Duration::from_secs(1),
        drain_timeout: Duration::from_secs(20),
        max_package: 1 << 16,
        parallelism: 2,
        close_streams: true,
        template_hash: "t1".into(),
        agent_hash: String::new(),
        update: UpdateType::Move,
        guest_timeout: Duration::from_secs(5),
    }
}

impl Cluster {
    pub(crate) fn new(min: u32) -> Self {
        let key = |byte: u8| Key::from_hex(&format!("{byte:02x}").repeat(32)).expect("64 hex digits");
        Self {
            lease: Lease::default(),
            pods: BTreeMap::new(),
            made: BTreeSet::new(),
            cut: BTreeSet::new(),
            present: Default::default(),
            keys: PoolKeys {
                pool: key(0x11),
                ticket: key(0x22),
            },
            cookie_key: key(0x33),
            spec: spec(min),
            hosts: 0,
        }
    }

    /// Renews or takes the lease if it is still as `seen`: the term under which `holder` leads now.
    pub(crate) fn swap(&mut self, seen: u64, holder: &str, address: &str, term: u64) -> bool {
        if self.lease.version != seen {
            return false;
        }
        self.lease = Lease {
            holder: holder.into(),
            address: address.into(),
            term,
            version: seen + 1,
        };
        true
    }

    /// Each birth is made once.
    pub(crate) fn make(&mut self, birth: Birth, starts: u64) {
        if !self.made.insert(birth) {
            return;
        }
        self.hosts += 1;
        let host = Ipv4Addr::new(10, 0, 2, self.hosts);
        let name = format!("blue-{}", self.hosts);
        let address = |port| SocketAddr::new(IpAddr::V4(host), port).to_string();
        let fact = WorkerFact {
            birth,
            group: self.spec.key.clone(),
            pod_uid: format!("uid-{}", self.hosts),
            ready: false,
            address: address(AGENT_PORT),
            peer: address(AGENT_PEER),
            terminating: false,
            finished: false,
            app_container_id: format!("{name}.1"),
            app_restarts: 0,
            failure: None,
            template_hash: self.spec.template_hash.clone(),
            agent_hash: String::new(),
            must_go: false,
            name: name.clone(),
        };
        let pod = Pod {
            fact,
            host,
            starts,
            app: format!("{name}.1"),
            apps: 1,
            stopped: false,
            asked_to_drain: false,
        };
        self.pods.insert(birth, pod);
    }

    /// Deletes a pod, if it is this one: its processes get their grace.
    pub(crate) fn delete(&mut self, birth: Birth, uid: &str) -> Option<String> {
        let pod = self
            .pods
            .get_mut(&birth)
            .filter(|pod| pod.fact.pod_uid == uid && !pod.fact.terminating)?;
        pod.fact.terminating = true;
        Some(pod.app.clone())
    }
}

/// Says who shows which token, as a TokenReview and the roster do.
pub(crate) struct Tokens(pub(crate) Arc<Shared>);

impl Authenticator for Tokens {
    fn authenticate<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<PeerIdentity, AuthError>> {
        let known = self.identity(token).ok_or(AuthError::Refused);
        async move { known }.boxed()
    }
}

impl Tokens {
    fn identity(&self, token: &str) -> Option<PeerIdentity> {
        let identity = |name: &str, uid: &str, account: String| PeerIdentity {
            namespace: "sim".into(),
            pod_name: name.into(),
            pod_uid: uid.into(),
            service_account: account,
        };
        if token.starts_with("gateway-") {
            return Some(identity(token, token, gateway_account("shop")));
        }
        let cluster = self.0.cluster.lock();
        let pod = cluster.pods.values().find(|pod| pod.fact.pod_uid == token)?;
        Some(identity(&pod.fact.name, token, String::new()))
    }
}
