//! Turns: a queue for each holder, served one after the other.

use alloc::collections::{BTreeMap, VecDeque};

/// The items that wait for their turns; see the [module](super).
#[derive(Clone, Debug)]
pub struct Turns<K, T> {
    queues: BTreeMap<K, VecDeque<T>>,
    /// The holders with a waiting item, the next one first.
    order: VecDeque<K>,
    /// The most items that one holder may have waiting.
    each_max: usize,
}

impl<K: Ord + Clone, T> Turns<K, T> {
    /// Creates queues in which nothing waits; each holder may have `each_max` items.
    #[must_use]
    pub const fn new(each_max: usize) -> Self {
        Self { queues: BTreeMap::new(), order: VecDeque::new(), each_max }
    }

    /// Puts an item at the end of its holder's queue.
    ///
    /// # Errors
    /// The item, if the queue is full.
    pub fn push(&mut self, holder: K, item: T) -> Result<(), T> {
        if self.queues.get(&holder).is_some_and(|queue| queue.len() >= self.each_max) {
            return Err(item);
        }
        let queue = self.queues.entry(holder.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(holder);
        }
        queue.push_back(item);
        Ok(())
    }

    /// Takes the first item of the holder whose turn it is, among the holders that `may` have one now.
    pub fn next(&mut self, may: impl FnMut(&K) -> bool) -> Option<(K, T)> {
        let place = self.order.iter().position(may)?;
        let holder = self.order.remove(place)?;
        let queue = self.queues.get_mut(&holder)?;
        let item = queue.pop_front()?;
        if queue.is_empty() {
            self.queues.remove(&holder);
        } else {
            self.order.push_back(holder.clone());
        }
        Some((holder, item))
    }

    /// Removes the first item of a holder's queue for which `is_it` is true, wherever it is in the queue.
    pub fn remove(&mut self, holder: &K, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(holder)?;
        let place = queue.iter().position(is_it)?;
        let item = queue.remove(place)?;
        if queue.is_empty() {
            self.queues.remove(holder);
            self.order.retain(|other| other != holder);
        }
        Some(item)
    }

    /// Iterates over the waiting items of a holder, the next one first.
    pub fn of(&mut self, holder: &K) -> impl Iterator<Item = &mut T> {
        self.queues.get_mut(holder).into_iter().flatten()
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
