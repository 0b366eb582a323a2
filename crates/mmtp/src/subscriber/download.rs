//! One content on its way in: what of it is unrequested, pending, here, verified; and who sent wrong bytes.

mod pages;

use std::collections::BTreeMap;

use super::poisoning::{RejectedBlock, find_culprits};
use super::{Item, Need};
use crate::bitmap::Bitmap;
use crate::id::{ChunksPerBlock, ContentId, SEGMENT_BLOCKS};
use crate::range_set::RangeSet;
use crate::tree::{self, ChainingValue, CheckResult, Outboard, Verifier};
use crate::wire::Packet;

/// A source, by the order in which it was added.
pub type SourceId = u8;
/// The most sources one subscriber can have.
pub const SOURCES_MAX: usize = 250;
/// Poisoned copies kept per content until the right bytes tell who lied.
const REJECTED_MAX: usize = 16;

/// One content being fetched.
pub(super) struct Download {
    pub(super) id: ContentId,
    pub(super) unrequested: RangeSet,
    /// Nobody is asked for this block, nor for those after it.
    pub(super) horizon: u64,
    pub(super) meta_wanted: bool,
    meta_redundant: bool,
    verifier: Verifier,
    done: Bitmap,
    done_blocks: u64,
    partials: BTreeMap<u64, PartialBlock>,
    pages: BTreeMap<(u8, u64), PartialPage>,
    rejected: BTreeMap<u64, Vec<RejectedBlock>>,
    /// All pages, where they are known from the start.
    pub(super) outboard: Option<Outboard>,
}

/// A block that has been asked for and is not verified.
struct PartialBlock {
    cut: ChunksPerBlock,
    /// Chunks that are here.
    have: u64,
    /// Chunks that have expired once: the next time any path may ask.
    expired: u64,
    /// Chunks that were asked on a second path while pending on the first.
    redundant: u64,
    /// Who sent each chunk.
    from: [SourceId; 64],
    /// After a mixed block failed: only this source may fill it.
    exclusive_to: Option<SourceId>,
    bytes: Vec<u8>,
}

/// A page of the hash tree that has been asked for: two packets' worth of chaining values.
#[derive(Default)]
struct PartialPage {
    halves: [Option<Vec<ChainingValue>>; 2],
    from: [Option<SourceId>; 2],
    expired: [bool; 2],
    redundant: [bool; 2],
    /// A mixed page failed: it must come from one source.
    exclusive: bool,
    /// That source.
    exclusive_to: Option<SourceId>,
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
    /// What must be asked again although it came.
    pub(super) rerequest: Vec<Item>,
}

impl Download {
    /// A content of which nothing has been asked; `have` says which blocks are here already.
    pub(super) fn new(id: ContentId, meta_wanted: bool, have: impl Fn(u64) -> bool) -> Self {
        let blocks = id.blocks();
        let mut new = Self {
            id,
            unrequested: RangeSet::default(),
            horizon: u64::MAX,
            meta_wanted,
            meta_redundant: false,
            verifier: Verifier::new(id),
            done: Bitmap::new(blocks),
            done_blocks: 0,
            partials: BTreeMap::new(),
            pages: BTreeMap::new(),
            rejected: BTreeMap::new(),
            outboard: None,
        };
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

    /// Whether there is a block that somebody may be asked for and nobody has been.
    pub(super) fn has_requestable(&self) -> bool {
        self.unrequested.first_in(0..self.horizon).is_some()
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
        self.partials.len()
    }

    /// Whether every block is verified, and known what it is if that was asked.
    pub(super) fn is_complete(&self) -> bool {
        self.blocks_left() == 0 && !self.meta_wanted
    }

    /// Everything is here: lets go of what it took to get it. What still comes for it is not wanted.
    pub(super) fn free(&mut self) {
        self.verifier = Verifier::new(self.id);
        self.done = Bitmap::default();
        self.unrequested = RangeSet::default();
        self.partials = BTreeMap::new();
        self.pages = BTreeMap::new();
        self.rejected = BTreeMap::new();
        self.outboard = None;
    }

    /// Opens `block` for chunks of `cut` unless it is open; for `source` alone if a mixed copy of it was
    /// wrong.
    pub(super) fn open(&mut self, block: u64, cut: ChunksPerBlock, source: SourceId) {
        let alone = self.rejected.contains_key(&block);
        self.partials.entry(block).or_insert_with(|| PartialBlock {
            cut,
            have: 0,
            expired: 0,
            redundant: 0,
            from: [SourceId::MAX; 64],
            exclusive_to: alone.then_some(source),
            bytes: Vec::new(),
        });
    }

    /// Whether `block` is neither verified nor all here.
    pub(super) fn is_missing(&self, block: u64) -> bool {
        let whole = |p: &PartialBlock| p.have.count_ones() >= self.id.chunks_in_block(block, p.cut);
        !self.is_done(block) && !self.partials.get(&block).is_some_and(whole)
    }

    /// Opens `block` for somebody who brings all of it at once; what came of it in packets is dropped. False
    /// if only another source may fill it, or if all of it is here and waits for its page.
    pub(super) fn open_whole(&mut self, block: u64, cut: ChunksPerBlock, source: SourceId) -> bool {
        let only = self.partials.get(&block).and_then(|partial| partial.exclusive_to);
        if !self.is_missing(block) || only.is_some_and(|only| only != source) {
            return false;
        }
        self.partials.remove(&block);
        self.open(block, cut, source);
        true
    }

    /// The cut that `block` was opened with, if it is open.
    pub(super) fn cut_of(&self, block: u64) -> Option<ChunksPerBlock> {
        self.partials.get(&block).map(|p| p.cut)
    }

    /// Chunks that `block` has at the cut it was opened with.
    pub(super) fn chunks_of(&self, block: u64) -> u32 {
        self.partials.get(&block).map_or(0, |p| self.id.chunks_in_block(block, p.cut))
    }

    /// Whether `item` is still missing and `source` may bring it.
    pub(super) fn need(&self, item: Item, source: SourceId) -> Need {
        match item {
            Item::Meta => {
                if self.meta_wanted {
                    Need::ThisSource
                } else {
                    Need::None
                }
            }
            Item::Hash { level, first } => match self.pages.get(&(level, first / tree::PAGE_CVS)) {
                Some(page) if page.halves[half_of(first)].is_none() => {
                    if page.exclusive_to.is_none_or(|only| only == source) {
                        Need::ThisSource
                    } else {
                        Need::OtherSource
                    }
                }
                _ => Need::None,
            },
            Item::Data { cut, chunk } => {
                let (block, bit) = block_and_bit(cut, chunk);
                match self.partials.get(&block) {
                    Some(p) if p.cut == cut && p.have & bit == 0 => {
                        if p.exclusive_to.is_none_or(|only| only == source) {
                            Need::ThisSource
                        } else {
                            Need::OtherSource
                        }
                    }
                    _ => Need::None,
                }
            }
        }
    }

    /// Binds what only one source may bring to the first one that is asked.
    pub(super) fn bind_source(&mut self, item: Item, source: SourceId) {
        if let Item::Hash { level, first } = item
            && let Some(page) = self.pages.get_mut(&(level, first / tree::PAGE_CVS))
            && page.exclusive
        {
            page.exclusive_to = Some(source);
        }
    }

    /// Notes that `item` expired; true if it had done so before, so that any path may take it. It may be
    /// requested redundantly again: the path that did so may be as unresponsive as the first.
    pub(super) fn expire(&mut self, item: Item) -> bool {
        match item {
            Item::Meta => {
                self.meta_redundant = false;
                true
            }
            Item::Hash { level, first } => {
                let Some(page) = self.pages.get_mut(&(level, first / tree::PAGE_CVS)) else { return false };
                page.exclusive_to = None;
                page.redundant[half_of(first)] = false;
                std::mem::replace(&mut page.expired[half_of(first)], true)
            }
            Item::Data { cut, chunk } => {
                let (block, bit) = block_and_bit(cut, chunk);
                let Some(partial) = self.partials.get_mut(&block) else { return false };
                let before = partial.expired & bit != 0;
                partial.expired |= bit;
                partial.redundant &= !bit;
                before
            }
        }
    }

    /// Marks `item` as asked on a second path; false if it was already, or must not be.
    pub(super) fn mark_redundant(&mut self, item: Item) -> bool {
        match item {
            Item::Meta => !std::mem::replace(&mut self.meta_redundant, true),
            Item::Hash { level, first } => {
                let page = self.pages.get_mut(&(level, first / tree::PAGE_CVS));
                page.is_some_and(|page| !std::mem::replace(&mut page.redundant[half_of(first)], true))
            }
            Item::Data { cut, chunk } => {
                let (block, bit) = block_and_bit(cut, chunk);
                let Some(partial) = self.partials.get_mut(&block) else { return false };
                let first = partial.redundant & bit == 0 && partial.exclusive_to.is_none();
                partial.redundant |= bit;
                first
            }
        }
    }

    /// Takes back a block that `source` alone was to fill, or whose packets are too large for the path that
    /// would take it over: its bytes are dropped and it is unrequested again.
    pub(super) fn reopen(&mut self, block: u64) {
        if self.partials.remove(&block).is_some() {
            self.unrequested.insert_new(block..block + 1);
        }
    }

    /// Whether only one source may fill the block of `item`.
    pub(super) fn exclusive_block(&self, item: Item) -> Option<u64> {
        let Item::Data { cut, chunk } = item else { return None };
        let (block, _) = block_and_bit(cut, chunk);
        self.partials.get(&block).filter(|p| p.exclusive_to.is_some()).map(|_| block)
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

    /// A chunk arrived from `source`.
    pub(super) fn insert_chunk(
        &mut self,
        source: SourceId,
        cut: ChunksPerBlock,
        chunk: u64,
        payload: &[u8],
    ) -> IngestResult {
        let (block, bit) = block_and_bit(cut, chunk);
        let Some((_, offset, len)) = self.id.chunk_extent(chunk, cut) else { return IngestResult::default() };
        let wire_len = self.id.chunk_wire_len(chunk, cut);
        let Some(partial) = self.partials.get_mut(&block) else { return IngestResult::default() };
        let welcome = partial.cut == cut && partial.have & bit == 0 && wire_len == Some(payload.len());
        if !welcome || partial.exclusive_to.is_some_and(|only| only != source) {
            return IngestResult::default();
        }
        if partial.bytes.is_empty() {
            partial.bytes = vec![0; self.id.block_len(block)];
        }
        let (Some(to), Some(from)) = (partial.bytes.get_mut(offset..offset + len), payload.get(..len)) else {
            return IngestResult::default();
        };
        to.copy_from_slice(from);
        partial.have |= bit;
        partial.from[usize::from(index(cut, chunk))] = source;
        let mut result = IngestResult { fresh: true, ..IngestResult::default() };
        self.verify_block(block, &mut result);
        result
    }

    /// Chaining values arrived from `source`.
    pub(super) fn insert_hashes(
        &mut self,
        source: SourceId,
        level: u8,
        first: u64,
        cvs: &[ChainingValue],
    ) -> IngestResult {
        let mut result = IngestResult::default();
        let number = first / tree::PAGE_CVS;
        if cvs.len() != self.hash_count(level, first) || !first.is_multiple_of(tree::PACKET_CVS as u64) {
            return result;
        }
        let Some(page) = self.pages.get_mut(&(level, number)) else { return result };
        let half = half_of(first);
        if page.halves[half].is_some() || page.exclusive_to.is_some_and(|only| only != source) {
            return result;
        }
        page.halves[half] = Some(cvs.to_vec());
        page.from[half] = Some(source);
        result.fresh = true;
        self.verify_pages(&mut result);
        result
    }

    /// Verifies `block` if all of it is here.
    fn verify_block(&mut self, block: u64, result: &mut IngestResult) {
        let Some(partial) = self.partials.get(&block) else { return };
        let chunks = self.id.chunks_in_block(block, partial.cut);
        if partial.have.count_ones() < chunks {
            return;
        }
        match self.verifier.check(block, &partial.bytes) {
            CheckResult::PageMissing => {}
            CheckResult::Valid(cv) => {
                let Some(partial) = self.partials.remove(&block) else { return };
                for copy in self.rejected.remove(&block).unwrap_or_default() {
                    find_culprits(&partial.bytes, &copy, |source| result.culprits.push((source, block)));
                }
                self.mark_done(block);
                let segment = block / SEGMENT_BLOCKS;
                if self.segment_done(segment) {
                    self.verifier.forget_page(0, segment);
                }
                result.verified.push((block, partial.bytes, cv));
            }
            CheckResult::Invalid => {
                let Some(partial) = self.partials.remove(&block) else { return };
                let senders = &partial.from[..chunks as usize];
                if senders.iter().all(|s| *s == senders[0]) {
                    result.culprits.push((senders[0], block));
                } else if self.rejected.len() < REJECTED_MAX {
                    let copies = self.rejected.entry(block).or_default();
                    copies.push(RejectedBlock { bytes: partial.bytes, from: partial.from, cut: partial.cut });
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

    /// Drops what a banned source contributed and nobody has verified; returns what is to be asked again.
    pub(super) fn discard_from(&mut self, source: SourceId) -> Vec<Item> {
        let mut again = Vec::new();
        let mut reopen = Vec::new();
        for (&block, partial) in &mut self.partials {
            if partial.exclusive_to == Some(source) {
                reopen.push(block);
                continue;
            }
            for i in 0..u64::from(partial.cut.get()) {
                if partial.have >> i & 1 == 1 && partial.from[i as usize] == source {
                    partial.have &= !(1 << i);
                    let chunk = block * u64::from(partial.cut.get()) + i;
                    again.push(Item::Data { cut: partial.cut, chunk });
                }
            }
        }
        for block in reopen {
            self.reopen(block);
        }
        let pages: Vec<(u8, u64)> = self
            .pages
            .iter()
            .filter(|(_, page)| page.from.contains(&Some(source)))
            .map(|(&at, _)| at)
            .collect();
        for (level, number) in pages {
            self.pages.insert((level, number), PartialPage::default());
            again.extend(self.page_items(level, number));
        }
        again
    }
}

fn index(cut: ChunksPerBlock, chunk: u64) -> u8 {
    (chunk % u64::from(cut.get())) as u8
}

/// Block of a chunk, and its bit in the block's masks.
pub(super) fn block_and_bit(cut: ChunksPerBlock, chunk: u64) -> (u64, u64) {
    (chunk / u64::from(cut.get()), 1 << index(cut, chunk))
}

fn half_of(first: u64) -> usize {
    usize::from(first % tree::PAGE_CVS >= tree::PACKET_CVS as u64)
}
