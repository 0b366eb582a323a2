//! What earlier transfers left, where no hash is known, and what a later one need not compare again.
//!
//! A region that is complete, and in which every comparison was made and agreed, is *compared*: the caller
//! remembers that. All else that an earlier transfer left is compared in this one, as if mirrors of their own
//! had brought it: one for each of those that brought some of it then. So whoever brought wrong bytes before
//! an interruption is found, whether it takes part now or not. These *earlier mirrors* have no vote: what is
//! not what the mirrors of now have comes again. Where too few mirrors answer, comparisons are given up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anabranch_mmtp::tree::ChainingValue;

use super::{CHECK_EVERY_BLOCKS, Check, CrossCheck};
use crate::range_scheduler::MirrorId;
use crate::verified_pool::earlier_blocks::{EARLIER_CHECKS_MAX, Earlier, FIRST, LAST};
use crate::verified_pool::voters::{Voters, has};

impl CrossCheck {
    /// Takes up what earlier transfers left.
    pub(in super::super) fn take_up(
        &mut self,
        blocks: impl Iterator<Item = u64>,
        earlier: &dyn Earlier,
        voices: usize,
        newcomers: BTreeSet<MirrorId>,
    ) {
        (self.earlier.voices, self.earlier.newcomers) = (voices, newcomers);
        let mut numbers: BTreeMap<u8, MirrorId> = BTreeMap::new();
        let mut samples: BTreeMap<(MirrorId, u64), ([u8; 32], u64)> = BTreeMap::new();
        let mut chosen: Vec<(MirrorId, u64)> = Vec::new();
        for block in blocks {
            let next = FIRST.saturating_add(numbers.len() as u8).min(LAST);
            let mirror = *numbers.entry(earlier.bringer(block)).or_insert(next);
            if let Some(by) = usize::try_from(block).ok().and_then(|index| self.by.get_mut(index)) {
                *by = mirror + 1;
            }
            if earlier.is_compared(block) {
                continue;
            }
            let (rank, number) = (self.rank(block), block / CHECK_EVERY_BLOCKS);
            let sample = samples.entry((mirror, number)).or_insert((rank, block));
            *sample = (*sample).min((rank, block));
            match chosen.len() < EARLIER_CHECKS_MAX {
                _ if !self.is_chosen(block) => {}
                true => chosen.push((mirror, block)),
                false => self.give_up(number),
            }
        }
        self.earlier.mirrors = numbers.into_values().collect();
        let mut ranked: Vec<_> =
            samples.into_iter().map(|((mirror, _), (rank, block))| (rank, mirror, block)).collect();
        ranked.sort_unstable();
        let of_regions = ranked.into_iter().map(|(_, mirror, block)| (mirror, block));
        for (mirror, block) in of_regions.chain(chosen) {
            let is_new = !self.checks.contains_key(&block);
            let has_room = self.checks.len() < EARLIER_CHECKS_MAX && voices > 0;
            match Some(block).filter(|_| has_room).and_then(|block| earlier.cv(block)) {
                _ if !is_new => {}
                Some(cv) => {
                    self.checks.insert(block, Check::of(mirror, cv));
                }
                None => self.give_up(block / CHECK_EVERY_BLOCKS),
            }
        }
    }

    /// An earlier transfer had this from a mirror of now: others are asked for it, if it is the first of that
    /// mirror.
    pub(in super::super) fn compare_first(&mut self, mirror: MirrorId, block: u64, cv: ChainingValue) {
        if self.known.insert(mirror) {
            self.checks.insert(block, Check::of(mirror, cv));
        }
    }

    /// Whether a block that an earlier mirror brought has been compared with too few mirrors of now: one that
    /// has the same may have brought it then.
    pub(super) fn lacks_voices(&self, check: &Check) -> bool {
        check.is_of_earlier() && check.cvs.len() <= self.earlier.voices
    }

    /// Whether a mirror of now brought nothing of what earlier transfers left.
    pub(in super::super) fn is_newcomer(&self, mirror: MirrorId) -> bool {
        self.earlier.newcomers.contains(&mirror)
    }

    /// The earlier mirrors.
    pub(in super::super) fn earlier_mirrors(&self) -> Vec<MirrorId> {
        self.earlier.mirrors.iter().copied().collect()
    }

    /// What an earlier mirror brought is not compared any more: it is missing again.
    pub(super) fn forget_earlier(&mut self, mirror: MirrorId) {
        if self.earlier.mirrors.remove(&mirror) {
            self.checks.retain(|_, check| !check.has(mirror));
        }
    }

    /// Something of a region will not be compared: the next transfer has to.
    pub(super) fn give_up(&mut self, number: u64) {
        self.earlier.given_up.insert(number);
    }

    /// Goes on without the comparisons that none of `voters` can make, and makes those at last that waited
    /// for one of these. What was left is also compared by those that `answer` and have not been asked yet.
    /// Returns whether any was given up.
    pub(in super::super) fn waive(&mut self, voters: &Voters, answer: &BTreeSet<MirrorId>) -> bool {
        let can = |said: &[(MirrorId, ChainingValue)]| voters.everyone().any(|mirror| !has(said, mirror));
        let (mut waived, voices) = (Vec::new(), self.earlier.voices);
        loop {
            // What differs is decided by who is left.
            self.checks.retain(|block, check| {
                let keeps = match check.is_of_earlier() && check.cvs.len() <= voices {
                    true => check.differs() || answer.iter().any(|mirror| !check.has(*mirror)),
                    false => check.cvs.len() > 1 || can(&check.cvs),
                };
                waived.extend((check.needed && !keeps).then_some(block / CHECK_EVERY_BLOCKS));
                keeps
            });
            let before = self.checks.len();
            self.sample();
            if self.checks.len() == before {
                waived.iter().for_each(|number| self.give_up(*number));
                return !waived.is_empty();
            }
        }
    }

    /// Notes that a region has been compared, if it has.
    pub(super) fn settle(&mut self, number: u64) {
        let blocks = number * CHECK_EVERY_BLOCKS..(number + 1) * CHECK_EVERY_BLOCKS;
        let waits = self.whole.contains(&number) || self.checks.range(blocks).next().is_some();
        if !waits && self.is_whole(number) && !self.earlier.given_up.contains(&number) {
            self.earlier.compared.push(number);
        }
    }

    fn is_whole(&self, number: u64) -> bool {
        self.missing.get(number as usize) == Some(&0)
    }

    /// The regions that have been compared since the last call, and are complete still.
    pub(in super::super) fn take_compared(&mut self) -> Vec<Range<u64>> {
        let mut numbers = std::mem::take(&mut self.earlier.compared);
        numbers.retain(|number| self.is_whole(*number));
        numbers.iter().map(|number| number * CHECK_EVERY_BLOCKS..(number + 1) * CHECK_EVERY_BLOCKS).collect()
    }
}
