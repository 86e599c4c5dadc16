//! Which pods are ours, by UID: the channel asks it for the role of a peer; it never asks the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use elastic_pool_engine::ids::Birth;
use parking_lot::RwLock;

use crate::vehicle::ObjectKey;

/// The role of a pod, from its owner and never from what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// A worker of this group.
    Worker(ObjectKey, Birth),
    /// A gateway of this pool.
    Gateway(ObjectKey),
}

/// The roles of all known pods. Clones share one content.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    roles: Arc<RwLock<BTreeMap<String, Role>>>,
}

impl Roster {
    /// The role of the pod with this UID, in this namespace; `None` for a stranger, or before its watch event came.
    pub fn role(&self, namespace: &str, pod_uid: &str) -> Option<Role> {
        let roles = self.roles.read();
        let role = roles.get(pod_uid)?;
        let (Role::Worker(key, _) | Role::Gateway(key)) = role;
        (key.namespace == namespace).then(|| role.clone())
    }

    pub(crate) fn set(&self, pod_uid: &str, role: Role) {
        self.roles.write().insert(pod_uid.to_owned(), role);
    }

    pub(crate) fn remove(&self, pod_uid: &str) {
        self.roles.write().remove(pod_uid);
    }
}
