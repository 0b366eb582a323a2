//! Buffers blocks between a transfer and the reader of its content: a bounded number of blocks, read in
//! order.
//!
//! The transfer [puts](ReassemblyBuffer::put) blocks in any order; the [`ReadHalf`] takes them in order and
//! hashes them. The schedulers may ask for blocks up to the [horizon](ReassemblyBuffer::new_horizon), which
//! moves in steps, so that ranges do not become as short as the last read. A content is complete when the
//! reader has taken all of it and its hash is right. If only some blocks are wanted ([`Selection`]), the
//! others count as if they had arrived: the content is complete when the wanted blocks have been taken.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_mirror::digests::{Digests, Hasher};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_net::Waker;

use super::selection::Selection;
use crate::monitor::Monitor;
use crate::target::{Demands, Dissent, Mismatch, hold};
use crate::{Error, Result, Stop};

/// The number of bytes ahead of the reader up to which blocks are requested. At most this number waits to be
/// read; where a server sends the whole file at once, or a Metalink's pieces are long, at most twice this
/// number.
pub const READ_AHEAD_BYTES: u64 = 32 << 20;

/// The limit [`READ_AHEAD_BYTES`] in blocks.
const AHEAD_BLOCKS: u64 = READ_AHEAD_BYTES / BLOCK_BYTES as u64;
/// The number of blocks by which the horizon moves at once.
const STEP_BLOCKS: u64 = AHEAD_BLOCKS / 8;
/// A block that arrives unrequested this far ahead of the reader is held back until the reader is closer.
const BLOCKS_MAX: u64 = 2 * AHEAD_BLOCKS;
/// The time between two checks of a waiting transfer whether it has been stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The number and the bytes of a block.
pub(super) type Block = (u64, Vec<u8>);

/// The offset and the bytes of a part of the content that need not be a block.
pub(super) type Piece = (u64, Vec<u8>);

/// Holds the transfer's end of the buffer. All clones share one buffer.
#[derive(Clone, Debug)]
pub(super) struct ReassemblyBuffer {
    shared: Arc<Shared>,
    stop: Stop,
}

/// Holds the reader's end of the buffer.
#[derive(Debug)]
pub(super) struct ReadHalf {
    shared: Arc<Shared>,
    /// The hashers of all blocks that have been taken; `None` before the first block.
    hashers: Option<Hashers>,
}

/// Marks the end of the transfer when dropped, even by a panic; otherwise the reader would wait for ever.
pub(super) struct EndGuard(Arc<Shared>);

type Shared = Monitor<State>;

#[derive(Debug, Default)]
struct State {
    /// The blocks that are wanted.
    selection: Selection,
    /// The content that is read and the demands on it, once both are known.
    content: Option<(ContentId, Demands)>,
    /// The first wanted block that has not been taken.
    next: u64,
    /// The blocks that have arrived and have not been taken.
    blocks: BTreeMap<u64, Vec<u8>>,
    /// The pieces that were delivered in place of blocks.
    pieces: Vec<Piece>,
    /// The horizon that the schedulers were told last.
    horizon: u64,
    /// Wakes the transfer when the horizon may have moved.
    waker: Option<Waker>,
    /// Whether the reader is waiting for block `next`.
    waiting: bool,
    /// The task that is waiting for it.
    #[cfg(feature = "tokio")]
    task: Option<std::task::Waker>,
    /// The result of the reading, once the reader has taken all wanted blocks.
    taken: Option<Taken>,
    ended: bool,
}

/// Says which part of the content a reader has taken.
#[derive(Clone, Copy, Debug)]
enum Taken {
    /// The whole content, with these hashes.
    Whole(Hashes),
    /// Only the wanted blocks of the content.
    Blocks,
}

#[derive(Debug)]
struct Hashers {
    blake3: blake3::Hasher,
    sha2: Hasher,
}

#[derive(Clone, Copy, Debug)]
struct Hashes {
    root: [u8; 32],
    /// The known kinds of SHA-2 hashes of the content.
    digests: Digests,
}

/// Creates both ends of a buffer for a transfer of the wanted blocks that `stop` stops.
pub(super) fn pair(stop: Stop, selection: Selection) -> (ReassemblyBuffer, ReadHalf) {
    let shared = Arc::new(Shared::default());
    shared.lock().selection = selection;
    let reader = ReadHalf { shared: Arc::clone(&shared), hashers: None };
    (ReassemblyBuffer { shared, stop }, reader)
}

impl ReassemblyBuffer {
    /// Sets the content that is read; returns the number of its wanted bytes that have already arrived.
    pub(super) fn open(&self, id: ContentId, demands: impl Into<Demands>) -> u64 {
        let mut state = self.shared.lock();
        (state.content, state.horizon) = (Some((id, demands.into())), 0);
        state.next = state.selection.next(state.next, id.blocks());
        let here = state.selection.bytes_below(state.next, &id) + state.bytes();
        drop(state);
        // If no block is wanted, no later event wakes the reader.
        wake_reader(&self.shared);
        here
    }

    /// Returns the number of bytes of a content that are wanted.
    pub(super) fn wanted_bytes(&self, id: &ContentId) -> u64 {
        self.shared.lock().selection.bytes_below(id.blocks(), id)
    }

    /// Returns the wanted ranges of bytes, in order; none if the whole content is wanted.
    pub(super) fn wanted_ranges(&self) -> Vec<Range<u64>> {
        self.shared.lock().selection.ranges().to_vec()
    }

    /// Delivers all wanted ranges of a content at once, in place of blocks.
    pub(super) fn deliver(&self, id: ContentId, pieces: Vec<Piece>) {
        let mut state = self.shared.lock();
        (state.content, state.pieces) = (Some((id, Demands::default())), pieces);
    }

    /// Returns whether the whole content is wanted.
    pub(super) fn is_whole(&self) -> bool {
        self.shared.lock().selection.is_whole()
    }

    /// Returns whether a block has already arrived, taken or not, or is not wanted.
    pub(super) fn holds(&self, block: u64) -> bool {
        self.shared.lock().holds(block)
    }

    /// Stores a block; returns whether it is new. A block that is [`BLOCKS_MAX`] ahead is held back until the
    /// reader is closer, unless the reader waits for a block that only the caller can deliver.
    pub(super) fn put(&self, block: u64, bytes: Vec<u8>) -> bool {
        let mut state = self.shared.lock();
        while state.selection.has(block)
            && block >= state.next + BLOCKS_MAX
            && state.can_be_read()
            && !self.stop.is_stopped()
        {
            state = self.shared.wait_for(state, LOOK_EVERY);
        }
        let new = !state.holds(block);
        if new {
            state.blocks.insert(block, bytes);
        }
        let is_awaited = block == state.next;
        drop(state);
        if is_awaited {
            wake_reader(&self.shared);
        }
        new
    }

    /// Discards blocks that may be wrong and will be fetched again; returns how many bytes were discarded.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if one of these blocks has been read.
    pub(super) fn revoke(&self, blocks: Range<u64>) -> Result<u64> {
        let mut state = self.shared.lock();
        if blocks.start < state.next {
            return Err(Error::corrupt(
                "a mirror has sent wrong bytes, and some of them have been handed over already: without \
                 hashes of its parts that is only seen when mirrors are compared; name a Metalink, or fetch \
                 into a file",
            ));
        }
        let before = state.bytes();
        state.blocks.retain(|block, _| !blocks.contains(block));
        Ok(before - state.bytes())
    }

    /// Discards all blocks that have not been taken, because they may be wrong.
    pub(super) fn clear(&self) {
        self.shared.lock().blocks.clear();
    }

    /// Discards the hashes that this server states for the content, because the server has sent other bytes
    /// than other mirrors.
    pub(super) fn distrust(&self, origin: &str) {
        if let Some((_, demands)) = &mut self.shared.lock().content {
            demands.claims.retain(|claim| claim.origin != origin);
        }
    }

    /// Waits until the reader has taken the whole content, all of which has arrived. Returns the root hash,
    /// and a notice for each server that states another hash.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the content does not meet its demands,
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if the transfer is stopped.
    pub(super) fn complete(&self) -> Result<([u8; 32], Vec<String>)> {
        let mut state = self.shared.lock();
        loop {
            match (state.taken, &state.content) {
                (Some(Taken::Whole(hashes)), Some((id, demands))) => return hashes.verify(id, demands),
                (Some(Taken::Blocks), Some((id, _))) => return Ok((id.root, Vec::new())),
                _ => {}
            }
            if self.stop.is_stopped() {
                return Err(Error::interrupted(format!("interrupted; {INTERRUPTED}")));
            }
            state = self.shared.wait_for(state, LOOK_EVERY);
        }
    }

    /// Returns the first block that must not be requested yet, if it has moved since the last call.
    pub(super) fn new_horizon(&self) -> Option<u64> {
        let mut state = self.shared.lock();
        let horizon = state.next / STEP_BLOCKS * STEP_BLOCKS + AHEAD_BLOCKS;
        (std::mem::replace(&mut state.horizon, horizon) != horizon).then_some(horizon)
    }

    /// Returns whether the transfer waits for the reader, not for a source.
    pub(super) fn can_be_read(&self) -> bool {
        self.shared.lock().can_be_read()
    }

    /// Sets the waker that wakes the transfer when the horizon may have moved.
    pub(super) fn wake_by(&self, waker: Waker) {
        self.shared.lock().waker = Some(waker);
    }

    pub(super) fn end_guard(&self) -> EndGuard {
        EndGuard(Arc::clone(&self.shared))
    }
}

impl ReadHalf {
    /// Waits for the next wanted block, and returns its number and its bytes; `None` if no block follows, for
    /// any reason.
    pub(super) fn next(&mut self) -> Option<Block> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        loop {
            match self.take(&mut state) {
                Some(next) => return next,
                None => {
                    state.waiting = true;
                    state = shared.wait(state);
                    state.waiting = false;
                }
            }
        }
    }

    /// Returns the next wanted block, as [`next`](Self::next) does, without waiting. The task of `context` is
    /// woken when the block may have arrived.
    #[cfg(feature = "tokio")]
    pub(super) fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Block>> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if let Some(next) = self.take(&mut state) {
            return Poll::Ready(next);
        }
        (state.waiting, state.task) = (true, Some(context.waker().clone()));
        Poll::Pending
    }

    /// Takes the next wanted block if it has arrived; returns `Some(None)` if no block follows.
    fn take(&mut self, state: &mut State) -> Option<Option<Block>> {
        state.waiting = false;
        if state.ended {
            return Some(None);
        }
        let next = state.next;
        let (blocks, wanted) = state.content.as_ref().map(|(id, all)| (id.blocks(), all.wanted()))?;
        let is_whole = state.selection.is_whole();
        if let Some(bytes) = state.blocks.remove(&next) {
            state.next = state.selection.next(next + 1, blocks);
            // The transfer may be waiting for room.
            self.shared.notify();
            let moves = next / STEP_BLOCKS != state.next / STEP_BLOCKS;
            if let Some(waker) = state.waker.as_ref().filter(|_| moves) {
                waker.wake();
            }
            if is_whole {
                self.hashers.get_or_insert_with(|| Hashers::new(&wanted)).update(&bytes);
            }
            return Some(Some((next, bytes)));
        }
        if next == blocks && state.taken.is_none() {
            state.taken = Some(match is_whole {
                true => {
                    let hashers = self.hashers.take().unwrap_or_else(|| Hashers::new(&wanted));
                    Taken::Whole(hashers.finish())
                }
                false => Taken::Blocks,
            });
            self.shared.notify();
        }
        None
    }

    /// Takes the pieces that were delivered in place of blocks, once [`next`](Self::next) has returned
    /// `None`.
    pub(super) fn take_pieces(&self) -> Vec<Piece> {
        std::mem::take(&mut self.shared.lock().pieces)
    }

    /// Returns the length of the whole content; `None` while it is unknown.
    pub(super) fn length(&self) -> Option<u64> {
        self.shared.lock().content.as_ref().map(|(id, _)| id.length)
    }

    /// Returns the number of bytes that could be taken, now or when the blocks before them have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.lock().bytes()
    }
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        wake_reader(&self.0);
    }
}

/// Wakes the reader, whether it waits on a thread or as a task.
fn wake_reader(shared: &Shared) {
    shared.notify();
    #[cfg(feature = "tokio")]
    if let Some(task) = { shared.lock().task.take() } {
        task.wake();
    }
}

impl State {
    fn holds(&self, block: u64) -> bool {
        block < self.next || self.blocks.contains_key(&block) || !self.selection.has(block)
    }

    fn can_be_read(&self) -> bool {
        !self.waiting || self.blocks.contains_key(&self.next)
    }

    fn bytes(&self) -> u64 {
        // All blocks of a content but perhaps its last have the same length.
        let last = self.blocks.last_key_value().map_or(0, |(_, bytes)| bytes.len());
        (self.blocks.len().saturating_sub(1) * BLOCK_BYTES + last) as u64
    }
}

impl Hashers {
    fn new(wanted: &Digests) -> Self {
        Self { blake3: blake3::Hasher::new(), sha2: Hasher::of(wanted) }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.blake3.update(bytes);
        self.sha2.update(bytes);
    }

    fn finish(self) -> Hashes {
        Hashes { root: *self.blake3.finalize().as_bytes(), digests: self.sha2.finish() }
    }
}

impl Hashes {
    /// Returns the root hash, and a notice for each server that states another hash, if the content is right.
    fn verify(self, id: &ContentId, demands: &Demands) -> Result<([u8; 32], Vec<String>)> {
        let Dissent { notices, contest } = hold(&demands.claims, &self.root, &self.digests);
        match demands.proof.mismatch(id, self.root, &self.digests) {
            None => match contest.filter(|_| demands.weighs_claims) {
                None => Ok((self.root, notices)),
                Some(contest) => Err(Error::corrupt(format!(
                    "it has been handed over, and nobody can tell whether it is right, for {contest}: do not \
                     use it; name one of them alone, or give a hash that you trust with `checksum`"
                ))),
            },
            Some(Mismatch::Contradiction(why)) => {
                Err(Error::corrupt(format!("it has been handed over, and it{why}: do not use it")))
            }
            Some(Mismatch::Other(_)) => Err(Error::corrupt(
                "the whole of it does not have the hash that it should have, and it has been handed over: \
                 do not use it. Without hashes of its parts nobody can tell who sent the wrong ones: try \
                 each mirror alone, or ask for a Metalink",
            )),
        }
    }
}

/// The message when the caller stops a transfer that is read in order. Such a transfer keeps no bytes.
pub(super) const INTERRUPTED: &str = "the rest is not there, and what is read in order cannot be resumed";

#[cfg(test)]
mod tests {
    use std::thread;

    use anabranch_net::WakeReceiver;

    use super::*;
    use crate::ErrorKind;
    use crate::target::{FinalCheck, RootCheck};

    fn block(number: u64) -> Vec<u8> {
        vec![number as u8; BLOCK_BYTES]
    }

    fn opened(blocks: u64, proof: FinalCheck) -> (ReassemblyBuffer, ReadHalf, Stop) {
        let stop = Stop::new().expect("descriptors");
        let (buffer, reader) = pair(stop.clone(), Selection::Whole);
        let id = ContentId { root: [0; 32], length: blocks * BLOCK_BYTES as u64 };
        assert_eq!(buffer.open(id, proof), 0);
        (buffer, reader, stop)
    }

    #[cfg(feature = "tokio")]
    #[test]
    fn a_task_that_waits_is_woken_although_nothing_is_wanted() {
        struct Woken(std::sync::atomic::AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(false.into()));
        let (buffer, mut reader) = pair(Stop::new().expect("descriptors"), Selection::Whole);
        let waker = Arc::clone(&woken).into();
        assert!(reader.poll_next(&Context::from_waker(&waker)).is_pending());
        buffer.open(ContentId { root: [0; 32], length: 0 }, FinalCheck::NOTHING);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(reader.poll_next(&Context::from_waker(&waker)).is_pending(), "the transfer has not ended");
        assert!(buffer.shared.lock().taken.is_some(), "the file is empty");
    }

    #[test]
    fn blocks_are_taken_in_order_and_the_horizon_follows_in_steps() {
        let (buffer, mut reader, _) = opened(2 * AHEAD_BLOCKS, FinalCheck::NOTHING);
        let wake = WakeReceiver::new().expect("descriptors");
        buffer.wake_by(wake.waker());
        assert_eq!(buffer.new_horizon(), Some(AHEAD_BLOCKS));
        assert_eq!(buffer.new_horizon(), None);
        for number in (0..STEP_BLOCKS).rev() {
            assert!(buffer.put(number, block(number)));
        }
        assert!(!buffer.put(0, block(0)), "it is there");
        assert_eq!(reader.bytes(), STEP_BLOCKS * BLOCK_BYTES as u64);
        for number in 0..STEP_BLOCKS {
            assert_eq!(buffer.new_horizon(), None);
            assert_eq!(reader.next(), Some((number, block(number))));
        }
        assert!(!buffer.put(0, block(0)), "it has been read");
        assert_eq!(buffer.new_horizon(), Some(AHEAD_BLOCKS + STEP_BLOCKS));
        assert!(wake.drain(), "whoever waits is told");
    }

    #[test]
    fn what_has_been_read_cannot_be_revoked() {
        let (buffer, mut reader, _) = opened(4, FinalCheck::NOTHING);
        for number in 0..3 {
            buffer.put(number, block(number));
        }
        assert!(reader.next().is_some());
        assert_eq!(buffer.revoke(1..2), Ok(BLOCK_BYTES as u64));
        assert!(!buffer.holds(1) && buffer.holds(2));
        assert!(matches!(&buffer.revoke(0..1), Err(e) if e.kind() == ErrorKind::Corrupt));
    }

    #[test]
    fn what_comes_unasked_waits_for_the_reader() {
        let (buffer, mut reader, stop) = opened(2 * BLOCKS_MAX, FinalCheck::NOTHING);
        let (sender, put) = std::sync::mpsc::channel();
        let writer = buffer.clone();
        thread::spawn(move || {
            for number in 0..BLOCKS_MAX + 3 {
                writer.put(number, block(number));
                let _ = sender.send(number);
            }
        });
        let far = put.iter().find(|number| *number == BLOCKS_MAX - 1);
        assert!(far.is_some() && put.recv_timeout(2 * LOOK_EVERY).is_err(), "there is no room for more");
        assert!(reader.next().is_some());
        assert_eq!(put.recv(), Ok(BLOCKS_MAX));
        stop.stop();
        assert_eq!(put.recv(), Ok(BLOCKS_MAX + 1), "nobody waits any more");
    }

    #[test]
    fn of_some_blocks_only_these_are_taken_and_nothing_is_checked_at_the_end() {
        let stop = Stop::new().expect("descriptors");
        let at = |block: u64| block * BLOCK_BYTES as u64;
        let (buffer, mut reader) = pair(stop, Selection::of_bytes(&[at(5)..at(6), at(2)..at(2) + 1]));
        let id = ContentId { root: [7; 32], length: at(9) };
        let demands = FinalCheck::of(RootCheck::Whole, Digests::default());
        assert_eq!((buffer.open(id, demands), buffer.wanted_bytes(&id)), (0, at(2)));
        assert!(buffer.holds(0) && !buffer.holds(2) && !buffer.put(3, block(3)), "it is not wanted");
        for number in [5, 2] {
            assert!(buffer.put(number, block(number)));
        }
        let guard = buffer.end_guard();
        let end = thread::spawn(move || {
            let checked = buffer.complete();
            drop(guard);
            checked
        });
        assert_eq!((reader.next(), reader.next()), (Some((2, block(2))), Some((5, block(5)))));
        assert_eq!(reader.next(), None);
        assert_eq!(end.join().expect("no panic"), Ok(([7; 32], Vec::new())));
    }

    #[test]
    fn the_whole_is_checked_when_all_of_it_has_been_read() {
        let sha2 = |digests| FinalCheck::of(RootCheck::Unknown, digests);
        let whole = FinalCheck::of(RootCheck::Whole, Digests::default());
        let wrong = Digests { sha512: Some([0; 64]), ..Digests::of_sha256([0; 32]) };
        let mut hasher = Hasher::of(&wrong);
        hasher.update(&block(0));
        let right = sha2(hasher.finish());
        for (proof, good) in [(right, true), (sha2(wrong), false), (whole, false)] {
            let (buffer, mut reader, _) = opened(1, proof);
            buffer.put(0, block(0));
            let guard = buffer.end_guard();
            let end = thread::spawn(move || {
                let checked = buffer.complete();
                drop(guard);
                checked
            });
            assert_eq!(reader.next(), Some((0, block(0))));
            assert_eq!(reader.next(), None);
            assert_eq!(end.join().expect("no panic").is_ok(), good);
        }
    }
}
