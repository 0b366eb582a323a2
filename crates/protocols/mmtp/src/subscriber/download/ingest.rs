//! Handles arriving packets: decides whether they are welcome and right, and which source to blame if they
//! are wrong.

use super::block::bits;
use super::state::{BLOCKS_OPEN_MAX, Download, IngestResult, REJECTED_MAX, Unit, place};
use crate::id::{ChunksPerBlock, SEGMENT_BLOCKS};
use crate::subscriber::item::{Queue, Sender, SourceId};
use crate::subscriber::poisoning::{RejectedBlock, find_culprits};
use crate::tree::CheckResult;
use crate::wire::Packet;

impl Download {
    /// Whether an answer has the length that follows from the content's name. An answer with another length
    /// is wrong.
    pub(in crate::subscriber) fn is_well_formed(&self, packet: &Packet<'_>) -> bool {
        match packet {
            Packet::Data(data) => self.id.chunk_wire_len(data.chunk, data.cut) == Some(data.payload.len()),
            Packet::Hashes(hashes) => hashes.cvs.len() == self.hash_count(hashes.level, hashes.first),
            Packet::Meta(meta) => meta.content == self.id,
            _ => true,
        }
    }

    /// Handles a META that has arrived. Returns whether it was wanted.
    pub(in crate::subscriber) fn insert_meta(&mut self) -> bool {
        let Some(meta) = self.meta.take() else { return false };
        if let Some(queue) = meta.queue {
            self.waiting.remove(&(queue, Unit::Meta));
        }
        true
    }

    /// Handles a chunk that has arrived. `pending` is the number of its request, if the chunk was in flight.
    pub(in crate::subscriber) fn insert_chunk(
        &mut self,
        sender: impl Into<Sender>,
        cut: ChunksPerBlock,
        chunk: u64,
        payload: &[u8],
        pending: Option<u64>,
    ) -> IngestResult {
        let Sender { source, cache } = sender.into();
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
        open.caches.extend(cache.map(|cache| (i, cache)));
        if let Some(queue) = open.dequeue(i) {
            self.waiting.remove(&(queue, Unit::Block(block)));
        }
        let mut result = IngestResult { fresh: true, ..IngestResult::default() };
        self.verify_block(block, &mut result);
        result
    }

    /// Handles a whole block that has arrived from `source`, and drops the block's earlier packets. Returns
    /// `None` if the block has arrived already, lies beyond the horizon, or may only come from another
    /// source.
    pub(in crate::subscriber) fn insert_block(
        &mut self,
        source: SourceId,
        block: u64,
        bytes: &[u8],
    ) -> Option<IngestResult> {
        let cut = ChunksPerBlock::new(1)?;
        let fits = block < self.id.blocks() && bytes.len() == self.id.block_len(block);
        if !fits || self.is_complete() || self.is_done(block) || block >= self.horizon {
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
                // Too many blocks wait for the pages that prove them. This block must be asked for again
                // later.
                self.release(block..block + 1);
                return None;
            }
            None => {
                let unbegun = self.take_unbegun(block);
                debug_assert!(unbegun, "block {block} was in no state");
            }
        }
        self.put_block(block, cut, source);
        Some(self.insert_chunk(source, cut, block, bytes, None))
    }

    /// Verifies `block` if all its chunks have arrived.
    pub(super) fn verify_block(&mut self, block: u64, result: &mut IngestResult) {
        let Some(open) = self.open.get(&block) else { return };
        let chunks = self.id.chunks_in_block(block, open.cut);
        if open.have.count_ones() < chunks {
            return;
        }
        match self.verifier.check(block, &open.bytes) {
            // The page was asked for when the block was begun, but the verifier may have dropped it since.
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
                if !open.caches.is_empty() {
                    // Once the block comes without caches, it shows whether a cache or a source is to blame.
                    result.suspects.extend(open.caches.iter().map(|(_, cache)| cache));
                } else if senders.iter().all(|s| *s == senders[0]) {
                    result.culprits.push((senders[0], block));
                } else if self.rejected.len() < REJECTED_MAX {
                    let copies = self.rejected.entry(block).or_default();
                    copies.push(RejectedBlock { bytes: open.bytes, from: open.from, cut: open.cut });
                }
                self.unrequested.insert_new(block..block + 1);
            }
        }
    }

    /// Whether every block of `segment` is verified, so that its page is not needed any more.
    fn segment_done(&self, segment: u64) -> bool {
        let first = segment * SEGMENT_BLOCKS;
        let end = (first + SEGMENT_BLOCKS).min(self.id.blocks());
        (first..end).all(|block| self.is_done(block))
    }

    /// Drops the unverified parts that a banned source has sent, so that they are asked for again.
    pub(in crate::subscriber) fn discard_from(&mut self, source: SourceId) {
        let mut reopen = Vec::new();
        for (&block, open) in &mut self.open {
            if open.exclusive_to == Some(source) {
                reopen.push(block);
                continue;
            }
            let bad: Vec<u32> = bits(open.have).filter(|i| open.from[*i as usize] == source).collect();
            for i in bad {
                open.have &= !(1 << i);
                open.caches.retain(|(chunk, _)| *chunk != i);
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
