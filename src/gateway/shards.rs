//! A map split over locks, so that requests of different users do not meet; no lock of it outlives a call.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use parking_lot::RwLock;

use super::spread::shard_of;

const SHARDS: usize = 32;

/// A sharded map; closures given to it must not call it again.
pub(crate) struct Sharded<K, V, S = RandomState> {
    hasher: S,
    shards: [RwLock<HashMap<K, V, S>>; SHARDS],
}

impl<K, V, S: BuildHasher + Clone + Default> Default for Sharded<K, V, S> {
    fn default() -> Self {
        let hasher = S::default();
        Self {
            shards: std::array::from_fn(|_| RwLock::new(HashMap::with_hasher(hasher.clone()))),
            hasher,
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Sharded<K, V, S> {
    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> &RwLock<HashMap<K, V, S>> {
        &self.shards[shard_of(self.hasher.hash_one(key), SHARDS)]
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
        act: impl FnOnce(&mut HashMap<K, V, S>) -> R,
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
