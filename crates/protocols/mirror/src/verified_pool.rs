//! The blocks of a content that comes from mirrors: which are missing, and whether delivered ones are right.
//!
//! There are three kinds of verification ([`Check`]):
//! * **Leaves**: the hash of every block is known. A wrong block exposes its mirror at once.
//! * **Pieces**: a hash of each piece of some megabytes is known, as Metalink has them (RFC 5854 section
//!   4.2.15). The blocks of a piece are held until all of them have arrived. If the piece is wrong and all of
//!   it came from one mirror, that mirror is banned. If it came from several mirrors, one mirror alone has to
//!   deliver it again, and the comparison shows which mirrors sent wrong blocks.
//! * **Nothing**: no hash of the parts is known, and mirrors are compared in samples; see
//!   `verified_pool/sampling.rs`. If a mirror differs from more than half of the voters, all its blocks are
//!   [revoked](Event::Revoked). If no side has such a majority, the pool stops with [`Event::Split`]: without
//!   a hash of the whole file the transfer fails, and with one it goes on with other
//!   [variants](crate::variants).
//!
//! The pool does not request blocks that the caller already has. For each reported block of 16 KiB it keeps
//! two bits and, where no hash is known, one byte: the mirror that delivered the block.

mod api;
mod pieces;
mod sampling;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::bitmap::Bitmap;
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};
use anabranch_mmtp::range_set::RangeSet;
use anabranch_mmtp::tree::{self, ChainingValue};

use crate::range_scheduler::{MirrorId, Pool};
use crate::variants::Differences;
use pieces::{PieceOutcome, Pieces, Unverified};
use sampling::{Comparison, Sampling};

pub use api::{Check, CheckError, Event};
pub use pieces::{OPEN_BYTES, OPEN_BYTES_MAX, PIECE_BYTES_MAX, can_check_pieces};
pub use sampling::{SAMPLE_OF, SAMPLES_MAX};

const BLOCK: u64 = BLOCK_BYTES as u64;

enum Mode {
    Leaves(Vec<ChainingValue>),
    Pieces(Pieces),
    Nothing(Box<Sampling>),
}

/// The blocks of one content and their verification; see the [module](self).
pub struct VerifiedPool {
    id: ContentId,
    mode: Mode,
    idle: RangeSet,
    /// No mirror is asked for this block or later ones.
    horizon: u64,
    /// Whether the last blocks are taken before the first.
    from_end: bool,
    done: Bitmap,
    left: u64,
    banned: BTreeSet<MirrorId>,
    complete: bool,
    /// Whether mirrors differ and their vote decides nothing.
    is_split: bool,
    events: VecDeque<Event>,
}

impl VerifiedPool {
    /// Makes a pool for a content of `length` bytes; `have` says which blocks the caller already has.
    ///
    /// # Errors
    /// If `length` is too great, or the hashes of `check` do not fit a content of this length.
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
            Check::Nothing => Mode::Nothing(Box::new(Sampling::new(blocks))),
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
            complete: false,
            is_split: false,
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
            }
        }
        new.idle.insert(first..blocks);
        new.check_complete();
        Ok(new)
    }

    /// Sets the seed that chooses which blocks are compared where no hash is known. No mirror may be able to
    /// guess it. Call this before the first block is delivered.
    pub const fn seed(&mut self, seed: [u8; 32]) {
        if let Mode::Nothing(sampling) = &mut self.mode {
            sampling.seed(seed);
        }
    }

    /// Adds a mirror that may deliver blocks. It is compared with the other mirrors, however fast they are.
    /// Where mirrors differ, nothing is decided until every mirror with a vote has delivered the block or is
    /// [gone](Self::mirror_gone). Call this before the first block is delivered.
    pub fn mirror_joins(&mut self, mirror: MirrorId, has_vote: bool) {
        if let Mode::Nothing(sampling) = &mut self.mode {
            sampling.joins(mirror, has_vote);
        }
    }

    /// Tells the pool that the file is finally checked against a hash of the whole. Then a majority of three
    /// or more votes decides without the missing votes, and the pool completes without waiting for open
    /// samples. Call this before the first block is delivered.
    pub const fn judged_as_a_whole(&mut self) {
        if let Mode::Nothing(sampling) = &mut self.mode {
            sampling.judge();
        }
    }

    /// Tells the pool that `mirror` delivered `block`, which the caller has, in an earlier transfer. The
    /// block is compared as if it arrived now. Call this before the first block is delivered, and after
    /// [`seed`](Self::seed) and [`mirror_joins`](Self::mirror_joins). `cv` returns the chaining value of the
    /// block and is called only if it is needed.
    pub fn brought_before(
        &mut self,
        mirror: MirrorId,
        block: u64,
        cv: impl FnOnce() -> Option<ChainingValue>,
    ) {
        if let Mode::Nothing(sampling) = &mut self.mode
            && self.done.contains(block)
        {
            let found = sampling.brought(mirror, block, cv);
            debug_assert_eq!(found, Comparison::Inconclusive, "each block has one that brought it");
            if !sampling.is_settled() && std::mem::take(&mut self.complete) {
                self.events.clear();
            }
        }
    }

    /// Forbids requests for blocks from `end_block` on, except for the rest of a piece, which is verified as
    /// a whole: a reader that takes the content in order has no room for more. A server that does not answer
    /// range requests sends all blocks nevertheless. Without this call there is no limit.
    pub fn set_horizon(&mut self, end_block: u64) {
        self.horizon = match &self.mode {
            Mode::Pieces(pieces) if (1..self.id.blocks()).contains(&end_block) => {
                pieces.blocks_of(pieces.piece_of(end_block - 1)).end
            }
            _ => end_block,
        };
    }

    /// Removes and returns the events since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.events.drain(..)
    }

    /// Returns the number of blocks that are not verified.
    #[must_use]
    pub const fn blocks_left(&self) -> u64 {
        self.left
    }

    /// Whether every block has arrived and only samples from other mirrors are missing.
    #[must_use]
    pub const fn only_samples_left(&self) -> bool {
        self.left == 0 && !self.complete && !self.is_split
    }

    /// Whether mirrors are only compared with each other, because no hash of the parts is known.
    #[must_use]
    pub const fn only_compares(&self) -> bool {
        matches!(self.mode, Mode::Nothing(_))
    }

    /// Whether mirrors are known to differ in a block and it is not decided which of them is right.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        matches!(&self.mode, Mode::Nothing(sampling) if sampling.is_disputed()) && !self.is_split
    }

    /// Returns the blocks in which mirrors were found to differ, with the chaining value of each mirror.
    #[must_use]
    pub fn differences(&self) -> Differences {
        match &self.mode {
            Mode::Nothing(sampling) => sampling.differences().clone(),
            _ => Differences::new(),
        }
    }

    /// Removes a mirror without banning it: its blocks stay, but it has no vote and is asked for no samples.
    pub fn mirror_gone(&mut self, mirror: MirrorId) {
        if let Mode::Nothing(sampling) = &mut self.mode {
            sampling.leaves(mirror);
        }
        self.recheck();
        self.check_complete();
    }

    /// Whether a mirror may be asked for blocks now.
    fn is_asked(&self, mirror: MirrorId) -> bool {
        !(self.banned.contains(&mirror) || self.complete || self.is_split)
    }

    fn is_done(&self, block: u64) -> bool {
        self.done.contains(block)
    }

    fn mark(&mut self, block: u64) {
        let new = self.done.insert(block);
        debug_assert!(new, "block {block} accepted twice");
        self.left -= u64::from(new);
    }

    /// Records that a block has arrived, verified as far as possible, and reports it.
    fn accept(&mut self, mirror: MirrorId, block: u64, bytes: Vec<u8>, cv: ChainingValue) {
        self.mark(block);
        self.idle.remove(block);
        self.events.push_back(Event::Verified { mirror, block, bytes, cv });
    }

    /// Returns the chaining value of a block. If the content has only one block, that is its root hash.
    fn cv_of(&self, block: u64, bytes: &[u8]) -> ChainingValue {
        if self.id.blocks() == 1 { *blake3::hash(bytes).as_bytes() } else { tree::block_cv(block, bytes) }
    }

    /// Marks blocks as idle, except for those that have arrived.
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
        self.events.push_back(Event::Banned { mirror, block });
        match &mut self.mode {
            Mode::Leaves(_) => {}
            Mode::Pieces(pieces) => {
                for block in pieces.discard_from(mirror) {
                    self.idle.insert(block..block + 1);
                }
            }
            Mode::Nothing(sampling) => {
                let again = sampling.take_back(mirror);
                runs(again.into_iter()).into_iter().for_each(|blocks| self.revoke(blocks));
                self.recheck();
            }
        }
    }

    /// Marks blocks as missing again and reports that.
    fn revoke(&mut self, blocks: Range<u64>) {
        for block in blocks.clone() {
            self.left += u64::from(self.done.remove(block));
        }
        self.idle.insert(blocks.clone());
        self.events.push_back(Event::Revoked { blocks });
    }

    fn recheck(&mut self) {
        if let Mode::Nothing(sampling) = &mut self.mode {
            for (block, found) in sampling.recheck() {
                self.found(block, found);
            }
        }
    }

    fn found(&mut self, block: u64, found: Comparison) {
        match found {
            Comparison::Inconclusive => {}
            Comparison::Outliers(mirrors) => mirrors.into_iter().for_each(|mirror| self.ban(mirror, block)),
            Comparison::Split(mirrors) => {
                if !std::mem::replace(&mut self.is_split, true) {
                    self.events.push_back(Event::Split { mirrors, block });
                }
            }
        }
    }

    fn check_complete(&mut self) {
        let settled = self.left == 0
            && match &self.mode {
                Mode::Nothing(sampling) => sampling.is_settled() && !self.is_split,
                _ => true,
            };
        if settled && !self.complete {
            self.complete = true;
            self.events.push_back(Event::Complete);
        }
    }

    fn deliver_to_piece(&mut self, mirror: MirrorId, block: u64, bytes: &[u8], cv: ChainingValue) {
        let Mode::Pieces(pieces) = &mut self.mode else { return };
        if !pieces.hold(block, Unverified { mirror, cv, bytes: bytes.to_vec() }) {
            // There is no room for the block: it is fetched again later.
            self.release(block..block + 1);
            return;
        }
        self.idle.remove(block);
        match pieces.check(block) {
            None => {}
            Some(PieceOutcome::Valid(held, liars)) => {
                for (block, held) in held {
                    self.accept(held.mirror, block, held.bytes, held.cv);
                }
                for (mirror, block) in liars {
                    self.ban(mirror, block);
                }
            }
            // A piece that has to come from one mirror alone is not idle: `take` looks for such pieces first.
            Some(PieceOutcome::Bad(liar)) => {
                let first = pieces.blocks_of(pieces.piece_of(block)).start;
                self.ban(liar, first);
            }
            Some(PieceOutcome::Mixed) => {}
        }
    }

    /// Assigns the last of the missing blocks, which are the end of `last`.
    fn take_last(&mut self, mirror: MirrorId, last: Range<u64>, blocks: u64) -> Option<Range<u64>> {
        let mut first = last.start.max(last.end.saturating_sub(blocks.max(1)));
        match &mut self.mode {
            Mode::Leaves(_) => {}
            Mode::Pieces(pieces) => {
                if let Some(piece) = pieces.bind(mirror) {
                    return Some(piece);
                }
                if !pieces.has_room() {
                    return None;
                }
                // Take whole pieces where possible.
                first = pieces.blocks_of(pieces.piece_of(first)).start.max(last.start);
                pieces.begin(first);
            }
            Mode::Nothing(sampling) => {
                if let Some(block) = sampling.take(mirror) {
                    return Some(block..block + 1);
                }
            }
        }
        self.idle.take_last(last.end - first)
    }
}

/// Joins ascending block numbers into ranges.
fn runs(blocks: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut().filter(|run| run.end == block) {
            Some(run) => run.end += 1,
            None => runs.push(block..block + 1),
        }
    }
    runs
}

impl Pool for VerifiedPool {
    fn take_at(&mut self, mirror: MirrorId, first: u64, blocks: u64) -> Option<Range<u64>> {
        if self.next_idle(mirror, first) != Some(first) {
            return None;
        }
        if let Mode::Pieces(pieces) = &mut self.mode {
            pieces.begin(first);
        }
        self.idle.take(first..u64::MAX, blocks)
    }

    fn next_idle(&self, mirror: MirrorId, first: u64) -> Option<u64> {
        // A reader that takes the content in order needs the first blocks first, from all mirrors.
        let is_in_order = self.horizon < self.id.blocks();
        let has_room = if let Mode::Pieces(pieces) = &self.mode { pieces.has_room() } else { true };
        let next = self.idle.first_in(first..u64::MAX)?.start;
        (!is_in_order && has_room && self.is_asked(mirror)).then_some(next)
    }

    fn take_from_end(&mut self, from_end: bool) {
        self.from_end = from_end;
    }

    fn take(&mut self, mirror: MirrorId, blocks: u64) -> Option<Range<u64>> {
        if !self.is_asked(mirror) {
            return None;
        }
        if self.from_end
            && let Some(last) = self.idle.last()
        {
            return self.take_last(mirror, last, blocks);
        }
        let horizon = 0..self.horizon;
        match &mut self.mode {
            Mode::Leaves(_) => self.idle.take(horizon, blocks),
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
                // Take whole pieces where possible.
                let to_end = pieces.blocks_of(pieces.piece_of(first)).end - first;
                let per_piece = pieces.per_piece();
                let whole = blocks.checked_sub(to_end).map(|more| to_end + more / per_piece * per_piece);
                let taken = self.idle.take(bounds, whole.unwrap_or(blocks))?;
                pieces.begin(taken.start);
                Some(taken)
            }
            Mode::Nothing(sampling) => match sampling.take(mirror) {
                Some(block) => Some(block..block + 1),
                None => self.idle.take(horizon, blocks),
            },
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
            Mode::Leaves(_) => self.reopen(blocks),
            Mode::Pieces(pieces) => {
                let idle = pieces.unbind(blocks);
                idle.into_iter().for_each(|blocks| self.reopen(blocks));
            }
            Mode::Nothing(sampling) => {
                sampling.release(blocks.start, blocks.end);
                self.reopen(blocks);
            }
        }
    }

    fn idle(&self) -> u64 {
        self.idle.len_below(self.horizon)
            + match &self.mode {
                Mode::Leaves(_) => 0,
                Mode::Pieces(pieces) => pieces.unbound(),
                Mode::Nothing(sampling) => sampling.waiting(),
            }
    }

    fn may_bring(&self, mirror: MirrorId) -> bool {
        !self.banned.contains(&mirror)
    }

    fn idle_for(&self, mirror: MirrorId) -> u64 {
        match &self.mode {
            _ if !self.may_bring(mirror) => 0,
            Mode::Nothing(_) => self.idle.len_below(self.horizon) + self.comparisons_for(mirror),
            _ => self.idle(),
        }
    }

    fn comparisons_for(&self, mirror: MirrorId) -> u64 {
        match &self.mode {
            Mode::Nothing(sampling) if self.may_bring(mirror) => sampling.waiting_for(mirror),
            _ => 0,
        }
    }

    fn compares(&self) -> bool {
        self.only_compares()
    }

    fn is_wanted(&self, block: u64) -> bool {
        if block >= self.id.blocks() || self.is_split {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) => !self.is_done(block),
            Mode::Pieces(pieces) => !self.is_done(block) && !pieces.holds(block),
            Mode::Nothing(sampling) => !self.is_done(block) || sampling.is_wanted(block),
        }
    }

    fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        if self.banned.contains(&mirror) || !self.is_wanted(block) {
            return false;
        }
        match &self.mode {
            Mode::Leaves(_) => true,
            Mode::Pieces(pieces) => pieces.takes(mirror, block),
            Mode::Nothing(sampling) => !self.is_done(block) || sampling.is_wanted_from(mirror, block),
        }
    }

    fn deliver(&mut self, mirror: MirrorId, block: u64, bytes: &[u8]) {
        if !self.is_wanted_from(mirror, block) || bytes.len() != self.id.block_len(block) {
            return;
        }
        let cv = self.cv_of(block, bytes);
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
            Mode::Nothing(sampling) => {
                let found = match self.done.contains(block) {
                    true => sampling.compare(mirror, block, cv),
                    false => sampling.brought(mirror, block, || Some(cv)),
                };
                if !self.done.contains(block) {
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
