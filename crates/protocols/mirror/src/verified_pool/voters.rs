//! Who decides where mirrors are compared, because no hash of the parts is known.

use std::collections::BTreeSet;

use anabranch_mmtp::tree::ChainingValue;

use super::earlier_blocks::is_earlier;
use crate::range_scheduler::MirrorId;

/// Where so many have the same of a block, and nobody differs, no more are asked, however many there are.
const QUORUM_MAX: usize = 4;

/// The mirrors that may still bring something, and which of them have a vote.
#[derive(Debug, Default)]
pub(super) struct Voters {
    /// Those that have taken part.
    pub(super) all: BTreeSet<MirrorId>,
    /// Those whose word is waited for where mirrors differ, though they have not taken part.
    pub(super) expected: BTreeSet<MirrorId>,
    /// Those with a vote that cannot be asked for a part: they count, and say something only by chance.
    pub(super) mute: BTreeSet<MirrorId>,
    /// Those of all that the user did not name.
    pub(super) introduced: BTreeSet<MirrorId>,
    /// A hash of the whole tells who is right in the end: comparisons only save time.
    pub(super) judged: bool,
}

/// What is to be concluded from what mirrors have of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All have the same, and they are enough.
    Same,
    /// Another one has to say what it has.
    Open,
    /// This one has something else than those that decide.
    Odd(MirrorId),
    /// They differ, and nobody who is left can decide.
    Split(Vec<MirrorId>),
}

impl Voters {
    pub(super) fn remove(&mut self, mirror: MirrorId) {
        for all in [&mut self.all, &mut self.expected, &mut self.mute] {
            all.remove(&mirror);
        }
    }

    /// Those that may say something, with a vote or without.
    pub(super) fn everyone(&self) -> impl Iterator<Item = MirrorId> {
        self.all.union(&self.expected).copied()
    }

    pub(super) fn is_named(&self, mirror: MirrorId) -> bool {
        !self.introduced.contains(&mirror) && !is_earlier(mirror)
    }

    /// Those with a vote that have not said what they have of a block, of which these have.
    pub(super) fn open<'a>(
        &'a self,
        said: &'a [(MirrorId, ChainingValue)],
    ) -> impl Iterator<Item = MirrorId> + 'a {
        let can_say = |mirror: &MirrorId| self.is_named(*mirror) && !self.mute.contains(mirror);
        self.everyone().filter(move |mirror| can_say(mirror) && !has(said, *mirror))
    }

    /// How many of those that cannot be asked have not said it.
    fn mute(&self, said: &[(MirrorId, ChainingValue)]) -> usize {
        self.mute.iter().filter(|mirror| self.is_named(**mirror) && !has(said, **mirror)).count()
    }

    /// So many with a vote have to have the same: more than half of them, and two; but no more than
    /// [`QUORUM_MAX`] as long as nobody differs.
    pub(super) fn quorum(&self, said: &[(MirrorId, ChainingValue)]) -> usize {
        let said_by = said.iter().filter(|(mirror, _)| self.is_named(*mirror)).count();
        let all = self.open(said).count() + self.mute(said) + said_by;
        if self.judged { 2 } else { (all / 2 + 1).clamp(2, QUORUM_MAX) }
    }

    /// What these have of a block says so much. `lacks`: where they agree, another one has to say so too.
    pub(super) fn verdict(&self, said: &[(MirrorId, ChainingValue)], lacks: bool) -> Verdict {
        let named: Vec<_> = said.iter().filter(|(mirror, _)| self.is_named(*mirror)).copied().collect();
        let open = self.open(said).count();
        let is_enough = named.len() >= self.quorum(said) || open == 0;
        let odd = |right: &ChainingValue| said.iter().find(|(_, cv)| cv != right).map(|(mirror, _)| *mirror);
        let Some(odd_of_first) = said.first().map(|(_, first)| odd(first)) else { return Verdict::Open };
        if odd_of_first.is_none() {
            return if is_enough && !lacks && said.len() > 1 { Verdict::Same } else { Verdict::Open };
        }
        // Where those with a vote say something, the others say nothing.
        let (votes, open) = match named.is_empty() && open == 0 {
            false => (named, open),
            true => (
                said.iter().filter(|(mirror, _)| !is_earlier(*mirror)).copied().collect(),
                self.everyone().filter(|mirror| !has(said, *mirror)).count(),
            ),
        };
        let count = |cv: &ChainingValue| votes.iter().filter(|(_, other)| other == cv).count();
        let Some((top, right)) = votes.iter().map(|(_, cv)| (count(cv), *cv)).max() else {
            return Verdict::Open;
        };
        if top == votes.len() {
            // Only those without a vote have something else.
            return odd(&right).filter(|_| is_enough).map_or(Verdict::Open, Verdict::Odd);
        }
        let all = votes.len() + open + self.mute(said);
        let is_decided = match self.judged {
            true => top > 1 && 2 * top > votes.len(),
            false => 2 * top > all,
        };
        if is_decided {
            return odd(&right).map_or(Verdict::Open, Verdict::Odd);
        }
        let is_split = match self.judged {
            true => votes.len() > 2 || open == 0,
            false => 2 * (top + open) <= all,
        };
        match is_split {
            true => Verdict::Split(votes.iter().map(|(mirror, _)| *mirror).collect()),
            false => Verdict::Open,
        }
    }
}

/// What follows from the hashes of what the files of mirrors begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openings {
    /// What more than half of all that have a vote begin with, if so many do.
    pub right: Option<[u8; 32]>,
    /// Those that begin otherwise than more than half of all that have a vote.
    pub odd: Vec<MirrorId>,
    /// Those that differ, where no side has so many and nobody else may say something; or none.
    pub split: Vec<MirrorId>,
}

impl Openings {
    /// Compares them, as far as they are known; these are `introduced`, and have no vote.
    pub fn compare(
        openings: impl Iterator<Item = (MirrorId, Option<[u8; 32]>)>,
        introduced: &BTreeSet<MirrorId>,
    ) -> Self {
        let (said, silent): (Vec<_>, Vec<_>) = openings.partition(|(_, opening)| opening.is_some());
        let mut said: Vec<_> =
            said.into_iter().filter_map(|(mirror, opening)| Some((mirror, opening?))).collect();
        let voters = Voters {
            expected: silent.into_iter().map(|(mirror, _)| mirror).collect(),
            introduced: introduced.clone(),
            ..Voters::default()
        };
        let all = said.iter().map(|(mirror, _)| *mirror).chain(voters.everyone());
        let all = all.filter(|mirror| voters.is_named(*mirror)).count();
        let have = |right: &ChainingValue| {
            said.iter().filter(|(mirror, cv)| cv == right && voters.is_named(*mirror)).count()
        };
        let right = said.iter().map(|(_, cv)| *cv).find(|cv| 2 * have(cv) > all);
        let mut odd = Vec::new();
        loop {
            match voters.verdict(&said, false) {
                Verdict::Odd(mirror) => {
                    said.retain(|(other, _)| *other != mirror);
                    odd.push(mirror);
                }
                Verdict::Split(split) => return Self { right, odd, split },
                Verdict::Same | Verdict::Open => return Self { right, odd, split: Vec::new() },
            }
        }
    }
}

/// Whether a mirror has said what it has.
pub(super) fn has(said: &[(MirrorId, ChainingValue)], mirror: MirrorId) -> bool {
    said.iter().any(|(one, _)| *one == mirror)
}
