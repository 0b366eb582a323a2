//! Compares mirrors with each other in samples, where no hash of the parts is known.
//!
//! A *sample* is a block that is fetched from a second mirror too. Samples are the first block that each
//! mirror delivers, and one of every [`SAMPLE_OF`] blocks, chosen by a seed that no mirror knows. So a mirror
//! that sends `n` wrong blocks goes unnoticed with a probability of about e^(-n/256). Where two mirrors
//! differ, every mirror with a vote is asked for that block, and a [`Ballot`] decides.
//!
//! Mirrors that the user did not name have no vote: the server that introduces them may control all of them.
//! They are compared with the mirrors that have a vote, and decide nothing as long as a voter takes part.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;
use crate::variants::{Ballot, Differences};

/// One of this many blocks is a sample that no mirror can foresee.
pub const SAMPLE_OF: u64 = 256;
/// The greatest number of samples under way; further samples are left out.
pub const SAMPLES_MAX: usize = 1_024;

/// The chaining values that mirrors have of a block.
type Said = Vec<(MirrorId, ChainingValue)>;

/// A block that is fetched from several mirrors.
#[derive(Default)]
struct Sample {
    said: Said,
    /// Mirrors that were asked for the block and have not delivered it.
    asked: Vec<MirrorId>,
}

impl Sample {
    fn has(&self, mirror: MirrorId) -> bool {
        self.said.iter().any(|(one, _)| *one == mirror)
    }

    fn differs(&self) -> bool {
        self.said.windows(2).any(|two| two[0].1 != two[1].1)
    }
}

/// The result of comparing the mirrors in one sample.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The mirrors agree, or the result is not known yet.
    Inconclusive,
    /// These mirrors have other bytes than the majority.
    Outliers(Vec<MirrorId>),
    /// These mirrors have different bytes, and no more than half of the votes are for any of them.
    Split(Vec<MirrorId>),
}

/// The samples and the mirrors that take part; see the [module](self).
pub(super) struct Sampling {
    /// For each block the number of the mirror that delivered it, plus 1; 0 if none has. Memory pages of the
    /// vector that are never written take no memory.
    by: Vec<u8>,
    samples: BTreeMap<u64, Sample>,
    /// Mirrors that have a vote and can be asked for a block.
    electorate: BTreeSet<MirrorId>,
    /// Mirrors that have no vote and can be asked for a block.
    guests: BTreeSet<MirrorId>,
    /// Mirrors that have delivered a block.
    known: BTreeSet<MirrorId>,
    seed: [u8; 32],
    /// Whether the file is finally checked against a hash of the whole, so that samples only save time.
    judged: bool,
    differences: Differences,
}

impl Sampling {
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            by: vec![0; usize::try_from(blocks).unwrap_or(usize::MAX)],
            samples: BTreeMap::new(),
            electorate: BTreeSet::new(),
            guests: BTreeSet::new(),
            known: BTreeSet::new(),
            seed: [0; 32],
            judged: false,
            differences: BTreeMap::new(),
        }
    }

    pub(super) const fn seed(&mut self, seed: [u8; 32]) {
        self.seed = seed;
    }

    pub(super) const fn judge(&mut self) {
        self.judged = true;
    }

    /// Adds a mirror, with a vote or without.
    pub(super) fn joins(&mut self, mirror: MirrorId, has_vote: bool) {
        match has_vote {
            true => self.electorate.insert(mirror),
            false => self.guests.insert(mirror),
        };
    }

    /// Returns the mirror that delivered the block.
    fn bringer(&self, block: u64) -> Option<MirrorId> {
        usize::try_from(block).ok().and_then(|index| self.by.get(index))?.checked_sub(1)
    }

    /// Whether the seed chooses this block.
    pub(super) fn is_chosen(&self, block: u64) -> bool {
        let [a, b, ..] = *blake3::keyed_hash(&self.seed, &block.to_le_bytes()).as_bytes();
        u64::from(u16::from_be_bytes([a, b])) < (1 << 16) / SAMPLE_OF
    }

    fn can_compare(&self) -> bool {
        self.electorate.len() + self.guests.len() > 1
    }

    /// Whether this mirror should be asked for a sample. As long as all chaining values are equal, one voter
    /// besides the first mirror is enough; once two differ, every voter is asked. Mirrors without a vote are
    /// asked last.
    fn waits_for(&self, sample: &Sample, mirror: MirrorId) -> bool {
        if sample.has(mirror) || sample.asked.contains(&mirror) {
            return false;
        }
        match self.electorate.contains(&mirror) {
            true => sample.differs() || sample.said.len() + sample.asked.len() < 2,
            false => {
                self.guests.contains(&mirror)
                    && sample.asked.is_empty()
                    && self.electorate.iter().all(|voter| sample.has(*voter))
            }
        }
    }

    /// Returns the number of samples that some mirror should be asked for.
    pub(super) fn waiting(&self) -> u64 {
        let all = || self.electorate.iter().chain(&self.guests);
        let waits = |sample: &&Sample| all().any(|mirror| self.waits_for(sample, *mirror));
        self.samples.values().filter(waits).count() as u64
    }

    /// Returns the number of samples that this mirror should be asked for.
    pub(super) fn waiting_for(&self, mirror: MirrorId) -> u64 {
        self.samples.values().filter(|sample| self.waits_for(sample, mirror)).count() as u64
    }

    /// Whether mirrors differ in a block and it is not decided which of them is right.
    pub(super) fn is_disputed(&self) -> bool {
        self.samples.values().any(Sample::differs)
    }

    /// Whether the content counts as complete without waiting for any sample that is still open.
    pub(super) fn is_settled(&self) -> bool {
        self.judged || self.samples.is_empty()
    }

    /// Whether the block is an open sample.
    pub(super) fn is_wanted(&self, block: u64) -> bool {
        self.samples.contains_key(&block)
    }

    /// Whether the block is an open sample that `mirror` has not delivered.
    pub(super) fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        self.samples.get(&block).is_some_and(|sample| !sample.has(mirror))
    }

    /// Returns a sample that `mirror` should be asked for, and records that it is asked.
    pub(super) fn take(&mut self, mirror: MirrorId) -> Option<u64> {
        let block = self
            .samples
            .iter()
            .find(|(_, sample)| self.waits_for(sample, mirror))
            .map(|(block, _)| *block)?;
        self.samples.get_mut(&block)?.asked.push(mirror);
        Some(block)
    }

    /// Records that requests for these blocks ended without them: the samples among them are asked for again.
    pub(super) fn release(&mut self, first: u64, end: u64) {
        self.samples.range_mut(first..end).for_each(|(_, sample)| sample.asked.clear());
    }

    /// Records that a mirror delivered a block that was missing, and compares it if it is a sample. `cv`
    /// computes the chaining value of the block and is called only for a sample.
    pub(super) fn brought(
        &mut self,
        mirror: MirrorId,
        block: u64,
        cv: impl FnOnce() -> Option<ChainingValue>,
    ) -> Comparison {
        if let Some(by) = usize::try_from(block).ok().and_then(|index| self.by.get_mut(index)) {
            *by = mirror.saturating_add(1);
        }
        // Each mirror's first block is a sample. With at most two voters, the first mirror needs none of its
        // own: the first block of the second mirror compares the two.
        let is_first = self.known.insert(mirror) && (self.known.len() > 1 || self.electorate.len() > 2);
        let is_new =
            self.can_compare() && (is_first || self.is_chosen(block) && self.samples.len() < SAMPLES_MAX);
        if !is_new && !self.is_wanted(block) {
            return Comparison::Inconclusive;
        }
        let Some(cv) = cv() else { return Comparison::Inconclusive };
        self.samples.entry(block).or_default();
        self.compare(mirror, block, cv)
    }

    /// Compares the block with those of other mirrors if it is a sample.
    pub(super) fn compare(&mut self, mirror: MirrorId, block: u64, cv: ChainingValue) -> Comparison {
        let Some(sample) = self.samples.get_mut(&block) else { return Comparison::Inconclusive };
        sample.asked.retain(|asked| *asked != mirror);
        if sample.has(mirror) {
            return Comparison::Inconclusive;
        }
        sample.said.push((mirror, cv));
        self.verdict(block)
    }

    /// Evaluates a sample. It is closed if at least two mirrors have delivered the block and all agree, or
    /// if all that have delivered it agree and no other mirror can be asked for it.
    fn verdict(&mut self, block: u64) -> Comparison {
        let Some(sample) = self.samples.get(&block) else { return Comparison::Inconclusive };
        let said = &sample.said;
        if !sample.differs() {
            let is_open = self.electorate.iter().chain(&self.guests).any(|mirror| !sample.has(*mirror));
            if said.len() > 1 || !is_open {
                self.samples.remove(&block);
            }
            return Comparison::Inconclusive;
        }
        let known = self.differences.entry(block).or_default();
        known.retain(|(mirror, _)| !sample.has(*mirror));
        known.extend(said.iter().copied());
        let silent = self.electorate.iter().filter(|mirror| !sample.has(**mirror)).count();
        let votes: Vec<_> = said.iter().filter(|(mirror, _)| self.electorate.contains(mirror)).collect();
        let votes: Vec<_> = match votes.is_empty() && silent == 0 {
            true => said.iter().map(|(_, cv)| *cv).collect(),
            false => votes.into_iter().map(|(_, cv)| *cv).collect(),
        };
        // A hash of the whole file decides in the end. So with three or more votes, a majority of them is
        // enough for now, and missing votes are not waited for.
        let ballot = match self.judged && votes.len() > 2 {
            true => Ballot::of(votes, 0),
            false => Ballot::of(votes, silent),
        };
        match ballot {
            Ballot::Open => Comparison::Inconclusive,
            Ballot::Split => Comparison::Split(said.iter().map(|(mirror, _)| *mirror).collect()),
            Ballot::Majority(right) => {
                let odd = said.iter().filter(|(_, cv)| *cv != right).map(|(mirror, _)| *mirror);
                Comparison::Outliers(odd.collect())
            }
        }
    }

    /// Removes a mirror: it is not asked for samples any more, and has no vote.
    pub(super) fn leaves(&mut self, mirror: MirrorId) {
        self.electorate.remove(&mirror);
        self.guests.remove(&mirror);
        self.samples.values_mut().for_each(|sample| sample.asked.retain(|asked| *asked != mirror));
    }

    /// Removes a mirror and discards its blocks. Returns those blocks, which are missing again.
    pub(super) fn take_back(&mut self, mirror: MirrorId) -> Vec<u64> {
        self.leaves(mirror);
        self.samples.values_mut().for_each(|sample| sample.said.retain(|(by, _)| *by != mirror));
        self.samples.retain(|_, sample| !sample.said.is_empty());
        let its: Vec<u64> =
            (0..self.by.len() as u64).filter(|block| self.bringer(*block) == Some(mirror)).collect();
        its.iter().for_each(|block| self.by[*block as usize] = 0);
        its
    }

    /// Evaluates all samples again, because fewer mirrors decide now. Returns the conclusive results.
    pub(super) fn recheck(&mut self) -> Vec<(u64, Comparison)> {
        let blocks: Vec<u64> = self.samples.keys().copied().collect();
        let found = blocks.into_iter().map(|block| (block, self.verdict(block)));
        found.filter(|(_, found)| *found != Comparison::Inconclusive).collect()
    }

    /// Returns the samples in which mirrors had different bytes.
    pub(super) const fn differences(&self) -> &Differences {
        &self.differences
    }
}
