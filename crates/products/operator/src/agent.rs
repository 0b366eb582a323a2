//! The process that carries instances: devices, records, and commands of its host.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anabranch_machines::store::Store;
use anabranch_net::{Clock, Namespace, Tun};
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::manager::Manager;
use crate::port::{self, Wanted};
use crate::records::{InFile, InMemory, Records};
use crate::wasm::{self, Wasm};

/// The most commands at once.
const COMMANDS_MAX: usize = 64;

/// Where records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// In memory: nothing outlives the process.
    Memory,
    /// In a file of redb in the directory for state.
    Redb,
}

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device at the users' side.
    pub inside: Wanted,
    /// The device at the other side.
    pub outside: Option<Wanted>,
    /// Where records are kept.
    pub backend: Backend,
    /// How instances are made.
    pub wasm: wasm::Settings,
}

/// An agent, which runs until this is dropped; its instances end with it.
pub struct Agent {
    manager: Arc<Manager>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    _lock: Flock<File>,
}

/// Opens the records of a directory for state.
///
/// # Errors
/// `Failed` if the file cannot be opened.
pub fn open_records(state: &Path, backend: Backend) -> Result<Box<dyn Records>> {
    Ok(match backend {
        Backend::Memory => Box::new(InMemory::default()),
        Backend::Redb => Box::new(InFile::open(&state.join("records.redb"))?),
    })
}

impl Agent {
    /// Starts an agent, with the instances of an earlier one. Returns what could not be started, as sentences.
    ///
    /// # Errors
    /// `Failed` if another agent uses this directory; `Kernel` if the devices cannot be made.
    pub fn start(store: &Store, settings: &Settings) -> Result<(Self, Vec<String>)> {
        let lock = store.lock_agent()?;
        let lock =
            lock.ok_or_else(|| Error::Failed("another agent uses this directory for state".to_owned()))?;
        let here = Namespace::current().map_err(|e| Error::Kernel(e.to_string()))?;
        let outside: Result<Option<Tun>> =
            settings.outside.as_ref().map(|wanted| port::make(&here, wanted)).transpose();
        let devices = [Some(port::make(&here, &settings.inside)?), outside?];
        let host = Host::start(devices, Clock::start())?;
        let records = open_records(store.dir(), settings.backend)?;
        let (manager, troubles) = Manager::new(Wasm::new(settings.wasm)?, host, records)?;
        let (manager, is_over) = (Arc::new(manager), Arc::new(AtomicBool::new(false)));
        let listener = control::listen(store.dir())?;
        let (theirs, over) = (Arc::clone(&manager), Arc::clone(&is_over));
        let serve = move || accept(&theirs, &listener, &over);
        let thread = thread::Builder::new().name("control".to_owned()).spawn(serve);
        let threads = vec![thread.map_err(|e| Error::Failed(e.to_string()))?];
        Ok((Self { manager, is_over, threads, _lock: lock }, troubles))
    }

    /// Returns the instances.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Counts a command while it is served.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn accept(manager: &Arc<Manager>, listener: &UnixListener, is_over: &AtomicBool) {
    let count = Arc::new(AtomicUsize::new(0));
    while !is_over.load(Ordering::SeqCst) {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::from(100_u8));
        if count.load(Ordering::SeqCst) >= COMMANDS_MAX {
            thread::sleep(std::time::Duration::from_millis(10));
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        count.fetch_add(1, Ordering::SeqCst);
        let (served, theirs) = (Served(Arc::clone(&count)), Arc::clone(manager));
        let serve = move || {
            let _ = control::serve(&theirs, stream);
            drop(served);
        };
        let _ = thread::Builder::new().name("command".to_owned()).spawn(serve);
    }
}
