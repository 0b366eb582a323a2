//! Threads that make files durable and rename them to their final names. That takes a disk milliseconds a
//! file. A few threads share the files, so that the loop that waits for the network is not blocked.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use anabranch_net::Waker;

use crate::monitor::lock;
use crate::{Error, Result};

/// The number of threads: about as many as a disk does operations at once.
const THREADS: usize = 8;
/// The bytes that may wait for a thread; one file may exceed them.
const WAITING_BYTES_MAX: u64 = 32 << 20;
/// The number of files that may wait for a thread.
const WAITING_MAX: usize = 1_024;

/// The work that brings one file to its final name.
type Work = Box<dyn FnOnce() -> Result<()> + Send>;

/// A file that waits for a thread.
struct Job {
    number: usize,
    bytes: u64,
    work: Work,
}

/// The threads, and the files that wait for them.
pub(super) struct Writer {
    /// The queue; `None` once no more files can come.
    jobs: Option<Sender<Job>>,
    ended: Receiver<(usize, u64, Result<()>)>,
    threads: Vec<JoinHandle<()>>,
    waiting: usize,
    waiting_bytes: u64,
}

impl Writer {
    /// Starts the threads. They use `waker` each time a file has ended.
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

    /// Returns whether more files should be handed over now.
    pub(super) const fn has_room(&self) -> bool {
        self.waiting < WAITING_MAX && self.waiting_bytes < WAITING_BYTES_MAX
    }

    /// Returns the number of files that were handed over and whose outcomes have not been taken yet.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Hands over a file. `work` brings it to its final name; until then, its `bytes` bytes stay in memory.
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

    /// Takes the outcomes of the files that have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<(usize, Result<()>)> {
        let mut all = Vec::new();
        while let Ok(ended) = self.ended.try_recv() {
            all.push(self.count(ended));
        }
        all
    }

    /// Waits for the next file to end and takes its outcome; returns `None` if no file waits.
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
        // The files that were handed over are still brought to their final names.
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

/// Sends the outcome of a file in any case, even after a panic, so that no caller waits for ever.
struct CompletionGuard<'a> {
    number: usize,
    bytes: u64,
    /// The outcome; `None` if the thread panics.
    outcome: Option<Result<()>>,
    outbox: &'a Sender<(usize, u64, Result<()>)>,
    waker: Option<&'a Waker>,
}

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Error::system("a thread that writes files has panicked"));
        let outcome = self.outcome.take().unwrap_or_else(panicked);
        // After a failure no receiver is left.
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
