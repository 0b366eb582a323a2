//! Groups that are lent to sources of another kind, which bring whole groups and speak no packets of ours.
//!
//! What is lent is idle no more: no path asks for it until it is given back. What is brought is verified,
//! and blamed, as if it had come by a path.

use std::ops::Range;

use algo::Span;

use super::ask::GROUPS_OPEN_MAX;
use super::path::Run;
use super::{ObjectId, PathId, SourceId, Subscriber, What, Work};
use crate::id::{Cut, GROUP_BYTES, SEGMENT_GROUPS};
use crate::tree::{Cv, Outboard};

impl Subscriber {
    /// Lends up to `groups` consecutive groups of a content to `source`, which brings `rate_bytes` a second:
    /// idle ones, or when none are left those that the path which would take longest has not asked for yet.
    /// `None` if there are none, or if too many groups wait to be verified.
    pub fn lend(
        &mut self,
        source: SourceId,
        object: ObjectId,
        groups: u64,
        rate_bytes: u64,
    ) -> Option<Range<u64>> {
        self.dirty = true;
        let o = object as usize;
        if groups == 0 || self.objects.get(o)?.is_complete() || self.lacks(source, object) {
            return None;
        }
        let open = self.objects[o].groups_open();
        if open >= GROUPS_OPEN_MAX {
            return None;
        }
        let idle = &mut self.objects[o].idle;
        let lent = match idle.first_in(0..u64::MAX) {
            Some(first) => {
                // A bound is where it is to end, though the segment goes on.
                idle.take(first.start..first.start.saturating_add(groups), groups)?
            }
            None => {
                let run = self.take_over(None, source, rate_bytes, Span::from_secs(1), Some(object))?;
                let end = run.end.min(run.group + groups);
                self.objects[o].idle.put_new(end..run.end);
                run.group..end
            }
        };
        for group in lent.clone().filter(|g| *g == lent.start || g.is_multiple_of(SEGMENT_GROUPS)) {
            for (level, first) in self.objects[o].ask_pages(group, false) {
                self.orphans.push_back(Work { object, what: What::Hash { level, first } });
            }
        }
        Some(lent)
    }

    /// Proves a content by all its leaves, the chaining values of its groups: then no source is asked for
    /// pages. False if they are not this content's.
    pub fn prove(&mut self, object: ObjectId, leaves: Vec<Cv>) -> bool {
        let Some(state) = self.objects.get_mut(object as usize) else { return false };
        let outboard = Outboard::from_leaves(leaves, state.id.length);
        state.outboard = outboard.filter(|outboard| outboard.id() == state.id);
        self.dirty = true;
        state.outboard.is_some()
    }

    /// Takes back what was lent and not brought.
    pub fn give_back(&mut self, object: ObjectId, groups: Range<u64>) {
        let Some(state) = self.objects.get_mut(object as usize).filter(|state| !state.is_complete()) else {
            return;
        };
        for group in groups {
            if !state.is_done(group) && state.cut_of(group).is_none() {
                state.idle.put(group..group + 1);
            }
        }
        self.first_idle = self.first_idle.min(object as usize);
        self.dirty = true;
    }

    /// Groups of a content that nobody has been asked for.
    #[must_use]
    pub fn groups_idle(&self, object: ObjectId) -> u64 {
        self.objects.get(object as usize).map_or(0, |object| object.idle.len())
    }

    /// Whether a group is not verified yet.
    #[must_use]
    pub fn is_wanted(&self, object: ObjectId, group: u64) -> bool {
        let object = self.objects.get(object as usize);
        object.is_some_and(|object| !object.is_complete() && !object.is_done(group))
    }

    /// A whole group came from `source`, lent or not; whether it was taken, rightly or not.
    pub fn bring(&mut self, source: SourceId, object: ObjectId, group: u64, bytes: &[u8]) -> bool {
        let Some(cut) = Cut::new(1) else { return false };
        let Some(state) = self.objects.get_mut(object as usize) else { return false };
        let fits = group < state.id.groups().max(1) && bytes.len() == state.id.group_len(group);
        if !fits || state.is_complete() || state.is_done(group) {
            return false;
        }
        if state.groups_open() >= GROUPS_OPEN_MAX && state.cut_of(group).is_none() {
            // Too many wait for the pages that prove them; this one is for later.
            state.idle.put(group..group + 1);
            return false;
        }
        if !state.open_whole(group, cut, source) {
            return false;
        }
        // It may have been given back, and come all the same.
        state.idle.remove(group);
        let outcome = state.chunk(source, cut, group, bytes);
        let fresh = outcome.fresh;
        self.outcome(object, outcome);
        self.dirty = true;
        fresh
    }

    /// Takes the end of the run that would take longest, and longer than `patience`, so that its path and
    /// `source`, which brings `rate_bytes` a second, finish together; of path `taker` itself nothing.
    pub(super) fn take_over(
        &mut self,
        taker: Option<PathId>,
        source: SourceId,
        rate_bytes: u64,
        patience: Span,
        only: Option<ObjectId>,
    ) -> Option<Run> {
        let mine = rate_bytes.max(1);
        let victim = (0..self.paths.len())
            .filter(|&q| Some(q) != taker)
            .filter_map(|q| {
                let run = *self.paths[q].runs.back()?;
                let free = run.end - run.group - u64::from(run.chunk > 0);
                let fits =
                    free > 0 && only.is_none_or(|o| o == run.object) && !self.lacks(source, run.object);
                let left: u64 = self.paths[q].runs.iter().map(|r| r.end - r.group).sum();
                let theirs = self.paths[q].rate_bytes();
                let nanos = left.saturating_mul(GROUP_BYTES as u64 * 1_000_000_000) / theirs.max(1);
                (fits && nanos > patience.as_nanos()).then_some((nanos, q, free, theirs))
            })
            .max_by_key(|(nanos, q, ..)| (*nanos, usize::MAX - q));
        let (_, q, free, theirs) = victim?;
        let share = u128::from(free) * u128::from(mine) / u128::from(mine.saturating_add(theirs));
        let take = (share as u64).clamp(1, free);
        let run = self.paths[q].runs.back_mut()?;
        run.end -= take;
        let taken = Run { object: run.object, group: run.end, chunk: 0, end: run.end + take };
        if run.group == run.end {
            self.paths[q].runs.pop_back();
        }
        Some(taken)
    }
}
