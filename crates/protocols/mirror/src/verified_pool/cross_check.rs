//! Compares mirrors with each other, where no hash is known.
//!
//! The first block of each mirror is fetched from another mirror too. The first mirror is an exception,
//! unless none of the others was compared with it. After that, one block per mirror is compared in each
//! region of [`CHECK_EVERY_BLOCKS`], before the content is complete. So a mirror that is wrong throughout a
//! region is always found. When a mirror is asked for a range that follows a range of another mirror, it is
//! also asked for the block before it, which costs no request. If a region has no such block when it is
//! complete, a block of each mirror is fetched from other mirrors; a seed that no mirror knows chooses the
//! block. A block is compared until more than half of the mirrors have it, up to a few; if two differ, nobody
//! is trusted, and all are asked: see [`voters`](super::voters).
//!
//! A mirror can foresee those comparisons: it knows where its ranges begin and end, and could leave just
//! these blocks right. So of every [`CHOSEN_OF`] blocks one, which the seed chooses too, is fetched from
//! another mirror once it has come, whatever was compared before: who sends `n` wrong blocks that it does not
//! expect to be compared goes unnoticed with a probability of about e^(-n/256). Of a mirror that falls silent
//! after it has brought something, the block that the seed chooses of each region is compared too.
//!
//! Mirrors that somebody else than the user named, the *introduced* ones, have no vote: whoever introduces
//! them may be all of them. They are compared with named mirrors, with as many as any other, and decide
//! nothing as long as a named one can.

mod earlier;

use std::collections::{BTreeMap, BTreeSet};

use anabranch_mmtp::tree::ChainingValue;

use super::earlier_blocks::{EarlierBlocks, is_earlier};
use super::voters::{Verdict, Voters, has};
use crate::range_scheduler::MirrorId;

/// Blocks of a region. One block per mirror and region is compared.
pub const CHECK_EVERY_BLOCKS: u64 = 1_024;
/// Of so many blocks one is compared that nobody can foresee.
const CHOSEN_OF: u64 = 256;
/// The most checks under way; further ones wait.
pub const CHECKS_MAX: usize = 1_024;
/// Ends of ranges that are remembered.
const EDGES_MAX: usize = 4_096;

/// A block that is fetched more than once.
struct Check {
    cvs: Vec<(MirrorId, ChainingValue)>,
    /// The content is not complete without it.
    needed: bool,
    /// Mirrors that have been asked for it, and have not brought it.
    asked: Vec<MirrorId>,
}

impl Check {
    /// One that the content is not complete without, of a block that this mirror brought.
    fn of(mirror: MirrorId, cv: ChainingValue) -> Self {
        Self { cvs: vec![(mirror, cv)], needed: true, asked: Vec::new() }
    }

    fn has(&self, mirror: MirrorId) -> bool {
        has(&self.cvs, mirror)
    }

    fn differs(&self) -> bool {
        self.cvs.windows(2).any(|two| two[0].1 != two[1].1)
    }

    /// Whether an earlier mirror brought the block.
    fn is_of_earlier(&self) -> bool {
        self.cvs.iter().any(|(mirror, _)| is_earlier(*mirror))
    }

    /// Whether this mirror should be asked for it: all that have a vote where mirrors differ, else as many as
    /// have to agree; one without a vote only where nobody with one is left.
    fn waits_for(&self, mirror: MirrorId, voters: &Voters) -> bool {
        if !self.needed || self.has(mirror) || self.asked.contains(&mirror) {
            return false;
        }
        match voters.is_named(mirror) {
            false => self.asked.is_empty() && voters.open(&self.cvs).next().is_none(),
            true if self.differs() => true,
            true => {
                let said = self.cvs.iter().map(|(said, _)| said).chain(&self.asked);
                said.filter(|said| voters.is_named(**said)).count() < voters.quorum(&self.cvs)
            }
        }
    }
}

/// The end of a mirror's range.
struct RangeEdge {
    mirror: MirrorId,
    /// The last block of the range, once it is here.
    cv: Option<ChainingValue>,
}

/// A region with some blocks here, until it is complete and compared.
#[derive(Default)]
struct Region {
    /// The block to compare for each mirror that brought some of the region.
    samples: BTreeMap<MirrorId, (u64, ChainingValue)>,
    /// Mirrors that agreed with another one in this region.
    proven: BTreeSet<MirrorId>,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// No difference, or not yet known.
    Inconclusive,
    /// This mirror's bytes are not those of the mirrors that decide.
    Outlier(MirrorId),
    /// These mirrors have different bytes, and no other mirror can decide.
    Conflict(Vec<MirrorId>),
}

/// See the [module](self).
pub(super) struct CrossCheck {
    /// Which mirror brought each block: its number plus 1, or 0. Pages that are never written take no memory.
    by: Vec<u8>,
    checks: BTreeMap<u64, Check>,
    edges: BTreeMap<u64, RangeEdge>,
    /// Blocks of each region that are not here.
    missing: Vec<u64>,
    /// By the region's number. A region without an entry has been compared, or has no blocks yet.
    regions: BTreeMap<u64, Region>,
    /// Those of `regions` that are complete.
    whole: BTreeSet<u64>,
    /// Mirrors that brought something, or agreed with another.
    known: BTreeSet<MirrorId>,
    /// Mirrors that have been asked for something. With a single one there is nothing to compare.
    asked: BTreeSet<MirrorId>,
    seed: [u8; 32],
    /// Blocks that the seed chose and that were not compared, of mirrors that agreed elsewhere in the region:
    /// by mirror and region.
    unchecked: BTreeMap<(MirrorId, u64), (u64, ChainingValue)>,
    /// Mirrors that have fallen silent.
    doubted: BTreeSet<MirrorId>,
    /// The first block of all, until its mirror has been compared with another one.
    first: Option<(MirrorId, u64, ChainingValue)>,
    earlier: EarlierBlocks,
}

impl CrossCheck {
    pub(super) fn new(blocks: u64) -> Self {
        let by = vec![0; usize::try_from(blocks).unwrap_or(usize::MAX)];
        let in_region = |first: u64| (blocks - first).min(CHECK_EVERY_BLOCKS);
        let missing = (0..blocks).step_by(CHECK_EVERY_BLOCKS as usize).map(in_region).collect();
        Self {
            by,
            checks: BTreeMap::new(),
            edges: BTreeMap::new(),
            missing,
            regions: BTreeMap::new(),
            whole: BTreeSet::new(),
            known: BTreeSet::new(),
            asked: BTreeSet::new(),
            seed: [0; 32],
            unchecked: BTreeMap::new(),
            doubted: BTreeSet::new(),
            first: None,
            earlier: EarlierBlocks::default(),
        }
    }

    /// Sets the seed that chooses the blocks to compare, before any block comes.
    pub(super) const fn seed(&mut self, seed: [u8; 32]) {
        self.seed = seed;
    }

    /// A block was here before.
    pub(super) fn had(&mut self, block: u64) {
        if let Some(missing) = self.missing.get_mut((block / CHECK_EVERY_BLOCKS) as usize) {
            *missing = missing.saturating_sub(1);
        }
    }

    /// This mirror takes part.
    pub(super) fn joins(&mut self, mirror: MirrorId) {
        if self.asked.insert(mirror) {
            self.sample();
        }
    }

    /// The mirror that brought what is here of a block.
    pub(super) fn bringer(&self, block: u64) -> Option<MirrorId> {
        usize::try_from(block).ok().and_then(|index| self.by.get(index))?.checked_sub(1)
    }

    /// Of the blocks of a region, the one with the lowest rank is compared.
    fn rank(&self, block: u64) -> [u8; 32] {
        *blake3::keyed_hash(&self.seed, &block.to_le_bytes()).as_bytes()
    }

    /// Whether the seed chooses this block of the whole, not only of its region.
    pub(super) fn is_chosen(&self, block: u64) -> bool {
        let [a, b, ..] = self.rank(block);
        u64::from(u16::from_be_bytes([a, b])) < (1 << 16) / CHOSEN_OF
    }

    /// Starts the missing checks of complete regions.
    fn sample(&mut self) {
        if self.asked.len() < 2 {
            return;
        }
        let whole: Vec<u64> = self.whole.iter().copied().collect();
        for number in whole {
            let first = number * CHECK_EVERY_BLOCKS;
            let mut under_way = false;
            for (_, check) in self.checks.range_mut(first..first + CHECK_EVERY_BLOCKS) {
                // Its result may be enough.
                (check.needed, under_way) = (true, true);
            }
            if under_way {
                continue;
            }
            if self.checks.len() >= CHECKS_MAX {
                return;
            }
            self.whole.remove(&number);
            let Some(region) = self.regions.remove(&number) else { continue };
            for (mirror, (block, cv)) in region.samples {
                if self.doubted.contains(&mirror) || !region.proven.contains(&mirror) {
                    self.checks.entry(block).or_insert_with(|| Check::of(mirror, cv));
                } else {
                    self.unchecked.insert((mirror, number), (block, cv));
                }
            }
            self.settle(number);
        }
    }

    /// A mirror has fallen silent: what was chosen of it is compared, also where it agreed in other blocks.
    pub(super) fn doubt(&mut self, mirror: MirrorId) {
        if !self.doubted.insert(mirror) {
            return;
        }
        let theirs: Vec<_> = self
            .unchecked
            .range((mirror, 0)..=(mirror, u64::MAX))
            .map(|(key, found)| (*key, *found))
            .collect();
        for (key, (block, cv)) in theirs {
            self.unchecked.remove(&key);
            self.checks.entry(block).or_insert_with(|| Check::of(mirror, cv)).needed = true;
        }
    }

    /// Checks that some mirror should be asked for.
    pub(super) fn waiting(&self, voters: &Voters) -> u64 {
        let waits = |check: &&Check| voters.all.iter().any(|mirror| check.waits_for(*mirror, voters));
        self.checks.values().filter(waits).count() as u64
    }

    /// The same for this one.
    pub(super) fn waiting_for(&self, mirror: MirrorId, voters: &Voters) -> u64 {
        self.checks.values().filter(|check| check.waits_for(mirror, voters)).count() as u64
    }

    /// Whether mirrors differ in a block, and it is not decided.
    pub(super) fn is_disputed(&self) -> bool {
        self.checks.values().any(Check::differs)
    }

    /// Whether no comparison is missing.
    pub(super) fn is_settled(&self) -> bool {
        (self.asked.len() < 2 || self.whole.is_empty()) && self.checks.values().all(|check| !check.needed)
    }

    /// Whether the block is wanted once more.
    pub(super) fn is_wanted(&self, block: u64) -> bool {
        self.checks.contains_key(&block)
    }

    /// Whether the block is wanted once more from `mirror`.
    pub(super) fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        self.checks.get(&block).is_some_and(|check| !check.has(mirror))
    }

    /// A check that `mirror` should be asked for.
    pub(super) fn take(&mut self, mirror: MirrorId, voters: &Voters) -> Option<u64> {
        let (&block, check) = self.checks.iter_mut().find(|(_, check)| check.waits_for(mirror, voters))?;
        check.asked.push(mirror);
        Some(block)
    }

    /// The most blocks of a range from `first` on. With several mirrors it ends with its region, so that the
    /// mirror that is asked for the next one compares it without a request of its own.
    pub(super) fn most_from(&self, first: u64) -> u64 {
        if self.asked.len() < 2 { u64::MAX } else { CHECK_EVERY_BLOCKS - first % CHECK_EVERY_BLOCKS }
    }

    /// The first block of the region of this one.
    pub(super) const fn region_start(block: u64) -> u64 {
        block - block % CHECK_EVERY_BLOCKS
    }

    /// `mirror` is asked for `first..end`. Returns whether to ask it for the block before too.
    pub(super) fn took(&mut self, mirror: MirrorId, first: u64, end: u64) -> bool {
        if self.edges.len() >= EDGES_MAX {
            self.edges.pop_first();
        }
        self.edges.insert(end, RangeEdge { mirror, cv: None });
        let Some(edge) = self.edges.get(&first).filter(|edge| edge.mirror != mirror) else {
            return false;
        };
        // A first range has a check of its own.
        let number = (first - 1) / CHECK_EVERY_BLOCKS;
        let enough = match self.regions.get(&number) {
            Some(region) => region.proven.contains(&edge.mirror),
            None => self.missing.get(number as usize).is_none_or(|missing| *missing == 0),
        };
        if enough || !self.known.contains(&mirror) {
            return false;
        }
        if self.checks.len() >= CHECKS_MAX || self.checks.contains_key(&(first - 1)) {
            return false;
        }
        let cvs = edge.cv.map(|cv| (edge.mirror, cv)).into_iter().collect();
        self.checks.insert(first - 1, Check { cvs, needed: false, asked: vec![mirror] });
        true
    }

    /// A mirror that was asked for these blocks has not brought them.
    pub(super) fn release(&mut self, first: u64, end: u64) {
        for check in self.checks.range_mut(first..end).map(|(_, check)| check) {
            check.asked.clear();
        }
    }

    /// A block that was missing is here.
    pub(super) fn brought(&mut self, mirror: MirrorId, block: u64, cv: ChainingValue) {
        if let Some(by) = usize::try_from(block).ok().and_then(|i| self.by.get_mut(i)) {
            *by = mirror.saturating_add(1);
        }
        if let Some(edge) = self.edges.get_mut(&(block + 1)) {
            *edge = RangeEdge { mirror, cv: Some(cv) };
        }
        let number = block / CHECK_EVERY_BLOCKS;
        let rank = self.rank(block);
        let before = self.regions.get(&number).and_then(|region| region.samples.get(&mirror));
        if before.is_none_or(|(other, _)| rank < self.rank(*other)) {
            self.regions.entry(number).or_default().samples.insert(mirror, (block, cv));
        }
        let first = self.known.is_empty();
        if self.known.insert(mirror) {
            if let Some(check) = self.checks.get_mut(&block) {
                check.needed = true;
            } else if !first {
                self.checks.insert(block, Check::of(mirror, cv));
            }
            if first {
                self.first = Some((mirror, block, cv));
            }
        }
        // As long as there is nobody to compare with, whole regions wait for that.
        if self.asked.len() > 1 && self.is_chosen(block) && self.checks.len() < CHECKS_MAX {
            self.checks.entry(block).or_insert_with(|| Check::of(mirror, cv)).needed = true;
        }
        self.had(block);
        if self.missing.get(number as usize) == Some(&0) {
            self.whole.insert(number);
            self.sample();
        }
    }

    /// `mirror` brought a block that is being checked.
    pub(super) fn compare(
        &mut self,
        mirror: MirrorId,
        block: u64,
        cv: ChainingValue,
        voters: &Voters,
    ) -> Comparison {
        let Some(check) = self.checks.get_mut(&block) else { return Comparison::Inconclusive };
        check.asked.retain(|asked| *asked != mirror);
        if check.has(mirror) {
            return Comparison::Inconclusive;
        }
        check.cvs.push((mirror, cv));
        self.check(block, voters)
    }

    fn check(&mut self, block: u64, voters: &Voters) -> Comparison {
        let Some(check) = self.checks.get(&block).filter(|check| check.cvs.len() > 1) else {
            return Comparison::Inconclusive;
        };
        match voters.verdict(&check.cvs, self.lacks_voices(check)) {
            Verdict::Odd(mirror) => Comparison::Outlier(mirror),
            Verdict::Split(mirrors) => Comparison::Conflict(mirrors),
            Verdict::Same => {
                self.agreed(block);
                Comparison::Inconclusive
            }
            Verdict::Open => {
                self.checks.entry(block).and_modify(|check| check.needed = true);
                Comparison::Inconclusive
            }
        }
    }

    /// All who brought the block agree.
    fn agreed(&mut self, block: u64) {
        let Some(check) = self.checks.remove(&block) else { return };
        let agree = check.cvs.iter().map(|(mirror, _)| *mirror).filter(|mirror| !is_earlier(*mirror));
        let agree: Vec<MirrorId> = agree.collect();
        let number = block / CHECK_EVERY_BLOCKS;
        if agree.len() < 2 {
            // It may have brought that itself, in an earlier transfer.
            self.give_up(number);
            return self.sample();
        }
        self.known.extend(&agree);
        if let Some(region) = self.regions.get_mut(&number) {
            region.proven.extend(&agree);
        }
        if let Some((first, block, cv)) = self.first.take()
            && !agree.contains(&first)
        {
            // The others were compared with each other: now the first one is checked.
            self.checks.entry(block).or_insert_with(|| Check::of(first, cv));
        }
        self.sample();
        self.settle(number);
    }

    /// Bans a mirror and returns the blocks it brought, which are missing again.
    pub(super) fn ban(&mut self, mirror: MirrorId) -> Vec<u64> {
        self.forget_earlier(mirror);
        for check in self.checks.values_mut() {
            check.cvs.retain(|(m, _)| *m != mirror);
            check.asked.retain(|m| *m != mirror);
        }
        self.checks.retain(|_, check| !check.cvs.is_empty());
        self.edges.retain(|_, edge| edge.mirror != mirror);
        self.known.remove(&mirror);
        self.unchecked.retain(|(m, _), _| *m != mirror);
        for region in self.regions.values_mut() {
            region.samples.remove(&mirror);
            region.proven.remove(&mirror);
        }
        self.first = self.first.filter(|(first, ..)| *first != mirror);
        let (mut again, mine) = (Vec::new(), mirror.saturating_add(1));
        for (block, by) in self.by.iter_mut().enumerate().filter(|(_, by)| **by == mine) {
            *by = 0;
            let block = block as u64;
            again.push(block);
            let number = block / CHECK_EVERY_BLOCKS;
            if let Some(missing) = self.missing.get_mut(number as usize) {
                *missing += 1;
            }
            self.whole.remove(&number);
        }
        self.sample();
        again
    }

    /// Evaluates all checks again, because fewer mirrors can decide now.
    pub(super) fn recheck(&mut self, voters: &Voters) -> Vec<(u64, Comparison)> {
        let blocks: Vec<u64> = self.checks.keys().copied().collect();
        let found = blocks.into_iter().map(|block| (block, self.check(block, voters)));
        found.filter(|(_, found)| *found != Comparison::Inconclusive).collect()
    }
}
