//! A map with a bounded number of entries: the oldest leaves first.

use std::collections::{BTreeMap, VecDeque};

/// The map; see the [module](self).
pub(super) struct BoundedMap<K, V> {
    map: BTreeMap<K, V>,
    /// The keys, oldest first.
    order: VecDeque<K>,
    max: usize,
}

impl<K: Ord + Copy, V> BoundedMap<K, V> {
    /// An empty map of at most `max` entries.
    pub(super) const fn new(max: usize) -> Self {
        Self { map: BTreeMap::new(), order: VecDeque::new(), max }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key)
    }

    /// Inserts or replaces a value. A replaced value keeps the age of its key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.map.insert(key, value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.map.remove(&oldest);
        }
    }
}
