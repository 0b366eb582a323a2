//! An open block: it has been asked for, at least in part, and is not verified. Each mask has one bit per
//! chunk.

use crate::id::ChunksPerBlock;
use crate::subscriber::item::{CacheId, PATHS_MAX, PathId, Queue, SourceId};

/// The most copies of one chunk in flight: the first, one asked for redundantly on another path, and one as a
/// probe.
const COPIES_MAX: u32 = 3;

/// Returns a path as one byte, because a block stores one for each chunk.
fn path_byte(p: PathId) -> u8 {
    const { assert!(PATHS_MAX <= 256, "a path is a byte") };
    u8::try_from(p).expect("a path below PATHS_MAX")
}

/// The state of each chunk of a block. A chunk that has not arrived is in flight or in one [`Queue`].
pub(super) struct OpenBlock {
    pub(super) cut: ChunksPerBlock,
    /// Requests with a lower number were sent before the block was opened: they belong to an earlier attempt.
    pub(super) opened: u64,
    /// The chunks that have arrived.
    pub(super) have: u64,
    /// The number of copies of each chunk in flight, as two bits: all lower bits, then all higher bits.
    /// Copies still count after the chunk has arrived.
    copies: [u64; 2],
    /// The chunks in [`Queue::First`] of `opener`; 0 if no path opened the block.
    first: u64,
    opener: u8,
    /// The chunks in [`Queue::Retry`] of the path in `retrier`.
    retry: u64,
    retrier: [u8; 64],
    /// The chunks in [`Queue::Any`].
    any: u64,
    /// The chunks that have expired once. The next time, any path may ask for them.
    pub(super) expired: u64,
    /// The chunks that were asked for on a second path while they were in flight on the first.
    pub(super) redundant: u64,
    /// The source of each chunk that has arrived.
    pub(super) from: [SourceId; 64],
    /// The chunks that came from caches on the way, each with its cache.
    pub(super) caches: Vec<(u32, CacheId)>,
    /// If a copy from several sources was wrong, the only source that may fill the block.
    pub(super) exclusive_to: Option<SourceId>,
    pub(super) bytes: Vec<u8>,
}

impl OpenBlock {
    /// Creates a block without requests, with its chunks in no queue.
    pub(super) fn new(cut: ChunksPerBlock, opened: u64) -> Self {
        Self {
            cut,
            opened,
            have: 0,
            copies: [0; 2],
            first: 0,
            opener: 0,
            retry: 0,
            retrier: [0; 64],
            any: 0,
            expired: 0,
            redundant: 0,
            from: [SourceId::MAX; 64],
            caches: Vec::new(),
            exclusive_to: None,
            bytes: Vec::new(),
        }
    }

    /// Puts all `chunks` of a new block into [`Queue::First`] of the path that opened it.
    pub(super) fn enqueue_first(&mut self, chunks: u32, opener: PathId) {
        self.first = if chunks >= 64 { u64::MAX } else { (1 << chunks) - 1 };
        self.opener = path_byte(opener);
    }

    /// Whether `source` may send chunks of the block.
    pub(super) fn permits(&self, source: SourceId) -> bool {
        self.exclusive_to.is_none_or(|only| only == source)
    }

    /// Returns the chunks in flight.
    pub(super) const fn in_flight(&self) -> u64 {
        self.copies[0] | self.copies[1]
    }

    /// Returns how many copies of chunk `i` are in flight.
    pub(super) const fn copies_of(&self, i: u32) -> u32 {
        (self.copies[0] >> i & 1) as u32 + 2 * (self.copies[1] >> i & 1) as u32
    }

    /// Whether one more copy of chunk `i` may be asked for.
    pub(super) const fn has_room(&self, i: u32) -> bool {
        self.copies_of(i) < COPIES_MAX
    }

    pub(super) fn add_copy(&mut self, i: u32) {
        debug_assert!(self.has_room(i), "too many copies");
        let carry = self.copies[0] & 1 << i;
        self.copies[0] ^= 1 << i;
        self.copies[1] ^= carry;
    }

    pub(super) fn remove_copy(&mut self, i: u32) {
        debug_assert!(self.copies_of(i) > 0, "there is none");
        let borrow = !self.copies[0] & 1 << i;
        self.copies[0] ^= 1 << i;
        self.copies[1] ^= borrow;
    }

    /// Returns the chunks in `queue`.
    pub(super) fn queued(&self, queue: Queue) -> u64 {
        match queue {
            Queue::Any => self.any,
            Queue::First(p) if usize::from(self.opener) == p => self.first,
            Queue::First(_) => 0,
            Queue::Retry(p) => {
                bits(self.retry).filter(|i| usize::from(self.retrier[*i as usize]) == p).map(|i| 1 << i).sum()
            }
        }
    }

    /// Returns the queue of chunk `i`, if it is in one.
    pub(super) fn queue_of(&self, i: u32) -> Option<Queue> {
        let bit = 1 << i;
        if self.any & bit != 0 {
            Some(Queue::Any)
        } else if self.first & bit != 0 {
            Some(Queue::First(usize::from(self.opener)))
        } else if self.retry & bit != 0 {
            Some(Queue::Retry(usize::from(self.retrier[i as usize])))
        } else {
            None
        }
    }

    /// Puts chunk `i`, which is in no queue, into [`Queue::Any`] or [`Queue::Retry`].
    pub(super) fn enqueue(&mut self, i: u32, queue: Queue) {
        match queue {
            Queue::Any => self.any |= 1 << i,
            Queue::Retry(p) => {
                self.retry |= 1 << i;
                self.retrier[i as usize] = path_byte(p);
            }
            Queue::First(_) => debug_assert!(false, "only what is new"),
        }
    }

    /// Takes chunk `i` out of its queue. Returns the queue if it now holds nothing of this block.
    pub(super) fn dequeue(&mut self, i: u32) -> Option<Queue> {
        let queue = self.queue_of(i)?;
        (self.any, self.first, self.retry) =
            (self.any & !(1 << i), self.first & !(1 << i), self.retry & !(1 << i));
        (self.queued(queue) == 0).then_some(queue)
    }

    /// Returns every queue that holds chunks of this block.
    pub(super) fn queues(&self) -> impl Iterator<Item = Queue> {
        bits(self.any | self.first | self.retry).filter_map(|i| self.queue_of(i))
    }
}

/// Iterates over the set bits, lowest first.
pub(in crate::subscriber) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}
