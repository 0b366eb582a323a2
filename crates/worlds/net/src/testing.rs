//! Helps the tests of all crates. Skipped tests are reported in one way, so that skips can be counted. A test
//! that measures can have its executable to itself. Tests can write secrets.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::capabilities::{self, CAP_NET_ADMIN, CAP_SYS_ADMIN};

/// The environment variable that names the file in which skips are counted, one line each. `.ci/run` sets it.
const COUNTED_IN: &str = "ANABRANCH_SKIPPED";

/// Reports that a test, or a part of one, is skipped, and which privilege, program or kernel feature is
/// missing. The line is seen even where the output of passing tests is swallowed.
pub fn skip(why: impl Display) {
    let line = format!("skipped: {why}\n");
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os(COUNTED_IN) {
        let file = fs::OpenOptions::new().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Writes a file that only its user may read, as it is after `umask 077`.
///
/// # Errors
/// If open(2) or write(2) fails.
pub fn write_secret(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes.as_ref()))
}

/// Skips a test because the kernel refused a namespace, a device or a program.
///
/// # Panics
/// If this process has the privileges that the test needs: then something is wrong, and a test that passed
/// would hide it.
pub fn refused(why: impl Display) {
    assert!(!is_privileged(), "this process is privileged, so this is an error and no reason to skip: {why}");
    skip(why);
}

/// Skips a test because the kernel refused a TUN device. A kernel may lack TUN devices.
///
/// # Panics
/// If the kernel has TUN devices and [`refused`] panics.
pub fn refused_device(why: impl Display) {
    match Path::new("/dev/net/tun").exists() {
        true => refused(why),
        false => skip(why),
    }
}

/// Returns whether this process may make namespaces and devices, and load eBPF.
#[must_use]
pub fn is_privileged() -> bool {
    capabilities::has(&[CAP_NET_ADMIN, CAP_SYS_ADMIN])
}

/// The environment variable that selects the long form of tests. `just long` sets it.
const LONG: &str = "ANABRANCH_LONG";

/// Returns the extent of a test: `short` by default, `long` if the environment has `ANABRANCH_LONG`. It is
/// for tests that prove more with more seeds, kills or seconds of the real kernel than each change can wait
/// for.
#[must_use]
pub fn extent<T>(short: T, long: T) -> T {
    if std::env::var_os(LONG).is_some() { long } else { short }
}

/// Describes how the tests of this executable run.
struct Running {
    /// The number of tests that run side by side.
    side_by_side: usize,
    /// The number of tests among them that are [`among_few`].
    among_few: usize,
    /// The number of tests that wait to run alone.
    waiting: usize,
    /// The thread of the test that runs alone.
    alone: Option<ThreadId>,
}

static RUNNING: Mutex<Running> =
    Mutex::new(Running { side_by_side: 0, among_few: 0, waiting: 0, alone: None });
static CHANGED: Condvar = Condvar::new();

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(condition: impl FnMut(&mut Running) -> bool) -> MutexGuard<'static, Running> {
    CHANGED.wait_while(running(), condition).unwrap_or_else(PoisonError::into_inner)
}

/// Marks a test that runs beside others.
struct SideBySide;

impl Drop for SideBySide {
    fn drop(&mut self) {
        running().side_by_side -= 1;
        CHANGED.notify_all();
    }
}

thread_local! {
    /// The state of the test that runs on this thread; the end of the thread is the end of the test.
    static SIDE_BY_SIDE: RefCell<Option<SideBySide>> = const { RefCell::new(None) };
}

/// Declares that this test may run beside others of its executable, until it ends. Waits while a test runs
/// [`alone`] or is about to. Tests that start programs call this function where they do so; calling it again
/// does nothing.
///
/// A thread that the test started belongs to the test and is not counted: it has no name, whereas the thread
/// of a test has the test's name.
pub fn side_by_side() {
    let thread = thread::current();
    SIDE_BY_SIDE.with_borrow_mut(|own| {
        if own.is_some() || thread.name().is_none() || running().alone == Some(thread.id()) {
            return;
        }
        wait_while(|running| running.alone.is_some() || running.waiting > 0).side_by_side += 1;
        *own = Some(SideBySide);
    });
}

/// The largest number of tests that called [`among_few`] and run at once.
const FEW: usize = 4;

/// Guards the place of a test that called [`among_few`]: another test may take the place when it is dropped.
#[must_use = "the test is among few until this is dropped"]
pub struct AmongFew(());

impl Drop for AmongFew {
    fn drop(&mut self) {
        running().among_few -= 1;
        CHANGED.notify_all();
    }
}

/// Waits until fewer than four tests of this executable that called this function run, and no test is
/// [`alone`] or is about to be.
///
/// The function is for a test that measures how long programs wait on the test's own links. Such a test needs
/// little of a processor and much time, so a few of them hardly disturb each other. The test calls this
/// function once, before it starts a program.
pub fn among_few() -> AmongFew {
    // If all tests run on one thread, an earlier test may have left its state.
    SIDE_BY_SIDE.take();
    let own = thread::current().id();
    let is_full = |running: &mut Running| match running.alone {
        Some(thread) => thread != own,
        None => running.waiting > 0 || running.among_few >= FEW,
    };
    let mut running = wait_while(is_full);
    running.among_few += 1;
    running.side_by_side += 1;
    drop(running);
    SIDE_BY_SIDE.set(Some(SideBySide));
    AmongFew(())
}

/// Guards a test that called [`alone`]: other tests wait until it is dropped.
#[must_use = "the test is alone until this is dropped"]
pub struct Alone(());

impl Drop for Alone {
    fn drop(&mut self) {
        running().alone = None;
        CHANGED.notify_all();
    }
}

/// Waits until no test of this executable runs that called [`side_by_side`] or is alone, and keeps such tests
/// from beginning.
///
/// The function is for a test that measures time, rates or processors, and for a test that changes an object
/// of which the machine or the process has only one. The test calls this function once, before it does
/// anything else. Tests of different executables never run at once: cargo runs one executable after the
/// other.
pub fn alone() -> Alone {
    // If all tests run on one thread, an earlier test may have left its state.
    SIDE_BY_SIDE.take();
    running().waiting += 1;
    let mut running = wait_while(|running| running.alone.is_some() || running.side_by_side > 0);
    running.waiting -= 1;
    running.alone = Some(thread::current().id());
    Alone(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_alone_meets_none_and_the_others_meet() {
        static THERE: AtomicUsize = AtomicUsize::new(0);
        let (least, most) = (AtomicUsize::new(9), AtomicUsize::new(0));
        // Returns the number of tests that ran at once.
        let stay = || {
            let there = THERE.fetch_add(1, Ordering::SeqCst) + 1;
            thread::sleep(Duration::from_millis(50));
            THERE.fetch_sub(1, Ordering::SeqCst);
            there
        };
        let others = || {
            side_by_side();
            most.fetch_max(stay(), Ordering::SeqCst);
            // A thread that this test started does not wait for it.
            thread::scope(|scope| drop(scope.spawn(side_by_side).join()));
        };
        let few = || {
            let _few = among_few();
            side_by_side();
            most.fetch_max(stay(), Ordering::SeqCst);
        };
        let measures = || {
            let _alone = alone();
            side_by_side();
            least.fetch_min(stay(), Ordering::SeqCst);
        };
        thread::scope(|scope| {
            for no in 0..6 {
                let named = thread::Builder::new().name(no.to_string());
                let spawned = match no % 3 {
                    0 => named.spawn_scoped(scope, others),
                    1 => named.spawn_scoped(scope, measures),
                    _ => named.spawn_scoped(scope, few),
                };
                spawned.expect("a thread");
            }
        });
        assert_eq!(least.into_inner(), 1);
        assert!(most.into_inner() > 1);
    }

    #[test]
    fn no_more_than_few_run_at_once() {
        static THERE: AtomicUsize = AtomicUsize::new(0);
        let stay = || {
            let _few = among_few();
            assert!(THERE.fetch_add(1, Ordering::SeqCst) < FEW);
            thread::sleep(Duration::from_millis(20));
            THERE.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| (0..3 * FEW).for_each(|_| drop(scope.spawn(stay))));
    }

    #[test]
    fn what_the_kernel_refuses_is_an_error_for_who_has_the_privileges() {
        let panicked = std::panic::catch_unwind(|| refused("a test of refusals, not a refusal")).is_err();
        assert_eq!(panicked, is_privileged());
    }
}
