//! A cache of packets by key: the least recently used leaves first.

use std::collections::BTreeMap;

/// The bytes that a packet takes besides its payload: its key twice, its entries in two trees, and pointers.
const ENTRY_BYTES: usize = 192;

/// A packet, and when it was last used.
struct Entry {
    used: u64,
    bytes: Box<[u8]>,
}

/// The cache; see the [module](self).
pub(super) struct Lru<K> {
    entries: BTreeMap<K, Entry>,
    /// The keys, by their last use.
    order: BTreeMap<u64, K>,
    /// Counts the uses; each use has a number of its own.
    uses: u64,
    stored: usize,
    capacity: usize,
}

impl<K: Ord + Copy> Lru<K> {
    /// Creates an empty cache of `capacity` bytes.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0, stored: 0, capacity }
    }

    /// Returns the bytes held, index included.
    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the packet, which is then the last to leave.
    pub(super) fn get(&mut self, key: &K) -> Option<&[u8]> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.order.insert(self.uses, *key);
        Some(&entry.bytes)
    }

    /// Stores a packet that passes; it replaces a packet with its key. Returns whether the cache has changed.
    pub(super) fn insert(&mut self, key: K, bytes: &[u8]) -> bool {
        if let Some(here) = self.get(&key) {
            if here == bytes {
                return false;
            }
            self.remove(&key);
        }
        let size = bytes.len() + ENTRY_BYTES;
        if size > self.capacity {
            return false;
        }
        while self.stored + size > self.capacity {
            let Some(oldest) = self.order.first_key_value().map(|(_, key)| *key) else { return false };
            self.remove(&oldest);
        }
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.entries.insert(key, Entry { used: self.uses, bytes: bytes.into() });
        self.stored += size;
        true
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
            self.stored -= entry.bytes.len() + ENTRY_BYTES;
        }
    }

    /// Checks that both indices have the same keys, and that the sizes add up.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let sum: usize = self.entries.values().map(|entry| entry.bytes.len() + ENTRY_BYTES).sum();
        assert!(self.stored == sum && sum <= self.capacity, "{} of {sum}", self.stored);
        let order: Vec<_> = self.entries.iter().map(|(key, entry)| (entry.used, *key)).collect();
        assert!(order.len() == self.order.len());
        assert!(order.iter().all(|(used, key)| self.order.get(used) == Some(key)));
    }
}
