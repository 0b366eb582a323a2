//! Who has the right file, where a hash of the whole is known and none of its parts.
//!
//! Nobody is banned before that hash has told who is right: mirrors that agree with each other may all lie.
//! While no difference is found, all bring the file. A mirror that differs from two others is *set aside*:
//! the others bring its blocks. If the whole is wrong all the same, or two differ and no third is left, each
//! is tried *alone*: what is here of it stays, the rest is fetched from it, and the hash tells. Who brought
//! other bytes than the right ones is banned at the end, so that it is named.

use std::collections::{BTreeMap, BTreeSet};

use mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;

/// The first half of a chaining value: enough to tell who brought what.
type Mark = [u8; 16];

/// See the [module](self).
pub(super) struct Candidates {
    /// Of what is here of each block.
    marks: Vec<Mark>,
    /// The mirrors that are known to have just that: a bit for each.
    bringers: Vec<u64>,
    /// Blocks that somebody brought otherwise: who, and the mark of that.
    others: BTreeMap<u64, Vec<(MirrorId, Mark)>>,
    /// Mirrors that are set aside.
    aside: BTreeSet<MirrorId>,
    tried: BTreeSet<MirrorId>,
    /// Those that were too slow when they were tried: they come last.
    postponed: BTreeSet<MirrorId>,
}

impl Candidates {
    pub(super) fn new(blocks: u64) -> Self {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        Self {
            marks: vec![[0; 16]; blocks],
            bringers: vec![0; blocks],
            others: BTreeMap::new(),
            aside: BTreeSet::new(),
            tried: BTreeSet::new(),
            postponed: BTreeSet::new(),
        }
    }

    /// Of `usable`, the next that has not been tried: rather one that is not slow, then one of those that
    /// agree, then one that has brought much. It counts as tried from now on.
    pub(super) fn next(&mut self, usable: impl Iterator<Item = (MirrorId, bool)>) -> Option<MirrorId> {
        let count = |mirror| self.bringers.iter().filter(|bringers| **bringers & bit(mirror) != 0).count();
        let rank = |(mirror, is_slow): &(MirrorId, bool)| {
            let is_late = *is_slow || self.postponed.contains(mirror);
            (!is_late, !self.aside.contains(mirror), count(*mirror))
        };
        let (next, _) = usable.filter(|(mirror, _)| !self.tried.contains(mirror)).max_by_key(rank)?;
        self.tried.insert(next);
        Some(next)
    }

    /// It is too slow to be waited for while others have not been tried, and counts as not tried itself.
    /// False if that has been so once before: then it is the last.
    pub(super) fn postpone(&mut self, mirror: MirrorId) -> bool {
        self.postponed.insert(mirror) && self.tried.remove(&mirror)
    }

    /// Whether it has been tried alone, or is now.
    pub(super) fn is_tried(&self, mirror: MirrorId) -> bool {
        self.tried.contains(&mirror)
    }

    /// Sets it aside; false if it is already.
    pub(super) fn set_aside(&mut self, mirror: MirrorId) -> bool {
        self.aside.insert(mirror)
    }

    /// Whether it is set aside.
    pub(super) fn is_aside(&self, mirror: MirrorId) -> bool {
        self.aside.contains(&mirror)
    }

    /// A mirror has brought a block. `is_here`: it is here already and stays as it is.
    pub(super) fn brought(&mut self, mirror: MirrorId, block: u64, cv: &ChainingValue, is_here: bool) {
        let Ok(index) = usize::try_from(block) else { return };
        let (Some(mark), Some(bringers)) = (self.marks.get_mut(index), self.bringers.get_mut(index)) else {
            return;
        };
        let (new, _) = cv.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let (is_known, is_same) = (*bringers != 0, *mark == *new);
        let mut otherwise = Vec::new();
        if is_known && !is_same {
            if is_here {
                otherwise.push((mirror, *new));
            } else {
                otherwise.extend((0..64).filter(|m| *bringers & bit(*m) != 0).map(|m| (m, *mark)));
                *bringers = 0;
            }
        }
        if !is_here {
            (*mark, *bringers) = (*new, *bringers | bit(mirror));
        } else if is_known && is_same {
            *bringers |= bit(mirror);
        }
        if !otherwise.is_empty() {
            let known = self.others.entry(block).or_default();
            known.retain(|(m, _)| otherwise.iter().all(|(other, _)| m != other));
            known.extend(otherwise);
        }
    }

    /// Whether what is here of a block is what `mirror` has.
    pub(super) fn has(&self, mirror: MirrorId, block: u64) -> bool {
        let bringers = usize::try_from(block).ok().and_then(|index| self.bringers.get(index));
        bringers.is_some_and(|bringers| bringers & bit(mirror) != 0)
    }

    /// Whether somebody brought a block otherwise than somebody else.
    pub(super) fn differ(&self) -> bool {
        !(self.others.is_empty() && self.aside.is_empty())
    }

    /// Those who brought a block otherwise than it is now, each with the first such block.
    pub(super) fn liars(&self) -> BTreeMap<MirrorId, u64> {
        let mut liars = BTreeMap::new();
        for (block, others) in &self.others {
            let mark = usize::try_from(*block).ok().and_then(|index| self.marks.get(index));
            for (mirror, _) in others.iter().filter(|(_, other)| Some(other) != mark) {
                liars.entry(*mirror).or_insert(*block);
            }
        }
        liars
    }
}

const fn bit(mirror: MirrorId) -> u64 {
    match 1_u64.checked_shl(mirror as u32) {
        Some(bit) => bit,
        None => 0,
    }
}
