//! Packets by key: who was not used for longest leaves first.

use std::collections::BTreeMap;

/// What a packet takes besides its bytes: its key twice, its place in two trees, pointers.
const ENTRY_BYTES: usize = 192;

/// A packet, and when it was last used.
struct Entry {
    used: u64,
    bytes: Box<[u8]>,
}

/// See the [module](self).
pub(super) struct Lru<K> {
    entries: BTreeMap<K, Entry>,
    /// The keys by when they were last used.
    order: BTreeMap<u64, K>,
    /// Counts uses.
    uses: u64,
    stored: usize,
    capacity: usize,
}

impl<K: Ord + Copy> Lru<K> {
    /// An empty cache of `capacity` bytes.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0, stored: 0, capacity }
    }

    /// Bytes held, index included.
    pub(super) const fn stored(&self) -> usize {
        self.stored
    }

    /// The packet, which is the last to leave now.
    pub(super) fn get(&mut self, key: &K) -> Option<&[u8]> {
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.order.insert(self.uses, *key);
        Some(&entry.bytes)
    }

    /// A packet passes: what came last holds. Whether it was not here as it is.
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

    /// Holds that both indices name the same, and that the sizes add up.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let sum: usize = self.entries.values().map(|entry| entry.bytes.len() + ENTRY_BYTES).sum();
        assert!(self.stored == sum && sum <= self.capacity, "{} of {sum}", self.stored);
        let order: Vec<_> = self.entries.iter().map(|(key, entry)| (entry.used, *key)).collect();
        assert!(order.len() == self.order.len());
        assert!(order.iter().all(|(used, key)| self.order.get(used) == Some(key)));
    }
}
