//! Where a hash of the whole is known and none of its parts: which mirror is set aside, and which is tried
//! alone. See [`candidates`](super::candidates).

use std::ops::Range;

use mmtp::tree::ChainingValue;

use super::api::Event;
use super::candidates::Candidates;
use super::{Mode, VerifiedPool};
use crate::range_scheduler::MirrorId;

impl VerifiedPool {
    /// A hash of the whole is known and tells who is right: no mirror is banned before the caller has said
    /// [`whole_is_right`](Self::whole_is_right). Of use only where nothing is known of the parts. It must be
    /// said before the first block comes.
    pub fn judged_as_a_whole(&mut self) {
        if self.only_compares() {
            self.candidates = Some(Candidates::new(self.id.blocks()));
        }
    }

    /// An earlier transfer had a block that is here from this mirror, which has the same version now: so it
    /// counts as brought by it, and the first such block of it is the first that others are compared with: so
    /// mirrors that differ are found out before they have brought much that is of no use. It must be said
    /// before the first block comes, after [`judged_as_a_whole`](Self::judged_as_a_whole).
    pub fn brought_before(&mut self, mirror: MirrorId, block: u64, cv: &ChainingValue) {
        let Some(candidates) = self.candidates.as_mut().filter(|_| self.done.contains(block)) else { return };
        candidates.brought(mirror, block, cv, false);
        if let Mode::Nothing(cross) = &mut self.mode {
            cross.compare_first(mirror, block, *cv);
        }
    }

    /// The mirror that is tried alone.
    #[must_use]
    pub const fn alone(&self) -> Option<MirrorId> {
        match &self.mode {
            Mode::Alone(mirror) => Some(*mirror),
            _ => None,
        }
    }

    /// All that is here has the right hash: who brought other bytes is [banned](Event::Banned).
    pub fn whole_is_right(&mut self) {
        let liars = self.candidates.as_ref().map(Candidates::liars).unwrap_or_default();
        for (mirror, block) in liars {
            if self.banned.insert(mirror) {
                self.events.push_back(Event::Banned { mirror, block });
            }
        }
    }

    /// Whether mirrors were seen to have different bytes.
    #[must_use]
    pub fn differ(&self) -> bool {
        self.disagreed || self.candidates.as_ref().is_some_and(Candidates::differ)
    }

    /// Whether a mirror has been tried alone, or is now.
    #[must_use]
    pub fn is_tried(&self, mirror: MirrorId) -> bool {
        self.candidates.as_ref().is_some_and(|candidates| candidates.is_tried(mirror))
    }

    /// The mirror that is tried alone is too slow to be waited for while others have not been tried: it will
    /// be the last. False if that has been so before.
    pub fn postpone(&mut self) -> bool {
        let Mode::Alone(alone) = self.mode else { return false };
        self.candidates.as_mut().is_some_and(|candidates| candidates.postpone(alone))
    }

    /// All that is here is wrong, or mirrors [differ](Event::Conflict), or the one that is tried alone does
    /// not answer: the next of `usable` is tried alone, of which each is slow (true) or not. What was not its
    /// own is [revoked](Event::Revoked). `None` if each has been tried.
    pub fn try_next(&mut self, usable: impl Iterator<Item = (MirrorId, bool)>) -> Option<MirrorId> {
        let blocks = self.id.blocks();
        let next = self.candidates.as_mut()?.next(usable)?;
        self.mode = Mode::Alone(next);
        (self.complete, self.disagreed) = (false, false);
        let mut revoked: Vec<Range<u64>> = Vec::new();
        for block in (0..blocks).filter(|block| self.done.contains(*block)) {
            if !self.candidates.as_ref().is_some_and(|candidates| candidates.has(next, block)) {
                match revoked.last_mut().filter(|range| range.end == block) {
                    Some(range) => range.end += 1,
                    None => revoked.push(block..block + 1),
                }
            }
        }
        revoked.into_iter().for_each(|blocks| self.revoke(blocks));
        self.check_complete();
        Some(next)
    }

    /// A mirror differs from two others: they bring its blocks.
    pub(super) fn set_aside(&mut self, mirror: MirrorId, block: u64) {
        if !self.candidates.as_mut().is_some_and(|candidates| candidates.set_aside(mirror)) {
            return;
        }
        self.mirrors.remove(&mirror);
        self.events.push_back(Event::SetAside { mirror, block });
        self.take_back(mirror);
    }

    /// What a mirror brought is missing again, where mirrors are only compared.
    pub(super) fn take_back(&mut self, mirror: MirrorId) {
        self.revoke_all_of(mirror);
        self.recheck();
    }

    /// The same, and nothing is concluded from what is left.
    pub(super) fn revoke_all_of(&mut self, mirror: MirrorId) {
        let Mode::Nothing(cross) = &mut self.mode else { return };
        let again = cross.ban(mirror);
        for run in again.chunk_by(|a, b| a + 1 == *b) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            self.revoke(*first..last + 1);
        }
    }

    /// A mirror has fallen silent: where mirrors are compared, more of what it brought is compared before the
    /// content is complete.
    pub fn doubt(&mut self, mirror: MirrorId) {
        if let Mode::Nothing(cross) = &mut self.mode
            && !self.complete
        {
            cross.doubt(mirror);
        }
    }
}
