//! A response's body: a few bytes of our own, or a piece of a content, read as the connection takes it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};

use super::socket::Progress;
use super::{House, Site, Unavailable};

/// Bytes read at once: enough that system calls cost little, so few that a connection's memory stays small.
const READ_BYTES: usize = 256 << 10;
/// Buffers of a body that are used again: one is being sent while the next is filled.
const BUFFERS: usize = 2;

/// A body of a known length.
pub(super) enum Body<S: Site> {
    /// These bytes.
    Small(Bytes),
    /// A piece of a content.
    Piece(Box<Piece<S>>),
}

pub(super) struct Piece<S: Site> {
    house: Rc<House<S>>,
    progress: Rc<Progress>,
    content: S::Content,
    next: u64,
    end: u64,
    /// What was read last, the oldest first: once it is sent its memory serves again.
    read: [Option<Bytes>; BUFFERS],
    booking: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl<S: Site> Body<S> {
    pub(super) fn piece(
        house: &Rc<House<S>>,
        progress: &Rc<Progress>,
        content: S::Content,
        range: std::ops::Range<u64>,
    ) -> Self {
        Self::Piece(Box::new(Piece {
            house: Rc::clone(house),
            progress: Rc::clone(progress),
            content,
            next: range.start,
            end: range.end,
            read: [const { None }; BUFFERS],
            booking: None,
        }))
    }

    const fn left_bytes(&self) -> u64 {
        match self {
            Self::Small(bytes) => bytes.len() as u64,
            Self::Piece(piece) => piece.end - piece.next,
        }
    }
}

impl<S: Site> Piece<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Unavailable>> {
        let batch = self.house.site.batch_bytes();
        let most = batch.unwrap_or(READ_BYTES).clamp(1, READ_BYTES) as u64;
        let len = (self.end - self.next).min(most) as usize;
        if batch.is_some() {
            let booking = self.booking.get_or_insert_with(|| Box::pin(book(Rc::clone(&self.house), len)));
            self.progress.booked.set(true);
            ready!(booking.as_mut().poll(cx));
            self.progress.booked.set(false);
            self.booking = None;
        }
        self.read.rotate_left(1);
        let last = &mut self.read[BUFFERS - 1];
        let mut buffer = match last.take().map(Bytes::try_into_mut) {
            Some(Ok(buffer)) if buffer.len() >= len => buffer,
            _ => BytesMut::zeroed(len),
        };
        buffer.truncate(len);
        self.house.site.read(&self.content, self.next, &mut buffer)?;
        self.next += len as u64;
        let bytes = buffer.freeze();
        if self.next < self.end {
            *last = Some(bytes.clone());
        }
        Poll::Ready(Ok(bytes))
    }
}

/// Waits for its turn, books, and waits until what was booked is due.
async fn book<S: Site>(house: Rc<House<S>>, bytes: usize) {
    let _turn = house.turn.lock().await;
    let wait = house.site.book(bytes);
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

impl<S: Site> Drop for Piece<S> {
    fn drop(&mut self) {
        self.progress.booked.set(false);
    }
}

// Nothing of it is pinned in place: futures are in boxes of their own.
impl<S: Site> Unpin for Body<S> {}

impl<S: Site> hyper::body::Body for Body<S> {
    type Data = Bytes;
    type Error = Unavailable;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unavailable>>> {
        if self.left_bytes() == 0 {
            return Poll::Ready(None);
        }
        let outcome = match &mut *self {
            Self::Small(bytes) => Ok(std::mem::take(bytes)),
            Self::Piece(piece) => {
                let outcome = ready!(piece.poll_next(cx));
                if outcome.is_err() {
                    piece.house.tally.unavailable.fetch_add(1, Ordering::Relaxed);
                }
                outcome
            }
        };
        Poll::Ready(Some(outcome.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes())
    }
}
