//! One content on its way in, and the owner of the state of all that is missing of it.
//!
//! A **block** is in one of six states: unrequested, assigned to a path, reserved for a source that delivers
//! whole blocks, open ([`OpenBlock`]), or verified. A **chunk** of an open block is here, in flight, or in one
//! [`Queue`]: who asks for it next. So is a packet of a page of hashes, and the META. Paths keep what their
//! requests asked for, by which an answer or a loss is told here, and which download their blocks are of;
//! nothing else is kept twice. [`Download::check`] says whether all that is true.
//!
//! Marking and asking are one: [`Download::request`] is called by the request that has room for the packet.
//!
//! **Attempts.** A block that is begun anew has nothing in flight, though packets of the earlier attempt may
//! still come. So every block and page gets a number when it is opened, requests carry the last one given, and
//! a packet of a request with a lower number than its block's is not counted. If it comes, it is taken.

mod block;
mod check;
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use super::item::{GiveUp, Item, Need, PathId, Queue, SourceId};
use super::poisoning::{RejectedBlock, find_culprits};
use crate::bitmap::Bitmap;
use crate::id::{ChunksPerBlock, ContentId, SEGMENT_BLOCKS};
use crate::range_set::RangeSet;
use crate::tree::{ChainingValue, CheckResult, Outboard, Verifier};
use crate::wire::Packet;
use block::OpenBlock;
pub(super) use block::bits;
use pages::{OpenPage, Single, hash_item};

/// Blocks asked for and not verified, over all contents: 32 MiB, the larger part of what a transfer needs of
/// memory.
pub const BLOCKS_OPEN_MAX: usize = 2_048;
/// Poisoned copies kept per content until the right bytes tell who lied.
const REJECTED_MAX: usize = 16;

/// One content being fetched.
pub(super) struct Download {
    pub(super) id: ContentId,
    /// Blocks that nobody is to fetch yet.
    unrequested: RangeSet,
    /// Blocks that a path is to fetch and has not begun; no empty sets.
    assigned: BTreeMap<PathId, RangeSet>,
    /// Blocks that a source of another kind is to deliver.
    reserved: RangeSet,
    open: BTreeMap<u64, OpenBlock>,
    done: Bitmap,
    done_blocks: u64,
    pages: BTreeMap<(u8, u64), OpenPage>,
    /// What the content is, while it is wanted.
    meta: Option<Single>,
    /// Where in the above something is in which queue.
    waiting: BTreeSet<(Queue, Unit)>,
    /// The last number given to what was opened.
    epoch: u64,
    verifier: Verifier,
    rejected: BTreeMap<u64, Vec<RejectedBlock>>,
    /// All pages, where they are known from the start.
    pub(super) outboard: Option<Outboard>,
}

/// What packets are of, in the order in which they are asked for: pages from the top down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    Meta,
    Page(std::cmp::Reverse<u8>, u64),
    Block(u64),
}

impl Unit {
    const fn of_page(level: u8, number: u64) -> Self {
        Self::Page(std::cmp::Reverse(level), number)
    }
}

/// What became of something that arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IngestResult {
    /// It was new.
    pub(super) fresh: bool,
    /// Blocks verified by it.
    pub(super) verified: Vec<(u64, Vec<u8>, ChainingValue)>,
    /// Sources proven to have sent wrong bytes, with the block.
    pub(super) culprits: Vec<(SourceId, u64)>,
}

impl Download {
    /// A content of which nothing has been asked; `have` says which blocks are here already.
    pub(super) fn new(id: ContentId, meta_wanted: bool, have: impl Fn(u64) -> bool) -> Self {
        let blocks = id.blocks();
        let mut new = Self {
            id,
            unrequested: RangeSet::default(),
            assigned: BTreeMap::new(),
            reserved: RangeSet::default(),
            open: BTreeMap::new(),
            done: Bitmap::new(blocks),
            done_blocks: 0,
            pages: BTreeMap::new(),
            meta: meta_wanted.then(|| Single::waiting(Queue::Any)),
            waiting: BTreeSet::new(),
            epoch: 0,
            verifier: Verifier::new(id),
            rejected: BTreeMap::new(),
            outboard: None,
        };
        if meta_wanted {
            new.waiting.insert((Queue::Any, Unit::Meta));
        }
        let mut first = 0;
        for block in 0..blocks {
            if have(block) {
                new.unrequested.insert_new(first..block);
                first = block + 1;
                new.mark_done(block);
            }
        }
        new.unrequested.insert_new(first..blocks);
        new
    }

    pub(super) fn is_done(&self, block: u64) -> bool {
        self.done.contains(block)
    }

    fn mark_done(&mut self, block: u64) {
        let new = self.done.insert(block);
        debug_assert!(new, "block {block} verified twice");
        self.done_blocks += u64::from(new);
    }

    pub(super) fn blocks_left(&self) -> u64 {
        self.id.blocks() - self.done_blocks
    }

    pub(super) fn blocks_open(&self) -> usize {
        self.open.len()
    }

    pub(super) const fn blocks_unrequested(&self) -> u64 {
        self.unrequested.len()
    }

    /// Whether every block is verified, and known what it is if that was asked.
    pub(super) fn is_complete(&self) -> bool {
        self.blocks_left() == 0 && self.meta.is_none()
    }

    /// The number of a request that goes out now.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    // Blocks that nothing has been asked of.

    /// Assigns the first unrequested blocks of one segment to path `p`; false if there are none.
    pub(super) fn assign(&mut self, p: PathId) -> bool {
        let Some(taken) = self.unrequested.take_segment() else { return false };
        self.assigned.entry(p).or_default().insert_new(taken);
        true
    }

    /// Assigns one unrequested block.
    #[cfg(test)]
    pub(super) fn assign_one(&mut self, p: PathId, block: u64) {
        assert!(self.unrequested.remove(block));
        self.assigned.entry(p).or_default().insert_new(block..block + 1);
    }

    /// Blocks assigned to path `p` that it has not begun.
    pub(super) fn assigned(&self, p: PathId) -> u64 {
        self.assigned.get(&p).map_or(0, RangeSet::len)
    }

    /// The last blocks assigned to path `q`, at most `blocks`, are assigned to path `p`.
    pub(super) fn reassign(&mut self, q: PathId, p: PathId, blocks: u64) {
        if let Some(taken) = self.take_assigned(q, blocks) {
            self.assigned.entry(p).or_default().insert_new(taken);
        }
    }

    fn take_assigned(&mut self, q: PathId, blocks: u64) -> Option<Range<u64>> {
        let set = self.assigned.get_mut(&q)?;
        let taken = set.take_last(blocks);
        if set.is_empty() {
            self.assigned.remove(&q);
        }
        taken
    }

    /// Reserves up to `blocks` unrequested blocks in a row.
    pub(super) fn reserve(&mut self, blocks: u64) -> Option<Range<u64>> {
        let first = self.unrequested.first_in(0..u64::MAX)?.start;
        // A bound is where it is to end, though the segment goes on.
        let taken = self.unrequested.take(first..first.saturating_add(blocks), blocks)?;
        self.reserved.insert_new(taken.clone());
        Some(taken)
    }

    /// Reserves the first `blocks` of the last `share` blocks that are assigned to path `q`; the others of
    /// these are unrequested.
    pub(super) fn reserve_assigned(&mut self, q: PathId, share: u64, blocks: u64) -> Option<Range<u64>> {
        let taken = self.take_assigned(q, share)?;
        let end = taken.end.min(taken.start.saturating_add(blocks));
        self.unrequested.insert_new(end..taken.end);
        self.reserved.insert_new(taken.start..end);
        Some(taken.start..end)
    }

    /// Those of these blocks that are reserved are unrequested again.
    pub(super) fn release(&mut self, blocks: Range<u64>) {
        while let Some(part) = self.reserved.take(blocks.clone(), u64::MAX) {
            self.unrequested.insert_new(part);
        }
    }

    /// Takes `block` out of the state that it is in, if nothing has been asked of it; whether that was so.
    fn take_unbegun(&mut self, block: u64) -> bool {
        if self.unrequested.remove(block) || self.reserved.remove(block) {
            return true;
        }
        let path = self.assigned.iter_mut().find_map(|(p, set)| set.remove(block).then_some(*p));
        if let Some(p) = path
            && self.assigned(p) == 0
        {
            self.assigned.remove(&p);
        }
        path.is_some()
    }

    // Open blocks.

    /// Opens the first block assigned to path `p`, to be asked for in chunks of `cut`: by it, and of `source`
    /// alone if a mixed copy of the block was wrong. Returns which.
    pub(super) fn begin(&mut self, p: PathId, cut: ChunksPerBlock, source: SourceId) -> Option<u64> {
        let set = self.assigned.get_mut(&p)?;
        let block = set.take(0..u64::MAX, 1)?.start;
        if set.is_empty() {
            self.assigned.remove(&p);
        }
        self.put_block(block, cut, p, source);
        self.waiting.insert((Queue::First(p), Unit::Block(block)));
        Some(block)
    }

    fn put_block(&mut self, block: u64, cut: ChunksPerBlock, opener: PathId, source: SourceId) {
        self.epoch += 1;
        let chunks = self.id.chunks_in_block(block, cut);
        let mut new = OpenBlock::new(cut, chunks, opener, self.epoch);
        new.exclusive_to = self.rejected.contains_key(&block).then_some(source);
        let old = self.open.insert(block, new);
        debug_assert!(old.is_none(), "block {block} is open already");
    }

    fn take_open(&mut self, block: u64) -> Option<OpenBlock> {
        let open = self.open.remove(&block)?;
        for queue in open.queues() {
            self.waiting.remove(&(queue, Unit::Block(block)));
        }
        Some(open)
    }

    /// Takes back a block that one source alone was to fill, or whose packets are too large for the path that
    /// would take it over: its bytes are dropped and it is unrequested again.
    pub(super) fn reopen(&mut self, block: u64) {
        if self.take_open(block).is_some() {
            self.unrequested.insert_new(block..block + 1);
        }
    }

    /// The cut of an open block.
    pub(super) fn cut_of(&self, block: u64) -> Option<ChunksPerBlock> {
        self.open.get(&block).map(|open| open.cut)
    }

    // What waits.

    /// What waits in `queue`, after `after`.
    pub(super) fn next_waiting(&self, queue: Queue, after: Option<Unit>) -> Option<Unit> {
        let from = after.map_or(Bound::Included((queue, Unit::Meta)), |unit| Bound::Excluded((queue, unit)));
        let to = Bound::Included((queue, Unit::Block(u64::MAX)));
        self.waiting.range((from, to)).next().map(|(_, unit)| *unit)
    }

    /// Whether `source` may send what is missing of `unit`.
    pub(super) fn permits(&self, unit: Unit, source: SourceId) -> bool {
        match unit {
            Unit::Meta => true,
            Unit::Page(level, number) => {
                self.pages.get(&(level.0, number)).is_some_and(|p| p.permits(source))
            }
            Unit::Block(block) => self.open.get(&block).is_some_and(|open| open.permits(source)),
        }
    }

    /// The packets of `unit` that wait in `queue`, as bits: see [`item_of`](Self::item_of).
    pub(super) fn queued(&self, queue: Queue, unit: Unit) -> u64 {
        match unit {
            Unit::Meta => u64::from(self.meta.is_some_and(|meta| meta.queue == Some(queue))),
            Unit::Page(level, number) => self.pages.get(&(level.0, number)).map_or(0, |p| p.queued(queue)),
            Unit::Block(block) => self.open.get(&block).map_or(0, |open| open.queued(queue)),
        }
    }

    /// Packet `i` of `unit`; of a block, in the cut it was opened with.
    pub(super) fn item_of(&self, unit: Unit, i: u32) -> Option<Item> {
        Some(match unit {
            Unit::Meta => Item::Meta,
            Unit::Page(level, number) => hash_item(level.0, number, i as usize),
            Unit::Block(block) => {
                let cut = self.cut_of(block)?;
                Item::Data { cut, chunk: block * u64::from(cut.get()) + u64::from(i) }
            }
        })
    }

    /// What path `p` was to ask for and has not: any may, and blocks that it has not begun are unrequested. A
    /// block that its source alone was to fill is unrequested again: nobody else may finish it.
    pub(super) fn unassign(&mut self, p: PathId) {
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
    }

    // Packets.

    /// Whether `item` is still missing and `source` may bring it.
    pub(super) fn need(&self, item: Item, source: SourceId) -> Need {
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

    /// Whether one more copy of `item` can be asked for, at all.
    pub(super) fn has_room(&self, item: Item) -> bool {
        match item {
            Item::Data { cut, chunk } => self.open_with(cut, chunk).is_some_and(|(open, i)| open.has_room(i)),
            Item::Meta | Item::Hash { .. } => true,
        }
    }

    /// Whether `source` may be asked for a second copy of `item`, which is in flight on another path: once,
    /// until it expires.
    pub(super) fn may_copy(&self, item: Item, source: SourceId) -> bool {
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

    /// `item` goes out to `source`: it is in flight, and in no queue. Only a request that has room for it may
    /// call this.
    pub(super) fn request(&mut self, item: Item, source: SourceId, redundant: bool) {
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

    /// A copy of `item`, asked in request `epoch`, is no longer expected. If no other is in flight, it is in
    /// a queue now; a block that one source alone was to fill is begun anew if that source fails twice.
    pub(super) fn give_up(&mut self, item: Item, epoch: u64, how: GiveUp) {
        match item {
            Item::Meta => {
                let Some(meta) = &mut self.meta else { return };
                // There is nothing to try twice: whoever is next asks.
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
                // It may be asked redundantly again: the path that did so may be as unresponsive as the first.
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

    /// What waits for one path may be asked by any.
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

    /// Whether an answer has the form that the content's name alone demands: what has not can only be wrong.
    pub(super) fn is_well_formed(&self, packet: &Packet<'_>) -> bool {
        match packet {
            Packet::Data(data) => self.id.chunk_wire_len(data.chunk, data.cut) == Some(data.payload.len()),
            Packet::Hashes(hashes) => hashes.cvs.len() == self.hash_count(hashes.level, hashes.first),
            Packet::Meta(meta) => meta.content == self.id,
            _ => true,
        }
    }

    /// A META arrived; whether it was wanted.
    pub(super) fn insert_meta(&mut self) -> bool {
        let Some(meta) = self.meta.take() else { return false };
        if let Some(queue) = meta.queue {
            self.waiting.remove(&(queue, Unit::Meta));
        }
        true
    }

    /// A chunk arrived from `source`; `pending` is the number of the request, if it was in flight.
    pub(super) fn insert_chunk(
        &mut self,
        source: SourceId,
        cut: ChunksPerBlock,
        chunk: u64,
        payload: &[u8],
        pending: Option<u64>,
    ) -> IngestResult {
        let (block, i) = place(cut, chunk);
        let Some((_, offset, len)) = self.id.chunk_extent(chunk, cut) else { return IngestResult::default() };
        let wire_len = self.id.chunk_wire_len(chunk, cut);
        let open = self.open.get_mut(&block).filter(|open| open.cut == cut);
        let Some(open) = open else { return IngestResult::default() };
        if pending.is_some_and(|epoch| epoch >= open.opened) {
            open.remove_copy(i);
        }
        let welcome = open.have >> i & 1 == 0 && wire_len == Some(payload.len()) && open.permits(source);
        if !welcome {
            return IngestResult::default();
        }
        if open.bytes.is_empty() {
            open.bytes = vec![0; self.id.block_len(block)];
        }
        let (Some(to), Some(from)) = (open.bytes.get_mut(offset..offset + len), payload.get(..len)) else {
            return IngestResult::default();
        };
        to.copy_from_slice(from);
        open.have |= 1 << i;
        open.from[i as usize] = source;
        if let Some(queue) = open.dequeue(i) {
            self.waiting.remove(&(queue, Unit::Block(block)));
        }
        let mut result = IngestResult { fresh: true, ..IngestResult::default() };
        self.verify_block(block, &mut result);
        result
    }

    /// A whole block arrived from `source`. What came of it in packets is dropped; `None` if it is here
    /// already, or only another source may fill it.
    pub(super) fn insert_block(
        &mut self,
        source: SourceId,
        block: u64,
        bytes: &[u8],
    ) -> Option<IngestResult> {
        let cut = ChunksPerBlock::new(1)?;
        let fits = block < self.id.blocks() && bytes.len() == self.id.block_len(block);
        if !fits || self.is_complete() || self.is_done(block) {
            return None;
        }
        match self.open.get(&block) {
            Some(open) => {
                let whole = open.have.count_ones() >= self.id.chunks_in_block(block, open.cut);
                if whole || !open.permits(source) {
                    return None;
                }
                self.take_open(block);
            }
            None if self.open.len() >= BLOCKS_OPEN_MAX => {
                // Too many wait for the pages that prove them; this one is for later.
                self.release(block..block + 1);
                return None;
            }
            None => {
                let unbegun = self.take_unbegun(block);
                debug_assert!(unbegun, "block {block} was in no state");
            }
        }
        self.put_block(block, cut, 0, source);
        self.open.get_mut(&block)?.dequeue(0);
        Some(self.insert_chunk(source, cut, block, bytes, None))
    }

    /// Verifies `block` if all of it is here.
    fn verify_block(&mut self, block: u64, result: &mut IngestResult) {
        let Some(open) = self.open.get(&block) else { return };
        let chunks = self.id.chunks_in_block(block, open.cut);
        if open.have.count_ones() < chunks {
            return;
        }
        match self.verifier.check(block, &open.bytes) {
            // It was asked for when the block was begun, and may have been dropped since.
            CheckResult::PageMissing => drop(self.open_pages(block, Queue::Any, false)),
            CheckResult::Valid(cv) => {
                let Some(open) = self.take_open(block) else { return };
                for copy in self.rejected.remove(&block).unwrap_or_default() {
                    find_culprits(&open.bytes, &copy, |source| result.culprits.push((source, block)));
                }
                self.mark_done(block);
                let segment = block / SEGMENT_BLOCKS;
                if self.segment_done(segment) {
                    self.verifier.forget_page(0, segment);
                }
                result.verified.push((block, open.bytes, cv));
            }
            CheckResult::Invalid => {
                let Some(open) = self.take_open(block) else { return };
                let senders = &open.from[..chunks as usize];
                if senders.iter().all(|s| *s == senders[0]) {
                    result.culprits.push((senders[0], block));
                } else if self.rejected.len() < REJECTED_MAX {
                    let copies = self.rejected.entry(block).or_default();
                    copies.push(RejectedBlock { bytes: open.bytes, from: open.from, cut: open.cut });
                }
                self.unrequested.insert_new(block..block + 1);
            }
        }
    }

    /// Whether every block of `segment` is verified, so that its page is of no more use.
    fn segment_done(&self, segment: u64) -> bool {
        let first = segment * SEGMENT_BLOCKS;
        let end = (first + SEGMENT_BLOCKS).min(self.id.blocks());
        (first..end).all(|block| self.is_done(block))
    }

    /// Drops what a banned source contributed and nobody has verified: it is to be asked again.
    pub(super) fn discard_from(&mut self, source: SourceId) {
        let mut reopen = Vec::new();
        for (&block, open) in &mut self.open {
            if open.exclusive_to == Some(source) {
                reopen.push(block);
                continue;
            }
            let bad: Vec<u32> = bits(open.have).filter(|i| open.from[*i as usize] == source).collect();
            for i in bad {
                open.have &= !(1 << i);
                if open.in_flight() >> i & 1 == 0 {
                    open.enqueue(i, Queue::Any);
                    self.waiting.insert((Queue::Any, Unit::Block(block)));
                }
            }
        }
        for block in reopen {
            self.reopen(block);
        }
        self.discard_pages_from(source);
    }
}

/// Block of a chunk, and its place in the block.
fn place(cut: ChunksPerBlock, chunk: u64) -> (u64, u32) {
    let chunks = u64::from(cut.get());
    (chunk / chunks, (chunk % chunks) as u32)
}
