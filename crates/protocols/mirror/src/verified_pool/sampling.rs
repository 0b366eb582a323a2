//! Compares mirrors with each other, in samples, where no hash of the parts is known.
//!
//! A *sample* is a block that is fetched from a second mirror too: the first block that each mirror brings,
//! and of every [`SAMPLE_OF`] blocks one that a seed chooses which no mirror knows. So a mirror that sends
//! `n` wrong blocks goes unnoticed with a probability of about e^(-n/256). Where two mirrors differ, every
//! mirror with a vote is asked for that block, and a [`Ballot`] decides.
//!
//! Mirrors that the user did not name have no vote: the server that introduces them may control all of them.
//! They are compared with those that have one, and decide nothing as long as one of these is there.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_mmtp::tree::ChainingValue;

use crate::range_scheduler::MirrorId;
use crate::variants::{Ballot, Differences};

/// Of so many blocks one is a sample that no mirror can foresee.
pub const SAMPLE_OF: u64 = 256;
/// The most samples under way; further ones are left out.
pub const SAMPLES_MAX: usize = 1_024;

/// What mirrors have of a block.
type Said = Vec<(MirrorId, ChainingValue)>;

/// A block that is fetched from several mirrors.
#[derive(Default)]
struct Sample {
    said: Said,
    /// Mirrors that have been asked for it, and have not brought it.
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

/// What a sample tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// No difference, or not yet known.
    Inconclusive,
    /// These mirrors have something else than those that decide.
    Outliers(Vec<MirrorId>),
    /// These mirrors have different bytes, and the vote decides nothing.
    Split(Vec<MirrorId>),
}

/// See the [module](self).
pub(super) struct Sampling {
    /// For each block the number of the mirror that brought it, plus 1; 0 if none has. Memory pages of the
    /// vector that are never written take no memory.
    by: Vec<u8>,
    samples: BTreeMap<u64, Sample>,
    /// Mirrors that have a vote and can be asked for a part.
    electorate: BTreeSet<MirrorId>,
    /// Mirrors that have no vote and can be asked for a part.
    guests: BTreeSet<MirrorId>,
    /// Mirrors that brought something.
    known: BTreeSet<MirrorId>,
    seed: [u8; 32],
    /// A hash of the whole tells what is right in the end: samples only save time.
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

    /// This mirror takes part, with a vote or without.
    pub(super) fn joins(&mut self, mirror: MirrorId, has_vote: bool) {
        match has_vote {
            true => self.electorate.insert(mirror),
            false => self.guests.insert(mirror),
        };
    }

    /// The mirror that brought what is here of a block.
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

    /// Whether this mirror should be asked for a sample. As long as all answers are equal, one voter besides
    /// the first mirror is enough; once two differ, every voter is asked. Mirrors without a vote are asked
    /// last.
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

    /// Samples that some mirror should be asked for.
    pub(super) fn waiting(&self) -> u64 {
        let all = || self.electorate.iter().chain(&self.guests);
        let waits = |sample: &&Sample| all().any(|mirror| self.waits_for(sample, *mirror));
        self.samples.values().filter(waits).count() as u64
    }

    /// Samples that this mirror should be asked for.
    pub(super) fn waiting_for(&self, mirror: MirrorId) -> u64 {
        self.samples.values().filter(|sample| self.waits_for(sample, mirror)).count() as u64
    }

    /// Whether mirrors differ in a block, and that is not decided.
    pub(super) fn is_disputed(&self) -> bool {
        self.samples.values().any(Sample::differs)
    }

    /// Whether the content counts as complete without waiting for any sample that is still open.
    pub(super) fn is_settled(&self) -> bool {
        self.judged || self.samples.is_empty()
    }

    /// Whether the block is wanted once more.
    pub(super) fn is_wanted(&self, block: u64) -> bool {
        self.samples.contains_key(&block)
    }

    /// Whether the block is wanted once more from `mirror`.
    pub(super) fn is_wanted_from(&self, mirror: MirrorId, block: u64) -> bool {
        self.samples.get(&block).is_some_and(|sample| !sample.has(mirror))
    }

    /// A sample that `mirror` should be asked for.
    pub(super) fn take(&mut self, mirror: MirrorId) -> Option<u64> {
        let block = self
            .samples
            .iter()
            .find(|(_, sample)| self.waits_for(sample, mirror))
            .map(|(block, _)| *block)?;
        self.samples.get_mut(&block)?.asked.push(mirror);
        Some(block)
    }

    /// A mirror that was asked for these blocks has not brought them.
    pub(super) fn release(&mut self, first: u64, end: u64) {
        self.samples.range_mut(first..end).for_each(|(_, sample)| sample.asked.clear());
    }

    /// Records that a mirror brought a block that was missing. `cv` computes its chaining value and is called
    /// only if the block is a sample.
    pub(super) fn brought(
        &mut self,
        mirror: MirrorId,
        block: u64,
        cv: impl FnOnce() -> Option<ChainingValue>,
    ) -> Comparison {
        if let Some(by) = usize::try_from(block).ok().and_then(|index| self.by.get_mut(index)) {
            *by = mirror.saturating_add(1);
        }
        // Each mirror's first block is a sample. With two voters at most, the first mirror needs none of its
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

    /// `mirror` brought a block, which may be a sample.
    pub(super) fn compare(&mut self, mirror: MirrorId, block: u64, cv: ChainingValue) -> Comparison {
        let Some(sample) = self.samples.get_mut(&block) else { return Comparison::Inconclusive };
        sample.asked.retain(|asked| *asked != mirror);
        if sample.has(mirror) {
            return Comparison::Inconclusive;
        }
        sample.said.push((mirror, cv));
        self.verdict(block)
    }

    /// Evaluates a sample. It is closed if at least two mirrors have brought the block and all agree, or if
    /// no other mirror can be asked for it.
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
        // A hash of the whole file decides in the end. So with three or more votes, a majority of these is
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

    /// A mirror does not take part any more.
    pub(super) fn leaves(&mut self, mirror: MirrorId) {
        self.electorate.remove(&mirror);
        self.guests.remove(&mirror);
        self.samples.values_mut().for_each(|sample| sample.asked.retain(|asked| *asked != mirror));
    }

    /// What a mirror brought does not count any more: returns the blocks that are missing again.
    pub(super) fn take_back(&mut self, mirror: MirrorId) -> Vec<u64> {
        self.leaves(mirror);
        self.samples.values_mut().for_each(|sample| sample.said.retain(|(by, _)| *by != mirror));
        self.samples.retain(|_, sample| !sample.said.is_empty());
        let its: Vec<u64> =
            (0..self.by.len() as u64).filter(|block| self.bringer(*block) == Some(mirror)).collect();
        its.iter().for_each(|block| self.by[*block as usize] = 0);
        its
    }

    /// Looks at all samples again, because fewer mirrors decide now.
    pub(super) fn recheck(&mut self) -> Vec<(u64, Comparison)> {
        let blocks: Vec<u64> = self.samples.keys().copied().collect();
        let found = blocks.into_iter().map(|block| (block, self.verdict(block)));
        found.filter(|(_, found)| *found != Comparison::Inconclusive).collect()
    }

    /// The samples in which mirrors had different bytes.
    pub(super) const fn differences(&self) -> &Differences {
        &self.differences
    }
}
