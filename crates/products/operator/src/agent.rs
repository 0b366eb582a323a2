//! The process that carries instances: devices, records, commands of its host, and moves of other hosts.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_machines::store::Store;
use anabranch_net::{Clock, Namespace, Tun};
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::control;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::host::Host;
use crate::journey;
use crate::manager::Manager;
use crate::port::{self, Wanted};
use crate::records::{InFile, InMemory, Records};
use crate::server;
use crate::wasm::{self, Wasm};

/// The most commands at once.
const COMMANDS_MAX: usize = 64;
/// The time between two attempts to settle moves that were interrupted.
const SETTLE: Duration = Duration::from_secs(1);

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
    /// Where it listens for instances of hosts that are paired; none: it takes none.
    pub listen: Vec<SocketAddr>,
    /// The addresses by which other hosts can reach this one; none: all that it has.
    pub addresses: Vec<IpAddr>,
}

/// An agent, which runs until this is dropped; its instances end with it.
pub struct Agent {
    manager: Arc<Manager>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    local: Vec<SocketAddr>,
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
    /// Starts an agent, with the instances of an earlier one. What cannot be started is reported.
    ///
    /// # Errors
    /// `Failed` if another agent uses this directory, or it cannot listen; `Kernel` if the devices cannot be
    /// made.
    pub fn start(store: &Store, settings: &Settings, events: Sender<Event>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::Failed(e.to_string());
        let lock = store.lock_agent()?;
        let lock =
            lock.ok_or_else(|| Error::Failed("another agent uses this directory for state".to_owned()))?;
        let here = Namespace::current().map_err(|e| Error::Kernel(e.to_string()))?;
        let outside: Result<Option<Tun>> =
            settings.outside.as_ref().map(|wanted| port::make(&here, wanted)).transpose();
        let devices = [Some(port::make(&here, &settings.inside)?), outside?];
        let host = Host::start(devices, Clock::start())?;
        let records = open_records(store.dir(), settings.backend)?;
        let (manager, troubles) = Manager::new(Arc::new(Wasm::new(settings.wasm)?), host, records)?;
        troubles.into_iter().for_each(|text| drop(events.send(Event::Notice(text))));
        // What an agent that was killed has told the kernel.
        anabranch_machines::paths::clean_up();
        let (manager, is_over) = (Arc::new(manager), Arc::new(AtomicBool::new(false)));
        let listener = control::listen(store.dir())?;
        let (mut threads, mut local) = (Vec::new(), Vec::new());
        if !settings.listen.is_empty() {
            let (owned, over) = (Arc::clone(&manager), Arc::clone(&is_over));
            let shared = Arc::new(server::Shared::new(
                store.clone(),
                owned,
                settings.addresses.clone(),
                (events.clone(), over),
            ));
            (threads, local) = server::start(&shared, &settings.listen)?;
        }
        let mut agent = Self { manager, is_over, threads, local, _lock: lock };
        let (manager, known, over) = (Arc::clone(&agent.manager), store.clone(), Arc::clone(&agent.is_over));
        let serve = move || accept(&known, &manager, &listener, &over);
        agent.threads.push(thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(failed)?);
        let (manager, known, over) = (Arc::clone(&agent.manager), store.clone(), Arc::clone(&agent.is_over));
        let work = move || settle(&known, &manager, &events, &over);
        agent.threads.push(thread::Builder::new().name("settle".to_owned()).spawn(work).map_err(failed)?);
        Ok(agent)
    }

    /// Returns the addresses at which it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.local
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

fn settle(store: &Store, manager: &Manager, events: &Sender<Event>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        if let Err(e) = journey::settle(store, manager, |event| drop(events.send(event))) {
            let _ = events.send(Event::Notice(e.to_string()));
        }
        let mut left = SETTLE;
        while !left.is_zero() && !is_over.load(Ordering::SeqCst) {
            let part = left.min(Duration::from_millis(100));
            thread::sleep(part);
            left -= part;
        }
    }
}

fn accept(store: &Store, manager: &Arc<Manager>, listener: &UnixListener, is_over: &AtomicBool) {
    let count = Arc::new(AtomicUsize::new(0));
    while !is_over.load(Ordering::SeqCst) {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::from(100_u8));
        if count.load(Ordering::SeqCst) >= COMMANDS_MAX {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        count.fetch_add(1, Ordering::SeqCst);
        let (served, theirs, known) = (Served(Arc::clone(&count)), Arc::clone(manager), store.clone());
        let serve = move || {
            let _ = control::serve(&known, &theirs, stream);
            drop(served);
        };
        let _ = thread::Builder::new().name("command".to_owned()).spawn(serve);
    }
}
