//! Pages of the hash tree: decides which pages to ask for, and verifies pages and blocks when they arrive.

use super::page::{HalfPage, OpenPage, Single, half_of, hash_item};
use super::state::{Download, IngestResult, Unit};
use crate::id::SEGMENT_BLOCKS;
use crate::subscriber::item::{GiveUp, Item, Need, Queue, Sender, SourceId};
use crate::tree::{self, ChainingValue};

impl Download {
    /// Opens all missing pages on the way from the root to `block`, with their packets in `queue`, and
    /// returns these packets. With `anew`, also returns the missing packets of pages that are already open.
    /// The path that was asked for those may not answer, and the caller's path must not wait for it.
    pub(in crate::subscriber) fn open_pages(&mut self, block: u64, queue: Queue, anew: bool) -> Vec<Item> {
        while let Some((level, page)) = self.verifier.missing_page(block) {
            let known = self.outboard.as_ref().and_then(|tree| {
                tree.cvs(level, page * tree::PAGE_CVS, tree::page_len(&self.id, level, page))
            });
            let Some(known) = known else { break };
            if self.verifier.add_page(level, page, known).is_err() {
                break;
            }
        }
        if self.verifier.missing_page(block).is_none() {
            return Vec::new();
        }
        let mut items = Vec::new();
        let mut page = block;
        for level in 0..tree::levels(&self.id) {
            page /= tree::PAGE_CVS;
            if self.verifier.has_page(level, page) {
                break;
            }
            let new = !self.pages.contains_key(&(level, page));
            if new {
                self.put_page(level, page, queue, false);
            }
            if let Some(open) = self.pages.get(&(level, page)).filter(|_| new || anew) {
                let missing = open.halves.iter().enumerate().filter(|(_, half)| half.cvs.is_none());
                items.extend(missing.rev().map(|(half, _)| hash_item(level, page, half)));
            }
        }
        items.reverse();
        items
    }

    /// Opens a page, or begins it anew: nothing of it has arrived, and all its packets are in `queue`.
    fn put_page(&mut self, level: u8, page: u64, queue: Queue, exclusive: bool) {
        let unit = Unit::of_page(level, page);
        let half = || HalfPage { single: Single::waiting(queue), ..HalfPage::default() };
        let halves = tree::page_len(&self.id, level, page).div_ceil(tree::PACKET_CVS);
        self.epoch += 1;
        let new = OpenPage {
            opened: self.epoch,
            halves: (0..halves).map(|_| half()).collect(),
            exclusive,
            exclusive_to: None,
        };
        if let Some(old) = self.pages.insert((level, page), new) {
            for queue in old.queues() {
                self.waiting.remove(&(queue, unit));
            }
        }
        self.waiting.insert((queue, unit));
    }

    /// Returns how many chaining values the packet that begins at `first` has.
    pub(in crate::subscriber) fn hash_count(&self, level: u8, first: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(first);
        usize::try_from(left).unwrap_or(usize::MAX).min(tree::PACKET_CVS)
    }

    /// Returns the open page and the half that the packet with the values from `first` on belongs to.
    pub(super) fn half_page(&self, level: u8, first: u64) -> Option<(&OpenPage, &HalfPage)> {
        let page = self.pages.get(&(level, first / tree::PAGE_CVS))?;
        Some((page, page.halves.get(half_of(first))?))
    }

    pub(super) fn need_hash(&self, level: u8, first: u64, source: SourceId) -> Need {
        match self.half_page(level, first) {
            Some((page, half)) if half.cvs.is_none() => {
                if page.permits(source) {
                    Need::ThisSource
                } else {
                    Need::OtherSource
                }
            }
            _ => Need::None,
        }
    }

    /// Records that the packet is asked for from `source`. A page that must come from a single source is
    /// bound to `source` from now on.
    pub(super) fn request_hash(&mut self, level: u8, first: u64, source: SourceId, redundant: bool) {
        let number = first / tree::PAGE_CVS;
        let Some(page) = self.pages.get_mut(&(level, number)) else { return };
        if page.exclusive {
            page.exclusive_to = Some(source);
        }
        let Some(half) = page.halves.get_mut(half_of(first)) else { return };
        let before = half.single.queue;
        half.single.request();
        if redundant {
            half.single.mark_redundant();
        }
        if let Some(queue) = before.filter(|queue| page.queued(*queue) == 0) {
            self.waiting.remove(&(queue, Unit::of_page(level, number)));
        }
    }

    /// Gives up a copy that was asked for in request `epoch`.
    pub(super) fn give_up_hash(&mut self, level: u8, first: u64, epoch: u64, how: GiveUp) {
        let number = first / tree::PAGE_CVS;
        let Some(page) = self.pages.get_mut(&(level, number)).filter(|page| page.opened <= epoch) else {
            return;
        };
        let Some(half) = page.halves.get_mut(half_of(first)) else { return };
        if half.cvs.is_some() {
            half.single.arrived();
            return;
        }
        match half.single.give_up(how) {
            None => {}
            // No other source may finish the page, so it is begun anew.
            Some(Queue::Any) if page.exclusive => self.put_page(level, number, Queue::Any, true),
            Some(queue) => {
                self.waiting.insert((queue, Unit::of_page(level, number)));
            }
        }
    }

    /// Moves the packet from the queue of one path to [`Queue::Any`].
    pub(super) fn hand_over_hash(&mut self, level: u8, first: u64) {
        let (number, half) = (first / tree::PAGE_CVS, half_of(first));
        let Some(page) = self.pages.get_mut(&(level, number)) else { return };
        if page.exclusive {
            return self.put_page(level, number, Queue::Any, true);
        }
        let Some(single) = page.halves.get_mut(half).map(|half| &mut half.single) else { return };
        single.expired = true;
        let before = single.queue.replace(Queue::Any);
        if let Some(queue) = before.filter(|queue| page.queued(*queue) == 0) {
            self.waiting.remove(&(queue, Unit::of_page(level, number)));
        }
        self.waiting.insert((Queue::Any, Unit::of_page(level, number)));
    }

    /// Handles chaining values that have arrived. `pending` is the number of their request, if they were in
    /// flight.
    pub(in crate::subscriber) fn insert_hashes(
        &mut self,
        sender: impl Into<Sender>,
        level: u8,
        first: u64,
        cvs: &[ChainingValue],
        pending: Option<u64>,
    ) -> IngestResult {
        let sender = sender.into();
        let source = sender.source;
        let mut result = IngestResult::default();
        let number = first / tree::PAGE_CVS;
        if cvs.len() != self.hash_count(level, first) || !first.is_multiple_of(tree::PACKET_CVS as u64) {
            return result;
        }
        let Some(page) = self.pages.get_mut(&(level, number)) else { return result };
        let current = pending.is_some_and(|epoch| epoch >= page.opened);
        // A late answer to an earlier attempt would mix the sources of the page again.
        let permitted = if page.exclusive { current && page.permits(source) } else { page.permits(source) };
        let Some(half) = page.halves.get_mut(half_of(first)) else { return result };
        if current {
            half.single.arrived();
        }
        if half.cvs.is_some() || !permitted {
            return result;
        }
        half.cvs = Some(cvs.to_vec());
        half.from = Some(sender);
        if let Some(queue) = half.single.queue.take()
            && page.queued(queue) == 0
        {
            self.waiting.remove(&(queue, Unit::of_page(level, number)));
        }
        result.fresh = true;
        self.verify_pages(&mut result);
        result
    }

    /// Verifies pages from the top down, then the blocks that waited for them.
    fn verify_pages(&mut self, result: &mut IngestResult) {
        loop {
            let ready = self.pages.iter().rev().find_map(|(&(level, number), page)| {
                let here = page.halves.iter().all(|half| half.cvs.is_some());
                let parent = self.verifier.can_check(level, number);
                (here && parent).then_some((level, number))
            });
            let Some((level, number)) = ready else { return };
            let Some(page) = self.pages.get(&(level, number)) else { return };
            let halves = || page.halves.iter();
            let cvs: Vec<ChainingValue> =
                halves().filter_map(|half| half.cvs.as_deref()).flatten().copied().collect();
            if self.verifier.add_page(level, number, &cvs).is_err() {
                let senders: Vec<Sender> = halves().filter_map(|half| half.from).collect();
                let suspects = result.suspects.len();
                result.suspects.extend(senders.iter().filter_map(|sender| sender.cache));
                // As with a block, an answer without caches shows which source is to blame.
                let cached = result.suspects.len() > suspects;
                let mixed = !cached && senders.iter().any(|s| *s != senders[0]);
                if !cached && !mixed {
                    let blocks = tree::PAGE_CVS.saturating_pow(u32::from(level) + 1);
                    result.culprits.push((senders[0].source, number.saturating_mul(blocks)));
                }
                let exclusive = page.exclusive || mixed;
                self.put_page(level, number, Queue::Any, exclusive);
                return;
            }
            self.pages.remove(&(level, number));
            if level == 0 {
                let first = number * SEGMENT_BLOCKS;
                let waiting: Vec<u64> =
                    self.open.range(first..first + SEGMENT_BLOCKS).map(|(&block, _)| block).collect();
                for block in waiting {
                    self.verify_block(block, result);
                }
            }
        }
    }

    /// Begins those pages anew that a banned source has sent a part of.
    pub(super) fn discard_pages_from(&mut self, source: SourceId) {
        self.reopen_pages(|page| {
            page.halves.iter().any(|half| half.from.is_some_and(|s| s.source == source))
        });
    }

    /// Begins the pages anew that `which` selects.
    pub(super) fn reopen_pages(&mut self, which: impl Fn(&OpenPage) -> bool) {
        let which = self.pages.iter().filter(|(_, page)| which(page));
        for ((level, number), exclusive) in which.map(|(at, page)| (*at, page.exclusive)).collect::<Vec<_>>()
        {
            self.put_page(level, number, Queue::Any, exclusive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{BLOCK_BYTES, ContentId};

    /// Sources 1 and 2 sent one packet each of a page that is wrong. Source 1 sends one of the packets again,
    /// and is then banned for something else. The next source that is asked must send the whole page.
    #[test]
    fn a_page_that_must_come_from_one_source_still_must_when_one_is_banned() {
        let id = ContentId { root: [1; 32], length: 64 * BLOCK_BYTES as u64 };
        let mut download = Download::new(id, false, |_| false);
        let items = download.open_pages(0, Queue::Any, false);
        let [Item::Hash { first: a, .. }, Item::Hash { first: b, .. }] = items[..] else {
            panic!("{items:?}")
        };
        let wrong = [[7; 32]; tree::PACKET_CVS];
        assert!(download.insert_hashes(1, 0, a, &wrong, None).fresh);
        let result = download.insert_hashes(2, 0, b, &wrong, None);
        assert!(result.fresh && result.culprits.is_empty(), "one of two");
        download.request(items[0], 1, false);
        assert_eq!(download.need(items[1], 2), Need::OtherSource);
        assert!(download.insert_hashes(1, 0, a, &wrong, Some(download.epoch())).fresh);
        download.discard_from(1);
        download.request(items[0], 2, false);
        assert_eq!(download.need(items[1], 2), Need::ThisSource);
        assert_eq!(download.need(items[1], 3), Need::OtherSource);
    }
    /// Sources 1 and 2 sent one packet each of a page that is wrong. Source 1 sends one of the packets again
    /// and then refuses to send more of the content.
    #[test]
    fn a_page_that_must_come_from_one_source_is_begun_anew_when_that_refuses() {
        let id = ContentId { root: [1; 32], length: 64 * BLOCK_BYTES as u64 };
        let mut download = Download::new(id, false, |_| false);
        let items = download.open_pages(0, Queue::Any, false);
        let firsts = items.iter().map(|item| if let Item::Hash { first, .. } = item { *first } else { 1 });
        let wrong = [[7; 32]; tree::PACKET_CVS];
        for (source, first) in (1..).zip(firsts.clone()) {
            assert!(download.insert_hashes(source, 0, first, &wrong, None).fresh);
        }
        download.request(items[0], 1, false);
        let pending = Some(download.epoch());
        assert!(download.insert_hashes(1, 0, firsts.min().unwrap_or(0), &wrong, pending).fresh);
        download.unassign(0, 1);
        assert_eq!(download.need(items[0], 2), Need::ThisSource);
        assert_eq!(download.need(items[1], 2), Need::ThisSource);
    }
}
