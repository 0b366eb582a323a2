//! Implements a queue ordered by time, then by insertion, that is fast with any distribution of times.
//!
//! This is a radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: "Faster algorithms for the shortest path problem",
//! JACM 37(2), 1990) with digits of six bits. An item's level is the highest digit in which its time differs
//! from the time of the item removed last; the value of that digit is its bucket. So items of equal times are
//! always in one bucket in the order of insertion, and need no sequence number. Each item moves down at most
//! once per level, in practice once or twice. The bit maps of the levels alone lead to the first item.

use anabranch_algo::Time;

/// The number of bits of a digit, so that a level's bit map of buckets fits one word.
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// The number of levels for 64 bits of nanoseconds.
const LEVELS: usize = 64usize.div_ceil(DIGIT_BITS as usize);
/// The largest buffer, in items, that a bucket or the run keeps while it is empty.
const KEEP_ITEMS: usize = 256;

/// A queue of events `T`, ordered by time, then by insertion; see the [module](self).
///
/// The queue is monotone: an item pushed for a time before the last removed item counts as pushed for the
/// time of that item.
#[derive(Clone, Debug)]
pub(crate) struct RadixHeap<T> {
    /// The time of the items in `run`: the time of the last item removed, or of the next one.
    base: u64,
    /// The items at `base`, of which the first `taken` have been removed.
    run: Vec<T>,
    taken: usize,
    /// The bit maps: bit `l` of `levels` says that level `l` has items; bit `s` of `occupied[l]` says that
    /// bucket `s` of that level has items.
    levels: u16,
    occupied: [u64; LEVELS],
    /// The buckets of all levels, `LEVELS` times `BUCKETS`.
    buckets: Vec<Bucket<T>>,
}

#[derive(Clone, Debug)]
struct Bucket<T> {
    /// The time of the earliest item; any value if the bucket is empty.
    earliest: u64,
    items: Vec<(u64, T)>,
}

impl<T: Copy> RadixHeap<T> {
    /// Makes an empty queue at time zero.
    pub(crate) fn new() -> Self {
        let bucket = || Bucket { earliest: u64::MAX, items: Vec::new() };
        Self {
            base: 0,
            run: Vec::new(),
            taken: 0,
            levels: 0,
            occupied: [0; LEVELS],
            buckets: std::iter::repeat_with(bucket).take(LEVELS * BUCKETS).collect(),
        }
    }

    /// Returns whether the queue has no items.
    pub(crate) const fn is_empty(&self) -> bool {
        self.levels == 0 && self.taken == self.run.len()
    }

    /// Inserts `item` for the time `at`, behind other items of the same time.
    pub(crate) fn push(&mut self, at: Time, item: T) {
        self.place(at.as_nanos().max(self.base), item);
    }

    fn place(&mut self, at: u64, item: T) {
        if at == self.base {
            self.run.push(item);
            return;
        }
        let level = (at ^ self.base).ilog2() / DIGIT_BITS;
        let digit = (at >> (level * DIGIT_BITS)) as usize % BUCKETS;
        let level = level as usize;
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << digit;
        let bucket = &mut self.buckets[level * BUCKETS + digit];
        bucket.earliest = if bucket.items.is_empty() { at } else { bucket.earliest.min(at) };
        bucket.items.push((at, item));
    }

    /// Returns the level and the bucket of the earliest item that is not in the run.
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        // If no level has an item, `level` is past the end of `occupied`, and this returns `None`.
        let digit = self.occupied.get(level)?.trailing_zeros() as usize;
        Some((level, digit))
    }

    /// Returns the time of the first item; [`Time::NEVER`] if the queue is empty.
    pub(crate) fn next_at(&self) -> Time {
        if self.taken < self.run.len() {
            return Time::from_nanos(self.base);
        }
        let Some((level, digit)) = self.first() else { return Time::NEVER };
        Time::from_nanos(self.buckets[level * BUCKETS + digit].earliest)
    }

    /// Removes the first item and returns it with its time, unless its time is after `limit`.
    pub(crate) fn pop_due(&mut self, limit: Time) -> Option<(Time, T)> {
        if self.taken == self.run.len() {
            return self.pop_bucket(limit);
        }
        if self.base > limit.as_nanos() {
            return None;
        }
        let item = self.run[self.taken];
        self.taken += 1;
        Some((Time::from_nanos(self.base), item))
    }

    /// Does the work of [`pop_due`](Self::pop_due) when the run is empty: opens the bucket of the earliest
    /// item.
    fn pop_bucket(&mut self, limit: Time) -> Option<(Time, T)> {
        let (level, digit) = self.first()?;
        let bucket = &mut self.buckets[level * BUCKETS + digit];
        if bucket.earliest > limit.as_nanos() {
            return None;
        }
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        self.taken = 0;
        self.run.clear();
        self.base = bucket.earliest;
        if bucket.items.len() == 1 {
            let (at, item) = bucket.items.pop()?;
            return Some((Time::from_nanos(at), item));
        }
        // The bucket's items differ from the new base in a lower digit, or are equal to it and go into the
        // run.
        let mut items = std::mem::take(&mut bucket.items);
        if self.run.capacity() > KEEP_ITEMS {
            self.run = Vec::new();
        }
        items.iter().for_each(|&(at, item)| self.place(at, item));
        items.clear();
        if items.capacity() <= KEEP_ITEMS {
            self.buckets[level * BUCKETS + digit].items = items;
        }
        self.taken = 1;
        Some((Time::from_nanos(self.base), self.run[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_at_one_time_keeps_its_order_and_its_memory_is_given_back() {
        let at = Time::from_nanos(1_000_000);
        let mut queue = RadixHeap::new();
        (0..100_000u32).for_each(|i| queue.push(at, i));
        (0..100_000u32).for_each(|i| assert_eq!(queue.pop_due(at), Some((at, i))));
        assert!(queue.is_empty());
        let at = Time::from_nanos(2_000_000);
        queue.push(at, 0);
        queue.push(at, 1);
        assert_eq!(queue.pop_due(Time::NEVER), Some((at, 0)));
        let kept =
            queue.run.capacity() + queue.buckets.iter().map(|bucket| bucket.items.capacity()).sum::<usize>();
        assert!(kept <= 2 * KEEP_ITEMS, "{kept}");
    }

    #[test]
    fn by_time_then_by_insertion() {
        let mut queue = RadixHeap::new();
        let mut rng = crate::Rng::new(3);
        let mut all: Vec<(u64, u32)> = (0..5_000).map(|i| (rng.bits() >> rng.below(64), i)).collect();
        all.extend((5_000..6_000).map(|i| (rng.below(50), i)));
        all.iter().for_each(|&(at, i)| queue.push(Time::from_nanos(at), i));
        all.sort_by_key(|(at, _)| *at);
        let popped = std::iter::from_fn(|| queue.pop_due(Time::NEVER)).map(|(at, i)| (at.as_nanos(), i));
        assert!(popped.eq(all));
        assert_eq!((queue.next_at(), queue.is_empty()), (Time::NEVER, true));
    }
}
