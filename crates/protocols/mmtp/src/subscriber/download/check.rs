//! Checks the invariant of a download. Each wanted block, and each wanted packet of an open unit, is in
//! exactly one state. The packets in flight are those that the paths' requests have outstanding. Each waiting
//! packet has a path that can ask for it.

use std::collections::{BTreeMap, BTreeSet};

use super::page::hash_item;
use super::state::{Download, Unit, place};
use crate::subscriber::item::{Item, PathId, Queue, SourceId};

/// The outstanding packets of one download on all paths: the number of copies by item.
pub(in crate::subscriber) type Outstanding = BTreeMap<Item, u32>;

impl Download {
    /// Whether request `epoch` belongs to the current attempt at `item`, so that its packet counts as in
    /// flight.
    pub(in crate::subscriber) fn is_current(&self, item: Item, epoch: u64) -> bool {
        match item {
            Item::Meta => self.meta.is_some(),
            Item::Hash { level, first } => {
                self.half_page(level, first).is_some_and(|(page, _)| page.opened <= epoch)
            }
            Item::Data { cut, chunk } => {
                let open = self.open.get(&place(cut, chunk).0);
                open.is_some_and(|open| open.cut == cut && open.opened <= epoch)
            }
        }
    }

    /// Returns the first violation of the invariant as an error. `outstanding` holds only packets that are
    /// [current](Self::is_current).
    pub(in crate::subscriber) fn check(&self, outstanding: &Outstanding) -> Result<(), String> {
        self.check_blocks()?;
        let mut waiting = BTreeSet::new();
        let mut state = |item: Item, unit: Unit, here: bool, copies: u32, queue: Option<Queue>| {
            waiting.extend(queue.map(|queue| (queue, unit)));
            let asked = outstanding.get(&item).copied().unwrap_or(0);
            let states = u32::from(here) + u32::from(copies > 0 && !here) + u32::from(queue.is_some());
            if states != 1 || asked != copies {
                let what = format!("here {here}, {copies} in flight, {asked} outstanding, {queue:?}");
                return Err(format!("{item:?} of {unit:?}: {what}"));
            }
            Ok(u32::from(copies > 0))
        };
        let mut in_flight = 0;
        if let Some(meta) = &self.meta {
            in_flight += state(Item::Meta, Unit::Meta, false, u32::from(meta.copies), meta.queue)?;
        }
        for (&(level, number), page) in &self.pages {
            for (i, half) in page.halves.iter().enumerate() {
                let (item, unit) = (hash_item(level, number, i), Unit::of_page(level, number));
                let copies = u32::from(half.single.copies);
                in_flight += state(item, unit, half.cvs.is_some(), copies, half.single.queue)?;
            }
        }
        for (&block, open) in &self.open {
            let chunks = self.id.chunks_in_block(block, open.cut);
            for i in 0..chunks {
                let unit = Unit::Block(block);
                let item = self.item_of(unit, i).ok_or("a block without items")?;
                in_flight += state(item, unit, open.have >> i & 1 == 1, open.copies_of(i), open.queue_of(i))?;
            }
            let missing = self.verifier.missing_page(block);
            if open.have.count_ones() == chunks && missing.is_none_or(|at| !self.pages.contains_key(&at)) {
                return Err(format!("block {block} is here and waits for {missing:?}, which nobody brings"));
            }
        }
        if in_flight as usize != outstanding.len() {
            return Err(format!("{in_flight} packets are in flight, {} outstanding", outstanding.len()));
        }
        if waiting != self.waiting {
            return Err(format!("{waiting:?} waits, not {:?}", self.waiting));
        }
        Ok(())
    }

    /// Returns as an error the first assigned block or waiting packet that no path can ask for. `provides`
    /// says whether a source can still supply the content. `asks` returns the source of a path that is in
    /// use.
    pub(in crate::subscriber) fn check_takers(
        &self,
        provides: impl Fn(SourceId) -> bool,
        asks: impl Fn(PathId) -> Option<SourceId>,
    ) -> Result<(), String> {
        let taker = |p: PathId| asks(p).filter(|source| provides(*source));
        if let Some(p) = self.assigned.keys().find(|p| taker(**p).is_none()) {
            return Err(format!("path {p} cannot ask for what is assigned to it"));
        }
        for &(queue, unit) in &self.waiting {
            let taken = match queue {
                Queue::Retry(p) | Queue::First(p) => {
                    taker(p).is_some_and(|source| self.permits(unit, source))
                }
                Queue::Any => self.bound_to(unit).is_none_or(&provides),
            };
            if !taken {
                return Err(format!("{unit:?} waits in {queue:?}, where nobody takes it"));
            }
        }
        Ok(())
    }

    /// Returns the only source that may send `unit`, if there is one.
    fn bound_to(&self, unit: Unit) -> Option<SourceId> {
        match unit {
            Unit::Meta => None,
            Unit::Page(level, number) => self.pages.get(&(level.0, number))?.exclusive_to,
            Unit::Block(block) => self.open.get(&block)?.exclusive_to,
        }
    }

    /// Returns the paths that have assigned blocks or have begun one.
    pub(in crate::subscriber) fn assignees(&self) -> impl Iterator<Item = PathId> {
        let begun = self.waiting.iter().filter_map(|(queue, _)| match queue {
            Queue::First(p) => Some(*p),
            Queue::Retry(_) | Queue::Any => None,
        });
        self.assigned.keys().copied().chain(begun)
    }

    fn check_blocks(&self) -> Result<(), String> {
        let assigned = self.assigned.values().flat_map(|set| set.ranges());
        let open = self.open.keys().map(|&block| block..block + 1);
        let mut ranges: Vec<_> =
            self.unrequested.ranges().chain(self.reserved.ranges()).chain(assigned).chain(open).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        if let Some(two) = ranges.windows(2).find(|two| two[0].end > two[1].start) {
            return Err(format!("blocks {two:?} are in two states"));
        }
        if let Some(block) = ranges.iter().cloned().flatten().find(|block| self.is_done(*block)) {
            return Err(format!("block {block} is verified, and wanted"));
        }
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if wanted != self.blocks_left() {
            return Err(format!("{wanted} blocks have a state, {} are wanted", self.blocks_left()));
        }
        match self.assigned.iter().find(|(_, set)| set.is_empty()) {
            Some((p, _)) => Err(format!("path {p} is assigned nothing")),
            None => Ok(()),
        }
    }
}
