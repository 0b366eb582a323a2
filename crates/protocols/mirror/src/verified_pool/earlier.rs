//! What earlier transfers left, where no hash is known, and what is not compared in this one: see
//! [`cross_check`](super::cross_check).

use std::collections::BTreeSet;
use std::ops::Range;

use super::api::Event;
use super::earlier_blocks::{Earlier, MirrorsOfNow, is_earlier};
use super::{Mode, VerifiedPool};
use crate::range_scheduler::MirrorId;

impl VerifiedPool {
    /// What earlier transfers left is compared with what these `mirrors` have, where no hash is known, but
    /// for regions that were compared then. It must be said before the first block comes, and after
    /// [`seed`](Self::seed) and [`judged_as_a_whole`](Self::judged_as_a_whole).
    pub fn take_up(&mut self, earlier: &dyn Earlier, mirrors: MirrorsOfNow) {
        if let Mode::Nothing(cross) = &mut self.mode
            && self.candidates.is_none()
        {
            let here = (0..self.id.blocks()).filter(|block| self.done.contains(*block));
            self.voters.expected.extend(mirrors.asked);
            cross.take_up(here, earlier, mirrors.voices, mirrors.newcomers);
            if self.complete && !cross.is_settled() {
                // All of it is here, and has to be compared.
                self.complete = false;
                self.events.clear();
            }
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
        self.voters.all.retain(|mirror| answer.contains(mirror));
        self.voters.expected.retain(|mirror| answer.contains(mirror));
        let waived = match &mut self.mode {
            Mode::Nothing(cross) => cross.waive(&self.voters, &answer),
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

    /// Takes back all that the mirrors of now brought, if these [differ](Event::Conflict) and at most one of
    /// them brought some of what earlier transfers left: then that is no mixture, and a transfer from one of
    /// those goes on with it. Returns whether anything of it is here.
    pub fn keep_earlier(&mut self, differ: &[MirrorId]) -> bool {
        let blocks = self.id.blocks();
        let Mode::Nothing(cross) = &self.mode else { return false };
        let is_earlier_block = |block: u64| cross.bringer(block).is_some_and(is_earlier);
        let may_have_brought = differ.iter().filter(|mirror| !cross.is_newcomer(**mirror));
        if may_have_brought.count() > 1 || !(0..blocks).any(is_earlier_block) {
            return false;
        }
        let own: BTreeSet<MirrorId> = (0..blocks).filter_map(|block| cross.bringer(block)).collect();
        own.into_iter().filter(|mirror| !is_earlier(*mirror)).for_each(|mirror| self.revoke_all_of(mirror));
        true
    }

    /// Whether it is known of a mirror that it brought nothing of what earlier transfers left.
    #[must_use]
    pub fn is_newcomer(&self, mirror: MirrorId) -> bool {
        matches!(&self.mode, Mode::Nothing(cross) if cross.is_newcomer(mirror))
    }

    /// A mirror of now has lied. What earlier transfers left may be its own, unless it is new: then all of
    /// that comes again.
    pub(super) fn drop_all_earlier(&mut self, liar: MirrorId, block: u64) {
        let Mode::Nothing(cross) = &self.mode else { return };
        if cross.is_newcomer(liar) {
            return;
        }
        let earlier = cross.earlier_mirrors();
        if !earlier.is_empty() {
            self.events.push_back(Event::EarlierDropped { block });
            earlier.into_iter().for_each(|mirror| self.take_back(mirror));
        }
    }
}
