//! Verification by piece: the blocks of a piece are held until all of them have arrived, and are then checked
//! against the hash of the piece. Blocks without a gap before them are hashed on arrival, while they are in
//! the processor's cache: hashing a piece later takes 50 % longer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::ChainingValue;

use crate::digests::{PieceHasher, PieceHashes};
use crate::range_scheduler::MirrorId;

/// The greatest length of a piece in bytes.
pub const PIECE_BYTES_MAX: u64 = 64 << 20;
/// Once the open pieces have this many bytes in total, no other piece is begun.
pub const OPEN_BYTES: u64 = 128 << 20;
/// Once the open pieces have this many bytes in total, blocks of other pieces are dropped.
pub const OPEN_BYTES_MAX: u64 = 2 * OPEN_BYTES;

/// Whether pieces of `bytes` bytes can be checked: the length must be a multiple of the block length and at
/// most [`PIECE_BYTES_MAX`].
#[must_use]
pub const fn can_check_pieces(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64) && bytes <= PIECE_BYTES_MAX
}

/// A block that has arrived and is not verified.
pub(super) struct Unverified {
    pub(super) mirror: MirrorId,
    pub(super) cv: ChainingValue,
    pub(super) bytes: Vec<u8>,
}

/// A piece that has been begun and is not complete.
struct OpenPiece {
    held: BTreeMap<u64, Unverified>,
    /// The hash state of the blocks before `hashed`.
    hasher: PieceHasher,
    /// The first block that is not hashed yet.
    hashed: u64,
}

impl OpenPiece {
    const fn new(first: u64, hasher: PieceHasher) -> Self {
        Self { held: BTreeMap::new(), hasher, hashed: first }
    }

    /// Stores a block, and hashes the stored blocks up to the first gap.
    fn hold(&mut self, block: u64, held: Unverified) {
        self.held.insert(block, held);
        while let Some(next) = self.held.get(&self.hashed) {
            self.hasher.update(&next.bytes);
            self.hashed += 1;
        }
    }

    /// Drops the blocks that `mirror` delivered, and returns their numbers. `first` is the first block of the
    /// piece, and `fresh` makes a new hasher.
    fn discard_from(&mut self, mirror: MirrorId, first: u64, fresh: &PieceHashes) -> Vec<u64> {
        let theirs = self.held.iter().filter(|(_, held)| held.mirror == mirror);
        let theirs: Vec<u64> = theirs.map(|(block, _)| *block).collect();
        for block in &theirs {
            self.held.remove(block);
        }
        if theirs.iter().any(|block| *block < self.hashed) {
            // The remaining blocks are hashed again when the next block arrives.
            (self.hasher, self.hashed) = (fresh.hasher(), first);
        }
        theirs
    }
}

/// The blocks of a wrong piece that came from several mirrors, each with its mirror and chaining value.
type BadContributions = Vec<(u64, MirrorId, ChainingValue)>;

/// A piece that one mirror alone has to deliver.
#[derive(Default)]
struct SoleFetch {
    /// The mirror that is assigned this piece now.
    by: Option<MirrorId>,
    /// The mirror that was last assigned this piece and did not deliver all of it.
    left_by: Option<MirrorId>,
    /// The blocks of this piece from each mirror whose transfer broke off. A mirror continues with its own
    /// blocks when it is assigned the piece again.
    begun: BTreeMap<MirrorId, OpenPiece>,
    poisoned: BadContributions,
}

/// The result of checking a complete piece.
pub(super) enum PieceOutcome {
    /// The piece is right: its blocks, and the mirrors that sent wrong blocks of it before, each with one
    /// such block.
    Valid(BTreeMap<u64, Unverified>, Vec<(MirrorId, u64)>),
    /// The piece is wrong, and all of it came from this mirror.
    Bad(MirrorId),
    /// The piece is wrong and came from several mirrors. One mirror alone has to deliver it again.
    Mixed,
}

/// The pieces of a content and their state; see the [module](self).
pub(super) struct Pieces {
    /// The number of blocks in a piece.
    per_piece: u64,
    blocks: u64,
    hashes: PieceHashes,
    open: BTreeMap<u64, OpenPiece>,
    alone: BTreeMap<u64, SoleFetch>,
    /// Mirrors that send the whole file, and so every piece, from its first block on.
    whole: BTreeSet<MirrorId>,
}

impl Pieces {
    pub(super) const fn new(per_piece: u64, blocks: u64, hashes: PieceHashes) -> Self {
        let whole = BTreeSet::new();
        Self { per_piece, blocks, hashes, open: BTreeMap::new(), alone: BTreeMap::new(), whole }
    }

    pub(super) const fn per_piece(&self) -> u64 {
        self.per_piece
    }

    pub(super) const fn piece_of(&self, block: u64) -> u64 {
        block / self.per_piece
    }

    pub(super) fn blocks_of(&self, piece: u64) -> Range<u64> {
        let first = piece * self.per_piece;
        first..(first + self.per_piece).min(self.blocks)
    }

    /// Returns how many partial pieces are kept for mirrors whose transfer broke off.
    pub(super) fn kept(&self) -> usize {
        self.alone.values().map(|alone| alone.begun.len()).sum()
    }

    fn open_bytes(&self) -> u64 {
        (self.open.len() + self.kept()) as u64 * self.per_piece * BLOCK_BYTES as u64
    }

    /// Whether another piece may be begun.
    pub(super) fn has_room(&self) -> bool {
        self.open_bytes() < OPEN_BYTES
    }

    /// Returns the block ranges of the open pieces that need not come from one mirror alone.
    pub(super) fn begun(&self) -> impl Iterator<Item = Range<u64>> {
        self.open.keys().filter(|piece| !self.alone.contains_key(piece)).map(|piece| self.blocks_of(*piece))
    }

    /// Opens the piece of a block that is being assigned, unless the piece is open already.
    pub(super) fn begin(&mut self, block: u64) {
        let piece = self.piece_of(block);
        let first = self.blocks_of(piece).start;
        self.open.entry(piece).or_insert_with(|| OpenPiece::new(first, self.hashes.hasher()));
    }

    /// Whether the block has arrived and is held.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.open.get(&self.piece_of(block)).is_some_and(|open| open.held.contains_key(&block))
    }

    /// Whether `block` is accepted from `mirror`. A piece that one mirror alone has to deliver is accepted
    /// only from the mirror that is assigned it; while none is, a mirror that sends the whole file may start
    /// the piece with its first block.
    pub(super) fn takes(&self, mirror: MirrorId, block: u64) -> bool {
        let piece = self.piece_of(block);
        let comes_with_all = || block == self.blocks_of(piece).start && self.whole.contains(&mirror);
        self.alone.get(&piece).is_none_or(|alone| match alone.by {
            Some(by) => by == mirror,
            None => comes_with_all(),
        })
    }

    /// Records that a mirror now sends the whole file, from the first block on.
    pub(super) fn begin_whole(&mut self, mirror: MirrorId) {
        self.whole.insert(mirror);
    }

    /// Records that a mirror has stopped sending the whole file. The pieces that this mirror alone was
    /// delivering have to start anew.
    pub(super) fn end_whole(&mut self, mirror: MirrorId) {
        if !self.whole.remove(&mirror) {
            return;
        }
        for (piece, alone) in self.alone.iter_mut().filter(|(_, alone)| alone.by == Some(mirror)) {
            alone.by = None;
            self.open.remove(piece);
        }
    }

    /// Assigns `mirror` a piece that one mirror alone has to deliver and that no mirror is assigned yet.
    /// Returns the range from the first missing block to the end of the piece.
    pub(super) fn bind(&mut self, mirror: MirrorId) -> Option<Range<u64>> {
        // While a mirror streams the whole file, do not give a piece to the mirror that just failed it.
        let leaves = |alone: &SoleFetch| !self.whole.is_empty() && alone.left_by == Some(mirror);
        let free = self.alone.iter_mut().filter(|(_, alone)| alone.by.is_none() && !leaves(alone));
        let (&piece, alone) = free.min_by_key(|(_, alone)| !alone.begun.contains_key(&mirror))?;
        alone.by = Some(mirror);
        if let Some(begun) = alone.begun.remove(&mirror) {
            self.open.insert(piece, begun);
        }
        let blocks = self.blocks_of(piece);
        let first = blocks.clone().find(|block| !self.holds(*block))?;
        Some(first..blocks.end)
    }

    /// Counts the blocks of the pieces that are not assigned although a single mirror has to deliver each of
    /// them.
    pub(super) fn unbound(&self) -> u64 {
        let free = self.alone.iter().filter(|(_, alone)| alone.by.is_none());
        free.map(|(piece, _)| self.blocks_of(*piece)).map(|blocks| blocks.end - blocks.start).sum()
    }

    /// Records that a mirror did not deliver blocks that it was assigned. Pieces among them that this mirror
    /// alone had to deliver become free: another mirror starts them anew, and the same mirror continues where
    /// it stopped. Returns the ranges of the other blocks, which become unassigned.
    pub(super) fn unbind(&mut self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let (first, last) = (self.piece_of(blocks.start), self.piece_of(blocks.end - 1));
        let mut anew = Vec::new();
        // One piece is accepted even without room, so parts of further pieces are kept only within the limit.
        let mut open_bytes = self.open_bytes();
        for (&piece, alone) in self.alone.range_mut(first..=last) {
            alone.left_by = alone.by.or(alone.left_by);
            if let (Some(mirror), Some(open)) = (alone.by.take(), self.open.remove(&piece)) {
                match open_bytes <= OPEN_BYTES_MAX {
                    true => drop(alone.begun.insert(mirror, open)),
                    false => open_bytes -= self.per_piece * BLOCK_BYTES as u64,
                }
            }
            anew.push(piece);
        }
        let (mut idle, mut from) = (Vec::new(), blocks.start);
        for piece in anew.into_iter().map(|piece| self.blocks_of(piece)) {
            idle.push(from..piece.start);
            from = from.max(piece.end);
        }
        idle.push(from..blocks.end);
        idle.retain(|range| !range.is_empty());
        idle
    }

    /// Stores a block that has arrived. Returns false if there is no room for it.
    pub(super) fn hold(&mut self, block: u64, held: Unverified) -> bool {
        let piece = self.piece_of(block);
        let room = self.open.is_empty() || self.open_bytes() < OPEN_BYTES_MAX;
        if !room && !self.open.contains_key(&piece) {
            return false;
        }
        let first = self.blocks_of(piece).start;
        if let Some(alone) = self.alone.get_mut(&piece) {
            alone.by = Some(held.mirror);
        }
        let open = self.open.entry(piece).or_insert_with(|| OpenPiece::new(first, self.hashes.hasher()));
        open.hold(block, held);
        true
    }

    /// Checks the piece of `block` against its hash if all blocks of the piece have arrived.
    pub(super) fn check(&mut self, block: u64) -> Option<PieceOutcome> {
        let piece = self.piece_of(block);
        let blocks = self.blocks_of(piece);
        let whole = self.open.get(&piece)?.held.len() as u64 == blocks.end - blocks.start;
        let OpenPiece { held, hasher, hashed } = if whole { self.open.remove(&piece)? } else { return None };
        debug_assert_eq!(hashed, blocks.end, "all are here, so all are hashed");
        let right = self.hashes.get(usize::try_from(piece).ok()?)?;
        if hasher.is(right) {
            let poisoned = self.alone.remove(&piece).map_or_else(Vec::new, |alone| alone.poisoned);
            let wrong = |(block, mirror, cv): (u64, MirrorId, ChainingValue)| {
                held.get(&block).is_some_and(|held| held.cv != cv).then_some((mirror, block))
            };
            let liars = poisoned.into_iter().filter_map(wrong).collect();
            return Some(PieceOutcome::Valid(held, liars));
        }
        let mirrors: BTreeSet<_> = held.values().map(|held| held.mirror).collect();
        let alone = self.alone.entry(piece).or_default();
        alone.by = None;
        if let (Some(liar), 1) = (mirrors.first(), mirrors.len()) {
            return Some(PieceOutcome::Bad(*liar));
        }
        alone.poisoned = held.iter().map(|(block, held)| (*block, held.mirror, held.cv)).collect();
        Some(PieceOutcome::Mixed)
    }

    /// Drops the blocks of incomplete pieces that `mirror` delivered. Returns those that have to be assigned
    /// again; blocks of pieces that one mirror alone has to deliver are not among them.
    pub(super) fn discard_from(&mut self, mirror: MirrorId) -> Vec<u64> {
        let mut again = Vec::new();
        for alone in self.alone.values_mut() {
            alone.begun.remove(&mirror);
            alone.by = alone.by.filter(|by| *by != mirror);
        }
        for (piece, open) in &mut self.open {
            let theirs = open.discard_from(mirror, piece * self.per_piece, &self.hashes);
            if !self.alone.contains_key(piece) {
                again.extend(theirs);
            }
        }
        again
    }
}
