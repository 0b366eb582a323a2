//! The body of a response: a short text, or a part of a content that is read as the connection takes it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};

use super::connections::Progress;
use super::provider::{ContentProvider, Unavailable};
use super::shared::{Asked, Shared};

/// The bytes that are read at once: enough to make system calls cheap, few enough to keep a connection's
/// memory small.
const READ_BYTES: usize = 256 << 10;
/// The number of buffers that a body reuses: one is being sent while the next is filled.
const BUFFERS: usize = 2;

/// A body of a known length.
pub(super) enum Body<S: ContentProvider> {
    /// A short text.
    Full(Bytes),
    /// A part of a content.
    Range(Box<RangeBody<S>>),
}

pub(super) struct RangeBody<S: ContentProvider> {
    shared: Arc<Shared<S>>,
    progress: Rc<Progress>,
    content: Arc<S::Content>,
    next: u64,
    end: u64,
    /// The latest reads, oldest first. Their memory is reused once they are sent.
    read: [Option<Bytes>; BUFFERS],
    reservation: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// A read that runs on another thread.
    reading: Option<Asked<(BytesMut, Result<(), Unavailable>)>>,
}

impl<S: ContentProvider> Body<S> {
    pub(super) fn range(
        shared: &Arc<Shared<S>>,
        progress: &Rc<Progress>,
        content: S::Content,
        range: std::ops::Range<u64>,
    ) -> Self {
        Self::Range(Box::new(RangeBody {
            shared: Arc::clone(shared),
            progress: Rc::clone(progress),
            content: Arc::new(content),
            next: range.start,
            end: range.end,
            read: [const { None }; BUFFERS],
            reservation: None,
            reading: None,
        }))
    }

    const fn left_bytes(&self) -> u64 {
        match self {
            Self::Full(bytes) => bytes.len() as u64,
            Self::Range(part) => part.end - part.next,
        }
    }
}

impl<S: ContentProvider> RangeBody<S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Unavailable>> {
        // While the body waits for a disk or for the rate limit, it does not wait for the client.
        self.progress.set_waits(true);
        let (buffer, read) = ready!(self.poll_read(cx));
        self.progress.set_waits(false);
        read?;
        self.next += buffer.len() as u64;
        let bytes = buffer.freeze();
        if self.next < self.end {
            self.read[BUFFERS - 1] = Some(bytes.clone());
        }
        Poll::Ready(Ok(bytes))
    }

    /// Reads the next bytes as soon as the rate limit allows.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<(BytesMut, Result<(), Unavailable>)> {
        if self.reading.is_none() {
            let burst = self.shared.provider.burst_bytes();
            let most = burst.unwrap_or(READ_BYTES).clamp(1, READ_BYTES) as u64;
            let len = (self.end - self.next).min(most) as usize;
            if burst.is_some() {
                let reservation =
                    self.reservation.get_or_insert_with(|| Box::pin(reserve(Arc::clone(&self.shared), len)));
                ready!(reservation.as_mut().poll(cx));
                self.reservation = None;
            }
            let buffer = self.buffer(len);
            let (content, offset) = (Arc::clone(&self.content), self.next);
            self.reading = Some(self.shared.ask(move |provider| {
                let mut buffer = buffer;
                let read = provider.read(&content, offset, &mut buffer);
                (buffer, read)
            }));
        }
        let Some(reading) = &mut self.reading else { return Poll::Pending };
        let done = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        Poll::Ready(done)
    }

    /// Returns a buffer of `len` bytes, which is that of an earlier read if it has been sent.
    fn buffer(&mut self, len: usize) -> BytesMut {
        self.read.rotate_left(1);
        let mut buffer = match self.read[BUFFERS - 1].take().map(Bytes::try_into_mut) {
            Some(Ok(buffer)) if buffer.len() >= len => buffer,
            _ => BytesMut::zeroed(len),
        };
        buffer.truncate(len);
        buffer
    }
}

/// Waits until no other body has a reservation, reserves `bytes` of the rate limit, and waits until they may
/// be sent.
async fn reserve<S: ContentProvider>(shared: Arc<Shared<S>>, bytes: usize) {
    let _held = shared.rate_lock.lock().await;
    let wait = shared.provider.reserve(bytes);
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

impl<S: ContentProvider> Drop for RangeBody<S> {
    fn drop(&mut self) {
        self.progress.set_waits(false);
    }
}

// The body is `Unpin`, because no field is pinned in place: the future is boxed.
impl<S: ContentProvider> Unpin for Body<S> {}

impl<S: ContentProvider> hyper::body::Body for Body<S> {
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
            Self::Full(bytes) => Ok(std::mem::take(bytes)),
            Self::Range(part) => {
                let outcome = ready!(part.poll_next(cx));
                if outcome.is_err() {
                    part.shared.metrics.unavailable.fetch_add(1, Ordering::Relaxed);
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
