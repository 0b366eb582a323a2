//! Decides how many bytes must have arrived before the reader of a body is woken. At a high rate a wake-up
//! costs more than the few packets that it brings. So the kernel delays it (SO_RCVLOWAT, socket(7), which
//! epoll respects too). It waits for about as many bytes as arrive in [`SPAN`], but never longer than
//! [`WAIT`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use tokio::time::Instant;

use super::tcp;

/// The reader waits for as many bytes as arrive in this time at the latest measured rate.
const SPAN: Duration = Duration::from_millis(2);
/// If fewer bytes than these arrive in [`SPAN`], no wake-up is delayed.
const BYTES_MIN: u64 = 64 << 10;
/// The most bytes that a wake-up waits for.
const BYTES_MAX: u64 = 512 << 10;
/// A wake-up waits for at most one part in this number of a limited receive window, because unread bytes keep
/// the server from sending.
const WINDOW_PART: u64 = 4;
/// When about this many bytes of a body are left, no wake-up is delayed. Some of them may be in the buffers
/// of TLS already, so that the others alone would never reach the mark.
const END_BYTES: u64 = 128 << 10;
/// The longest delay of a wake-up. After it, the bytes that are there are read.
pub(super) const WAIT: Duration = Duration::from_millis(10);

/// The low watermark of one connection.
#[derive(Debug)]
pub(super) struct ReceiveLowWatermark {
    /// The bytes that a wake-up waits for; 0 means no delay.
    bytes: u64,
    /// The watermark that the kernel has been told.
    told: u64,
    /// The time of the newest measurement, and the bytes that had arrived by then.
    last: Option<(Instant, u64)>,
}

impl ReceiveLowWatermark {
    /// The watermark of a new connection: no wake-up is delayed.
    pub(super) const fn new() -> Self {
        Self { bytes: 0, told: 1, last: None }
    }

    /// Records that `received_bytes` have arrived in all by `now`. The receive window is limited to `window`
    /// bytes.
    pub(super) fn on_sample(&mut self, now: Instant, received_bytes: u64, window: u64) {
        let Some((before, bytes)) = self.last.replace((now, received_bytes)) else { return };
        let (new, elapsed) = (received_bytes.saturating_sub(bytes), now.duration_since(before));
        let in_span = u128::from(new) * SPAN.as_nanos() / elapsed.as_nanos().max(1);
        let in_span = u64::try_from(in_span).unwrap_or(u64::MAX).min(BYTES_MAX).min(window / WINDOW_PART);
        self.bytes = if in_span < BYTES_MIN { 0 } else { in_span };
    }

    /// Sets the watermark before a wait for a body of which `left` bytes are still to come. Returns whether
    /// the wake-up is delayed.
    pub(super) fn hold(&mut self, fd: BorrowedFd<'_>, left: u64) -> bool {
        let holds = self.bytes > 0 && left >= self.bytes + END_BYTES;
        self.tell(fd, if holds { self.bytes } else { 1 });
        holds
    }

    /// Records that a wake-up was delayed for [`WAIT`]. No wake-up is delayed until the next measurement.
    pub(super) fn give_up(&mut self, fd: BorrowedFd<'_>) {
        self.bytes = 0;
        self.release(fd);
    }

    /// Clears the watermark before a wait for anything but a body.
    pub(super) fn release(&mut self, fd: BorrowedFd<'_>) {
        self.tell(fd, 1);
    }

    fn tell(&mut self, fd: BorrowedFd<'_>, bytes: u64) {
        if std::mem::replace(&mut self.told, bytes) != bytes {
            tcp::set_rcvlowat(fd, bytes);
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn the_faster_the_more() {
        run(async {
            let mut mark = ReceiveLowWatermark::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let fd = listener.as_fd();
            let (mut now, mut received) = (Instant::now(), 0);
            mark.on_sample(now, 0, u64::MAX);
            for (megabytes_per_s, window, expected) in [
                (12, u64::MAX, 0),
                (100, u64::MAX, 200_000),
                (100, 400_000, 100_000),
                (100, 200_000, 0),
                (10_000, u64::MAX, BYTES_MAX),
                (0, u64::MAX, 0),
            ] {
                now += Duration::from_millis(20);
                received += megabytes_per_s * 20_000;
                mark.on_sample(now, received, window);
                assert_eq!(mark.bytes, expected, "{megabytes_per_s} MB/s");
                assert_eq!(mark.hold(fd, u64::MAX), expected > 0);
                assert!(!mark.hold(fd, expected + END_BYTES - 1));
            }
            // Also takes measurements without time between them, and with fewer bytes than before.
            mark.on_sample(now, received + 1, u64::MAX);
            mark.on_sample(now, 0, u64::MAX);
        });
    }

    #[test]
    fn the_kernel_holds_wakings_back() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let mut far = listener.accept().await.unwrap().0.into_std().unwrap();
            let mut mark = ReceiveLowWatermark { bytes: 100_000, told: 1, last: None };
            assert!(mark.hold(near.as_fd(), 1 << 20));
            far.write_all(&[0; 50_000]).unwrap();
            let soon = Duration::from_millis(100);
            assert!(timeout(soon, near.readable()).await.is_err(), "too little");
            mark.give_up(near.as_fd());
            assert!(timeout(soon, near.readable()).await.is_ok(), "what is there is told at once");
            assert!(!mark.hold(near.as_fd(), 1 << 20), "until the next measurement");
        });
    }
}
