//! The task that moves bytes between the connection and the machine.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use anabranch_algo::Time;
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep};

use crate::buffer::{BUFFER_BYTES, poll_read};
use crate::tls::{explain, is_key_unknown};
use crate::trunk_task::end::End;
use crate::trunk_task::memory_share::MemoryShare;
use crate::trunk_task::shared::{Shared, State};

/// The most bytes that are taken from the machine at once. More urgent frames cannot overtake them any more.
const WRITE_BYTES: usize = 64 * 1024;
/// The most pieces in one write.
const SLICES_MAX: usize = 16;
/// The most reads in a row, so that bytes to send do not wait for all that arrive.
const READS_MAX: usize = 4;
/// The longest sleep. A deadline of [`Time::NEVER`] therefore costs one wake-up a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest time for sending the last frames at the end.
const CLOSING: Duration = Duration::from_secs(1);

pub(super) struct Driver<S> {
    connection: S,
    shared: Arc<Shared>,
    /// The pieces that are being written.
    out: VecDeque<Bytes>,
    /// Wakes at `sleeps_until`, which is at or before the machine's deadline.
    sleep: Pin<Box<Sleep>>,
    sleeps_until: Time,
    /// How the trunk ended, while the last frames are sent.
    ending: Option<End>,
    wakers: Vec<Waker>,
    memory: MemoryShare,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(super) fn new(connection: S, shared: Arc<Shared>, memory: MemoryShare) -> Self {
        Self {
            connection,
            shared,
            out: VecDeque::new(),
            sleep: Box::pin(sleep(LONGEST)),
            sleeps_until: Time::NEVER,
            ending: None,
            wakers: Vec::new(),
            memory,
        }
    }

    /// Writes until there is nothing more to write, or pending, until the connection takes no more. New
    /// pieces are taken from the machine only when all earlier ones are written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.out.is_empty() {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.out.len().min(SLICES_MAX);
                for (slice, piece) in slices.iter_mut().zip(&self.out) {
                    *slice = IoSlice::new(piece);
                }
                let connection = Pin::new(&mut self.connection);
                let mut n = ready!(connection.poll_write_vectored(cx, &slices[..count]))?;
                if n == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                while let Some(piece) = self.out.front_mut().filter(|_| n > 0) {
                    let taken = piece.len().min(n);
                    piece.advance(taken);
                    n -= taken;
                    if piece.is_empty() {
                        self.out.pop_front();
                    }
                }
            }
            ready!(Pin::new(&mut self.connection).poll_flush(cx))?;
            let now = self.shared.now();
            let mut state = self.shared.lock();
            state.is_blocked = false;
            let sent = state.trunk.transmit(now, &mut self.out, WRITE_BYTES);
            state.take_events(&mut self.wakers);
            if sent == 0 {
                state.task = Some(cx.waker().clone());
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads a few times, or until there is nothing to read (pending).
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        for _ in 0..READS_MAX {
            let bytes = match ready!(poll_read(Pin::new(&mut self.connection), cx, BUFFER_BYTES)) {
                Ok(bytes) => bytes,
                // TLS was cut off, so the other side's process has ended.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Bytes::new(),
                Err(e) => return Poll::Ready(Err(broken(&e))),
            };
            let now = self.shared.now();
            let mut state = self.shared.lock();
            if bytes.is_empty() {
                let end = state.peer_goes.map_or(End::Closed, End::GoAway);
                return Poll::Ready(Err(end));
            }
            let received = state.trunk.receive(now, bytes);
            state.take_events(&mut self.wakers);
            drop(state);
            self.wake();
            if let Err(error) = received {
                return Poll::Ready(Err(End::Protocol(error)));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Returns how the trunk is to end, if the machine or the handles want that now.
    fn wants_end(state: &State, now: Time) -> Option<End> {
        let is_unused = state.trunk.open_streams() == 0 && state.accepts.is_empty();
        let is_over = !state.trunk.takes_streams() && !state.trunk.awaits_departure();
        let is_going = state.is_dropped || is_over;
        if state.is_closed {
            Some(End::Ended)
        } else if state.trunk.is_dead(now) {
            Some(End::Dead)
        } else if is_unused && is_going && !state.trunk.has_to_send(now) {
            Some(state.peer_goes.map_or(End::Closed, End::GoAway))
        } else {
            None
        }
    }

    /// Runs one round. Ready when the trunk is to end.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let may_read = match self.poll_read(cx) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending => false,
            };
            let is_blocked = match self.poll_write(cx) {
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(e)) => return Poll::Ready(broken(&e)),
                Poll::Pending => true,
            };
            self.wake();
            let now = self.shared.now();
            let mut state = self.shared.lock();
            if let Some(end) = Self::wants_end(&state, now) {
                return Poll::Ready(end);
            }
            state.is_blocked = is_blocked;
            state.trunk.note_blocked(now, is_blocked);
            if self.memory.poll_shed(cx, state.trunk.held_bytes()).is_ready() {
                state.trunk.shed();
                state.take_events(&mut self.wakers);
                continue;
            }
            // A stream may have been written in the meantime.
            if may_read || (!is_blocked && state.trunk.has_to_send(now)) {
                continue;
            }
            state.task = Some(cx.waker().clone());
            let deadline = state.trunk.deadline(!is_blocked);
            drop(state);
            if deadline < self.sleeps_until || self.sleep.is_elapsed() {
                let nanos = deadline.since(now).as_nanos().min(LONGEST.as_nanos() as u64);
                self.sleeps_until = deadline;
                self.sleep.set(sleep(Duration::from_nanos(nanos)));
            }
            ready!(self.sleep.as_mut().poll(cx));
        }
    }

    /// Sends the last frames and closes the connection.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let is_sent = ready!(self.poll_write(cx)).is_ok();
        self.wake();
        if is_sent {
            let _ = ready!(Pin::new(&mut self.connection).poll_shutdown(cx));
        }
        Poll::Ready(())
    }
}

/// Returns how a trunk ends whose connection has failed.
fn broken(error: &io::Error) -> End {
    if is_key_unknown(error) { End::UnknownKey } else { End::Connection(explain(error)) }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End> {
        let this = &mut *self;
        if this.ending.is_none() {
            let end = ready!(this.poll_round(cx));
            let mut state = this.shared.lock();
            state.end(end.clone(), &mut this.wakers);
            drop(state);
            this.wake();
            this.ending = Some(end);
            this.sleep.set(sleep(CLOSING));
        }
        ready!(this.poll_closing(cx));
        Poll::Ready(this.ending.clone().unwrap_or(End::Closed))
    }
}

impl<S> Drop for Driver<S> {
    /// Ends the streams too, because the task may be aborted.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.end.is_none() {
            state.end(End::Ended, &mut self.wakers);
        }
        drop(state);
        self.wakers.drain(..).for_each(Waker::wake);
    }
}
