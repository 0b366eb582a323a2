//! The heartbeat of a guest: bytes that it writes to a virtio-serial port, often. When none come, the guest
//! stands still, whatever QEMU says of its pauses.

use std::io::Read as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;

/// What was heard of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// When the first beat came.
    pub(crate) first: Option<Time>,
    /// When the last one came.
    pub(crate) last: Option<Time>,
    /// The longest time between two beats.
    pub(crate) longest: Span,
    /// How many reads had beats.
    pub(crate) count: u64,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens to a guest until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    stream: UnixStream,
    shared: Arc<Shared>,
    clock: Clock,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Begins to listen at the socket of a guest's port.
    ///
    /// # Errors
    /// If connect(2) fails, or no thread can be made.
    pub(crate) fn begin(path: &Path, clock: Clock) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        let (mut reads, shared) = (stream.try_clone()?, Arc::<Shared>::default());
        let theirs = Arc::clone(&shared);
        let listen = move || {
            let mut bytes = [0; 4_096];
            while let Ok(1..) = reads.read(&mut bytes) {
                let now = clock.now();
                let mut heard = theirs.lock();
                let gap = heard.last.map_or(Span::ZERO, |last| now.since(last));
                heard.longest = heard.longest.max(gap);
                heard.first.get_or_insert(now);
                heard.last = Some(now);
                heard.count += 1;
                theirs.changed.notify_all();
            }
        };
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(listen)?;
        Ok(Self { stream, shared, clock, thread: Some(thread) })
    }

    /// Returns what was heard until now.
    pub(crate) fn heard(&self) -> Heard {
        *self.shared.lock()
    }

    /// Forgets what was heard until now.
    pub(crate) fn forget(&self) {
        *self.shared.lock() = Heard::default();
    }

    /// Waits for a beat until `deadline`, and returns when the first one came.
    pub(crate) fn first_until(&self, deadline: Time) -> Option<Time> {
        let mut heard = self.shared.lock();
        loop {
            let left = deadline.since(self.clock.now());
            if heard.first.is_some() || left == Span::ZERO {
                return heard.first;
            }
            let wait = Duration::from_nanos(left.as_nanos());
            let waited =
                self.shared.changed.wait_timeout(heard, wait).unwrap_or_else(PoisonError::into_inner);
            heard = waited.0;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_silence_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("beat");
        let guest = UnixListener::bind(&path).unwrap();
        let clock = Clock::start();
        let listener = Listener::begin(&path, clock).unwrap();
        let (mut guest, _) = guest.accept().unwrap();
        assert_eq!(listener.first_until(clock.now()), None);
        for wait in [0, 60, 5] {
            thread::sleep(Duration::from_millis(wait));
            let count = listener.heard().count;
            guest.write_all(b"x").unwrap();
            while listener.heard().count == count {
                thread::yield_now();
            }
        }
        let heard = listener.heard();
        assert!(heard.longest >= Span::from_millis(59) && heard.first < heard.last, "{heard:?}");
        listener.forget();
        guest.write_all(b"x").unwrap();
        assert!(listener.first_until(clock.now() + Span::from_secs(5)).is_some());
    }
}
