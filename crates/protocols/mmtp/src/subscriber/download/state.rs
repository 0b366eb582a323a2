//! The state of a download's blocks and packets.

use std::collections::{BTreeMap, BTreeSet};

use super::block::OpenBlock;
use super::page::{OpenPage, Single};
use crate::bitmap::Bitmap;
use crate::id::{ChunksPerBlock, ContentId};
use crate::range_set::RangeSet;
use crate::subscriber::item::{CacheId, PathId, Queue, SourceId};
use crate::subscriber::poisoning::RejectedBlock;
use crate::tree::{ChainingValue, Outboard, Verifier};

/// The most blocks that are asked for and not verified, over all contents: 32 MiB. They are the larger part
/// of a transfer's memory.
pub const BLOCKS_OPEN_MAX: usize = 2_048;
/// The most poisoned blocks per content of which copies are kept, until the right bytes show which source
/// lied.
pub(super) const REJECTED_MAX: usize = 16;

/// One content that is being fetched.
pub(in crate::subscriber) struct Download {
    pub(in crate::subscriber) id: ContentId,
    /// Missing blocks that are not assigned: any source may get them.
    pub(super) unrequested: RangeSet,
    /// No new request may ask for this block or those after it. Requests that have been sent are not
    /// affected.
    pub(super) horizon: u64,
    /// The blocks that each path is to fetch and has not begun; no set is empty.
    pub(super) assigned: BTreeMap<PathId, RangeSet>,
    /// Blocks that a source of another kind (one that delivers whole blocks) is to fetch.
    pub(super) reserved: RangeSet,
    pub(super) open: BTreeMap<u64, OpenBlock>,
    pub(super) done: Bitmap,
    pub(super) done_blocks: u64,
    pub(super) pages: BTreeMap<(u8, u64), OpenPage>,
    /// The state of the META, while it is wanted.
    pub(super) meta: Option<Single>,
    /// An index of the units above that have packets in a queue, sorted by queue.
    pub(super) waiting: BTreeSet<(Queue, Unit)>,
    /// The last number that was given to a block or page when it was opened.
    pub(super) epoch: u64,
    pub(super) verifier: Verifier,
    pub(super) rejected: BTreeMap<u64, Vec<RejectedBlock>>,
    /// The whole hash tree, if it is known from the start.
    pub(in crate::subscriber) outboard: Option<Outboard>,
}

/// The unit that a packet is a part of. Units are asked for in this order, pages from the top down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::subscriber) enum Unit {
    Meta,
    Page(std::cmp::Reverse<u8>, u64),
    Block(u64),
}

impl Unit {
    pub(super) const fn of_page(level: u8, number: u64) -> Self {
        Self::Page(std::cmp::Reverse(level), number)
    }
}

/// The effects of a packet or block that has arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::subscriber) struct IngestResult {
    /// Whether the packet or block was new.
    pub(in crate::subscriber) fresh: bool,
    /// The blocks that it has verified: number, bytes and chaining value.
    pub(in crate::subscriber) verified: Vec<(u64, Vec<u8>, ChainingValue)>,
    /// Sources that are proven to have sent wrong bytes, each with the block.
    pub(in crate::subscriber) culprits: Vec<(SourceId, u64)>,
    /// Caches that have sent a part of a wrong block or page. It is not known yet whether they or others sent
    /// the wrong bytes.
    pub(in crate::subscriber) suspects: Vec<CacheId>,
}

impl Download {
    /// Creates a download with nothing asked for. `have` says which blocks the caller already has.
    pub(in crate::subscriber) fn new(id: ContentId, meta_wanted: bool, have: impl Fn(u64) -> bool) -> Self {
        let blocks = id.blocks();
        let mut new = Self {
            id,
            unrequested: RangeSet::default(),
            horizon: u64::MAX,
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

    pub(in crate::subscriber) fn is_done(&self, block: u64) -> bool {
        self.done.contains(block)
    }

    pub(super) fn mark_done(&mut self, block: u64) {
        let new = self.done.insert(block);
        debug_assert!(new, "block {block} verified twice");
        self.done_blocks += u64::from(new);
    }

    pub(in crate::subscriber) fn blocks_left(&self) -> u64 {
        self.id.blocks() - self.done_blocks
    }

    pub(in crate::subscriber) fn blocks_open(&self) -> usize {
        self.open.len()
    }

    pub(in crate::subscriber) fn blocks_reserved(&self) -> u64 {
        self.reserved.len()
    }

    /// Whether some page of hashes is open.
    pub(in crate::subscriber) fn awaits_hashes(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Sets the block from which on no new request may ask for blocks.
    pub(in crate::subscriber) const fn set_horizon(&mut self, end_block: u64) {
        self.horizon = end_block;
    }

    /// Returns how many unrequested blocks lie below the horizon, so that they may be assigned now.
    pub(in crate::subscriber) fn blocks_unrequested(&self) -> u64 {
        self.unrequested.len_below(self.horizon)
    }

    /// Whether every block is verified, and the META has arrived if it was wanted.
    pub(in crate::subscriber) fn is_complete(&self) -> bool {
        self.blocks_left() == 0 && self.meta.is_none()
    }

    /// Returns the number that a request gets if it is sent now.
    pub(in crate::subscriber) const fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Returns the block of a chunk, and the chunk's index in the block.
pub(super) fn place(cut: ChunksPerBlock, chunk: u64) -> (u64, u32) {
    let chunks = u64::from(cut.get());
    (chunk / chunks, (chunk % chunks) as u32)
}
