//! Pages of the hash tree: which are to be asked, and what they prove when they come.

use super::super::item::{GiveUp, Item, Need, Queue, SourceId};
use super::{Download, IngestResult, Unit};
use crate::id::SEGMENT_BLOCKS;
use crate::tree::{self, ChainingValue};

/// The state of a packet that is no chunk. While it is not here, it is in flight or in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Single {
    /// Copies in flight. Also counted once it is here.
    pub(super) copies: u16,
    pub(super) queue: Option<Queue>,
    /// It has expired once: the next time any path may ask.
    expired: bool,
    /// It was asked on a second path while in flight on the first.
    redundant: bool,
}

impl Single {
    pub(super) fn waiting(queue: Queue) -> Self {
        Self { queue: Some(queue), ..Self::default() }
    }

    /// Asked once more.
    pub(super) fn request(&mut self) {
        self.copies = self.copies.saturating_add(1);
        self.queue = None;
    }

    /// A copy is no longer in flight.
    fn arrived(&mut self) {
        debug_assert!(self.copies > 0, "none is in flight");
        self.copies = self.copies.saturating_sub(1);
    }

    /// One that is in flight may be asked on a second path.
    pub(super) fn may_copy(&self) -> bool {
        self.copies > 0 && !self.redundant
    }

    pub(super) fn mark_redundant(&mut self) {
        self.redundant = true;
    }

    /// A copy is given up: the queue that it goes to, unless another is in flight.
    pub(super) fn give_up(&mut self, how: GiveUp) -> Option<Queue> {
        self.arrived();
        self.redundant = false;
        let before = match how {
            GiveUp::Again(_) => false,
            GiveUp::Lost(_) | GiveUp::Elsewhere => std::mem::replace(&mut self.expired, true),
        };
        if self.copies > 0 {
            return None;
        }
        self.queue = Some(match how {
            GiveUp::Again(p) => Queue::Retry(p),
            GiveUp::Lost(p) if !before => Queue::Retry(p),
            GiveUp::Lost(_) | GiveUp::Elsewhere => Queue::Any,
        });
        self.queue
    }
}

/// Half a page: one packet.
#[derive(Default)]
pub(super) struct HalfPage {
    pub(super) single: Single,
    pub(super) cvs: Option<Vec<ChainingValue>>,
    from: Option<SourceId>,
}

/// A page that has been asked for, or is going to be.
pub(super) struct OpenPage {
    /// As that of a block.
    pub(super) opened: u64,
    /// One, if the page is short.
    pub(super) halves: Vec<HalfPage>,
    /// A mixed page failed: it must come from one source.
    pub(super) exclusive: bool,
    /// That source.
    exclusive_to: Option<SourceId>,
}

impl OpenPage {
    pub(super) fn permits(&self, source: SourceId) -> bool {
        self.exclusive_to.is_none_or(|only| only == source)
    }

    /// The halves in `queue`, as bits.
    pub(super) fn queued(&self, queue: Queue) -> u64 {
        let halves = self.halves.iter().enumerate();
        halves.filter(|(_, half)| half.single.queue == Some(queue)).map(|(i, _)| 1 << i).sum()
    }

    /// Every queue that holds something of this page.
    pub(super) fn queues(&self) -> impl Iterator<Item = Queue> {
        self.halves.iter().filter_map(|half| half.single.queue)
    }
}

impl Download {
    /// Opens all missing pages on the way from the root to `block`; what is new waits in `queue`. Returns
    /// what is new and, with `anew`, what of the others is not here: a path that has not been heard of yet
    /// must not make the others wait.
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

    /// A page of which nothing is here, all of it in `queue`: new, or begun anew.
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

    /// How many chaining values the packet that begins at `first` has.
    pub(in crate::subscriber) fn hash_count(&self, level: u8, first: u64) -> usize {
        let left = tree::cvs(&self.id, level).saturating_sub(first);
        usize::try_from(left).unwrap_or(usize::MAX).min(tree::PACKET_CVS)
    }

    /// The page of a packet, and which half of it that is.
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

    /// The packet goes out to `source`, which a page that must come from one source is then bound to.
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

    /// A copy that was asked in request `epoch` is given up.
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
            // Nobody else may finish it.
            Some(Queue::Any) if page.exclusive => self.put_page(level, number, Queue::Any, true),
            Some(queue) => {
                self.waiting.insert((queue, Unit::of_page(level, number)));
            }
        }
    }

    /// What waits for one path may be asked by any.
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

    /// Chaining values arrived from `source`; `pending` is the number of the request, if they were in flight.
    pub(in crate::subscriber) fn insert_hashes(
        &mut self,
        source: SourceId,
        level: u8,
        first: u64,
        cvs: &[ChainingValue],
        pending: Option<u64>,
    ) -> IngestResult {
        let mut result = IngestResult::default();
        let number = first / tree::PAGE_CVS;
        if cvs.len() != self.hash_count(level, first) || !first.is_multiple_of(tree::PACKET_CVS as u64) {
            return result;
        }
        let Some(page) = self.pages.get_mut(&(level, number)) else { return result };
        let (permitted, current) = (page.permits(source), pending.is_some_and(|epoch| epoch >= page.opened));
        let Some(half) = page.halves.get_mut(half_of(first)) else { return result };
        if current {
            half.single.arrived();
        }
        if half.cvs.is_some() || !permitted {
            return result;
        }
        half.cvs = Some(cvs.to_vec());
        half.from = Some(source);
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
                let senders: Vec<SourceId> = halves().filter_map(|half| half.from).collect();
                let mixed = senders.iter().any(|s| *s != senders[0]);
                if !mixed {
                    let blocks = tree::PAGE_CVS.saturating_pow(u32::from(level) + 1);
                    result.culprits.push((senders[0], number.saturating_mul(blocks)));
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

    /// Begins anew the pages of which a banned source has sent a part.
    pub(super) fn discard_pages_from(&mut self, source: SourceId) {
        let sent = |page: &OpenPage| page.halves.iter().any(|half| half.from == Some(source));
        let bad: Vec<_> = self
            .pages
            .iter()
            .filter(|(_, page)| sent(page))
            .map(|(at, page)| (*at, page.exclusive))
            .collect();
        for ((level, number), exclusive) in bad {
            self.put_page(level, number, Queue::Any, exclusive);
        }
    }
}

/// The packet that brings this half of a page.
pub(super) fn hash_item(level: u8, page: u64, half: usize) -> Item {
    Item::Hash { level, first: page * tree::PAGE_CVS + (half * tree::PACKET_CVS) as u64 }
}

fn half_of(first: u64) -> usize {
    (first % tree::PAGE_CVS) as usize / tree::PACKET_CVS
}
