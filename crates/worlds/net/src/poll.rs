//! Waits for sockets and deadlines: the one place where a process waits.

use std::io::{self, Read as _, Write as _};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anabranch_algo::Time;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};

use crate::Clock;

/// Selects the event to wait for on a descriptor. Reading is always included, since errors are read, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Wait until there is something to read.
    Read,
    /// Wait until there is something to read or room to write.
    ReadWrite,
}

/// Reports the readiness of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether there is something to read: data or an error.
    pub read: bool,
    /// Whether there is room to write, or an error that writing would meet.
    pub write: bool,
}

/// Waits for descriptors until a deadline, to the nanosecond where the system has `ppoll`.
///
/// The caller gives the set with each wait: with the tens of sockets that one transfer has, that is cheaper
/// than keeping a registration in the kernel up to date. Once the set has had its largest size, waiting
/// allocates nothing.
#[derive(Debug)]
pub struct Poller {
    clock: Clock,
    /// Memory for the set of the next call; always empty between calls.
    spare: Vec<PollFd<'static>>,
    ready: Vec<Ready>,
}

impl Poller {
    /// Creates a poller whose deadlines are times of `clock`.
    ///
    /// On Linux this sets the calling thread's timer slack from 50 µs to the least that is possible, since
    /// the rate limit needs it: create the poller in the thread that waits.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // If this fails, waits merely end a little later.
        let _ = nix::sys::prctl::set_timerslack(1);
        Self { clock, spare: Vec::new(), ready: Vec::new() }
    }

    /// Waits until a descriptor is ready or `deadline` has come. [`Time::NEVER`] means no deadline; with a
    /// past deadline the call does not wait. Returns the number of ready descriptors; a signal ends the wait
    /// early with 0.
    ///
    /// # Errors
    /// If `ppoll` fails: memory is used up or there are too many descriptors.
    pub fn wait<'a>(
        &mut self,
        set: impl IntoIterator<Item = (BorrowedFd<'a>, Interest)>,
        deadline: Time,
    ) -> io::Result<usize> {
        let mut fds: Vec<PollFd<'a>> = mem::take(&mut self.spare);
        fds.extend(set.into_iter().map(|(fd, interest)| {
            let flags = match interest {
                Interest::Read => PollFlags::POLLIN,
                Interest::ReadWrite => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            PollFd::new(fd, flags)
        }));
        let left = (deadline != Time::NEVER).then(|| deadline.since(self.clock.now()).as_nanos());
        let result = poll(&mut fds, left);
        self.ready.clear();
        self.ready.extend(fds.iter().map(|fd| {
            // The library has no name for these bits: the caller looks at the socket.
            let Some(flags) = fd.revents() else { return Ready { read: true, write: true } };
            let failed = flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
            Ready {
                read: failed || flags.contains(PollFlags::POLLIN),
                write: failed || flags.contains(PollFlags::POLLOUT),
            }
        }));
        fds.clear();
        // Nothing is mapped: this only gives the empty memory its longer lifetime back, in place.
        self.spare = fds.into_iter().map(|_| unreachable!("the set was cleared")).collect();
        match result {
            Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
            Err(e) => {
                self.ready.fill(Ready::default());
                if e == Errno::EINTR { Ok(0) } else { Err(e.into()) }
            }
        }
    }

    /// Returns the readiness of the descriptor at position `index` in the set of the last wait.
    #[must_use]
    pub fn ready(&self, index: usize) -> Ready {
        self.ready.get(index).copied().unwrap_or_default()
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "dragonfly"))]
fn poll(fds: &mut [PollFd<'_>], left_nanos: Option<u64>) -> nix::Result<i32> {
    use nix::sys::time::{TimeSpec, TimeValLike as _};
    let timeout = left_nanos.map(|left| TimeSpec::nanoseconds(i64::try_from(left).unwrap_or(i64::MAX)));
    nix::poll::ppoll(fds, timeout, None)
}

/// Waits in whole milliseconds, rounded up so that the deadline has passed when the wait ends.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd", target_os = "dragonfly")))]
fn poll(fds: &mut [PollFd<'_>], left_nanos: Option<u64>) -> nix::Result<i32> {
    use nix::poll::PollTimeout;
    let timeout = match left_nanos {
        Some(left) => PollTimeout::try_from(left.div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    nix::poll::poll(fds, timeout)
}

/// Holds the waiting side of a wake-up: a descriptor that becomes readable when a [`Waker`] wakes it.
#[derive(Debug)]
pub struct WakeReceiver {
    reader: UnixStream,
    waker: Waker,
}

/// Ends a wait from another thread or from a signal handler's pipe.
#[derive(Clone, Debug)]
pub struct Waker(Arc<UnixStream>);

impl WakeReceiver {
    /// Creates the waiting side and its waker.
    ///
    /// # Errors
    /// If no more descriptors can be opened.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Self { reader, waker: Waker(Arc::new(writer)) })
    }

    /// Returns the waker, which may be cloned freely.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Removes all pending wake-ups. Returns whether there were any.
    pub fn drain(&self) -> bool {
        let mut sink = [0; 64];
        let mut any = false;
        while matches!((&self.reader).read(&mut sink), Ok(1..)) {
            any = true;
        }
        any
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Waker {
    /// Wakes the waiting side. Many wake-ups before the wait count as one.
    pub fn wake(&self) {
        // If the pipe is full, it is already readable.
        let _ = (&*self.0).write(&[1]);
    }

    /// Returns a waker for futures that wakes the same waiting side.
    #[must_use]
    pub fn task_waker(&self) -> std::task::Waker {
        Arc::new(self.clone()).into()
    }

    /// Returns a separate stream for libraries that write a byte when a signal comes
    /// (`signal_hook::low_level::pipe`).
    ///
    /// # Errors
    /// If no more descriptors can be opened.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.0.try_clone()
    }
}

impl std::task::Wake for Waker {
    fn wake(self: Arc<Self>) {
        Self::wake(&self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_algo::Span;

    #[test]
    fn waits_to_the_deadline_and_wakes_before_it() {
        let clock = Clock::start();
        let mut poller = Poller::new(clock);
        let wake = WakeReceiver::new().unwrap();
        let other = WakeReceiver::new().unwrap();

        let deadline = clock.now() + Span::from_millis(3);
        let set = || [(other.as_fd(), Interest::Read), (wake.as_fd(), Interest::Read)];
        assert_eq!(poller.wait(set(), deadline).unwrap(), 0);
        assert!(clock.now() >= deadline);
        assert_eq!(poller.wait(set(), Time::ZERO).unwrap(), 0);

        let waker = wake.waker();
        let thread = std::thread::spawn(move || waker.wake());
        assert_eq!(poller.wait(set(), Time::NEVER).unwrap(), 1);
        thread.join().unwrap();
        assert_eq!((poller.ready(0), poller.ready(1).read), (Ready::default(), true));
        assert_eq!(poller.ready(2), Ready::default());
        assert!(wake.drain());
        assert!(!wake.drain());
    }

    #[test]
    fn room_is_reused_and_writing_is_seen() {
        let mut poller = Poller::new(Clock::start());
        let wake = WakeReceiver::new().unwrap();
        assert_eq!(poller.wait([(wake.as_fd(), Interest::ReadWrite); 9], Time::NEVER).unwrap(), 9);
        assert_eq!(poller.ready(8), Ready { read: false, write: true });
        let room = poller.spare.as_ptr();
        assert!(poller.spare.capacity() >= 9);
        for _ in 0..3 {
            assert_eq!(poller.wait([(wake.as_fd(), Interest::Read); 9], Time::ZERO).unwrap(), 0);
            assert_eq!(poller.spare.as_ptr(), room);
        }
    }

    #[test]
    fn many_wakes_are_one() {
        let wake = WakeReceiver::new().unwrap();
        for _ in 0..100_000 {
            wake.waker().wake();
        }
        assert!(wake.drain());
        assert!(!wake.drain());
    }
}
