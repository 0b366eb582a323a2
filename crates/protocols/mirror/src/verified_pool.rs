//! A content that only mirrors have: which blocks are missing, and whether what comes is right.
//!
//! There are three kinds of verification ([`Check`]):
//! * **Leaves**: the hash of every block is known. A wrong block exposes its mirror at once.
//! * **Pieces**: a hash of some megabytes, as Metalink has them (RFC 5854 section 4.2.15). The blocks
//!   of a piece are held until all are here. If the piece is wrong and all of it came from one mirror, that
//!   mirror is banned. If it came from several, it is fetched again from one alone, and the comparison shows
//!   who sent wrong blocks.
//! * **Nothing**: no hash is known, and mirrors are compared; see `verified_pool/cross_check.rs`. Where one
//!   differs from more than half of them, all its blocks are [revoked](Event::Revoked). Where no side has so
//!   many, nobody can be trusted, and the transfer fails. If a hash of the whole is known, it decides; see
//!   `verified_pool/candidates.rs`.
//!
//! The pool leaves out blocks that the caller already has. Of a reported block of 16 KiB it keeps two bits
//! and, without hashes, one byte: the mirror that it came from; with a hash of the whole alone, 24 more.

mod api;
mod both_ends;
mod candidates;
mod cross_check;
mod earlier;
mod earlier_blocks;
mod judgement;
mod piece_delivery;
mod pieces;
mod voters;
mod votes;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::range_set::RangeSet;
use anabranch_mmtp::tree::{self, ChainingValue};

use crate::range_scheduler::{MirrorId, Pool};
use candidates::Candidates;
use cross_check::{Comparison, CrossCheck};
use earlier_blocks::is_earlier;
use pieces::Pieces;
use voters::Voters;

pub use api::{Check, CheckError, Event, Wrong};
pub use cross_check::{CHECK_EVERY_BLOCKS, CHECKS_MAX};
pub use earlier_blocks::{EARLIER_CHECKS_MAX, Earlier, MirrorsOfNow};
pub use pieces::{OPEN_BYTES, OPEN_BYTES_MAX, PIECE_BYTES_MAX, can_check_pieces};
pub use voters::Openings;

const BLOCK: u64 = BLOCK_BYTES as u64;

enum Mode {
    Leaves(Vec<ChainingValue>),
    Pieces(Pieces),
    Nothing(Box<CrossCheck>),
    /// As `Nothing`, and this mirror alone brings what is missing.
    Alone(MirrorId),
}

/// The pool; see the [module](self).
pub struct VerifiedPool {
    id: ContentId,
    mode: Mode,
    idle: RangeSet,
    /// No mirror is asked for this block or later ones.
    horizon: u64,
    /// The last blocks are taken before the first.
    from_end: bool,
    done: Bitmap,
    left: u64,
    banned: BTreeSet<MirrorId>,
    /// Mirrors that may still bring something, and who decides where they are compared.
    voters: Voters,
    /// Where a hash of the whole decides who is right.
    candidates: Option<Candidates>,
    complete: bool,
    disagreed: bool,
    events: VecDeque<Event>,
}

impl VerifiedPool {
    /// A content of `length` bytes; `have` says which blocks are here already.
    ///
    /// # Errors
    /// If `check` is not one of such a content.
    pub fn new(length: u64, check: Check, have: impl Fn(u64) -> bool) -> Result<Self, CheckError> {
        if length > LENGTH_MAX {
            return Err(CheckError::TooLong);
        }
        // The root is not known here; only the length is used.
        let id = ContentId { root: [0; 32], length };
        let blocks = id.blocks();
        let expect = |hashes: usize, expected: u64| match hashes as u64 {
            hashes if hashes == expected => Ok(()),
            hashes => Err(CheckError::Count { hashes, expected }),
        };
        let mode = match check {
            Check::Leaves(leaves) => {
                expect(leaves.len(), blocks)?;
                Mode::Leaves(leaves)
            }
            Check::Pieces { bytes, hashes } => {
                if !can_check_pieces(bytes) {
                    return Err(CheckError::PieceLength(bytes));
                }
                expect(hashes.len(), length.div_ceil(bytes))?;
                Mode::Pieces(Pieces::new(bytes / BLOCK, blocks, hashes))
            }
            Check::Nothing => Mode::Nothing(Box::new(CrossCheck::new(blocks))),
        };
        let mut new = Self {
            id,
            mode,
            idle: RangeSet::default(),
            horizon: u64::MAX,
            from_end: false,
            done: Bitmap::new(blocks),
            left: blocks,
            banned: BTreeSet::new(),
            voters: Voters::default(),
            candidates: None,
            complete: false,
            disagreed: false,
            events: VecDeque::new(),
        };
        let (mut first, mut whole) = (0, 0..0);
        for block in 0..blocks {
            let here = match &new.mode {
                // A piece is hashed as a whole: all of an incomplete piece is missing.
                Mode::Pieces(pieces) => {
                    let piece = pieces.blocks_of(pieces.piece_of(block));
                    if piece.start == block && piece.clone().all(&have) {
                        whole = piece;
                    }
                    whole.contains(&block)
                }
                _ => have(block),
            };
            if here {
                new.idle.insert(first..block);
                first = block + 1;
                new.mark(block);
                if let Mode::Nothing(cross) = &mut new.mode {
                    cross.had(block);
                }
            }
        }
        new.idle.insert(first..blocks);
        new.check_complete();
        Ok(new)
    }

    /// Sets the seed that chooses which blocks are compared where no hash is known. No mirror may be able to
    /// guess it. It must be set before the first block comes.
    pub const fn seed(&mut self, seed: [u8; 32]) {
        if let Mode::Nothing(cross) = &mut self.mode {
            cross.seed(seed);
        }
    }

    /// From now on no mirror is asked for blocks from `end_block` on, except for the rest of a piece, which
    /// is verified as a whole. A reader that takes the content in order has no room for more. A server
    /// without ranges sends everything all the same. Without this call there is no such limit.
    pub fn set_horizon(&mut self, end_block: u64) {
        self.horizon = match &self.mode {
            Mode::Pieces(pieces) if (1..self.id.blocks()).contains(&end_block) => {
                pieces.blocks_of(pieces.piece_of(end_block - 1)).end
            }
            _ => end_block,
        };
    }

    /// The events since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Blocks that are not verified.
    #[must_use]
    pub const fn blocks_left(&self) -> u64 {
        self.left
    }

    /// Whether every block is here and only comparisons with another mirror are missing.
    #[must_use]
    pub const fn only_checks_left(&self) -> bool {
        self.left == 0 && !self.complete && !self.disagreed
    }

    /// Whether mirrors are only compared, because no hash is known.
    #[must_use]
    pub const fn only_compares(&self) -> bool {
        matches!(self.mode, Mode::Nothing(_))
    }

    /// A mirror is not used any more, but is not banned: it cannot decide a comparison.
    pub fn mirror_gone(&mut self, mirror: MirrorId) {
        self.voters.remove(mirror);
        self.recheck();
        self.check_complete();
    }

    /// Whether mirrors differ and nothing will tell who is right.
    const fn is_over(&self) -> bool {
        self.disagreed && self.candidates.is_none()
    }

    /// Whether a mirror may be asked for something now.
    fn is_asked(&self, mirror: MirrorId) -> bool {
        !(self.banned.contains(&mirror) || self.complete || self.is_over()) && self.may_bring(mirror)
    }

    fn is_done(&self, block: u64) -> bool {
        self.done.contains(block)
    }

    fn mark(&mut self, block: u64) {
        let new = self.done.insert(block);
        debug_assert!(new, "block {block} accepted twice");
        self.left -= u64::from(new);
    }

    /// A block is here, verified if it could be, and is reported.
    fn accept(&mut self, mirror: MirrorId, block: u64, bytes: Vec<u8>, cv: ChainingValue) {
        self.mark(block);
        self.idle.remove(block);
        self.events.push_back(Event::Verified { mirror, block, bytes, cv });
    }

    /// The hash of a block. If the content has only one block, it is the root.
    fn cv_of(&self, block: u64, bytes: &[u8]) -> ChainingValue {
        if self.id.blocks() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::block_cv(block, bytes) }
    }

    /// Marks blocks as idle, except for those that are here.
    fn reopen(&mut self, blocks: Range<u64>) {
        let mut first = blocks.start;
        for block in blocks.clone() {
            let here =
                self.is_done(block) || matches!(&self.mode, Mode::Pieces(pieces) if pieces.holds(block));
            if here {
                self.idle.insert(first..block);
                first = block + 1;
            }
        }
        self.idle.insert(first..blocks.end);
    }

    /// Bans a mirror: its blocks that are not verified are missing again.
    fn ban(&mut self, mirror: MirrorId, block: u64) {
        if !self.banned.insert(mirror) {
            return;
        }
        self.voters.remove(mirror);
        self.events.push_back(Event::Banned { mirror, block });
        match &mut self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => {}
            Mode::Pieces(pieces) => {
                for block in pieces.discard_from(mirror) {
                    self.idle.insert(block..block + 1);
                }
            }
            Mode::Nothing(_) => {
                self.take_back(mirror);
                self.drop_all_earlier(mirror, block);
            }
        }
    }

    fn recheck(&mut self) {
        if let Mode::Nothing(cross) = &mut self.mode {
            for (block, found) in cross.recheck(&self.voters) {
                self.found(block, found);
            }
        }
    }

    fn found(&mut self, block: u64, found: Comparison) {
        match found {
            Comparison::Inconclusive => {}
            Comparison::Outlier(mirror) if is_earlier(mirror) => self.drop_earlier(mirror, block),
            Comparison::Outlier(mirror) if self.candidates.is_some() => self.set_aside(mirror, block),
            Comparison::Outlier(mirror) => self.ban(mirror, block),
            Comparison::Conflict(mirrors) => {
                if !std::mem::replace(&mut self.disagreed, true) {
                    self.events.push_back(Event::Conflict { mirrors, block });
                }
            }
        }
    }

    fn check_complete(&mut self) {
        let settled = self.left == 0
            && match &self.mode {
                Mode::Nothing(cross) => cross.is_settled() && !self.disagreed,
                _ => true,
            };
        if settled && !self.complete {
            self.complete = true;
            self.events.push_back(Event::Complete);
        }
    }
}

impl Pool for VerifiedPool {
    fn take_at(&mut self, mirror: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        self.take_next(mirror, first, blocks)
    }

    fn next_idle(&self, mirror: MirrorId, first: u64) -> Option<u64> {
        self.idle_from(mirror, first)
    }

    fn take_from_end(&mut self, from_end: bool) {
        self.from_end = from_end;
    }

    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>> {
        if !self.is_asked(mirror) {
            return None;
        }
        self.voters.all.insert(mirror);
        if self.from_end
            && let Some(last) = self.idle.last()
        {
            return self.take_last(mirror, last, blocks);
        }
        let horizon = 0..self.horizon;
        match &mut self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => self.idle.take(horizon, blocks),
            Mode::Pieces(pieces) => {
                if let Some(piece) = pieces.bind(mirror) {
                    return Some(piece);
                }
                let bounds = if pieces.has_room() {
                    horizon
                } else {
                    pieces.begun().find(|piece| self.idle.first_in(piece.clone()).is_some())?
                };
                let first = self.idle.first_in(bounds.clone())?.start;
                // Whole pieces, where it can be.
                let to_end = pieces.blocks_of(pieces.piece_of(first)).end - first;
                let per_piece = pieces.per_piece();
                let whole = blocks.checked_sub(to_end).map(|more| to_end + more / per_piece * per_piece);
                let taken = self.idle.take(bounds, whole.unwrap_or(blocks))?;
                pieces.begin(taken.start);
                Some(taken)
            }
            Mode::Nothing(cross) => {
                cross.joins(mirror);
                if let Some(block) = cross.take(mirror, &self.voters) {
                    return Some(block..block + 1);
                }
                let next = self.idle.first_in(horizon.clone())?.start;
                let taken = self.idle.take(horizon, blocks.min(cross.most_from(next)))?;
                let first = taken.start;
                Some(if cross.took(mirror, first, taken.end) { first - 1 } else { first }..taken.end)
            }
        }
    }

    fn begin_whole(&mut self, mirror: MirrorId) {
        if let Mode::Pieces(pieces) = &mut self.mode {
            pieces.begin_whole(mirror);
        }
    }

    fn end_whole(&mut self, mirror: MirrorId) {
        if let Mode::Pieces(pieces) = &mut self.mode {
            pieces.end_whole(mirror);
        }
    }

    fn release(&mut self, blocks: Range<u64>) {
        let blocks = blocks.start..blocks.end.min(self.id.blocks());
        if blocks.is_empty() {
            return;
        }
        match &mut self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => self.reopen(blocks),
            Mode::Pieces(pieces) => {
                let idle = pieces.unbind(blocks);
                idle.into_iter().for_each(|blocks| self.reopen(blocks));
            }
            Mode::Nothing(cross) => {
                cross.release(blocks.start, blocks.end);
                self.reopen(blocks);
            }
        }
    }

    fn idle(&self) -> u64 {
        self.idle.len_below(self.horizon)
            + match &self.mode {
                Mode::Leaves(_) | Mode::Alone(_) => 0,
                Mode::Pieces(pieces) => pieces.unbound(),
                Mode::Nothing(cross) => cross.waiting(&self.voters),
            }
    }

    fn may_bring(&self, mirror: MirrorId) -> bool {
        match self.alone() {
            Some(alone) => alone == mirror,
            None => !self.candidates.as_ref().is_some_and(|candidates| candidates.is_aside(mirror)),
        }
    }

    fn idle_for(&self, mirror: MirrorId) -> u64 {
        match &self.mode {
            _ if !self.may_bring(mirror) => 0,
            Mode::Nothing(cross) => {
                self.idle.len_below(self.horizon) + cross.waiting_for(mirror, &self.voters)
            }
            _ => self.idle(),
        }
    }

    fn compares(&self) -> bool {
        self.only_compares()
    }

    fn is_wanted(&self, block: u64) -> bool {
        if block >= self.id.blocks() || self.is_over() {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => !self.is_done(block),
            Mode::Pieces(pieces) => !self.is_done(block) && !pieces.holds(block),
            Mode::Nothing(cross) => !self.is_done(block) || cross.is_wanted(block),
        }
    }

    fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        if self.banned.contains(&mirror) || !self.may_bring(mirror) || !self.is_wanted(block) {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) | Mode::Alone(_) => true,
            Mode::Pieces(pieces) => pieces.takes(mirror, block),
            Mode::Nothing(cross) => !self.is_done(block) || cross.is_wanted_from(mirror, block),
        }
    }

    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]) {
        if !self.is_wanted_from(mirror, block) || bytes.len() != self.id.block_len(block) {
            return;
        }
        self.voters.all.insert(mirror);
        let cv = self.cv_of(block, bytes);
        if let Some(candidates) = &mut self.candidates {
            candidates.brought(mirror, block, &cv, self.done.contains(block));
        }
        match &mut self.mode {
            Mode::Leaves(leaves) => {
                let right = usize::try_from(block).ok().and_then(|i| leaves.get(i));
                if right == Some(&cv) {
                    self.accept(mirror, block, bytes.to_vec(), cv);
                } else {
                    self.idle.insert(block..block + 1);
                    self.ban(mirror, block);
                }
            }
            Mode::Pieces(_) => self.deliver_to_piece(mirror, block, bytes, cv),
            Mode::Alone(_) => self.accept(mirror, block, bytes.to_vec(), cv),
            Mode::Nothing(cross) => {
                let done = self.done.contains(block);
                cross.joins(mirror);
                if !done {
                    cross.brought(mirror, block, cv);
                }
                let found = cross.compare(mirror, block, cv, &self.voters);
                if !done {
                    self.accept(mirror, block, bytes.to_vec(), cv);
                }
                self.found(block, found);
            }
        }
        self.check_complete();
    }
}

#[cfg(test)]
mod tests;
