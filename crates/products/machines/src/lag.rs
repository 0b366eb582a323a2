//! How far a shadow is behind: *true lag*, the time since which nothing that was written is certain to have
//! arrived.
//!
//! QEMU's own words do not say it: a copy whose path is dead still calls itself ready, with the little that
//! was left when it last looked. So two things are measured, and the older one counts. A **stamp** is written
//! to a disk of its own at the storage daemon of the shadow and read back from there, four times a second,
//! over the same paths, in the same way as the disks: it grows old when a path, the daemon or its host is
//! dead, even if the guest writes nothing. The **backlog** of each disk is what was written and has not been
//! confirmed by the daemon; it grows old when the paths carry less than the guest writes.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_net::Clock;
use serde_json::json;

use crate::disks::Server;
use crate::error::{Error, Result};
use crate::key::{KEY_ID, KEY_USER};
use crate::shadow::STAMP;

/// The most samples of a backlog.
const SAMPLES_MAX: usize = 4_096;
/// How often as many bytes have to be confirmed as were known.
const ROUNDS: usize = 3;
/// The time between two stamps.
const EVERY: Duration = Duration::from_millis(250);
/// The program that writes and reads stamps.
const PROGRAM: &str = "qemu-io";

/// What of a disk has not arrived, by counting bytes.
///
/// A mirror goes over the disk in rounds, and sends changed places in their order on the disk. What was
/// changed before a moment has arrived when the mirror has confirmed as many bytes as it knew of then. But a
/// place that was changed again counts twice, so the backlog waits for three rounds. If the guest never lets
/// the mirror come to an end, this is an estimate and no proof.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// When it was looked, what had been confirmed, and that with what was left, bytes.
    samples: VecDeque<(Time, u64, u64)>,
    as_of: Option<Time>,
}

impl Backlog {
    /// Takes what has been confirmed since the beginning and what is left, bytes, and returns the time until
    /// which all that was written has arrived. That is not known at first, for the path may be dead already.
    pub(crate) fn see(&mut self, now: Time, sent: u64, left: u64) -> Option<Time> {
        if left == 0 {
            self.samples.clear();
            self.as_of = Some(now);
            return self.as_of;
        }
        self.samples.push_back((now, sent, sent + left));
        let before = |sent: u64| self.samples.iter().rposition(|(_, _, known)| *known <= sent);
        let round = (1..ROUNDS).try_fold(before(sent), |at, _| Some(before(self.samples[at?].1))).flatten();
        if let Some(round) = round {
            self.as_of = Some(self.samples[round].0);
            self.samples.drain(..round);
        }
        if self.samples.len() > SAMPLES_MAX {
            // What is left out makes the answer older, never younger.
            let mut n = 0;
            self.samples.retain(|_| {
                n += 1;
                n % 2 == 1
            });
        }
        self.as_of
    }
}

#[derive(Debug)]
struct Shared {
    /// When the newest stamp was written that was read back.
    as_of: Mutex<Option<Time>>,
    is_over: AtomicBool,
}

/// Writes stamps to a shadow and reads them back, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stamps {
    shared: Arc<Shared>,
    child: Arc<Mutex<Option<Child>>>,
    thread: Option<JoinHandle<()>>,
}

impl Stamps {
    /// Begins. The key is in `keys`.
    ///
    /// # Errors
    /// `NotFound` if the program is not installed; `Failed` if there is no thread for it.
    pub(crate) fn begin(server: &Server, keys: &Path, clock: Clock) -> Result<Self> {
        let known = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
        known.map_err(|e| {
            Error::NotFound(format!("{PROGRAM} does not run ({e}): install it (apt install qemu-utils)"))
        })?;
        let shared = Arc::new(Shared { as_of: Mutex::new(None), is_over: AtomicBool::new(false) });
        let (ours, child) = (Arc::clone(&shared), Arc::<Mutex<Option<Child>>>::default());
        let (server, keys, theirs) = (server.clone(), keys.to_owned(), Arc::clone(&child));
        let write = move || {
            while !ours.is_over.load(Ordering::SeqCst) {
                let _ = stamp(&ours, &server, &keys, &theirs, clock);
                thread::sleep(EVERY);
            }
        };
        let thread = thread::Builder::new().name("stamps".to_owned()).spawn(write);
        let thread = thread.map_err(|e| Error::Failed(e.to_string()))?;
        Ok(Self { shared, child, thread: Some(thread) })
    }

    /// Returns when the newest stamp was written of those that were read back.
    pub(crate) fn as_of(&self) -> Option<Time> {
        *self.shared.as_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = child.kill();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes stamps over one connection, until that ends.
fn stamp(
    shared: &Shared,
    server: &Server,
    keys: &Path,
    place: &Mutex<Option<Child>>,
    clock: Clock,
) -> std::io::Result<()> {
    let key = json!({
        "qom-type": "tls-creds-psk", "id": KEY_ID, "endpoint": "client", "dir": keys, "username": KEY_USER,
    });
    let there = json!({"driver": "nbd", "server": server.address(), "export": STAMP, "tls-creds": KEY_ID});
    let mut child = Command::new(PROGRAM)
        .args(["--object", &key.to_string()])
        .arg(format!("json:{there}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    let (Some(mut input), Some(output)) = (input, output) else { return Ok(()) };
    let mut lines = BufReader::new(output).lines();
    let mut number = 0_u8;
    let written = 'all: {
        while !shared.is_over.load(Ordering::SeqCst) {
            number = number % 255 + 1;
            let at = clock.now();
            for (command, answer) in [("write", "wrote 512/512"), ("read", "read 512/512")] {
                // One at a time: the program sees a second line only when a third one comes.
                if let Err(e) = input.write_all(format!("{command} -P {number} 0 512\n").as_bytes()) {
                    break 'all Err(e);
                }
                loop {
                    match lines.next() {
                        Some(Ok(line)) if line.contains(answer) => break,
                        Some(Ok(line)) if !line.contains("failed") => {}
                        _ => break 'all Ok(()),
                    }
                }
            }
            *shared.as_of.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
            thread::sleep(EVERY);
        }
        Ok(())
    };
    if let Some(mut child) = place.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = child.kill();
        child.wait()?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + anabranch_algo::Span::from_millis(ms)
    }

    #[test]
    fn a_dead_path_is_not_called_ready() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.see(at(50), 1_000, 70), None, "nothing is known yet");
        assert_eq!(backlog.see(at(100), 1_000, 0), Some(at(100)));
        // Nothing is confirmed any more, whatever QEMU says of it.
        for ms in 2..200 {
            assert_eq!(backlog.see(at(ms * 100), 1_000, 70), Some(at(100)));
        }
        assert!(backlog.samples.len() <= SAMPLES_MAX);
        assert_eq!(backlog.see(at(20_000), 2_000, 0), Some(at(20_000)));
    }

    #[test]
    fn a_guest_that_always_writes_is_behind_by_some_rounds() {
        let mut backlog = Backlog::default();
        // It writes 100 bytes in each 100 ms, and these are confirmed 200 ms later.
        let mut seen = Vec::new();
        for n in 0_u64..100 {
            seen.push(backlog.see(at(n * 100), (n * 100).saturating_sub(200), 200));
        }
        for (n, as_of) in seen.iter().enumerate().skip(12) {
            let behind = at(n as u64 * 100).since(as_of.expect("a time")).as_millis();
            assert!((600..=900).contains(&behind), "{behind} ms at {n}");
        }
    }

    #[test]
    fn a_long_silence_takes_little_memory() {
        let mut backlog = Backlog::default();
        for n in 0..50_000_u64 {
            assert_eq!(backlog.see(at(n), 0, 1), None);
        }
        assert!(backlog.samples.len() <= SAMPLES_MAX);
    }
}
