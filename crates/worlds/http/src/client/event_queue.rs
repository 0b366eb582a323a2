//! The queue of events from the client's thread to its caller, bounded by the bytes that wait in it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch_algo::TcpSample;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Notify;

use super::api::{Event, FETCHES_MAX, FetchId, RouteId};

/// While the bodies in the queue have this many bytes, connections are not read, and TCP slows the servers
/// down. Each connection may add the one piece that it has just read. A longer queue would not fit in the
/// processor's cache.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;

/// The queue. The client's thread pushes events, the caller takes them.
#[derive(Debug)]
pub(super) struct EventQueue {
    inner: Mutex<Inner>,
    /// A descriptor that is readable while events wait.
    ready: EventFd,
    /// Wakes tasks that wait for room in the queue.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<Event>,
    /// The newest sample of each route: the counters are cumulative.
    samples: BTreeMap<RouteId, TcpSample>,
    /// Fetches that have not ended. Events of other fetches are dropped.
    live: HashSet<FetchId>,
    /// The bytes of the bodies in `events`.
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
        // No code panics half-way while it holds the lock, so a poisoned queue is still consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Accepts events of `id` from now on. Returns `false` if there are too many fetches, or if `id` is
    /// already one of them.
    pub(super) fn begin(&self, id: FetchId) -> bool {
        let mut inner = self.lock();
        inner.live.len() < FETCHES_MAX && inner.live.insert(id)
    }

    /// Drops the queued events of `id`, and all later ones. Returns `false` if the fetch had ended and its
    /// events had been taken.
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

    /// Queues `event` even if the queue is full. Drops the event if its fetch has ended.
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

    /// Queues the failure of a fetch that never began.
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
            // Writing fails only if the counter is full, and then the descriptor is readable anyhow.
            let _ = self.ready.write(1);
        }
    }

    /// Waits until bodies of fewer than [`WAITING_BYTES_MAX`] bytes are in the queue.
    pub(super) async fn room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // From here on no wake-up is lost.
            room.as_mut().enable();
            if self.lock().bytes < WAITING_BYTES_MAX {
                return;
            }
            room.await;
        }
    }

    /// Takes all events out of the queue, samples last.
    pub(super) fn take(&self) -> impl Iterator<Item = Event> + use<> {
        // Clears the descriptor before the queue, so that later events make it readable again.
        let _ = self.ready.read();
        let mut inner = self.lock();
        let events = mem::take(&mut inner.events);
        let samples = mem::take(&mut inner.samples);
        let full = mem::take(&mut inner.bytes) >= WAITING_BYTES_MAX;
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
        assert!((0..FETCHES_MAX as u64).all(|id| queue.begin(id)));
        assert!(!queue.begin(FETCHES_MAX as u64));
        queue.push(Event::Done { id: 7 });
        assert!(queue.begin(FETCHES_MAX as u64));
        for received_bytes in 0..1000 {
            queue.push(Event::Sample {
                route: 3,
                sample: TcpSample { received_bytes, ..TcpSample::default() },
            });
        }
        let samples: Vec<_> = queue.take().filter(|event| event.fetch().is_none()).collect();
        assert!(matches!(&samples[..], [Event::Sample { route: 3, sample }] if sample.received_bytes == 999));
    }
}
