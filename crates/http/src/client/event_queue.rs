//! What the thread hands over: events, bounded by the bytes that nobody has taken yet.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Notify;

use super::{Event, FetchId, RouteId, Sample};

/// Bytes of bodies that wait to be taken; then nothing more is read, and TCP slows the servers down. Each
/// connection may add the one piece it has just read. More would only have left the processor's cache when it
/// is looked at.
pub(super) const MAX_WAITING_BYTES: usize = 1 << 20;

/// Fetches under way or waiting for their route; more are refused.
pub(super) const MAX_FETCHES: usize = 4096;

/// Shared by the thread, which pushes, and the caller, who takes.
#[derive(Debug)]
pub(super) struct EventQueue {
    inner: Mutex<Inner>,
    /// Readable when something waits.
    ready: EventFd,
    /// There is room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    /// The newest only: they are cumulative.
    samples: BTreeMap<RouteId, Sample>,
    /// Fetches that have not ended; what else comes is dropped.
    live: HashSet<FetchId>,
    /// Of the bodies in `events`.
    bytes: usize,
}

impl EventQueue {
    pub(super) fn new() -> std::io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            inner: Mutex::default(),
            ready: EventFd::from_value_and_flags(0, flags)?,
            room: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing here panics half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Lets events of `id` pass from now on. `false`: there are too many, or this one is under way.
    pub(super) fn begin(&self, id: FetchId) -> bool {
        let mut inner = self.lock();
        inner.live.len() < MAX_FETCHES && inner.live.insert(id)
    }

    /// Lets no event of `id` pass any more, and takes back those that wait. `false`: it had ended.
    pub(super) fn end(&self, id: FetchId) -> bool {
        let mut inner = self.lock();
        if !inner.live.remove(&id) && !inner.events.iter().any(|event| event.fetch() == Some(id)) {
            return false;
        }
        let Inner { events, bytes, .. } = &mut *inner;
        events.retain(|event| {
            let keep = event.fetch() != Some(id);
            if !keep {
                *bytes -= event.body_bytes();
            }
            keep
        });
        drop(inner);
        self.room.notify_waiters();
        true
    }

    /// Hands `event` over, whatever waits.
    pub(super) fn push(&self, event: Event) {
        let mut inner = self.lock();
        if let Some(id) = event.fetch() {
            let ends = matches!(event, Event::Done { .. } | Event::Failed { .. });
            if !if ends { inner.live.remove(&id) } else { inner.live.contains(&id) } {
                return;
            }
        }
        self.put(inner, event);
    }

    /// Hands over a failure of a fetch that never began.
    pub(super) fn refuse(&self, event: Event) {
        self.put(self.lock(), event);
    }

    fn put(&self, mut inner: MutexGuard<'_, Inner>, event: Event) {
        let first = inner.events.is_empty() && inner.samples.is_empty();
        inner.bytes += event.body_bytes();
        if let Event::Sample { route, sample } = event {
            inner.samples.insert(route, sample);
        } else {
            inner.events.push_back(event);
        }
        drop(inner);
        if first {
            // Fails only if 2⁶⁴ − 2 wakings wait, and then it is readable anyhow.
            let _ = self.ready.write(1);
        }
    }

    /// Waits until fewer than [`MAX_WAITING_BYTES`] wait.
    pub(super) async fn room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // From here on no waking is lost.
            room.as_mut().enable();
            if self.lock().bytes < MAX_WAITING_BYTES {
                return;
            }
            room.await;
        }
    }

    /// Takes all that waits.
    pub(super) fn take(&self) -> impl Iterator<Item = Event> + use<> {
        // Before the queue: what comes after this makes it readable again.
        let _ = self.ready.read();
        let mut inner = self.lock();
        let events = mem::take(&mut inner.events);
        let samples = mem::take(&mut inner.samples);
        let full = mem::take(&mut inner.bytes) >= MAX_WAITING_BYTES;
        drop(inner);
        if full {
            self.room.notify_waiters();
        }
        events.into_iter().chain(samples.into_iter().map(|(route, sample)| Event::Sample { route, sample }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn body(id: FetchId, bytes: usize) -> Event {
        Event::Body { id, bytes: Bytes::from(vec![0; bytes]) }
    }

    #[test]
    fn nothing_comes_after_a_cancel() {
        let queue = EventQueue::new().unwrap();
        assert!(queue.begin(1) && queue.begin(2) && !queue.begin(2));
        queue.push(body(1, 10));
        queue.push(body(2, 10));
        queue.push(Event::Done { id: 1 });
        assert!(queue.end(1), "its events had not been taken");
        queue.push(body(1, 10));
        queue.push(Event::Done { id: 1 });
        let left: Vec<_> = queue.take().collect();
        assert!(matches!(left[..], [Event::Body { id: 2, .. }]), "{left:?}");
        assert!(!queue.end(1));
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn fetches_are_bounded_and_samples_replace_each_other() {
        let queue = EventQueue::new().unwrap();
        assert!((0..MAX_FETCHES as u64).all(|id| queue.begin(id)));
        assert!(!queue.begin(MAX_FETCHES as u64));
        queue.push(Event::Done { id: 7 });
        assert!(queue.begin(MAX_FETCHES as u64));
        for received_bytes in 0..1000 {
            queue.push(Event::Sample { route: 3, sample: Sample { received_bytes, ..Sample::default() } });
        }
        let samples: Vec<_> = queue.take().filter(|event| event.fetch().is_none()).collect();
        assert!(matches!(&samples[..], [Event::Sample { route: 3, sample }] if sample.received_bytes == 999));
    }
}
