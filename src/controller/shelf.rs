//! A copy of the objects of one kind, kept by watch events; it never asks the server itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::DeserializeGuard;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::vehicle::ObjectKey;

/// An event whose object may be one that cannot be read.
pub(crate) type Seen<K> = Event<DeserializeGuard<K>>;

/// Objects by namespace and name. One shelf is fed by one watch per watched namespace, or by one for all of them.
#[derive(Debug)]
pub(crate) struct Shelf<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    listing: BTreeMap<usize, BTreeSet<ObjectKey>>,
    listed: BTreeSet<usize>,
    scopes: Vec<Option<String>>,
}

impl<K: Resource<DynamicType = ()>> Shelf<K> {
    /// An empty shelf; watch number `n` covers the namespace `scopes[n]`, or all where that is `None`.
    pub(crate) fn new(scopes: Vec<Option<String>>) -> Self {
        Self {
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            listed: BTreeSet::new(),
            scopes,
        }
    }

    /// Takes one event of watch number `watch` in and returns the keys of the objects that it touched. What was
    /// known of an object that cannot be read stays.
    pub(crate) fn take(&mut self, watch: usize, event: Seen<K>) -> Vec<ObjectKey> {
        match event {
            Event::Init => {
                self.listing.insert(watch, BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                let key = key_of(&object);
                self.listing.entry(watch).or_default().insert(key.clone());
                self.put(key, object)
            }
            Event::InitDone => self.finish(watch),
            Event::Apply(object) => self.put(key_of(&object), object),
            Event::Delete(object) => {
                let key = key_of(&object);
                if self.objects.remove(&key).is_some() {
                    vec![key]
                } else {
                    Vec::new()
                }
            }
        }
    }

    fn put(&mut self, key: ObjectKey, object: DeserializeGuard<K>) -> Vec<ObjectKey> {
        let mut object = match object.0 {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(object = %key, %error, "an object cannot be read, it is left alone");
                return Vec::new();
            }
        };
        // Who set what is asked of Pools alone, and it is the larger part of many objects.
        if K::kind(&()) != "Pool" {
            object.meta_mut().managed_fields = None;
        }
        let same =
            |old: &Arc<K>| old.resource_version() == object.resource_version() && old.uid() == object.uid();
        if object.resource_version().is_some() && self.objects.get(&key).is_some_and(same) {
            return Vec::new();
        }
        self.objects.insert(key.clone(), Arc::new(object));
        vec![key]
    }

    /// After a full list: what was not in it went while nobody watched.
    fn finish(&mut self, watch: usize) -> Vec<ObjectKey> {
        self.listed.insert(watch);
        let seen = self.listing.remove(&watch).unwrap_or_default();
        let scope = self.scopes.get(watch).cloned().flatten();
        let covered = |key: &ObjectKey| scope.as_ref().is_none_or(|scope| *scope == key.namespace);
        let gone: Vec<ObjectKey> = self
            .objects
            .keys()
            .filter(|key| covered(key) && !seen.contains(*key))
            .cloned()
            .collect();
        for key in &gone {
            self.objects.remove(key);
        }
        gone
    }

    /// True once every watch has told its first full list.
    pub(crate) fn synced(&self) -> bool {
        self.listed.len() == self.scopes.len()
    }

    /// The object of this name.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// All objects, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        self.objects.iter()
    }

    /// The objects of one namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Arc<K>)> {
        let first = ObjectKey {
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
    }
}

/// Namespace and name of a namespaced object.
pub(crate) fn key_of<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, version: u32) -> DeserializeGuard<Pod> {
        let pod = json!({"metadata": {"namespace": namespace, "name": name, "uid": name,
            "resourceVersion": version.to_string()}});
        DeserializeGuard(Ok(serde_json::from_value(pod).unwrap()))
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_went_while_nobody_watched_is_noticed_at_the_next_list() {
        let mut shelf = Shelf::new(vec![None]);
        for event in [
            Event::Init,
            Event::InitApply(pod("a", "x", 1)),
            Event::InitApply(pod("a", "y", 2)),
        ] {
            shelf.take(0, event);
        }
        assert!(!shelf.synced());
        assert!(shelf.take(0, Event::InitDone).is_empty());
        assert!(shelf.synced());
        shelf.take(0, Event::Init);
        assert!(
            shelf.take(0, Event::InitApply(pod("a", "x", 1))).is_empty(),
            "an unchanged object is no news"
        );
        assert_eq!(shelf.take(0, Event::InitDone), vec![key("a", "y")]);
        assert_eq!(shelf.iter().count(), 1);
    }

    #[test]
    fn an_object_that_cannot_be_read_any_more_stays_as_it_was() {
        let mut shelf = Shelf::new(vec![None]);
        shelf.take(0, Event::Apply(pod("a", "x", 1)));
        let broken = json!({"metadata": {"namespace": "a", "name": "x"}, "spec": "no"});
        let broken: DeserializeGuard<Pod> = serde_json::from_value(broken).unwrap();
        assert!(broken.0.is_err());
        shelf.take(0, Event::Init);
        shelf.take(0, Event::InitApply(broken));
        assert!(shelf.take(0, Event::InitDone).is_empty());
        assert!(shelf.get(&key("a", "x")).is_some());
    }

    #[test]
    fn the_list_of_one_namespace_forgets_nothing_of_another() {
        let mut shelf = Shelf::new(vec![Some("a".to_owned()), Some("b".to_owned())]);
        shelf.take(0, Event::Apply(pod("a", "x", 1)));
        shelf.take(1, Event::Apply(pod("b", "y", 2)));
        shelf.take(0, Event::Init);
        assert_eq!(shelf.take(0, Event::InitDone), vec![key("a", "x")]);
        assert!(shelf.get(&key("b", "y")).is_some());
        assert!(!shelf.synced(), "the other namespace was not listed yet");
    }
}
