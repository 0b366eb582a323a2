//! Blocks that are taken from both ends: a server without ranges brings the beginning, the others the end.

use std::ops::Range;

use super::cross_check::CrossCheck;
use super::{Mode, VerifiedPool};
use crate::range_scheduler::MirrorId;

impl VerifiedPool {
    /// Takes blocks from `first` on: see [`Pool::take_at`](crate::range_scheduler::Pool::take_at).
    pub(super) fn take_next(&mut self, mirror: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        if self.idle_from(mirror, first) != Some(first) {
            return None;
        }
        match &mut self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => {}
            Mode::Pieces(pieces) => pieces.begin(first),
            Mode::Nothing(cross) => cross.joins(mirror),
        }
        self.voters.all.insert(mirror);
        self.idle.take(first..u64::MAX, blocks)
    }

    /// The first block from `first` on that can be taken like this.
    pub(super) fn idle_from(&self, mirror: MirrorId, first: u64) -> Option<u64> {
        let is_possible = match &self.mode {
            // Who reads in order wants the beginning first, of all.
            _ if self.horizon < self.id.blocks() => false,
            Mode::Leaves(_) | Mode::Nothing(_) => true,
            Mode::Alone(_) => false,
            Mode::Pieces(pieces) => pieces.has_room(),
        };
        let next = self.idle.first_in(first..u64::MAX)?.start;
        (is_possible && self.is_asked(mirror)).then_some(next)
    }

    /// Takes the last of the missing blocks, which are the end of `last`.
    pub(super) fn take_last(
        &mut self,
        mirror: MirrorId,
        last: Range<u64>,
        blocks: u64,
    ) -> Option<Range<u64>> {
        let first = last.start.max(last.end.saturating_sub(blocks.max(1)));
        let first = match &mut self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => first,
            Mode::Pieces(pieces) => {
                if let Some(piece) = pieces.bind(mirror) {
                    return Some(piece);
                }
                if !pieces.has_room() {
                    return None;
                }
                // Whole pieces, where it can be.
                let first = pieces.blocks_of(pieces.piece_of(first)).start.max(last.start);
                pieces.begin(first);
                first
            }
            Mode::Nothing(cross) => {
                cross.joins(mirror);
                if let Some(block) = cross.take(mirror, &self.voters) {
                    return Some(block..block + 1);
                }
                first.max(CrossCheck::region_start(last.end - 1))
            }
        };
        self.idle.take_last(last.end - first)
    }
}
