//! An open page of the hash tree, and the state of each of its packets. The META has such a state too.

use crate::subscriber::item::{GiveUp, Item, Queue, Sender, SourceId};
use crate::tree::{self, ChainingValue};

/// The state of a packet that is not a chunk. Until it arrives, it is in flight or in a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Single {
    /// The number of copies in flight. They still count after the packet has arrived.
    pub(super) copies: u16,
    pub(super) queue: Option<Queue>,
    /// Whether the packet has expired once. The next time, any path may ask for it.
    pub(super) expired: bool,
    /// Whether the packet was asked for on a second path while it was in flight on the first.
    redundant: bool,
}

impl Single {
    pub(super) fn waiting(queue: Queue) -> Self {
        Self { queue: Some(queue), ..Self::default() }
    }

    /// Records that one more copy is in flight.
    pub(super) fn request(&mut self) {
        self.copies = self.copies.saturating_add(1);
        self.queue = None;
    }

    /// Records that a copy is no longer in flight.
    pub(super) fn arrived(&mut self) {
        debug_assert!(self.copies > 0, "none is in flight");
        self.copies = self.copies.saturating_sub(1);
    }

    /// Whether the packet may be asked for on a second path: it is in flight on only one.
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

/// Half of a page, which is one packet.
#[derive(Default)]
pub(super) struct HalfPage {
    pub(super) single: Single,
    pub(super) cvs: Option<Vec<ChainingValue>>,
    pub(super) from: Option<Sender>,
}

/// A page that has been asked for, or will be.
pub(super) struct OpenPage {
    /// Requests with a lower number belong to an earlier attempt, as with a block.
    pub(super) opened: u64,
    /// The halves of the page: two, or one if the page has at most [`tree::PACKET_CVS`] values.
    pub(super) halves: Vec<HalfPage>,
    /// Whether the page must come from a single source, because a copy from several sources was wrong.
    pub(super) exclusive: bool,
    /// That source, once it has been asked.
    pub(super) exclusive_to: Option<SourceId>,
}

impl OpenPage {
    pub(super) fn permits(&self, source: SourceId) -> bool {
        self.exclusive_to.is_none_or(|only| only == source)
    }

    /// Returns the halves in `queue`, as bits.
    pub(super) fn queued(&self, queue: Queue) -> u64 {
        let halves = self.halves.iter().enumerate();
        halves.filter(|(_, half)| half.single.queue == Some(queue)).map(|(i, _)| 1 << i).sum()
    }

    /// Returns every queue that holds packets of this page.
    pub(super) fn queues(&self) -> impl Iterator<Item = Queue> {
        self.halves.iter().filter_map(|half| half.single.queue)
    }
}

/// Returns the packet that brings this half of a page.
pub(super) fn hash_item(level: u8, page: u64, half: usize) -> Item {
    Item::Hash { level, first: page * tree::PAGE_CVS + (half * tree::PACKET_CVS) as u64 }
}

pub(super) fn half_of(first: u64) -> usize {
    (first % tree::PAGE_CVS) as usize / tree::PACKET_CVS
}
