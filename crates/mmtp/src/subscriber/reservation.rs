//! Reservations: blocks that a source of another kind delivers whole, without packets of ours.
//!
//! No path asks for a reserved block until it is released. A delivered block is verified, and its source held
//! responsible for it, as if it had come by a path.

use std::ops::Range;

use algo::Span;

use super::download::Download;
use super::path::Assignment;
use super::schedule::BLOCKS_OPEN_MAX;
use super::{DownloadId, Item, PathId, SourceId, Subscriber, WantedItem};
use crate::id::{BLOCK_BYTES, ChunksPerBlock, SEGMENT_BLOCKS};
use crate::tree::{ChainingValue, Outboard};

impl Subscriber {
    /// Reserves up to `blocks` consecutive blocks of a content for `source`, which delivers `rate_bytes` a
    /// second: unrequested ones, or when none are left those that the path which would take longest has not
    /// asked for yet.
    /// `None` if there are none, or if too many blocks wait to be verified.
    pub fn reserve(
        &mut self,
        source: SourceId,
        download: DownloadId,
        blocks: u64,
        rate_bytes: u64,
    ) -> Option<Range<u64>> {
        self.dirty = true;
        let o = download as usize;
        if blocks == 0 || self.downloads.get(o)?.is_complete() || self.cannot_provide(source, download) {
            return None;
        }
        let open = self.downloads[o].blocks_open();
        if open >= BLOCKS_OPEN_MAX {
            return None;
        }
        let Download { unrequested, horizon, .. } = &mut self.downloads[o];
        let reserved = match unrequested.first_in(0..*horizon) {
            Some(first) => {
                // A bound is where it is to end, though the segment goes on.
                let end = first.start.saturating_add(blocks).min(*horizon);
                unrequested.take(first.start..end, blocks)?
            }
            None => {
                let assignment =
                    self.split_slowest(None, source, rate_bytes, Span::from_secs(1), Some(download))?;
                let end = assignment.end.min(assignment.block + blocks);
                self.downloads[o].unrequested.insert_new(end..assignment.end);
                assignment.block..end
            }
        };
        for block in reserved.clone().filter(|g| *g == reserved.start || g.is_multiple_of(SEGMENT_BLOCKS)) {
            for (level, first) in self.downloads[o].request_pages(block, false) {
                self.requeued.push_back(WantedItem { download, item: Item::Hash { level, first } });
            }
        }
        Some(reserved)
    }

    /// Proves a content by all its leaves, the chaining values of its blocks: then no source is asked for
    /// pages. False if they are not this content's.
    pub fn set_leaves(&mut self, download: DownloadId, leaves: Vec<ChainingValue>) -> bool {
        let Some(state) = self.downloads.get_mut(download as usize) else { return false };
        let outboard = Outboard::from_leaves(leaves, state.id.length);
        state.outboard = outboard.filter(|outboard| outboard.id() == state.id);
        self.dirty = true;
        state.outboard.is_some()
    }

    /// Takes back blocks that were reserved and not delivered.
    pub fn release(&mut self, download: DownloadId, blocks: Range<u64>) {
        let Some(state) = self.downloads.get_mut(download as usize).filter(|state| !state.is_complete())
        else {
            return;
        };
        for block in blocks {
            if !state.is_done(block) && state.cut_of(block).is_none() {
                state.unrequested.insert(block..block + 1);
            }
        }
        self.first_unrequested = self.first_unrequested.min(download as usize);
        self.dirty = true;
    }

    /// From now on nobody is asked for blocks of this content from `end_block` on, and none of them is taken
    /// from [`insert_block`](Self::insert_block): whoever takes the content in order has no room for them yet.
    /// Without this call there is no such bound.
    pub fn set_horizon(&mut self, download: DownloadId, end_block: u64) {
        let Some(state) = self.downloads.get_mut(download as usize) else { return };
        state.horizon = end_block;
        self.first_unrequested = self.first_unrequested.min(download as usize);
        self.dirty = true;
    }

    /// Blocks of a content that somebody may be asked for and nobody has been.
    #[must_use]
    pub fn blocks_unrequested(&self, download: DownloadId) -> u64 {
        let download = self.downloads.get(download as usize);
        download.map_or(0, |download| download.unrequested.len_below(download.horizon))
    }

    /// Whether a block is not verified yet.
    #[must_use]
    pub fn is_wanted(&self, download: DownloadId, block: u64) -> bool {
        let download = self.downloads.get(download as usize);
        download.is_some_and(|download| !download.is_complete() && !download.is_done(block))
    }

    /// A whole block came from `source`, reserved or not; whether it was taken, rightly or not.
    pub fn insert_block(&mut self, source: SourceId, download: DownloadId, block: u64, bytes: &[u8]) -> bool {
        let Some(cut) = ChunksPerBlock::new(1) else { return false };
        let Some(state) = self.downloads.get_mut(download as usize) else { return false };
        let fits = block < state.id.blocks().max(1) && bytes.len() == state.id.block_len(block);
        if !fits || state.is_complete() || state.is_done(block) || block >= state.horizon {
            return false;
        }
        if state.blocks_open() >= BLOCKS_OPEN_MAX && state.cut_of(block).is_none() {
            // Too many wait for the pages that prove them; this one is for later.
            state.unrequested.insert(block..block + 1);
            return false;
        }
        if !state.open_whole(block, cut, source) {
            return false;
        }
        // It may have been released, and come all the same.
        state.unrequested.remove(block);
        let result = state.insert_chunk(source, cut, block, bytes);
        let fresh = result.fresh;
        self.apply(download, result);
        self.dirty = true;
        fresh
    }

    /// Takes the end of the assignment that would take longest, and longer than `threshold`, so that its path
    /// and `source`, which delivers `rate_bytes` a second, finish together; of path `taker` itself nothing.
    pub(super) fn split_slowest(
        &mut self,
        taker: Option<PathId>,
        source: SourceId,
        rate_bytes: u64,
        threshold: Span,
        only: Option<DownloadId>,
    ) -> Option<Assignment> {
        let mine = rate_bytes.max(1);
        let victim = (0..self.paths.len())
            .filter(|&q| Some(q) != taker)
            .filter_map(|q| {
                let assignment = *self.paths[q].assignments.back()?;
                let free = assignment.end - assignment.block - u64::from(assignment.chunk > 0);
                let fits = free > 0
                    && only.is_none_or(|o| o == assignment.download)
                    && !self.cannot_provide(source, assignment.download);
                let left: u64 = self.paths[q].assignments.iter().map(|r| r.end - r.block).sum();
                let theirs = self.paths[q].rate_bytes();
                let nanos = left.saturating_mul(BLOCK_BYTES as u64 * 1_000_000_000) / theirs.max(1);
                (fits && nanos > threshold.as_nanos()).then_some((nanos, q, free, theirs))
            })
            .max_by_key(|(nanos, q, ..)| (*nanos, usize::MAX - q));
        let (_, q, free, theirs) = victim?;
        let share = u128::from(free) * u128::from(mine) / u128::from(mine.saturating_add(theirs));
        let take = (share as u64).clamp(1, free);
        let assignment = self.paths[q].assignments.back_mut()?;
        assignment.end -= take;
        let taken = Assignment {
            download: assignment.download,
            block: assignment.end,
            chunk: 0,
            end: assignment.end + take,
        };
        if assignment.block == assignment.end {
            self.paths[q].assignments.pop_back();
        }
        Some(taken)
    }
}
