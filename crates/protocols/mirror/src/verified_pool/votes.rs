//! Whose word counts where mirrors are compared, and what their files begin with: see
//! [`voters`](super::voters).

use super::cross_check::Comparison;
use super::voters::Openings;
use super::{Mode, VerifiedPool};
use crate::range_scheduler::MirrorId;

impl VerifiedPool {
    /// These mirrors are not of the user's choice: where mirrors are compared, they have no vote as long as
    /// others can decide. It must be said before the first block comes.
    pub fn set_introduced(&mut self, mirrors: impl Iterator<Item = MirrorId>) {
        self.voters.introduced.extend(mirrors);
    }

    /// These mirrors are asked sooner or later. So what others bring is compared with them, however fast it
    /// comes, and where mirrors differ, nothing is concluded before these have said what they have, or are
    /// [gone](Self::mirror_gone). It must be said before the first block comes.
    pub fn expect(&mut self, mirrors: impl Iterator<Item = MirrorId>) {
        for mirror in mirrors {
            self.voters.expected.insert(mirror);
            if let Mode::Nothing(cross) = &mut self.mode {
                cross.joins(mirror);
            }
        }
    }

    /// These mirrors have a vote, and cannot be asked for a part: where mirrors differ, more than half of all
    /// have to agree, these included. It must be said before the first block comes.
    pub fn set_mute(&mut self, mirrors: impl Iterator<Item = MirrorId>) {
        self.voters.mute.extend(mirrors);
    }

    /// Compares what the files of all mirrors begin with, as far as it is known, where nothing else tells
    /// what is right: who differs from more than half of them is [banned](super::Event::Banned). It must be
    /// said before the first block comes, and last of what must.
    pub fn compare_openings(&mut self, openings: impl Iterator<Item = (MirrorId, Option<[u8; 32]>)>) {
        if !self.only_compares() || self.candidates.is_some() {
            return;
        }
        let Openings { odd, split, .. } = Openings::compare(openings, &self.voters.introduced);
        odd.into_iter().for_each(|mirror| self.found(0, Comparison::Outlier(mirror)));
        if !split.is_empty() {
            self.found(0, Comparison::Conflict(split));
        }
    }

    /// Whether mirrors are known to differ in a block, and it is not decided who is right.
    #[must_use]
    pub fn is_disputed(&self) -> bool {
        matches!(&self.mode, Mode::Nothing(cross) if cross.is_disputed()) && !self.disagreed
    }
}
