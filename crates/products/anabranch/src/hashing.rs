//! Hashes files: one loop reads them, and one reports the progress.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anabranch_algo::{Rate, Span};
use anabranch_net::{Clock, Interest, Poller, WakeReceiver};

use crate::format::seconds;
use crate::report::HashProgress;
use crate::{Control, Error, Result, Stop};

/// The number of bytes that are read at once.
pub(crate) const READ_BYTES: usize = 1 << 20;
/// The time between two reports.
const REPORT_EVERY: Span = Span::from_millis(100);

/// The state that the hashing threads share with the thread that watches them.
#[derive(Debug, Default)]
pub(crate) struct HashJob {
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    stopped: AtomicBool,
}

impl HashJob {
    /// Sets the number of bytes to hash.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that have been hashed, and returns whether to go on.
    pub(crate) fn advance(&self, bytes: u64) -> Control {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.is_stopped() { Control::Stop } else { Control::Continue }
    }

    /// Returns whether hashing is to end early.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends hashing early.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the progress, `passed` after the start.
    pub(crate) fn progress(&self, passed: Span) -> HashProgress {
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        HashProgress {
            done_bytes,
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            elapsed_s: seconds(passed),
            rate_bytes: Rate::of(done_bytes, passed).as_bytes(),
        }
    }

    /// Does `work` in a thread and returns its result. On the calling thread, reports the progress every 100
    /// ms. If `report` answers [`Control::Stop`], or `stop` is used, [`is_stopped`](Self::is_stopped) becomes
    /// true; `work` must then return soon.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub(crate) fn watch<T: Send>(
        &self,
        stop: &Stop,
        report: &mut dyn FnMut(HashProgress) -> Control,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        let ended = WakeReceiver::new()
            .map_err(|e| Error::system(format!("cannot watch the hashing: {e}")).because(e))?;
        let (clock, waker) = (Clock::start(), ended.waker());
        let mut poller = Poller::new(clock);
        let start = clock.now();
        Ok(thread::scope(|scope| {
            let worker = scope.spawn(move || {
                // The watching thread is woken even if this one panics.
                let _wake = WakeOnDrop(waker);
                work()
            });
            let mut next = start + REPORT_EVERY;
            while !worker.is_finished() {
                let ends = [(ended.as_fd(), Interest::Read), (stop.wake().as_fd(), Interest::Read)];
                // Once stopped, the descriptor of `stop` is readable for good.
                let waited = poller.wait(ends.into_iter().take(if self.is_stopped() { 1 } else { 2 }), next);
                if waited.is_err() {
                    clock.sleep_until(next);
                }
                if ended.drain() {
                    break;
                }
                let now = clock.now();
                if stop.is_stopped() {
                    self.stop();
                }
                if now >= next {
                    next = now + REPORT_EVERY;
                    if report(self.progress(now.since(start))) == Control::Stop {
                        self.stop();
                    }
                }
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }))
    }
}

struct WakeOnDrop(anabranch_net::Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Reads blocks of [`READ_BYTES`] of a file of `length` bytes, by the numbers in `blocks`, until these end or
/// a block lies beyond the end. Each block is handed to `each` with its number, and then counted by
/// `advance`. `each` may take the bytes away.
///
/// # Errors
/// If the file cannot be read or is shorter; `Interrupted` when `advance` answers [`Control::Stop`].
pub(crate) fn read_blocks(
    file: &File,
    length: u64,
    blocks: impl IntoIterator<Item = u64>,
    advance: &mut dyn FnMut(u64) -> Control,
    mut each: impl FnMut(u64, &mut Vec<u8>),
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for block in blocks {
        let offset = block * READ_BYTES as u64;
        if offset >= length {
            break;
        }
        let len = (length - offset).min(READ_BYTES as u64);
        bytes.resize(len as usize, 0);
        file.read_exact_at(&mut bytes, offset)?;
        each(block, &mut bytes);
        if advance(len) == Control::Stop {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn every_byte_is_read_once_and_counted() {
        let mut file = tempfile::tempfile().expect("a file");
        let content: Vec<u8> = (0..2 * READ_BYTES + 5).map(|n| (n / 251) as u8).collect();
        file.write_all(&content).expect("room");
        for length in [0, 1, READ_BYTES, READ_BYTES + 1, content.len()] {
            let (mut read, mut counted) = (Vec::new(), 0);
            let mut advance = |bytes| {
                counted += bytes;
                Control::Continue
            };
            read_blocks(&file, length as u64, 0.., &mut advance, |_, bytes| read.append(bytes))
                .expect("read");
            assert!(read == content[..length] && counted == length as u64);
        }
        let beyond = read_blocks(&file, 1 + content.len() as u64, 0.., &mut |_| Control::Continue, |_, _| ());
        assert_eq!(beyond.expect_err("shorter").kind(), io::ErrorKind::UnexpectedEof);
        let stopped = read_blocks(&file, 9, 0.., &mut |_| Control::Stop, |_, _| ());
        assert_eq!(stopped.expect_err("stopped").kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn the_watcher_reports_and_stops() {
        let (job, stop) = (HashJob::default(), Stop::new().expect("a stop"));
        job.set_total(7);
        let work = || {
            while job.advance(0) == Control::Continue {
                thread::yield_now();
            }
            "ended"
        };
        let mut seen = None;
        let mut report = |progress| {
            seen = Some(progress);
            Control::Stop
        };
        assert_eq!(job.watch(&stop, &mut report, work), Ok("ended"));
        assert_eq!(seen.map(|progress| progress.total_bytes), Some(7));
        let job = HashJob::default();
        stop.stop();
        let work = || while job.advance(0) == Control::Continue {};
        job.watch(&stop, &mut |_| Control::Continue, work).expect("watched");
    }

    #[test]
    fn how_long_it_takes_yet() {
        let job = HashJob::default();
        job.set_total(4_000_000_000);
        assert_eq!(job.progress(Span::from_secs(2)).left_s(), None);
        let _ = job.advance(1_000_000_000);
        let progress = job.progress(Span::from_secs(2));
        assert_eq!((progress.rate_bytes, progress.left_s()), (500_000_000, Some(6.0)));
    }
}
