//! Which chunks and which entries of an image are free.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::Table;

/// A run of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) end: u64,
}

/// How full an image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The number of objects.
    pub objects: u64,
    /// The number of entries.
    pub entries: u64,
    /// The chunks in use, with those of objects that arrive.
    pub used_chunks: u64,
    /// All chunks.
    pub chunks: u64,
    /// The chunks of the longest free run.
    pub longest_run: u64,
}

/// The room of an image that is open for writing.
#[derive(Debug)]
pub(super) struct Space {
    chunks: u64,
    entries: u32,
    /// The end of each extent by its first chunk, and the slot of its object; `None` while it arrives.
    used: BTreeMap<u64, (u64, Option<u32>)>,
    taken: BTreeSet<u32>,
    /// No chunk below it is free, so that filling an image does not walk over all of it for each object.
    free_from: u64,
    next_slot: u32,
    generation: u64,
    /// Whether objects share chunks, which no writer makes.
    pub(super) shares: bool,
}

impl Space {
    /// Works the room out from a table.
    pub(super) fn of(table: &Table) -> Self {
        let layout = table.layout();
        let (chunks, entries) = (layout.chunks(), layout.entries());
        let (used, taken) = (BTreeMap::new(), BTreeSet::new());
        let mut space =
            Self { chunks, entries, used, taken, free_from: 0, next_slot: 0, generation: 0, shares: false };
        for (slot, entry) in table.entries() {
            let end = entry.first_chunk + layout.chunks_of(entry.id.length);
            let place = space.used.entry(entry.first_chunk).or_insert((end, Some(slot)));
            place.0 = place.0.max(end);
            space.taken.insert(slot);
            space.generation = space.generation.max(entry.generation);
        }
        space.shares = space.taken.len() != space.used.len()
            || space.used.values().zip(space.used.keys().skip(1)).any(|((end, _), next)| end > next);
        space
    }

    /// Returns the free runs, in order.
    fn runs(&self) -> impl Iterator<Item = Extent> {
        let mut at = self.free_from;
        let ends = self.used.range(at..).map(|(first, (end, _))| (*first, *end));
        ends.chain([(self.chunks, self.chunks)]).filter_map(move |(first, end)| {
            let run = Extent { first: at, end: first };
            at = at.max(end);
            (run.first < run.end).then_some(run)
        })
    }

    /// Takes a run of this many chunks: the first that is long enough.
    pub(super) fn claim(&mut self, chunks: u64) -> Option<Extent> {
        let run = self.runs().find(|run| run.end - run.first >= chunks)?;
        let extent = Extent { first: run.first, end: run.first + chunks };
        // If it is the first run, all below its end is used now.
        if self.runs().next().is_some_and(|first| first.first == run.first) {
            self.free_from = extent.end;
        }
        self.used.insert(extent.first, (extent.end, None));
        Some(extent)
    }

    /// Gives back a run that no entry names.
    pub(super) fn release(&mut self, extent: &Extent) {
        if let Some((_, None)) = self.used.get(&extent.first) {
            self.used.remove(&extent.first);
            self.free_from = self.free_from.min(extent.first);
        }
    }

    /// Records that a slot's object uses an extent.
    pub(super) fn settle(&mut self, extent: &Extent, slot: u32) {
        self.used.insert(extent.first, (extent.end, Some(slot)));
    }

    /// Takes a slot that has no whole entry.
    pub(super) fn take_slot(&mut self, table: &Table) -> Option<u32> {
        let all = (self.next_slot..self.entries).chain(0..self.next_slot);
        let slot = all.into_iter().find(|slot| !self.taken.contains(slot) && table.entry(*slot).is_none())?;
        self.taken.insert(slot);
        self.next_slot = (slot + 1) % self.entries;
        Some(slot)
    }

    /// Returns the generation of the next entry.
    pub(super) const fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Notes that a slot has no object any more.
    pub(super) fn free(&mut self, slot: u32) {
        let first =
            self.used.iter().find(|(_, (_, its_slot))| *its_slot == Some(slot)).map(|(first, _)| *first);
        if let Some(first) = first {
            self.used.remove(&first);
            self.free_from = self.free_from.min(first);
        }
        self.taken.remove(&slot);
    }

    /// Returns the slots of all objects.
    pub(super) fn slots(&self) -> Vec<u32> {
        self.used.values().filter_map(|(_, slot)| *slot).collect()
    }

    pub(super) fn room(&self) -> Room {
        let free: u64 = self.runs().map(|run| run.end - run.first).sum();
        Room {
            objects: self.taken.len() as u64,
            entries: u64::from(self.entries),
            used_chunks: self.chunks - free,
            chunks: self.chunks,
            longest_run: self.runs().map(|run| run.end - run.first).max().unwrap_or(0),
        }
    }
}
