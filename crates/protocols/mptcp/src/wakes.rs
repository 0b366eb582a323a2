//! Keeps deadlines by key and in the order of time.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_algo::Time;

/// Deadlines by key, and in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakes<K> {
    by_key: BTreeMap<K, Time>,
    in_order: BTreeSet<(Time, K)>,
}

impl<K: Copy + Ord> Wakes<K> {
    /// Creates an empty set of deadlines.
    pub(crate) const fn new() -> Self {
        Self { by_key: BTreeMap::new(), in_order: BTreeSet::new() }
    }

    /// Sets the deadline of `key` to `at`, in place of any earlier deadline.
    pub(crate) fn set(&mut self, key: K, at: Time) {
        match self.by_key.insert(key, at) {
            Some(before) if before == at => return,
            Some(before) => self.in_order.remove(&(before, key)),
            None => false,
        };
        self.in_order.insert((at, key));
    }

    /// Removes the deadline of `key`.
    pub(crate) fn remove(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.in_order.remove(&(at, key));
        }
    }

    /// Returns the key that has been due for the longest time, if one is due at `now`.
    pub(crate) fn due(&self, now: Time) -> Option<K> {
        self.in_order.first().filter(|(at, _)| *at <= now).map(|(_, key)| *key)
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Time {
        self.in_order.first().map_or(Time::NEVER, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deadline_of_a_key_counts() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let mut wakes = Wakes::new();
        assert_eq!((wakes.due(at(9)), wakes.next()), (None, Time::NEVER));
        wakes.set('a', at(5));
        wakes.set('b', at(3));
        wakes.set('a', at(5));
        assert_eq!((wakes.due(at(2)), wakes.due(at(3)), wakes.next()), (None, Some('b'), at(3)));
        wakes.set('b', at(8));
        assert_eq!((wakes.due(at(9)), wakes.next()), (Some('a'), at(5)));
        wakes.remove('a');
        wakes.remove('a');
        assert_eq!((wakes.due(at(7)), wakes.due(at(8))), (None, Some('b')));
    }
}
