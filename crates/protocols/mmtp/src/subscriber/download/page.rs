//! A page of the hash tree that is open, and the state of each of its packets. The META has such a state too.

use crate::subscriber::item::{GiveUp, Item, Queue, Sender, SourceId};
use crate::tree::{self, ChainingValue};

/// The state of a packet that is no chunk. While it is not here, it is in flight or in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Single {
    /// Copies in flight. They still count when the packet is here.
    pub(super) copies: u16,
    pub(super) queue: Option<Queue>,
    /// It has expired once: the next time any path may ask.
    pub(super) expired: bool,
    /// It was asked on a second path while in flight on the first.
    redundant: bool,
}

impl Single {
    pub(super) fn waiting(queue: Queue) -> Self {
        Self { queue: Some(queue), ..Self::default() }
    }

    /// Counts one more copy in flight.
    pub(super) fn request(&mut self) {
        self.copies = self.copies.saturating_add(1);
        self.queue = None;
    }

    /// A copy is no longer in flight.
    pub(super) fn arrived(&mut self) {
        debug_assert!(self.copies > 0, "none is in flight");
        self.copies = self.copies.saturating_sub(1);
    }

    /// Whether the packet may be asked on a second path: it is in flight on one.
    pub(super) fn may_copy(&self) -> bool {
        self.copies > 0 && !self.redundant
    }

    pub(super) fn mark_redundant(&mut self) {
        self.redundant = true;
    }

    /// Gives up a copy. Returns the queue that the packet goes to, unless another copy is in flight.
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
    pub(super) from: Option<Sender>,
}

/// A page that has been asked for, or is going to be.
pub(super) struct OpenPage {
    /// Requests with a lower number asked for an earlier attempt, as with a block.
    pub(super) opened: u64,
    /// Two; a page of at most [`tree::PACKET_CVS`] values has one.
    pub(super) halves: Vec<HalfPage>,
    /// A copy from several sources was wrong: the page must come from one source.
    pub(super) exclusive: bool,
    /// That source, once it has been asked.
    pub(super) exclusive_to: Option<SourceId>,
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

/// The packet that brings this half of a page.
pub(super) fn hash_item(level: u8, page: u64, half: usize) -> Item {
    Item::Hash { level, first: page * tree::PAGE_CVS + (half * tree::PACKET_CVS) as u64 }
}

pub(super) fn half_of(first: u64) -> usize {
    (first % tree::PAGE_CVS) as usize / tree::PACKET_CVS
}
