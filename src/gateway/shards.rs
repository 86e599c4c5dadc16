//! A map split over locks, so that requests of different users do not meet; no lock of it outlives a call.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};

use parking_lot::RwLock;

const SHARDS: usize = 32;

/// A sharded map; closures given to it must not call it again.
pub(crate) struct Sharded<K, V> {
    hasher: RandomState,
    shards: [RwLock<HashMap<K, V>>; SHARDS],
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| RwLock::default()),
        }
    }
}

impl<K: Eq + Hash, V> Sharded<K, V> {
    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> &RwLock<HashMap<K, V>> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash >> 32).unwrap_or(0) % SHARDS]
    }

    /// A copy of the value.
    pub(crate) fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.shard(key).read().get(key).cloned()
    }

    /// The key that equals `key`.
    pub(crate) fn key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<K>
    where
        K: Borrow<Q> + Clone,
    {
        let shard = self.shard(key).read();
        shard.get_key_value(key).map(|(key, _)| key.clone())
    }

    /// Runs `act` on the shard that holds `key`, alone.
    pub(crate) fn change<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        act: impl FnOnce(&mut HashMap<K, V>) -> R,
    ) -> R
    where
        K: Borrow<Q>,
    {
        act(&mut self.shard(key).write())
    }

    pub(crate) fn insert(&self, key: K, value: V) -> Option<V> {
        let shard = self.shard(&key);
        shard.write().insert(key, value)
    }

    /// Visits everything, one shard at a time.
    pub(crate) fn each(&self, mut see: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            for (key, value) in shard.read().iter() {
                see(key, value);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}
