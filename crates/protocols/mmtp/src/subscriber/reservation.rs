//! Reservations: blocks that a source of another kind delivers whole, without mmTP packets.
//!
//! No path asks for a reserved block until it is released. A delivered block is verified, and its source is
//! responsible for it, as if the block had come over a path.

use std::ops::Range;

use anabranch_algo::Span;

use super::download::{BLOCKS_OPEN_MAX, Download};
use super::item::{DownloadId, PathId, Queue, SourceId};
use super::path::{Path, PathState};
use super::state::Subscriber;
use crate::id::{BLOCK_BYTES, SEGMENT_BLOCKS};
use crate::tree::{ChainingValue, Outboard};

impl Subscriber {
    /// Reserves up to `blocks` consecutive blocks of a content for `source`, which delivers `rate_bytes` per
    /// second. It takes unrequested blocks first. If there are none, it takes blocks that the path which
    /// would take longest has not asked for yet. While no path answers, it then takes a block that a path has
    /// begun. Returns `None` if there are no such blocks, or if too many blocks wait to be verified.
    pub fn reserve(
        &mut self,
        source: SourceId,
        download: DownloadId,
        blocks: u64,
        rate_bytes: u64,
    ) -> Option<Range<u64>> {
        self.dirty = true;
        if blocks == 0 || self.cannot_provide(source, download) {
            return None;
        }
        let sends_hashes = |path: &Path| path.state == PathState::Open && path.counters.hashes > 0;
        let answers = self.paths.iter().any(sends_hashes);
        let state = self.downloads.get_mut(download)?;
        let open = state.blocks_open();
        // While no path that sends hashes answers, delivered blocks have to wait for hashes.
        let blocks = match answers || state.outboard.is_some() {
            true => blocks,
            false => {
                blocks.min((BLOCKS_OPEN_MAX as u64).saturating_sub(open as u64 + state.blocks_reserved()))
            }
        };
        if blocks == 0 || open >= BLOCKS_OPEN_MAX {
            return None;
        }
        let reserved = match state.reserve(blocks) {
            Some(reserved) => reserved,
            None => match self.slowest(None, source, rate_bytes, Span::from_secs(1), Some(download)) {
                Some(slowest) => {
                    let state = self.downloads.get_mut(download)?;
                    state.reserve_assigned(slowest.path, slowest.share, blocks)?
                }
                None if self.has_open_path() => return None,
                None => self.downloads.get_mut(download)?.reserve_stranded()?,
            },
        };
        let state = self.downloads.get_mut(download)?;
        for block in reserved.clone().filter(|g| *g == reserved.start || g.is_multiple_of(SEGMENT_BLOCKS)) {
            state.open_pages(block, Queue::Any, false);
        }
        Some(reserved)
    }

    /// Sets all leaves of a content, the chaining values of its blocks, so that no source is asked for pages.
    /// Returns `false` if they are not this content's.
    pub fn set_leaves(&mut self, download: DownloadId, leaves: Vec<ChainingValue>) -> bool {
        let Some(state) = self.downloads.get_mut(download) else { return false };
        let outboard = Outboard::from_leaves(leaves, state.id.length);
        state.outboard = outboard.filter(|outboard| outboard.id() == state.id);
        self.dirty = true;
        state.outboard.is_some()
    }

    /// Releases blocks that were reserved and not delivered, so that others may fetch them.
    pub fn release(&mut self, download: DownloadId, blocks: Range<u64>) {
        if let Some(state) = self.downloads.get_mut(download) {
            state.release(blocks);
            self.dirty = true;
        }
    }

    /// Stops fetching a content. Returns the blocks that came whole from one source and are not verified yet,
    /// each with its source and its number.
    pub fn abandon(&mut self, download: DownloadId) -> Vec<(SourceId, u64, Vec<u8>)> {
        let Some(state) = self.downloads.remove(download) else { return Vec::new() };
        for source in &mut self.sources {
            source.unavailable.remove(&download);
        }
        for path in self.paths.iter_mut().filter(|path| path.fetches == Some(download)) {
            path.fetches = None;
        }
        self.dirty = true;
        state.into_unverified().collect()
    }

    /// Sets a horizon: from now on no block of this content from `end_block` on is asked for, nor accepted by
    /// [`insert_block`](Self::insert_block). A caller that takes the content in order has no room for these
    /// blocks. Without this call there is no horizon.
    pub fn set_horizon(&mut self, download: DownloadId, end_block: u64) {
        if let Some(state) = self.downloads.get_mut(download) {
            state.set_horizon(end_block);
            self.dirty = true;
        }
    }

    /// Returns how many blocks of a content may be assigned now: unassigned ones below the horizon.
    #[must_use]
    pub fn blocks_unrequested(&self, download: DownloadId) -> u64 {
        self.downloads.get(download).map_or(0, Download::blocks_unrequested)
    }

    /// Returns how many blocks of a content have been begun while no path answers, so that perhaps nothing
    /// brings the rest. Returns 0 while a path answers.
    #[must_use]
    pub fn blocks_stranded(&self, download: DownloadId) -> u64 {
        match self.has_open_path() {
            true => 0,
            false => self.downloads.get(download).map_or(0, Download::blocks_stranded),
        }
    }

    fn has_open_path(&self) -> bool {
        self.paths.iter().any(|path| path.state == PathState::Open)
    }

    /// Whether [`BLOCKS_OPEN_MAX`] blocks wait for verification, so that no more blocks are accepted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.downloads.blocks_open() >= BLOCKS_OPEN_MAX
    }

    /// Whether chaining values of a content have been asked for and have not arrived.
    #[must_use]
    pub fn awaits_hashes(&self, download: DownloadId) -> bool {
        self.downloads.get(download).is_some_and(Download::awaits_hashes)
    }

    /// Whether a block is not verified yet.
    #[must_use]
    pub fn is_wanted(&self, download: DownloadId, block: u64) -> bool {
        self.downloads.get(download).is_some_and(|download| !download.is_done(block))
    }

    /// Handles a whole block from `source`, reserved or not. Returns whether it was accepted, be it right or
    /// wrong.
    pub fn insert_block(&mut self, source: SourceId, download: DownloadId, block: u64, bytes: &[u8]) -> bool {
        let state = self.downloads.get_mut(download);
        let Some(result) = state.and_then(|state| state.insert_block(source, block, bytes)) else {
            return false;
        };
        let fresh = result.fresh;
        self.apply(download, result);
        self.dirty = true;
        fresh
    }

    /// Finds the path that would take longest for its assigned blocks, and longer than `threshold`. Also
    /// returns how many blocks from the end a helper should take over that delivers `rate_bytes` per second,
    /// so that both finish together. Ignores path `taker` and contents that `source` lacks.
    pub(super) fn slowest(
        &self,
        taker: Option<PathId>,
        source: SourceId,
        rate_bytes: u64,
        threshold: Span,
        only: Option<DownloadId>,
    ) -> Option<Slowest> {
        let mine = rate_bytes.max(1);
        let slowest = (0..self.paths.len())
            .filter(|&q| Some(q) != taker)
            .filter_map(|q| {
                let download = self.paths[q].fetches?;
                let state = self.downloads.get(download)?;
                let free = state.assigned(q);
                let fits = free > 0
                    && only.is_none_or(|only| only == download)
                    && !self.cannot_provide(source, download);
                // The block that the path has begun counts too.
                let begun = state.next_waiting(Queue::First(q), None).is_some();
                let theirs = self.paths[q].rate_bytes();
                let bytes = (free + u64::from(begun)).saturating_mul(BLOCK_BYTES as u64);
                let nanos = bytes.saturating_mul(1_000_000_000) / theirs.max(1);
                (fits && nanos > threshold.as_nanos()).then_some((nanos, q, free, theirs, download))
            })
            .max_by_key(|(nanos, q, ..)| (*nanos, usize::MAX - q));
        let (_, path, free, theirs, download) = slowest?;
        let share = u128::from(free) * u128::from(mine) / u128::from(mine.saturating_add(theirs));
        Some(Slowest { path, download, share: (share as u64).clamp(1, free) })
    }
}

/// A path that needs help, and how many of its assigned blocks to take over.
pub(super) struct Slowest {
    pub(super) path: PathId,
    pub(super) download: DownloadId,
    /// The number of blocks to take over, from the end of the path's assigned blocks.
    pub(super) share: u64,
}
