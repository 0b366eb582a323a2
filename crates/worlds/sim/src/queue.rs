//! Implements a queue of events, ordered by time, then by insertion.
//!
//! Most events of a network are up to 8 ms ahead. They go into a hashed timing wheel (Varghese, Lauck:
//! "Hashed and hierarchical timing wheels", SOSP 1987). There an item goes straight to the slot of its tick
//! of 2 us. A tick, which mostly has one item, is sorted when its turn comes. An item for a tick whose turn
//! has come is inserted among the few items that are left of that tick.
//!
//! Two radix heaps (`radix_heap`) take the other items: items further ahead, and items whose tick has more
//! than a few items left. So with any distribution of times, an item costs no more than a few moves.
//!
//! A slot is the index of its last item. Items are linked lists in a common pool, in which the entry freed
//! last is used first. So the wheel of a small network stays in the fastest cache of the processor.
//!
//! `examples/queue.rs` compares this queue with two heaps, a wheel with a heap, and the radix heap. Whole
//! simulations are faster with this queue (`examples/speed.rs` of the laboratory, six paired runs):
//!
//! * With the standard library's heap, the fat tree takes 38 % more CPU time, and the dumbbell 5 % less.
//! * With that heap only for items that are far ahead, the fat tree takes 42 % more.
//! * With the radix heap alone, the torus and the dumbbell take 6 % more.

use crate::radix_heap::RadixHeap;
use anabranch_algo::Time;

/// The binary logarithm of a tick in nanoseconds: a tick is 2.048 us.
const TICK_BITS: u32 = 11;
/// The number of slots of the wheel; they fill 64 words of 64 bits.
const SLOTS: u64 = 4_096;
const WORDS: usize = SLOTS as usize / 64;
/// A buffer with room for more items than this is freed when it is empty.
const KEEP_ITEMS: usize = 1_024;
/// An item for the open tick is inserted in order only if at most this many items are left there.
const INSERT_MAX: usize = 32;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// An item of a slot, or a free entry of the pool.
#[derive(Clone, Debug)]
struct QueueNode<T> {
    at: u64,
    item: T,
    /// The index of the item that was inserted before this one in its slot.
    next: u32,
}

/// A queue of events `T`, ordered by time, then by insertion; see the [module](self).
///
/// The queue is monotone: an item pushed for a time before the last removed item counts as pushed for the
/// time of that item.
#[derive(Clone, Debug)]
pub struct EventQueue<T> {
    /// The time of the last item removed.
    last: u64,
    /// The tick opened last. `open` holds its items by time, of which the first `taken` have been removed.
    tick: u64,
    open: Vec<(u64, T)>,
    taken: usize,
    /// Items for the open tick or an earlier one that found too many items in `open`.
    near: RadixHeap<T>,
    /// The slots of the ticks after `tick`. A slot is the index of its last item. Bit `s` of a word of
    /// `occupied` says that the slot has items, and bit `w` of `words` that word `w` of `occupied` is not
    /// zero.
    slots: Box<[u32; SLOTS as usize]>,
    /// The items of all slots, and the free entries, which are a list that begins at `free`.
    nodes: Vec<QueueNode<T>>,
    free: u32,
    words: u64,
    occupied: [u64; WORDS],
    /// Items that were further ahead than the wheel when they were pushed.
    far: RadixHeap<T>,
    far_at: Time,
    len: usize,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> EventQueue<T> {
    /// Makes an empty queue at time zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            last: 0,
            tick: 0,
            open: Vec::new(),
            taken: 0,
            near: RadixHeap::new(),
            slots: Box::new([NONE; SLOTS as usize]),
            nodes: Vec::new(),
            free: NONE,
            words: 0,
            occupied: [0; WORDS],
            far: RadixHeap::new(),
            far_at: Time::NEVER,
            len: 0,
        }
    }

    /// Returns the number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue has no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts `item` for the time `at`, behind other items of the same time.
    #[inline]
    pub fn push(&mut self, at: Time, item: T) {
        self.len += 1;
        let at = at.as_nanos().max(self.last);
        let ahead = (at >> TICK_BITS).wrapping_sub(self.tick + 1);
        if ahead < SLOTS {
            let slot = ((at >> TICK_BITS) % SLOTS) as usize;
            self.words |= 1 << (slot / 64);
            self.occupied[slot / 64] |= 1 << (slot % 64);
            let node = QueueNode { at, item, next: self.slots[slot] };
            self.slots[slot] = self.free;
            if let Some(place) = self.nodes.get_mut(self.free as usize) {
                self.free = place.next;
                *place = node;
            } else {
                self.slots[slot] = self.nodes.len() as u32;
                self.nodes.push(node);
            }
        } else if at >> TICK_BITS <= self.tick {
            // The slot of that tick now belongs to another tick.
            self.push_near(at, item);
        } else {
            let at = Time::from_nanos(at);
            self.far.push(at, item);
            self.far_at = self.far_at.min(at);
        }
    }

    /// Inserts `item` for the open tick or an earlier one.
    #[inline(never)]
    fn push_near(&mut self, at: u64, item: T) {
        // Once `near` has items, a later item for the same time must not overtake them.
        if self.near.is_empty() && self.open.len() - self.taken <= INSERT_MAX {
            let left = &self.open[self.taken..];
            let behind = left.iter().rev().take_while(|(other, _)| *other > at).count();
            self.open.insert(self.open.len() - behind, (at, item));
        } else {
            self.near.push(Time::from_nanos(at), item);
        }
    }

    /// Returns the next tick of the wheel with items.
    #[inline]
    fn next_tick(&self) -> Option<u64> {
        if self.words == 0 {
            return None;
        }
        let start = ((self.tick + 1) % SLOTS) as usize;
        let ahead = self.occupied[start / 64] & (u64::MAX << (start % 64));
        let slot = if ahead != 0 {
            start / 64 * 64 + ahead.trailing_zeros() as usize
        } else {
            // Search once round the wheel. The slots of the first word that lie before the start come last.
            let word = (start / 64 + 1) % WORDS;
            let word = (word + self.words.rotate_right(word as u32).trailing_zeros() as usize) % WORDS;
            word * 64 + self.occupied[word].trailing_zeros() as usize
        };
        Some(self.tick + 1 + (slot as u64).wrapping_sub(start as u64) % SLOTS)
    }

    /// Opens the next tick that has items. All items of the open tick must have been removed.
    #[inline]
    fn open(&mut self) {
        let wheel = self.next_tick().unwrap_or(u64::MAX);
        let far = self.far_at.as_nanos() >> TICK_BITS;
        if wheel == u64::MAX && self.far.is_empty() {
            return;
        }
        self.taken = 0;
        self.open.clear();
        if self.open.capacity() > KEEP_ITEMS {
            self.open = Vec::new();
        }
        if wheel < far {
            self.tick = wheel;
            self.take_slot();
            return;
        }
        self.tick = far;
        // The items that were far ahead were inserted before the items in the slot.
        let end = Time::from_nanos(far << TICK_BITS | ((1 << TICK_BITS) - 1));
        while let Some((at, item)) = self.far.pop_due(end) {
            self.open.push((at.as_nanos(), item));
        }
        self.far_at = self.far.next_at();
        if wheel == far {
            self.take_slot();
        }
    }

    #[inline]
    fn take_slot(&mut self) {
        let slot = (self.tick % SLOTS) as usize;
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        if self.occupied[slot / 64] == 0 {
            self.words &= !(1 << (slot / 64));
        }
        let before = self.open.len();
        let mut last = std::mem::replace(&mut self.slots[slot], NONE);
        while let Some(node) = self.nodes.get_mut(last as usize) {
            self.open.push((node.at, node.item));
            self.free = std::mem::replace(&mut last, std::mem::replace(&mut node.next, self.free));
        }
        if self.words == 0 && self.nodes.len() > KEEP_ITEMS {
            (self.nodes, self.free) = (Vec::new(), NONE);
        }
        if self.open.len() > 1 {
            self.order(before);
        }
    }

    /// Sorts `open`. Its items from the index `from` on must be in the reverse order of insertion.
    fn order(&mut self, from: usize) {
        if from > 0 || self.open.len() > INSERT_MAX {
            self.open[from..].reverse();
            // The sort is stable, so items of the same time stay in the order of insertion.
            return self.open.sort_by_key(|(at, _)| *at);
        }
        for i in 1..self.open.len() {
            let item = self.open[i];
            let after = self.open[..i].iter().rev().take_while(|(at, _)| *at >= item.0).count();
            self.open.copy_within(i - after..i, i - after + 1);
            self.open[i - after] = item;
        }
    }

    /// Returns the time of the first item; [`Time::NEVER`] if there is none.
    #[must_use]
    pub fn next_at(&self) -> Time {
        let near = self.near.next_at();
        if let Some((at, _)) = self.open.get(self.taken) {
            return near.min(Time::from_nanos(*at));
        }
        let slot = self.next_tick().map_or(NONE, |tick| self.slots[(tick % SLOTS) as usize]);
        let nodes =
            std::iter::successors(self.nodes.get(slot as usize), |node| self.nodes.get(node.next as usize));
        let wheel = nodes.map(|node| Time::from_nanos(node.at)).min();
        near.min(self.far_at).min(wheel.unwrap_or(Time::NEVER))
    }

    /// Returns the next items of the open tick if it began with at least `crowd` items, else an empty slice.
    /// Items pushed later may still come before them.
    #[inline]
    pub(crate) fn upcoming(&self, crowd: usize) -> &[(u64, T)] {
        if self.open.len() < crowd { &[] } else { &self.open[self.taken..] }
    }

    /// Removes the first item and returns it with its time, unless that is after `limit`.
    #[inline]
    pub fn pop_due(&mut self, limit: Time) -> Option<(Time, T)> {
        if self.taken == self.open.len() {
            self.open();
        }
        // Of two items of the same time, the one in the open tick was inserted first.
        let (at, item) = match self.open.get(self.taken) {
            Some(&(at, item)) if self.near.is_empty() || Time::from_nanos(at) <= self.near.next_at() => {
                if at > limit.as_nanos() {
                    return None;
                }
                self.taken += 1;
                (Time::from_nanos(at), item)
            }
            _ => self.near.pop_due(limit)?,
        };
        self.last = at.as_nanos();
        self.len -= 1;
        Some((at, item))
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
        // The item at 100 ns is not removed yet, so an earlier one may still be inserted.
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
        queue.push(ns(3_000_000), 2);
        (1..3).for_each(|i| assert_eq!(queue.pop_due(Time::NEVER).map(|(_, item)| item), Some(i)));
        let kept = queue.open.capacity() + queue.nodes.capacity();
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
