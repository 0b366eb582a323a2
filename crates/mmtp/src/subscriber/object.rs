//! One content on its way in: what is idle, asked, here, verified; and whom to blame.

mod pages;

use std::collections::BTreeMap;

use super::blame::{Poisoned, blame};
use super::{Wanted, What};
use crate::bitmap::Bitmap;
use crate::id::{ContentId, Cut, SEGMENT_GROUPS};
use crate::idle::Idle;
use crate::tree::{self, Cv, Outboard, Verdict, Verifier};
use crate::wire::Packet;

/// A source, by the order in which it was added.
pub type SourceId = u8;
/// The most sources one subscriber can have.
pub const SOURCES_MAX: usize = 250;
/// Poisoned copies kept per content until the right bytes tell who lied.
const POISONED_MAX: usize = 16;

/// One content being fetched.
pub(super) struct Object {
    pub(super) id: ContentId,
    pub(super) idle: Idle,
    pub(super) meta_wanted: bool,
    meta_doubled: bool,
    verifier: Verifier,
    done: Bitmap,
    done_groups: u64,
    partials: BTreeMap<u64, Partial>,
    pages: BTreeMap<(u8, u64), Page>,
    poisoned: BTreeMap<u64, Vec<Poisoned>>,
    /// All pages, where they are known from the start.
    pub(super) outboard: Option<Outboard>,
}

/// A group that has been asked for and is not verified.
struct Partial {
    cut: Cut,
    /// Chunks that are here.
    have: u64,
    /// Chunks that have expired once: the next time any path may ask.
    expired: u64,
    /// Chunks that were asked on a second path while pending on the first.
    doubled: u64,
    /// Who sent each chunk.
    from: [SourceId; 64],
    /// After a mixed group failed: only this source may fill it.
    only: Option<SourceId>,
    bytes: Vec<u8>,
}

/// A page of the hash tree that has been asked for: two packets' worth of chaining values.
#[derive(Default)]
struct Page {
    halves: [Option<Vec<Cv>>; 2],
    from: [Option<SourceId>; 2],
    expired: [bool; 2],
    doubled: [bool; 2],
    /// A mixed page failed: it must come from one source.
    alone: bool,
    /// That source.
    only: Option<SourceId>,
}

/// What became of something that arrived.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// It was new.
    pub(super) fresh: bool,
    /// Groups verified by it.
    pub(super) verified: Vec<(u64, Vec<u8>, Cv)>,
    /// Sources proven to have sent wrong bytes, with the group.
    pub(super) liars: Vec<(SourceId, u64)>,
    /// What must be asked again although it came.
    pub(super) again: Vec<What>,
}

impl Object {
    /// A content of which nothing has been asked; `have` says which groups are here already.
    pub(super) fn new(id: ContentId, meta_wanted: bool, have: impl Fn(u64) -> bool) -> Self {
        let groups = id.groups();
        let mut new = Self {
            id,
            idle: Idle::default(),
            meta_wanted,
            meta_doubled: false,
            verifier: Verifier::new(id),
            done: Bitmap::new(groups),
            done_groups: 0,
            partials: BTreeMap::new(),
            pages: BTreeMap::new(),
            poisoned: BTreeMap::new(),
            outboard: None,
        };
        let mut first = 0;
        for group in 0..groups {
            if have(group) {
                new.idle.put_new(first..group);
                first = group + 1;
                new.mark_done(group);
            }
        }
        new.idle.put_new(first..groups);
        new
    }

    pub(super) fn is_done(&self, group: u64) -> bool {
        self.done.contains(group)
    }

    fn mark_done(&mut self, group: u64) {
        let new = self.done.insert(group);
        debug_assert!(new, "group {group} verified twice");
        self.done_groups += u64::from(new);
    }

    pub(super) fn groups_left(&self) -> u64 {
        self.id.groups() - self.done_groups
    }

    pub(super) fn groups_open(&self) -> usize {
        self.partials.len()
    }

    /// Whether every group is verified, and known what it is if that was asked.
    pub(super) fn is_complete(&self) -> bool {
        self.groups_left() == 0 && !self.meta_wanted
    }

    /// Everything is here: lets go of what it took to get it. What still comes for it is not wanted.
    pub(super) fn retire(&mut self) {
        self.verifier = Verifier::new(self.id);
        self.done = Bitmap::default();
        self.idle = Idle::default();
        self.partials = BTreeMap::new();
        self.pages = BTreeMap::new();
        self.poisoned = BTreeMap::new();
        self.outboard = None;
    }

    /// Opens `group` for chunks of `cut` unless it is open; for `source` alone if a mixed copy of it was
    /// wrong.
    pub(super) fn open(&mut self, group: u64, cut: Cut, source: SourceId) {
        let alone = self.poisoned.contains_key(&group);
        self.partials.entry(group).or_insert_with(|| Partial {
            cut,
            have: 0,
            expired: 0,
            doubled: 0,
            from: [SourceId::MAX; 64],
            only: alone.then_some(source),
            bytes: Vec::new(),
        });
    }

    /// Whether `group` is neither verified nor all here.
    pub(super) fn is_missing(&self, group: u64) -> bool {
        let whole = |p: &Partial| p.have.count_ones() >= self.id.chunks_in_group(group, p.cut);
        !self.is_done(group) && !self.partials.get(&group).is_some_and(whole)
    }

    /// Opens `group` for somebody who brings all of it at once; what came of it in packets is dropped. False
    /// if only another source may fill it, or if all of it is here and waits for its page.
    pub(super) fn open_whole(&mut self, group: u64, cut: Cut, source: SourceId) -> bool {
        let only = self.partials.get(&group).and_then(|partial| partial.only);
        if !self.is_missing(group) || only.is_some_and(|only| only != source) {
            return false;
        }
        self.partials.remove(&group);
        self.open(group, cut, source);
        true
    }

    /// The cut that `group` was opened with, if it is open.
    pub(super) fn cut_of(&self, group: u64) -> Option<Cut> {
        self.partials.get(&group).map(|p| p.cut)
    }

    /// Chunks that `group` has at the cut it was opened with.
    pub(super) fn chunks_of(&self, group: u64) -> u32 {
        self.partials.get(&group).map_or(0, |p| self.id.chunks_in_group(group, p.cut))
    }

    /// Whether `what` is still missing and `source` may bring it.
    pub(super) fn wants(&self, what: What, source: SourceId) -> Wanted {
        match what {
            What::Meta => {
                if self.meta_wanted {
                    Wanted::Yes
                } else {
                    Wanted::No
                }
            }
            What::Hash { level, first } => match self.pages.get(&(level, first / tree::PAGE)) {
                Some(page) if page.halves[half_of(first)].is_none() => {
                    if page.only.is_none_or(|only| only == source) { Wanted::Yes } else { Wanted::NotFrom }
                }
                _ => Wanted::No,
            },
            What::Data { cut, chunk } => {
                let (group, bit) = place(cut, chunk);
                match self.partials.get(&group) {
                    Some(p) if p.cut == cut && p.have & bit == 0 => {
                        if p.only.is_none_or(|only| only == source) { Wanted::Yes } else { Wanted::NotFrom }
                    }
                    _ => Wanted::No,
                }
            }
        }
    }

    /// Binds what only one source may bring to the first one that is asked.
    pub(super) fn bind(&mut self, what: What, source: SourceId) {
        if let What::Hash { level, first } = what
            && let Some(page) = self.pages.get_mut(&(level, first / tree::PAGE))
            && page.alone
        {
            page.only = Some(source);
        }
    }

    /// Notes that `what` expired; true if it had done so before, so that any path may take it. It may be
    /// doubled again: the path that doubled it may be as silent as the first.
    pub(super) fn expire(&mut self, what: What) -> bool {
        match what {
            What::Meta => {
                self.meta_doubled = false;
                true
            }
            What::Hash { level, first } => {
                let Some(page) = self.pages.get_mut(&(level, first / tree::PAGE)) else { return false };
                page.only = None;
                page.doubled[half_of(first)] = false;
                std::mem::replace(&mut page.expired[half_of(first)], true)
            }
            What::Data { cut, chunk } => {
                let (group, bit) = place(cut, chunk);
                let Some(partial) = self.partials.get_mut(&group) else { return false };
                let before = partial.expired & bit != 0;
                partial.expired |= bit;
                partial.doubled &= !bit;
                before
            }
        }
    }

    /// Marks `what` as asked on a second path; false if it was already, or must not be.
    pub(super) fn double(&mut self, what: What) -> bool {
        match what {
            What::Meta => !std::mem::replace(&mut self.meta_doubled, true),
            What::Hash { level, first } => {
                let page = self.pages.get_mut(&(level, first / tree::PAGE));
                page.is_some_and(|page| !std::mem::replace(&mut page.doubled[half_of(first)], true))
            }
            What::Data { cut, chunk } => {
                let (group, bit) = place(cut, chunk);
                let Some(partial) = self.partials.get_mut(&group) else { return false };
                let first = partial.doubled & bit == 0 && partial.only.is_none();
                partial.doubled |= bit;
                first
            }
        }
    }

    /// Takes back a group that `source` alone was to fill, or whose packets are too large for the path that
    /// would take it over: its bytes are dropped and it is idle again.
    pub(super) fn reopen(&mut self, group: u64) {
        if self.partials.remove(&group).is_some() {
            self.idle.put_new(group..group + 1);
        }
    }

    /// Whether only one source may fill the group of `what`.
    pub(super) fn is_alone(&self, what: What) -> Option<u64> {
        let What::Data { cut, chunk } = what else { return None };
        let (group, _) = place(cut, chunk);
        self.partials.get(&group).filter(|p| p.only.is_some()).map(|_| group)
    }

    /// Whether an answer has the form that the content's name alone demands: what has not can only be wrong.
    pub(super) fn fits(&self, packet: &Packet<'_>) -> bool {
        match packet {
            Packet::Data(data) => self.id.chunk_wire_len(data.chunk, data.cut) == Some(data.payload.len()),
            Packet::Hashes(hashes) => hashes.cvs.len() == self.hash_count(hashes.level, hashes.first),
            Packet::Meta(meta) => meta.content == self.id,
            _ => true,
        }
    }

    /// A chunk arrived from `source`.
    pub(super) fn chunk(&mut self, source: SourceId, cut: Cut, chunk: u64, payload: &[u8]) -> Outcome {
        let (group, bit) = place(cut, chunk);
        let Some((_, offset, len)) = self.id.chunk_extent(chunk, cut) else { return Outcome::default() };
        let wire_len = self.id.chunk_wire_len(chunk, cut);
        let Some(partial) = self.partials.get_mut(&group) else { return Outcome::default() };
        let welcome = partial.cut == cut && partial.have & bit == 0 && wire_len == Some(payload.len());
        if !welcome || partial.only.is_some_and(|only| only != source) {
            return Outcome::default();
        }
        if partial.bytes.is_empty() {
            partial.bytes = vec![0; self.id.group_len(group)];
        }
        let (Some(to), Some(from)) = (partial.bytes.get_mut(offset..offset + len), payload.get(..len)) else {
            return Outcome::default();
        };
        to.copy_from_slice(from);
        partial.have |= bit;
        partial.from[usize::from(index(cut, chunk))] = source;
        let mut outcome = Outcome { fresh: true, ..Outcome::default() };
        self.settle(group, &mut outcome);
        outcome
    }

    /// Chaining values arrived from `source`.
    pub(super) fn hashes(&mut self, source: SourceId, level: u8, first: u64, cvs: &[Cv]) -> Outcome {
        let mut outcome = Outcome::default();
        let number = first / tree::PAGE;
        if cvs.len() != self.hash_count(level, first) || !first.is_multiple_of(tree::HASH_CHUNK as u64) {
            return outcome;
        }
        let Some(page) = self.pages.get_mut(&(level, number)) else { return outcome };
        let half = half_of(first);
        if page.halves[half].is_some() || page.only.is_some_and(|only| only != source) {
            return outcome;
        }
        page.halves[half] = Some(cvs.to_vec());
        page.from[half] = Some(source);
        outcome.fresh = true;
        self.settle_pages(&mut outcome);
        outcome
    }

    /// Verifies `group` if all of it is here.
    fn settle(&mut self, group: u64, outcome: &mut Outcome) {
        let Some(partial) = self.partials.get(&group) else { return };
        let chunks = self.id.chunks_in_group(group, partial.cut);
        if partial.have.count_ones() < chunks {
            return;
        }
        match self.verifier.check(group, &partial.bytes) {
            Verdict::Unknown => {}
            Verdict::Good(cv) => {
                let Some(partial) = self.partials.remove(&group) else { return };
                for copy in self.poisoned.remove(&group).unwrap_or_default() {
                    blame(&partial.bytes, &copy, |source| outcome.liars.push((source, group)));
                }
                self.mark_done(group);
                let segment = group / SEGMENT_GROUPS;
                if self.segment_done(segment) {
                    self.verifier.forget_page(0, segment);
                }
                outcome.verified.push((group, partial.bytes, cv));
            }
            Verdict::Bad => {
                let Some(partial) = self.partials.remove(&group) else { return };
                let senders = &partial.from[..chunks as usize];
                if senders.iter().all(|s| *s == senders[0]) {
                    outcome.liars.push((senders[0], group));
                } else if self.poisoned.len() < POISONED_MAX {
                    let copies = self.poisoned.entry(group).or_default();
                    copies.push(Poisoned { bytes: partial.bytes, from: partial.from, cut: partial.cut });
                }
                self.idle.put_new(group..group + 1);
            }
        }
    }

    /// Whether every group of `segment` is verified, so that its page is of no more use.
    fn segment_done(&self, segment: u64) -> bool {
        let first = segment * SEGMENT_GROUPS;
        let end = (first + SEGMENT_GROUPS).min(self.id.groups());
        (first..end).all(|group| self.is_done(group))
    }

    /// Drops what a struck source contributed and nobody has verified; returns what is to be asked again.
    pub(super) fn disown(&mut self, source: SourceId) -> Vec<What> {
        let mut again = Vec::new();
        let mut reopen = Vec::new();
        for (&group, partial) in &mut self.partials {
            if partial.only == Some(source) {
                reopen.push(group);
                continue;
            }
            for i in 0..u64::from(partial.cut.get()) {
                if partial.have >> i & 1 == 1 && partial.from[i as usize] == source {
                    partial.have &= !(1 << i);
                    let chunk = group * u64::from(partial.cut.get()) + i;
                    again.push(What::Data { cut: partial.cut, chunk });
                }
            }
        }
        for group in reopen {
            self.reopen(group);
        }
        let pages: Vec<(u8, u64)> = self
            .pages
            .iter()
            .filter(|(_, page)| page.from.contains(&Some(source)))
            .map(|(&at, _)| at)
            .collect();
        for (level, number) in pages {
            self.pages.insert((level, number), Page::default());
            again.extend(self.page_asks(level, number));
        }
        again
    }
}

fn index(cut: Cut, chunk: u64) -> u8 {
    (chunk % u64::from(cut.get())) as u8
}

/// Group of a chunk, and its bit in the group's masks.
pub(super) fn place(cut: Cut, chunk: u64) -> (u64, u64) {
    (chunk / u64::from(cut.get()), 1 << index(cut, chunk))
}

fn half_of(first: u64) -> usize {
    usize::from(first % tree::PAGE >= tree::HASH_CHUNK as u64)
}
