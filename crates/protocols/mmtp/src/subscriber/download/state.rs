//! The state of a content's blocks and packets.

use std::collections::{BTreeMap, BTreeSet};

use super::block::OpenBlock;
use super::page::{OpenPage, Single};
use crate::bitmap::Bitmap;
use crate::id::{ChunksPerBlock, ContentId};
use crate::range_set::RangeSet;
use crate::subscriber::item::{CacheId, PathId, Queue, SourceId};
use crate::subscriber::poisoning::RejectedBlock;
use crate::tree::{ChainingValue, Outboard, Verifier};

/// Blocks asked for and not verified, over all contents: 32 MiB, the larger part of what a transfer needs of
/// memory.
pub const BLOCKS_OPEN_MAX: usize = 2_048;
/// Poisoned copies kept per content until the right bytes tell who lied.
pub(super) const REJECTED_MAX: usize = 16;

/// One content being fetched.
pub(in crate::subscriber) struct Download {
    pub(in crate::subscriber) id: ContentId,
    /// Blocks that are missing and not assigned to anybody: any source may get them.
    pub(super) unrequested: RangeSet,
    /// Nobody is asked for this block, nor for those after it, unless somebody has been already.
    pub(super) horizon: u64,
    /// Blocks that a path is to fetch and has not begun; no empty sets.
    pub(super) assigned: BTreeMap<PathId, RangeSet>,
    /// Blocks that a source of another kind is to deliver.
    pub(super) reserved: RangeSet,
    pub(super) open: BTreeMap<u64, OpenBlock>,
    pub(super) done: Bitmap,
    pub(super) done_blocks: u64,
    pub(super) pages: BTreeMap<(u8, u64), OpenPage>,
    /// The state of the META, while it is wanted.
    pub(super) meta: Option<Single>,
    /// The units above that have packets in a queue, by queue: an index.
    pub(super) waiting: BTreeSet<(Queue, Unit)>,
    /// The last number given to a block or page that was opened.
    pub(super) epoch: u64,
    pub(super) verifier: Verifier,
    pub(super) rejected: BTreeMap<u64, Vec<RejectedBlock>>,
    /// All pages, where they are known from the start.
    pub(in crate::subscriber) outboard: Option<Outboard>,
}

/// What a packet is a part of. Units are asked for in this order, pages from the top down.
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

/// What became of something that arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::subscriber) struct IngestResult {
    /// It was new.
    pub(in crate::subscriber) fresh: bool,
    /// Blocks verified by it.
    pub(in crate::subscriber) verified: Vec<(u64, Vec<u8>, ChainingValue)>,
    /// Sources proven to have sent wrong bytes, with the block.
    pub(in crate::subscriber) culprits: Vec<(SourceId, u64)>,
    /// Caches that have sent a part of what is wrong: they, or others, have sent wrong bytes.
    pub(in crate::subscriber) suspects: Vec<CacheId>,
}

impl Download {
    /// A content of which nothing has been asked; `have` says which blocks are here already.
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

    /// Sets the block from which on nobody is asked for any.
    pub(in crate::subscriber) const fn set_horizon(&mut self, end_block: u64) {
        self.horizon = end_block;
    }

    /// Unrequested blocks below the horizon: those that may be assigned now.
    pub(in crate::subscriber) fn blocks_unrequested(&self) -> u64 {
        self.unrequested.len_below(self.horizon)
    }

    /// Whether every block is verified, and the META is here if it was wanted.
    pub(in crate::subscriber) fn is_complete(&self) -> bool {
        self.blocks_left() == 0 && self.meta.is_none()
    }

    /// The number of a request that goes out now.
    pub(in crate::subscriber) const fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// Block of a chunk, and its place in the block.
pub(super) fn place(cut: ChunksPerBlock, chunk: u64) -> (u64, u32) {
    let chunks = u64::from(cut.get());
    (chunk / chunks, (chunk % chunks) as u32)
}
