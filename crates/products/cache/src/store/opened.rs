//! The objects that are open, so that requests for one object share its file and its hashes.
//!
//! An object that is in use is found here as long as it is in use. The latest ones are kept open beyond
//! that, within a bound on files and on memory: a large object has many hashes, and reading them for each
//! range of a client that resumes would cost more than the range.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use super::key::Key;
use super::object::Object;

/// The most objects that are kept open without being in use.
const KEPT_MAX: usize = 64;
/// The most bytes of their hashes.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// The index is cleaned when it has this many entries more than twice those in use.
const SLACK: usize = 64;

/// The state of the index at the time when a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age(u64);

/// The open objects of a store.
#[derive(Debug, Default)]
pub(super) struct Opened {
    all: BTreeMap<Key, Weak<Object>>,
    /// The latest ones, oldest first.
    kept: VecDeque<Arc<Object>>,
    kept_bytes: usize,
    clean_at: usize,
    /// Counts the changes that make files differ from what was opened before.
    changes: u64,
}

impl Opened {
    /// Returns an object that is open, if its file is still in the store.
    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Object>> {
        let object = self.all.get(key)?.upgrade()?;
        if object.is_linked() {
            return Some(object);
        }
        self.forget(key);
        None
    }

    /// Returns the age that [`insert`](Self::insert) needs. Call it before the file is opened.
    pub(super) const fn age(&self) -> Age {
        Age(self.changes)
    }

    /// Shares an object that was opened at `age`, unless files have changed since: it may be an old one.
    pub(super) fn insert(&mut self, object: Object, age: Age) -> Arc<Object> {
        let object = Arc::new(object);
        if age != self.age() {
            return object;
        }
        self.all.insert(object.key().clone(), Arc::downgrade(&object));
        self.kept_bytes += object.hash_bytes();
        self.kept.push_back(Arc::clone(&object));
        while self.kept.len() > KEPT_MAX || self.kept_bytes > KEPT_BYTES_MAX {
            let Some(old) = self.kept.pop_front() else { break };
            self.kept_bytes -= old.hash_bytes();
        }
        if self.all.len() > self.clean_at {
            self.all.retain(|_, object| object.strong_count() > 0);
            self.clean_at = 2 * self.all.len() + SLACK;
        }
        object
    }

    /// Shares an object whose file has just come, instead of the one with the same key.
    pub(super) fn replace(&mut self, object: Object) -> Arc<Object> {
        self.forget(object.key());
        self.insert(object, self.age())
    }

    /// Forgets an object whose file goes or is replaced. Call it with the change of the file.
    pub(super) fn forget(&mut self, key: &Key) {
        self.changes += 1;
        if self.all.remove(key).is_some() {
            self.kept.retain(|object| object.key() != key);
            self.kept_bytes = self.kept.iter().map(|object| object.hash_bytes()).sum();
        }
    }
}
