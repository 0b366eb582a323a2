//! A daemon in a thread of its own.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_net::{WakeReceiver, Waker};
use anabranch_uplinks::daemon::Event;
use anabranch_uplinks::radio::Radio;
use anabranch_uplinks::status::{self, Snapshot};
use anabranch_uplinks::{Daemon, Options, Policy};

/// What a test needs of the daemon beside it.
pub(crate) struct Beside<'a> {
    dir: &'a Path,
    events: &'a Mutex<Vec<Event>>,
}

impl Beside<'_> {
    /// Asks over the socket, as `status` does.
    pub(crate) fn snapshot(&self) -> Snapshot {
        status::ask(&status::socket(self.dir).unwrap()).unwrap()
    }

    /// Returns the last reports.
    pub(crate) fn last(&self, count: usize) -> Vec<Event> {
        let events = self.events.lock().unwrap();
        events[events.len().saturating_sub(count)..].to_vec()
    }

    pub(crate) fn notices(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let text = |event: &Event| match event {
            Event::Notice(text) => Some(text.clone()),
            _ => None,
        };
        events.iter().filter_map(text).collect()
    }
}

/// Ends the daemon, also if the test panics.
struct Stop<'a>(&'a AtomicBool, Waker);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.wake();
    }
}

/// How a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    PutBack,
    /// As if it was killed.
    Leave,
}

/// The options of the daemon of a test.
pub(crate) fn options(dir: &Path, policy: Policy) -> Options {
    Options { state_dir: dir.into(), ..Options::new(policy) }
}

/// Runs `test` while a daemon works in the present namespace.
pub(crate) fn beside<T>(
    dir: &Path,
    policy: Policy,
    radio: Option<Box<dyn Radio + Send>>,
    end: End,
    test: impl FnOnce(&Beside<'_>) -> T,
) -> T {
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let wake = WakeReceiver::new().unwrap();
    let waker = wake.waker();
    std::thread::scope(|scope| {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let _stop = Stop(&stop, waker);
        let (stop, events) = (&stop, &events);
        scope.spawn(move || {
            let radio = radio.map(|radio| radio as Box<dyn Radio>);
            let mut daemon = Daemon::begin(Options { radio, ..options(dir, policy) }).unwrap();
            begun.send(()).unwrap();
            let mut report = |event| events.lock().unwrap().push(event);
            daemon.run(wake.as_fd(), &|| stop.load(Ordering::SeqCst), &mut report).unwrap();
            match end {
                End::Leave => daemon.leave(),
                End::PutBack => drop(daemon.end().expect("everything is put back")),
            }
        });
        has_begun.recv().expect("the daemon begins");
        test(&Beside { dir, events })
    })
}
