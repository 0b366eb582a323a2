//! What happens next: a queue ordered by time, then by insertion.
//!
//! A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan: "Faster algorithms for the shortest path problem", JACM
//! 37(2), 1990) with digits of six bits, which is also a hierarchical timing wheel (Varghese, Lauck: "Hashed
//! and hierarchical timing wheels", SOSP 1987) that is exact to the nanosecond. An item lies at the level of
//! the highest digit in which its time differs from that of the item taken out last, in the slot of that
//! digit. So items of one time are always in one slot, in the order in which they came, and need no number to
//! keep it. Each item moves down at most once a level, in practice once or twice; nothing is compared but the
//! levels' bit maps.
//!
//! `examples/queue.rs` measures it against two heaps and two wheels.

use algo::Time;

/// Bits of a digit: a level's occupied slots fit one word.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// Levels that 64 bits of nanoseconds need.
const LEVELS: usize = 64usize.div_ceil(DIGIT_BITS as usize);
/// A slot's or the run's buffer that has grown larger than this is given back once it is empty, items.
const KEEP_ITEMS: usize = 256;

/// A queue of events `T` by time, then by insertion; see the [module](self).
///
/// Monotone: what is put in for a time before that of the last item taken out counts as put in for that time.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// The time of the last item taken out, or that has come to the front of the run.
    base: u64,
    /// The items at `base`, of which `taken` are gone.
    run: Vec<T>,
    taken: usize,
    /// Bit `l`: level `l` has an item; bit `s` of `slots[l]`: its slot `s` has.
    levels: u16,
    occupied: [u64; LEVELS],
    /// `LEVELS` times `SLOTS` of them.
    slots: Vec<Slot<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    /// The earliest of its items, or anything if there is none.
    earliest: u64,
    items: Vec<(u64, T)>,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> EventQueue<T> {
    /// An empty queue, at time zero.
    #[must_use]
    pub fn new() -> Self {
        let slot = || Slot { earliest: u64::MAX, items: Vec::new() };
        Self {
            base: 0,
            run: Vec::new(),
            taken: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: std::iter::repeat_with(slot).take(LEVELS * SLOTS).collect(),
            len: 0,
        }
    }

    /// Items in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `item` in for `at`, behind what is in for the same time.
    pub fn push(&mut self, at: Time, item: T) {
        self.len += 1;
        self.place(at.as_nanos().max(self.base), item);
    }

    fn place(&mut self, at: u64, item: T) {
        if at == self.base {
            self.run.push(item);
            return;
        }
        let level = (at ^ self.base).ilog2() / DIGIT_BITS;
        let digit = (at >> (level * DIGIT_BITS)) as usize % SLOTS;
        let level = level as usize;
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << digit;
        let slot = &mut self.slots[level * SLOTS + digit];
        slot.earliest = if slot.items.is_empty() { at } else { slot.earliest.min(at) };
        slot.items.push((at, item));
    }

    /// The level and the slot with the earliest item that is not in the run.
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        // The last word of `occupied` is never asked for where no level has an item.
        let digit = self.occupied.get(level)?.trailing_zeros() as usize;
        Some((level, digit))
    }

    /// The time of the first item; [`Time::NEVER`] if there is none.
    #[must_use]
    pub fn next_at(&self) -> Time {
        if self.taken < self.run.len() {
            return Time::from_nanos(self.base);
        }
        let Some((level, digit)) = self.first() else { return Time::NEVER };
        Time::from_nanos(self.slots[level * SLOTS + digit].earliest)
    }

    /// Takes out the first item, with its time, if that is not after `limit`.
    pub fn pop_due(&mut self, limit: Time) -> Option<(Time, T)> {
        if self.taken == self.run.len() {
            return self.pop_slot(limit);
        }
        if self.base > limit.as_nanos() {
            return None;
        }
        let item = self.run[self.taken];
        self.taken += 1;
        self.len -= 1;
        Some((Time::from_nanos(self.base), item))
    }

    /// The same where the run is used up.
    fn pop_slot(&mut self, limit: Time) -> Option<(Time, T)> {
        let (level, digit) = self.first()?;
        let slot = &mut self.slots[level * SLOTS + digit];
        if slot.earliest > limit.as_nanos() {
            return None;
        }
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        self.taken = 0;
        self.run.clear();
        self.base = slot.earliest;
        if slot.items.len() == 1 {
            let (at, item) = slot.items.pop()?;
            self.len -= 1;
            return Some((Time::from_nanos(at), item));
        }
        // Its items differ from the new base in a lower digit, or not at all: the run.
        let mut items = std::mem::take(&mut slot.items);
        if self.run.capacity() > KEEP_ITEMS {
            self.run = Vec::new();
        }
        items.iter().for_each(|&(at, item)| self.place(at, item));
        items.clear();
        if items.capacity() <= KEEP_ITEMS {
            self.slots[level * SLOTS + digit].items = items;
        }
        self.taken = 1;
        self.len -= 1;
        Some((Time::from_nanos(self.base), self.run[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const fn ns(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn by_time_then_by_insertion() {
        let mut queue = EventQueue::new();
        assert_eq!((queue.next_at(), queue.pop_due(Time::NEVER)), (Time::NEVER, None));
        for (i, at) in [700, 5, 700, 0, 5, u64::MAX, 0, 64].into_iter().enumerate() {
            queue.push(ns(at), i);
        }
        assert_eq!((queue.len(), queue.next_at()), (8, ns(0)));
        let order = std::iter::from_fn(|| queue.pop_due(ns(u64::MAX - 1)));
        let expected = [(0, 3), (0, 6), (5, 1), (5, 4), (64, 7), (700, 0), (700, 2)];
        assert_eq!(order.collect::<Vec<_>>(), expected.map(|(at, i)| (ns(at), i)));
        assert_eq!((queue.len(), queue.next_at()), (1, Time::NEVER));
        assert_eq!(queue.pop_due(Time::NEVER), Some((Time::NEVER, 5)));
        assert!(queue.is_empty());
    }

    #[test]
    fn the_past_counts_as_now() {
        let mut queue = EventQueue::new();
        queue.push(ns(100), 'a');
        queue.push(ns(100), 'b');
        assert_eq!(queue.pop_due(ns(99)), None);
        // Not taken out yet: there is still time before.
        queue.push(ns(50), 'c');
        assert_eq!(queue.pop_due(ns(100)), Some((ns(50), 'c')));
        assert_eq!(queue.pop_due(ns(100)), Some((ns(100), 'a')));
        queue.push(ns(3), 'd');
        assert_eq!(queue.pop_due(ns(100)), Some((ns(100), 'b')));
        assert_eq!(queue.pop_due(ns(100)), Some((ns(100), 'd')));
        assert_eq!(queue.pop_due(ns(99)), None);
    }

    #[test]
    fn a_crowd_at_one_time_keeps_its_order_and_its_memory_is_given_back() {
        let mut queue = EventQueue::new();
        (0..100_000u32).for_each(|i| queue.push(ns(1_000_000), i));
        (0..100_000u32).for_each(|i| assert_eq!(queue.pop_due(ns(1_000_000)), Some((ns(1_000_000), i))));
        queue.push(ns(2_000_000), 0);
        queue.push(ns(2_000_000), 1);
        assert_eq!(queue.pop_due(Time::NEVER), Some((ns(2_000_000), 0)));
        let kept = queue.run.capacity() + queue.slots.iter().map(|slot| slot.items.capacity()).sum::<usize>();
        assert!(kept <= 2 * KEEP_ITEMS, "{kept}");
    }

    proptest! {
        #[test]
        fn as_a_heap_with_a_counter(
            steps in prop::collection::vec((0u32..40, any::<u64>(), any::<bool>()), 1..400)
        ) {
            let (mut queue, mut heap, mut now) = (EventQueue::new(), BinaryHeap::new(), 0u64);
            for (i, &(bits, random, pop)) in steps.iter().enumerate() {
                let ahead = random & ((1 << bits) - 1);
                if pop {
                    let limit = now + ahead;
                    let due = heap.peek().is_some_and(|Reverse((at, _))| *at <= limit);
                    let expected = if due { heap.pop().map(|Reverse((at, i))| (ns(at), i)) } else { None };
                    prop_assert_eq!(queue.pop_due(ns(limit)), expected);
                    now = expected.map_or(now, |(at, _)| at.as_nanos());
                } else {
                    heap.push(Reverse((now + ahead, i)));
                    queue.push(ns(now + ahead), i);
                }
                let next = heap.peek().map_or(Time::NEVER, |Reverse((at, _))| ns(*at));
                prop_assert_eq!((queue.len(), queue.next_at()), (heap.len(), next));
            }
        }
    }
}
