//! A stream as a task holds it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_algo::Span;
use bytes::Bytes;

use crate::trunk::{Read, Reason};
use crate::trunk_task::several::Learner;
use crate::trunk_task::shared::Shared;

/// One end of a stream. Dropping it resets the stream unless its last bytes were written; these are still
/// sent.
///
/// One task can wait in each direction at a time: a later one replaces an earlier one.
pub struct Stream {
    shared: Arc<Shared>,
    number: u32,
}

impl Stream {
    pub(super) const fn new(shared: Arc<Shared>, number: u32) -> Self {
        Self { shared, number }
    }

    /// Returns the number of the stream in the trunk.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the next bytes, at least one and at most `at_most`, or `None` after the last ones. Reading
    /// returns credit, so call it when there is room for the bytes.
    ///
    /// # Errors
    /// If the stream was reset.
    pub fn poll_read_bytes(&self, cx: &Context<'_>, at_most: usize) -> Poll<Result<Option<Bytes>, Reason>> {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        match state.trunk.read(now, self.number, at_most) {
            Read::Bytes(bytes) => {
                state.wake_task(now);
                Poll::Ready(Ok(Some(bytes)))
            }
            Read::End => Poll::Ready(Ok(None)),
            Read::Reset(reason) => Poll::Ready(Err(reason)),
            Read::Empty => {
                state.readers.insert(self.number, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits until bytes can be written, and returns how many. Read at most that many from elsewhere, then
    /// write them.
    ///
    /// # Errors
    /// If the stream was reset.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<Result<usize, Reason>> {
        let mut state = self.shared.lock();
        match state.trunk.room(self.number)? {
            0 => {
                state.writers.insert(self.number, cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// Takes at least one byte from the front of `bytes`, and returns how many it took. Returns 0 if `bytes`
    /// is empty.
    ///
    /// # Errors
    /// If the stream was reset.
    pub fn poll_write_bytes(&self, cx: &Context<'_>, bytes: &mut Bytes) -> Poll<Result<usize, Reason>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut state = self.shared.lock();
        match state.trunk.write(self.number, bytes)? {
            0 => {
                state.writers.insert(self.number, cx.waker().clone());
                Poll::Pending
            }
            taken => {
                state.wake_task(self.shared.now());
                Poll::Ready(Ok(taken))
            }
        }
    }

    /// Reads the next bytes; see [`poll_read_bytes`](Self::poll_read_bytes).
    ///
    /// # Errors
    /// If the stream was reset.
    pub async fn read(&self, at_most: usize) -> Result<Option<Bytes>, Reason> {
        std::future::poll_fn(|cx| self.poll_read_bytes(cx, at_most)).await
    }

    /// Waits for room; see [`poll_room`](Self::poll_room).
    ///
    /// # Errors
    /// If the stream was reset.
    pub async fn room(&self) -> Result<usize, Reason> {
        std::future::poll_fn(|cx| self.poll_room(cx)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// If the stream was reset.
    pub async fn write_all(&self, mut bytes: Bytes) -> Result<(), Reason> {
        while !bytes.is_empty() {
            std::future::poll_fn(|cx| self.poll_write_bytes(cx, &mut bytes)).await?;
        }
        Ok(())
    }

    /// Ends this side's direction; no more bytes may be written.
    pub fn finish(&self) {
        let mut state = self.shared.lock();
        state.trunk.finish(self.number);
        state.wake_task(self.shared.now());
    }

    /// Ends both directions at once.
    pub fn reset(&self, reason: Reason) {
        let mut state = self.shared.lock();
        state.trunk.reset(self.number, reason);
        let readers = [state.readers.remove(&self.number), state.connectors.remove(&self.number)];
        let writer = state.writers.remove(&self.number);
        state.wake_task(self.shared.now());
        drop(state);
        readers.into_iter().chain([writer]).flatten().for_each(std::task::Waker::wake);
    }

    /// Tells the client that the origin is connected at this address, if the client asked for it.
    pub fn confirm(&self, address: SocketAddr) {
        let mut state = self.shared.lock();
        state.trunk.confirm(self.number, address);
        state.wake_task(self.shared.now());
    }

    /// Waits until the server has connected, and returns the origin's address. If the stream was opened
    /// without asking for that, it waits until the stream is reset.
    ///
    /// # Errors
    /// If the stream was reset, for example because the server could not connect.
    pub async fn connected(&self) -> Result<SocketAddr, Reason> {
        std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if let Some(address) = state.connected.remove(&self.number) {
                return Poll::Ready(Ok(address));
            }
            state.trunk.room(self.number)?;
            state.connectors.insert(self.number, cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Stream {
    /// Waits until the other side has reset the stream, or the trunk is gone. Must not be used together with
    /// [`connected`](Self::connected).
    pub async fn peer_reset(&self) -> Reason {
        std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if let Err(reason) = state.trunk.room(self.number) {
                return Poll::Ready(reason);
            }
            state.connectors.insert(self.number, cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Whether the last bytes of the other side have arrived, so that a reset does not remove them.
    #[must_use]
    pub fn is_all_received(&self) -> bool {
        self.shared.lock().trunk.is_all_received(self.number)
    }
}

impl Stream {
    /// Asks for the distance of the origin of this stream, which was just opened.
    pub(crate) fn ask_distance(&self, learner: Learner) {
        let mut state = self.shared.lock();
        state.trunk.ask_distance(self.number);
        state.several.learners.insert(self.number, learner);
        state.wake_task(self.shared.now());
    }

    /// Whether the client has asked for the distance of the origin.
    pub(crate) fn wants_distance(&self) -> bool {
        self.shared.lock().trunk.wants_distance(self.number)
    }

    /// Tells the client the round trip to the origin.
    pub(crate) fn tell_distance(&self, rtt: Span) {
        let mut state = self.shared.lock();
        state.trunk.tell_distance(self.number, rtt);
        state.wake_task(self.shared.now());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let number = self.number;
        state.trunk.release(number);
        state.connected.remove(&number);
        state.several.forget(number);
        let lists = [state.readers.remove(&number), state.writers.remove(&number)];
        let last = state.connectors.remove(&number);
        if state.trunk.open_streams() == 0 {
            // The trunk may have to end with this stream.
            state.wake_task_always();
        } else {
            state.wake_task(self.shared.now());
        }
        drop(state);
        drop((lists, last));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.number).finish()
    }
}
