//! Moves single packets between their states: waiting in a queue, in flight, given up.

use std::ops::Bound;

use super::block::{OpenBlock, bits};
use super::page::hash_item;
use super::state::{Download, Unit, place};
use crate::id::ChunksPerBlock;
use crate::subscriber::item::{GiveUp, Item, Need, PathId, Queue, SourceId};

impl Download {
    /// Returns the first unit after `after` that has a packet in `queue`.
    pub(in crate::subscriber) fn next_waiting(&self, queue: Queue, after: Option<Unit>) -> Option<Unit> {
        let from = after.map_or(Bound::Included((queue, Unit::Meta)), |unit| Bound::Excluded((queue, unit)));
        let to = Bound::Included((queue, Unit::Block(u64::MAX)));
        self.waiting.range((from, to)).next().map(|(_, unit)| *unit)
    }

    /// Whether `source` may send the missing packets of `unit`.
    pub(in crate::subscriber) fn permits(&self, unit: Unit, source: SourceId) -> bool {
        match unit {
            Unit::Meta => true,
            Unit::Page(level, number) => {
                self.pages.get(&(level.0, number)).is_some_and(|p| p.permits(source))
            }
            Unit::Block(block) => self.open.get(&block).is_some_and(|open| open.permits(source)),
        }
    }

    /// Returns the packets of `unit` that wait in `queue`, as bits (see [`item_of`](Self::item_of)).
    pub(in crate::subscriber) fn queued(&self, queue: Queue, unit: Unit) -> u64 {
        match unit {
            Unit::Meta => u64::from(self.meta.is_some_and(|meta| meta.queue == Some(queue))),
            Unit::Page(level, number) => self.pages.get(&(level.0, number)).map_or(0, |p| p.queued(queue)),
            Unit::Block(block) => self.open.get(&block).map_or(0, |open| open.queued(queue)),
        }
    }

    /// Returns packet `i` of `unit`. Chunks of a block have the cut that the block was opened with.
    pub(in crate::subscriber) fn item_of(&self, unit: Unit, i: u32) -> Option<Item> {
        Some(match unit {
            Unit::Meta => Item::Meta,
            Unit::Page(level, number) => hash_item(level.0, number, i as usize),
            Unit::Block(block) => {
                let cut = self.cut_of(block)?;
                Item::Data { cut, chunk: block * u64::from(cut.get()) + u64::from(i) }
            }
        })
    }

    /// Takes everything away from path `p` that it has not asked `source` for yet. Any path may ask for these
    /// packets, and blocks that the path has not begun become unrequested. A block or page that only `source`
    /// was to finish, and that has nothing in flight, is begun anew.
    pub(in crate::subscriber) fn unassign(&mut self, p: PathId, source: SourceId) {
        while let Some(blocks) = self.take_assigned(p, u64::MAX) {
            self.unrequested.insert_new(blocks);
        }
        for queue in [Queue::Retry(p), Queue::First(p)] {
            while let Some(unit) = self.next_waiting(queue, None) {
                for i in bits(self.queued(queue, unit)) {
                    if let Some(item) = self.item_of(unit, i) {
                        self.hand_over(item);
                    }
                }
            }
        }
        self.reopen_pages(|page| {
            let idle = page.halves.iter().all(|half| half.cvs.is_some() || half.single.copies == 0);
            page.exclusive_to == Some(source) && idle && page.queues().next().is_some()
        });
    }

    /// Returns whether `item` is still missing and whether `source` may send it.
    pub(in crate::subscriber) fn need(&self, item: Item, source: SourceId) -> Need {
        match item {
            Item::Meta if self.meta.is_some() => Need::ThisSource,
            Item::Meta => Need::None,
            Item::Hash { level, first } => self.need_hash(level, first, source),
            Item::Data { cut, chunk } => match self.open_with(cut, chunk) {
                Some((open, i)) if open.have >> i & 1 == 0 => {
                    if open.permits(source) {
                        Need::ThisSource
                    } else {
                        Need::OtherSource
                    }
                }
                _ => Need::None,
            },
        }
    }

    fn open_with(&self, cut: ChunksPerBlock, chunk: u64) -> Option<(&OpenBlock, u32)> {
        let (block, i) = place(cut, chunk);
        self.open.get(&block).filter(|open| open.cut == cut).map(|open| (open, i))
    }

    /// Whether one more copy of `item` may be asked for.
    pub(in crate::subscriber) fn has_room(&self, item: Item) -> bool {
        match item {
            Item::Data { cut, chunk } => self.open_with(cut, chunk).is_some_and(|(open, i)| open.has_room(i)),
            Item::Meta | Item::Hash { .. } => true,
        }
    }

    /// Whether `source` may be asked for a second copy of `item`, which is in flight on another path. This
    /// happens only once until the item expires.
    pub(in crate::subscriber) fn may_copy(&self, item: Item, source: SourceId) -> bool {
        self.need(item, source) == Need::ThisSource
            && match item {
                Item::Meta => self.meta.is_some_and(|meta| meta.may_copy()),
                Item::Hash { level, first } => {
                    self.half_page(level, first).is_some_and(|(_, half)| half.single.may_copy())
                }
                Item::Data { cut, chunk } => self.open_with(cut, chunk).is_some_and(|(open, i)| {
                    let once = open.in_flight() & !open.redundant;
                    once >> i & 1 == 1 && open.exclusive_to.is_none() && open.has_room(i)
                }),
            }
    }

    /// Records that `item` is asked for from `source`: the item is in flight now and in no queue. Only a
    /// request that has room for the item may call this.
    pub(in crate::subscriber) fn request(&mut self, item: Item, source: SourceId, redundant: bool) {
        // A path without work asks for the META to see whether its source answers, even if the META has
        // arrived.
        let missing = self.need(item, source) == Need::ThisSource || item == Item::Meta;
        debug_assert!(missing, "{item:?} is here, or not from source {source}");
        match item {
            Item::Meta => {
                let Some(meta) = &mut self.meta else { return };
                if let Some(queue) = meta.queue {
                    self.waiting.remove(&(queue, Unit::Meta));
                }
                meta.request();
                if redundant {
                    meta.mark_redundant();
                }
            }
            Item::Hash { level, first } => self.request_hash(level, first, source, redundant),
            Item::Data { cut, chunk } => {
                let (block, i) = place(cut, chunk);
                let Some(open) = self.open.get_mut(&block) else { return };
                if let Some(queue) = open.dequeue(i) {
                    self.waiting.remove(&(queue, Unit::Block(block)));
                }
                open.add_copy(i);
                open.redundant |= u64::from(redundant) << i;
            }
        }
    }

    /// Records that a copy of `item`, asked for in request `epoch`, is no longer expected. If no other copy
    /// is in flight, puts the item into a queue. A block that only one source was to fill is begun anew if
    /// that source fails twice.
    pub(in crate::subscriber) fn give_up(&mut self, item: Item, epoch: u64, how: GiveUp) {
        match item {
            Item::Meta => {
                let Some(meta) = &mut self.meta else { return };
                // One path need not ask twice for the META, because any source knows it.
                let how = if let GiveUp::Again(_) = how { how } else { GiveUp::Elsewhere };
                if let Some(queue) = meta.give_up(how) {
                    self.waiting.insert((queue, Unit::Meta));
                }
            }
            Item::Hash { level, first } => self.give_up_hash(level, first, epoch, how),
            Item::Data { cut, chunk } => {
                let (block, i) = place(cut, chunk);
                let open = self.open.get_mut(&block);
                let Some(open) = open.filter(|open| open.cut == cut && open.opened <= epoch) else { return };
                open.remove_copy(i);
                if open.have >> i & 1 == 1 {
                    return;
                }
                // The chunk may be asked for redundantly again, because the path that did so may be as
                // unresponsive as the first.
                open.redundant &= !(1 << i);
                let before = open.expired >> i & 1 == 1;
                if !matches!(how, GiveUp::Again(_)) {
                    open.expired |= 1 << i;
                }
                if open.in_flight() >> i & 1 == 1 {
                    return;
                }
                let queue = match how {
                    GiveUp::Again(p) => Queue::Retry(p),
                    GiveUp::Lost(p) if !before => Queue::Retry(p),
                    GiveUp::Lost(_) | GiveUp::Elsewhere if open.exclusive_to.is_some() => {
                        return self.reopen(block);
                    }
                    GiveUp::Lost(_) | GiveUp::Elsewhere => Queue::Any,
                };
                open.enqueue(i, queue);
                self.waiting.insert((queue, Unit::Block(block)));
            }
        }
    }

    /// Moves `item` from the queue of one path to [`Queue::Any`].
    fn hand_over(&mut self, item: Item) {
        match item {
            Item::Meta => {
                let Some(meta) = &mut self.meta else { return };
                if let Some(queue) = meta.queue.replace(Queue::Any) {
                    self.waiting.remove(&(queue, Unit::Meta));
                }
                self.waiting.insert((Queue::Any, Unit::Meta));
            }
            Item::Hash { level, first } => self.hand_over_hash(level, first),
            Item::Data { cut, chunk } => {
                let (block, i) = place(cut, chunk);
                let Some(open) = self.open.get_mut(&block) else { return };
                if open.exclusive_to.is_some() {
                    return self.reopen(block);
                }
                if let Some(queue) = open.dequeue(i) {
                    self.waiting.remove(&(queue, Unit::Block(block)));
                }
                open.expired |= 1 << i;
                open.enqueue(i, Queue::Any);
                self.waiting.insert((Queue::Any, Unit::Block(block)));
            }
        }
    }
}
