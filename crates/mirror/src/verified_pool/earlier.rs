//! What earlier transfers left, where no hash is known, and what is not compared in this one: see
//! [`cross_check`](super::cross_check).

use std::collections::BTreeSet;
use std::ops::Range;

use super::api::Event;
use super::cross_check::Others;
use super::earlier_blocks::Earlier;
use super::{Mode, VerifiedPool};
use crate::range_scheduler::MirrorId;

impl VerifiedPool {
    /// What earlier transfers left is compared with what these `mirrors` have, where no hash is known, but
    /// for regions that were compared then. So many of them, the `voices`, have to have the same: two, for
    /// one may have brought it itself; one, where there is one and others may have brought it; or none. It
    /// must be said before the first block comes, and after [`seed`](Self::seed) and
    /// [`judged_as_a_whole`](Self::judged_as_a_whole).
    pub fn take_up(&mut self, earlier: &dyn Earlier, mirrors: BTreeSet<MirrorId>, voices: usize) {
        if let Mode::Nothing(cross) = &mut self.mode
            && self.candidates.is_none()
        {
            let here = (0..self.id.blocks()).filter(|block| self.done.contains(*block));
            cross.take_up(here, earlier, voices, mirrors);
            if self.complete && !cross.is_settled() {
                // All of it is here, and has to be compared.
                self.complete = false;
                self.events.clear();
            }
        }
    }

    /// The mirror that brought what is here of a block, where no hash of the parts is known.
    #[must_use]
    pub fn bringer(&self, block: u64) -> Option<MirrorId> {
        match &self.mode {
            Mode::Nothing(cross) => cross.bringer(block),
            Mode::Alone(mirror) => Some(*mirror),
            Mode::Leaves(_) | Mode::Pieces(_) => None,
        }
    }

    /// Regions that are complete, and in which what each mirror brought was compared with another's and
    /// agreed, since the last call. A later transfer need not compare them.
    pub fn compared(&mut self) -> Vec<Range<u64>> {
        match &mut self.mode {
            Mode::Nothing(cross) => cross.take_compared(),
            _ => Vec::new(),
        }
    }

    /// Goes on without the comparisons that only others than the mirrors that `answers` could make, and lets
    /// those make the rest. Returns whether any was given up. Differences that were found still count.
    pub fn waive(&mut self, answers: impl Fn(MirrorId) -> bool) -> bool {
        let answer: BTreeSet<MirrorId> = (0..MirrorId::MAX).filter(|mirror| answers(*mirror)).collect();
        self.mirrors.retain(|mirror| answer.contains(mirror));
        let others = Others { all: &self.mirrors, introduced: &self.introduced };
        let waived = match &mut self.mode {
            Mode::Nothing(cross) => cross.waive(&others, &answer),
            _ => false,
        };
        self.recheck();
        self.check_complete();
        waived
    }

    /// What an earlier mirror brought is not what the mirrors of now have: it comes again.
    pub(super) fn drop_earlier(&mut self, mirror: MirrorId, block: u64) {
        let Mode::Nothing(cross) = &self.mode else { return };
        if cross.earlier_mirrors().contains(&mirror) {
            self.events.push_back(Event::EarlierDropped { block });
            self.take_back(mirror);
        }
    }

    /// A mirror of now has lied, and may have brought what earlier transfers left: all of that comes again.
    pub(super) fn drop_all_earlier(&mut self, block: u64) {
        let Mode::Nothing(cross) = &self.mode else { return };
        let earlier = cross.earlier_mirrors();
        if !earlier.is_empty() {
            self.events.push_back(Event::EarlierDropped { block });
            earlier.into_iter().for_each(|mirror| self.take_back(mirror));
        }
    }
}
