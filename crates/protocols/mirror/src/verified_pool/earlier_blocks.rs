//! What is known of blocks that earlier transfers left, where no hash is known: see `cross_check/earlier.rs`.

use std::collections::BTreeSet;

use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;

/// The most comparisons of what earlier transfers left. Of more regions, chance chooses so many.
pub const EARLIER_CHECKS_MAX: usize = 256;
/// The first of the numbers by which earlier mirrors are known.
pub(super) const FIRST: MirrorId = 1 << 7;
/// The last one. If there are more, they share it.
pub(super) const LAST: MirrorId = MirrorId::MAX - 1;

/// What is known of blocks that earlier transfers left.
pub trait Earlier {
    /// Which mirror brought a block: any number that stands for it, and for no other.
    fn bringer(&self, block: u64) -> u8;
    /// Whether its region was [compared](super::VerifiedPool::compared) then.
    fn is_compared(&self, block: u64) -> bool;
    /// Its chaining value; `None` if it cannot be told.
    fn cv(&self, block: u64) -> Option<ChainingValue>;
}

/// The mirrors of now.
#[derive(Clone, Debug, Default)]
pub struct MirrorsOfNow {
    /// Those that what is here is compared with.
    pub asked: BTreeSet<MirrorId>,
    /// So many of them have to have the same: two, for one may have brought it itself; one, where there is
    /// one and others may have brought it; or none.
    pub voices: usize,
    /// Those of them that no earlier transfer asked: nothing of what is here is theirs.
    pub newcomers: BTreeSet<MirrorId>,
}

/// Whether it is an earlier mirror.
pub(super) const fn is_earlier(mirror: MirrorId) -> bool {
    mirror >= FIRST
}

/// See `cross_check/earlier.rs`.
#[derive(Default)]
pub(super) struct EarlierBlocks {
    /// The earlier mirrors.
    pub(super) mirrors: BTreeSet<MirrorId>,
    /// How many mirrors of now have to have the same.
    pub(super) voices: usize,
    /// The mirrors of now that brought nothing of it.
    pub(super) newcomers: BTreeSet<MirrorId>,
    /// Regions of which something will not have been compared at their end.
    pub(super) given_up: BTreeSet<u64>,
    /// Regions that were compared, and of which that has not been told.
    pub(super) compared: Vec<u64>,
}
