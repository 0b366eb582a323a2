//! Moves whole blocks between their states: unrequested, assigned, reserved and open.

use std::ops::Range;

use super::block::OpenBlock;
use super::state::{Download, Unit};
use crate::id::ChunksPerBlock;
use crate::range_set::RangeSet;
use crate::subscriber::item::{PathId, Queue, SourceId};

impl Download {
    /// Assigns the first unrequested blocks of one segment to path `p`. Returns `false` if there are none.
    pub(in crate::subscriber) fn assign(&mut self, p: PathId) -> bool {
        let Some(taken) = self.unrequested.take_segment_below(self.horizon) else { return false };
        self.assigned.entry(p).or_default().insert_new(taken);
        true
    }

    /// Assigns one unrequested block to path `p`.
    #[cfg(test)]
    pub(in crate::subscriber) fn assign_one(&mut self, p: PathId, block: u64) {
        assert!(self.unrequested.remove(block));
        self.assigned.entry(p).or_default().insert_new(block..block + 1);
    }

    /// Returns how many blocks are assigned to path `p` and not begun.
    pub(in crate::subscriber) fn assigned(&self, p: PathId) -> u64 {
        self.assigned.get(&p).map_or(0, RangeSet::len)
    }

    /// Reassigns the last blocks of path `q`, at most `blocks`, to path `p`.
    pub(in crate::subscriber) fn reassign(&mut self, q: PathId, p: PathId, blocks: u64) {
        if let Some(taken) = self.take_assigned(q, blocks) {
            self.assigned.entry(p).or_default().insert_new(taken);
        }
    }

    pub(super) fn take_assigned(&mut self, q: PathId, blocks: u64) -> Option<Range<u64>> {
        let set = self.assigned.get_mut(&q)?;
        let taken = set.take_last(blocks);
        if set.is_empty() {
            self.assigned.remove(&q);
        }
        taken
    }

    /// Reserves up to `blocks` consecutive unrequested blocks.
    pub(in crate::subscriber) fn reserve(&mut self, blocks: u64) -> Option<Range<u64>> {
        let first = self.unrequested.first_in(0..self.horizon)?.start;
        // The reservation ends at the horizon, even within a segment.
        let end = first.saturating_add(blocks).min(self.horizon);
        let taken = self.unrequested.take(first..end, blocks)?;
        self.reserved.insert_new(taken.clone());
        Some(taken)
    }

    /// Takes the last `share` blocks away from path `q`. Reserves the first `blocks` of them and makes the
    /// others unrequested.
    pub(in crate::subscriber) fn reserve_assigned(
        &mut self,
        q: PathId,
        share: u64,
        blocks: u64,
    ) -> Option<Range<u64>> {
        let taken = self.take_assigned(q, share)?;
        let end = taken.end.min(taken.start.saturating_add(blocks));
        self.unrequested.insert_new(end..taken.end);
        self.reserved.insert_new(taken.start..end);
        Some(taken.start..end)
    }

    /// Reserves the first block that is open and has not arrived completely. Its chunks that have arrived are
    /// dropped.
    pub(in crate::subscriber) fn reserve_stranded(&mut self) -> Option<Range<u64>> {
        let block = self.stranded().next()?;
        self.take_open(block)?;
        self.reserved.insert_new(block..block + 1);
        Some(block..block + 1)
    }

    pub(in crate::subscriber) fn blocks_stranded(&self) -> u64 {
        self.stranded().count() as u64
    }

    fn stranded(&self) -> impl Iterator<Item = u64> {
        let below = self.open.range(..self.horizon);
        let partly =
            below.filter(|(block, open)| open.have.count_ones() < self.id.chunks_in_block(**block, open.cut));
        partly.map(|(block, _)| *block)
    }

    /// Makes the reserved ones among `blocks` unrequested again.
    pub(in crate::subscriber) fn release(&mut self, blocks: Range<u64>) {
        while let Some(part) = self.reserved.take(blocks.clone(), u64::MAX) {
            self.unrequested.insert_new(part);
        }
    }

    /// Takes `block` out of its state, so that it can be opened. Returns `false` if it has been begun
    /// already.
    pub(super) fn take_unbegun(&mut self, block: u64) -> bool {
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

    /// Opens the first block assigned to path `p`, with chunks of `cut`, and returns its number. Path `p`
    /// asks for its chunks. If a copy of the block from several sources was wrong, only `source` may fill it.
    pub(in crate::subscriber) fn begin(
        &mut self,
        p: PathId,
        cut: ChunksPerBlock,
        source: SourceId,
    ) -> Option<u64> {
        let set = self.assigned.get_mut(&p)?;
        let block = set.take(0..u64::MAX, 1)?.start;
        if set.is_empty() {
            self.assigned.remove(&p);
        }
        let chunks = self.id.chunks_in_block(block, cut);
        self.put_block(block, cut, source).enqueue_first(chunks, p);
        self.waiting.insert((Queue::First(p), Unit::Block(block)));
        Some(block)
    }

    /// Opens a block with its chunks in no queue.
    pub(super) fn put_block(&mut self, block: u64, cut: ChunksPerBlock, source: SourceId) -> &mut OpenBlock {
        self.epoch += 1;
        let mut new = OpenBlock::new(cut, self.epoch);
        new.exclusive_to = self.rejected.contains_key(&block).then_some(source);
        debug_assert!(!self.open.contains_key(&block), "block {block} is open already");
        self.open.entry(block).or_insert(new)
    }

    pub(super) fn take_open(&mut self, block: u64) -> Option<OpenBlock> {
        let open = self.open.remove(&block)?;
        for queue in open.queues() {
            self.waiting.remove(&(queue, Unit::Block(block)));
        }
        Some(open)
    }

    /// Drops the bytes of an open block and makes it unrequested again. This is for a block that only one
    /// source was to fill, or whose packets are too large for the path that would take it over.
    pub(in crate::subscriber) fn reopen(&mut self, block: u64) {
        if self.take_open(block).is_some() {
            self.unrequested.insert_new(block..block + 1);
        }
    }

    /// Returns the open blocks that have arrived completely from one source: the source, the block's number
    /// and its bytes.
    pub(in crate::subscriber) fn into_unverified(self) -> impl Iterator<Item = (SourceId, u64, Vec<u8>)> {
        let id = self.id;
        self.open.into_iter().filter_map(move |(block, open)| {
            let chunks = id.chunks_in_block(block, open.cut);
            let from = &open.from[..chunks as usize];
            let is_whole = open.have.count_ones() >= chunks && from.iter().all(|source| *source == from[0]);
            is_whole.then_some((from[0], block, open.bytes))
        })
    }

    /// Returns the cut of an open block.
    pub(in crate::subscriber) fn cut_of(&self, block: u64) -> Option<ChunksPerBlock> {
        self.open.get(&block).map(|open| open.cut)
    }
}
