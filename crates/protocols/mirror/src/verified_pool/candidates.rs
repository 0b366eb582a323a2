//! Who has the right file, where a hash of the whole is known and none of its parts.
//!
//! Nobody is banned before that hash has told who is right: mirrors that agree with each other may all lie.
//! While no difference is found, all bring the file. A mirror that differs from two others is *set aside*:
//! the others bring its blocks. If the whole is wrong all the same, or two differ and no third is left, each
//! is tried *alone*: what is here of it counts, the rest is fetched from it, and the hash tells. If that is
//! wrong, it is *refuted*. Who brought other bytes than the right ones is banned at the end, so that it is
//! named.
//!
//! A mirror of which nobody can tell that it had the same file all the time, from earlier transfers on, is
//! *in doubt*: if its whole is wrong, all that is known of it is forgotten, and it has one more turn, after
//! the others.
//!
//! What does not count while another is tried is *shelved*: whoever keeps it goes on keeping it, until other
//! bytes come in its place. So one that is tried and brings nothing costs nothing: what it has not replaced
//! counts again when the turn of its bringer comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;

/// The first half of a chaining value: enough to tell who brought what.
type Mark = [u8; 16];

/// See the [module](self).
pub(super) struct Candidates {
    /// Of what is here of each block, or is kept of it.
    marks: Vec<Mark>,
    /// The mirrors that are known to have just that: a bit for each.
    bringers: Vec<u64>,
    /// Blocks that somebody brought otherwise: who, and the mark of that.
    others: BTreeMap<u64, Vec<(MirrorId, Mark)>>,
    /// Mirrors that are set aside.
    aside: BTreeSet<MirrorId>,
    /// Mirrors whose whole is wrong.
    refuted: BTreeSet<MirrorId>,
    /// How often each has stood back for others, which come before it then.
    postponed: BTreeMap<MirrorId, u32>,
    /// Mirrors that may have had another file when they brought some of it.
    in_doubt: BTreeSet<MirrorId>,
    /// The mirror that an earlier transfer tried last.
    tried_before: Option<MirrorId>,
}

impl Candidates {
    pub(super) fn new(blocks: u64) -> Self {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        Self {
            marks: vec![[0; 16]; blocks],
            bringers: vec![0; blocks],
            others: BTreeMap::new(),
            aside: BTreeSet::new(),
            refuted: BTreeSet::new(),
            postponed: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            tried_before: None,
        }
    }

    /// Of `usable`, of which each is slow (true) or not, the next to be tried: none that is refuted; rather
    /// one that has not stood back, then the one that was tried before, then one that is not slow, then one
    /// of those that agree, then one that has brought much.
    pub(super) fn next(&self, usable: impl Iterator<Item = (MirrorId, bool)>) -> Option<MirrorId> {
        let count = |mirror| self.bringers.iter().filter(|bringers| **bringers & bit(mirror) != 0).count();
        let rank = |(mirror, is_slow): &(MirrorId, bool)| {
            let (was_tried, agrees) = (self.tried_before == Some(*mirror), !self.aside.contains(mirror));
            (Reverse(self.stood_back(*mirror)), was_tried, !is_slow, agrees, count(*mirror))
        };
        usable.filter(|(mirror, _)| !self.is_refuted(*mirror)).max_by_key(rank).map(|(next, _)| next)
    }

    /// It stands back for others.
    pub(super) fn postpone(&mut self, mirror: MirrorId) {
        *self.postponed.entry(mirror).or_default() += 1;
    }

    /// How often it has stood back.
    pub(super) fn stood_back(&self, mirror: MirrorId) -> u32 {
        self.postponed.get(&mirror).copied().unwrap_or(0)
    }

    /// An earlier transfer tried it last.
    pub(super) const fn tried_before(&mut self, mirror: MirrorId) {
        self.tried_before = Some(mirror);
    }

    /// It may have had another file when it brought some of it.
    pub(super) fn doubt(&mut self, mirror: MirrorId) {
        self.in_doubt.insert(mirror);
    }

    /// Whether it may have had another file.
    pub(super) fn is_in_doubt(&self, mirror: MirrorId) -> bool {
        self.in_doubt.contains(&mirror)
    }

    /// What it brought is not known to be its own any more. Returns the blocks that are of nobody then.
    pub(super) fn forget(&mut self, mirror: MirrorId) -> Vec<u64> {
        self.in_doubt.remove(&mirror);
        self.others.values_mut().for_each(|others| others.retain(|(other, _)| *other != mirror));
        self.others.retain(|_, others| !others.is_empty());
        let its = (0..).zip(&mut self.bringers).filter(|(_, bringers)| **bringers & bit(mirror) != 0);
        let left = its.filter_map(|(block, bringers)| {
            *bringers &= !bit(mirror);
            (*bringers == 0).then_some(block)
        });
        left.collect()
    }

    /// Its whole is wrong; false if that was known.
    pub(super) fn refute(&mut self, mirror: MirrorId) -> bool {
        self.refuted.insert(mirror)
    }

    /// Whether its whole is known to be wrong.
    pub(super) fn is_refuted(&self, mirror: MirrorId) -> bool {
        self.refuted.contains(&mirror)
    }

    /// Those that have brought each block of `blocks`, just as it is here.
    pub(super) fn that_have_all(&self, blocks: u64) -> impl Iterator<Item = MirrorId> {
        let common = (0..blocks).fold(u64::MAX, |common, block| common & self.bringers_of(block));
        (0..u64::BITS as MirrorId).filter(move |mirror| blocks > 0 && common & bit(*mirror) != 0)
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

    /// Whether what is here of a block, or is kept of it, is what `mirror` has.
    pub(super) fn has(&self, mirror: MirrorId, block: u64) -> bool {
        self.bringers_of(block) & bit(mirror) != 0
    }

    /// Whether it is known of any mirror that it has what is here of a block.
    pub(super) fn is_known(&self, block: u64) -> bool {
        self.bringers_of(block) != 0
    }

    /// Whether what is here of a block is known to be what `mirror` has, and of no other.
    pub(super) fn is_of_none_but(&self, mirror: MirrorId, block: u64) -> bool {
        self.is_known(block) && self.bringers_of(block) == bit(mirror)
    }

    fn bringers_of(&self, block: u64) -> u64 {
        usize::try_from(block).ok().and_then(|index| self.bringers.get(index)).copied().unwrap_or(0)
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
