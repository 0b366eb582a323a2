//! Where a hash of the whole is known and none of its parts: which mirror is set aside, and which is tried
//! alone. See [`candidates`](super::candidates).

use std::collections::BTreeSet;
use std::ops::Range;

use anabranch_mmtp::tree::ChainingValue;

use super::api::{Event, Wrong};
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
            self.voters.judged = true;
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

    /// All that is here has another hash: the mirrors that brought all of it are refuted, but for those that
    /// [may have had another file](Self::may_have_changed). What these brought is [revoked](Event::Revoked),
    /// and they come after the others. Returns those of which that was not known.
    pub fn whole_is_wrong(&mut self) -> Vec<Wrong> {
        let (blocks, alone) = (self.id.blocks(), self.alone());
        let Some(candidates) = &mut self.candidates else { return Vec::new() };
        let all: BTreeSet<MirrorId> = candidates.that_have_all(blocks).chain(alone).collect();
        let (in_doubt, sure): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|mirror| candidates.is_in_doubt(*mirror));
        let refuted = sure.into_iter().filter(|mirror| candidates.refute(*mirror));
        let mut wrong: Vec<Wrong> = refuted.map(|mirror| Wrong { mirror, is_refuted: true }).collect();
        for mirror in in_doubt {
            let gone = self.candidates.as_mut().map(|candidates| candidates.forget(mirror));
            for blocks in runs(gone.into_iter().flatten()) {
                self.miss(blocks, false);
            }
            self.postpone(mirror);
            wrong.push(Wrong { mirror, is_refuted: false });
        }
        wrong
    }

    /// Nobody can tell that all that this mirror brought, in this transfer or [before](Self::brought_before),
    /// is of one file.
    pub fn may_have_changed(&mut self, mirror: MirrorId) {
        if let Some(candidates) = &mut self.candidates {
            candidates.doubt(mirror);
        }
    }

    /// An earlier transfer tried this mirror last: it goes on with it, unless that stands back. It must be
    /// said before the first block comes.
    pub const fn tried_before(&mut self, mirror: MirrorId) {
        if let Some(candidates) = &mut self.candidates {
            candidates.tried_before(mirror);
        }
    }

    /// A mirror's whole was found to be wrong in an earlier transfer: what it brought does not count, and it
    /// is not asked. It must be said before the first block comes, after
    /// [`brought_before`](Self::brought_before).
    pub fn refuted_before(&mut self, mirror: MirrorId) {
        let Some(candidates) = &mut self.candidates else { return };
        candidates.refute(mirror);
        self.banned.insert(mirror);
        // Nobody is compared with it.
        if let Mode::Nothing(cross) = &mut self.mode {
            cross.ban(mirror);
        }
        self.shelve_what(|candidates, block| candidates.is_of_none_but(mirror, block));
        if self.left > 0 && std::mem::replace(&mut self.complete, false) {
            self.events.retain(|event| *event != Event::Complete);
        }
    }

    /// Whether some of what is here is not known to be of any mirror of now.
    #[must_use]
    pub fn has_of_others(&self) -> bool {
        let mut here = (0..self.id.blocks()).filter(|block| self.done.contains(*block));
        self.candidates.as_ref().is_some_and(|candidates| here.any(|block| !candidates.is_known(block)))
    }

    /// Whether a mirror's whole is known to be wrong.
    #[must_use]
    pub fn is_refuted(&self, mirror: MirrorId) -> bool {
        self.candidates.as_ref().is_some_and(|candidates| candidates.is_refuted(mirror))
    }

    /// When mirrors are tried alone, others are tried before this one.
    pub fn postpone(&mut self, mirror: MirrorId) {
        if let Some(candidates) = &mut self.candidates {
            candidates.postpone(mirror);
        }
    }

    /// How often a mirror has been [postponed](Self::postpone).
    #[must_use]
    pub fn stood_back(&self, mirror: MirrorId) -> u32 {
        self.candidates.as_ref().map_or(0, |candidates| candidates.stood_back(mirror))
    }

    /// All that is here is [wrong](Self::whole_is_wrong), or mirrors [differ](Event::Conflict), or the one
    /// that is tried alone does not answer: the next of `usable` is tried alone, of which each is slow (true)
    /// or not. What is not its own is [shelved](Event::Shelved), and what was and is its own is
    /// [restored](Event::Restored). `None` if all are refuted.
    pub fn try_next(&mut self, usable: impl Iterator<Item = (MirrorId, bool)>) -> Option<MirrorId> {
        let next = self.candidates.as_ref()?.next(usable)?;
        self.mode = Mode::Alone(next);
        (self.complete, self.disagreed) = (false, false);
        self.shelve_what(|candidates, block| !candidates.has(next, block));
        let candidates = self.candidates.as_ref()?;
        let away = (0..self.id.blocks()).filter(|block| !self.done.contains(*block));
        for blocks in runs(away.filter(|block| candidates.has(next, *block))) {
            self.restore(blocks);
        }
        self.check_complete();
        Some(next)
    }

    /// Blocks are missing again. Where a hash of the whole decides they may yet be of the right mirror.
    pub(super) fn revoke(&mut self, blocks: Range<u64>) {
        self.miss(blocks, self.candidates.is_some());
    }

    /// Blocks are missing again, and whoever has them keeps them, or does not.
    fn miss(&mut self, blocks: Range<u64>, are_kept: bool) {
        for block in blocks.clone() {
            self.left += u64::from(self.done.remove(block));
        }
        self.idle.insert(blocks.clone());
        self.events.push_back(match are_kept {
            true => Event::Shelved { blocks },
            false => Event::Revoked { blocks },
        });
    }

    fn shelve_what(&mut self, is: impl Fn(&Candidates, u64) -> bool) {
        let Some(candidates) = &self.candidates else { return };
        let here = (0..self.id.blocks()).filter(|block| self.done.contains(*block));
        let shelved = runs(here.filter(|block| is(candidates, *block)));
        shelved.into_iter().for_each(|blocks| self.revoke(blocks));
    }

    /// What is kept of these blocks counts again.
    fn restore(&mut self, blocks: Range<u64>) {
        for block in blocks.clone() {
            self.mark(block);
            self.idle.remove(block);
        }
        self.events.push_back(Event::Restored { blocks });
    }

    /// A mirror differs from two others: they bring its blocks.
    pub(super) fn set_aside(&mut self, mirror: MirrorId, block: u64) {
        if !self.candidates.as_mut().is_some_and(|candidates| candidates.set_aside(mirror)) {
            return;
        }
        self.voters.remove(mirror);
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
        runs(again.into_iter()).into_iter().for_each(|blocks| self.revoke(blocks));
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

/// Numbers in ascending order, as ranges.
fn runs(blocks: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut().filter(|run| run.end == block) {
            Some(run) => run.end += 1,
            None => runs.push(block..block + 1),
        }
    }
    runs
}
