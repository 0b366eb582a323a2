//! Threads that give files their places. Making a file durable takes a disk milliseconds; a few at a time
//! share them, and whoever waits for the network does not wait for that.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anabranch_net::Waker;

use crate::monitor::lock;
use crate::{Error, Result};

/// Threads: as many as a disk does things at once.
const THREADS: usize = 8;
/// Bytes that wait for a thread at most, but for one file.
const WAITING_BYTES_MAX: u64 = 32 << 20;
/// Files that wait for a thread at most.
const WAITING_MAX: usize = 1_024;

/// What gives a file its place.
type Work = Box<dyn FnOnce() -> Result<()> + Send>;

/// A file that waits for its place.
struct Job {
    number: usize,
    bytes: u64,
    work: Work,
}

/// See the [module](self).
pub(super) struct Writer {
    /// None once no more can come.
    jobs: Option<Sender<Job>>,
    ended: Receiver<(usize, u64, Result<()>)>,
    threads: Vec<JoinHandle<()>>,
    waiting: usize,
    waiting_bytes: u64,
}

impl Writer {
    /// `waker` is used when a file has its place.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if a thread cannot be started.
    pub(super) fn start(waker: Option<&Waker>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::system(format!("cannot start a thread: {e}")).because(e);
        let (jobs, inbox) = channel();
        let (outbox, ended) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (inbox, outbox, waker) = (Arc::clone(&inbox), outbox.clone(), waker.cloned());
            let work = move || work(&inbox, &outbox, waker.as_ref());
            threads.push(thread::Builder::new().name("writer".into()).spawn(work).map_err(failed)?);
        }
        Ok(Self { jobs: Some(jobs), ended, threads, waiting: 0, waiting_bytes: 0 })
    }

    /// Whether more should be brought now.
    pub(super) const fn has_room(&self) -> bool {
        self.waiting < WAITING_MAX && self.waiting_bytes < WAITING_BYTES_MAX
    }

    /// Files that were brought and of which it has not been told that they have their places.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Brings a file, of which `bytes` bytes are held in memory until `work` has given it its place.
    pub(super) fn put(
        &mut self,
        number: usize,
        bytes: u64,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        (self.waiting, self.waiting_bytes) = (self.waiting + 1, self.waiting_bytes + bytes);
        if let Some(jobs) = &self.jobs {
            // Fails only if all threads have panicked, which is found when they are joined.
            let _ = jobs.send(Job { number, bytes, work: Box::new(work) });
        }
    }

    /// Files that have got their places, or not.
    pub(super) fn ended(&mut self) -> Vec<(usize, Result<()>)> {
        let mut all = Vec::new();
        while let Ok(ended) = self.ended.try_recv() {
            all.push(self.count(ended));
        }
        all
    }

    /// Waits for the next file to get its place, or not; none if no file waits.
    pub(super) fn wait(&mut self) -> Option<(usize, Result<()>)> {
        let ended = if self.waiting > 0 { self.ended.recv().ok() } else { None };
        ended.map(|ended| self.count(ended))
    }

    fn count(&mut self, (number, bytes, outcome): (usize, u64, Result<()>)) -> (usize, Result<()>) {
        (self.waiting, self.waiting_bytes) = (self.waiting - 1, self.waiting_bytes - bytes);
        (number, outcome)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What was brought still gets its place.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(inbox: &Mutex<Receiver<Job>>, outbox: &Sender<(usize, u64, Result<()>)>, waker: Option<&Waker>) {
    loop {
        let next = lock(inbox).recv();
        let Ok(Job { number, bytes, work }) = next else { return };
        let mut guard = CompletionGuard { number, bytes, outcome: None, outbox, waker };
        guard.outcome = Some(work());
    }
}

/// What becomes of a file, which is told in any case: whoever waits would wait for ever.
struct CompletionGuard<'a> {
    number: usize,
    bytes: u64,
    /// None if the thread panics.
    outcome: Option<Result<()>>,
    outbox: &'a Sender<(usize, u64, Result<()>)>,
    waker: Option<&'a Waker>,
}

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::system("a thread that writes files has panicked"));
        let outcome = self.outcome.take().unwrap_or_else(panicked);
        // Nobody listens any more after a failure.
        let _ = self.outbox.send((self.number, self.bytes, outcome));
        if let Some(waker) = self.waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use anabranch_net::WakeReceiver;

    use super::*;

    #[test]
    fn a_thread_that_panics_tells_it() {
        let wake = WakeReceiver::new().expect("a wake");
        let (outbox, ended) = channel();
        let waker = wake.waker();
        drop(CompletionGuard { number: 7, bytes: 3, outcome: None, outbox: &outbox, waker: Some(&waker) });
        let (number, bytes, outcome) = ended.try_recv().expect("told");
        assert_eq!((number, bytes), (7, 3));
        assert!(outcome.expect_err("a failure").to_string().contains("panicked"));
    }
}
