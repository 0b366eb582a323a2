//! The agent: waits at the destination for machines of clients that are paired with it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::fair_share::host_of;
use anabranch_algo::{Span, Time};
use anabranch_house::tls::{HANDSHAKE_TIMEOUT, ServerStream, ServerTls};
use anabranch_net::Clock;
use nix::fcntl::Flock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ring::digest::{Context, SHA256};
use socket2::{Domain, Protocol, Socket, Type};

use crate::arrivals::{Arrivals, Decided};
use crate::connections::{Connections, Held};
use crate::error::{Error, Result};
use crate::journal::Arrival;
use crate::limits::Allowed;
use crate::paths::{Announced, own_addresses};
use crate::store::Store;
use crate::wire::{ALPN, Ask, BLOCK, Lines, MoveId, Told};

/// The most connections at once that have not shown whose they are.
const STRANGERS_MAX: u64 = 64;
/// The most connections of clients at once.
const CONNECTIONS_MAX: u64 = 64;
/// The most bytes that a guest and its QEMU may write to each of their logs; more begins anew.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How often logs are looked at.
const LOGS: Span = Span::from_secs(5);
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(600);
/// How long a machine waits for its source to come back.
const GRACE: Span = Span::from_secs(60);
/// How long the source of a machine that runs may take to ask for its heartbeat.
const BEAT: Span = Span::from_secs(5);
/// The most bytes of an image.
const IMAGE_BYTES_MAX: u64 = 2 << 30;
/// The time between two marks of a measurement.
const TICK: Span = Span::from_millis(50);

/// What an agent is started with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// The addresses by which sources can reach this host; none: all that it has.
    pub addresses: Vec<IpAddr>,
    /// What guests may have.
    pub allowed: Allowed,
}

/// What an agent reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something that the user should know.
    Notice(String),
    /// A client is not served.
    Refused {
        /// The client, by its address if its name is not known.
        client: String,
        /// Why.
        text: String,
    },
    /// A machine is on its way.
    Comes {
        /// Its name.
        name: String,
        /// The client from which it comes.
        client: String,
    },
    /// A machine runs here.
    Runs {
        /// Its name.
        name: String,
    },
    /// A machine is given up.
    GivenUp {
        /// Its name.
        name: String,
    },
}

struct Shared {
    arrivals: Arrivals,
    /// The addresses that the user gave.
    addresses: Vec<IpAddr>,
    announced: Mutex<Option<Announced>>,
    events: Sender<Event>,
    clock: Clock,
    strangers: Connections<IpAddr>,
    clients: Connections<String>,
    is_over: AtomicBool,
}

impl Shared {
    /// Returns the addresses of this host, and has Multipath TCP announce those that are new: links may come
    /// up after the agent.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let addresses = if self.addresses.is_empty() { own_addresses() } else { self.addresses.clone() };
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(e)) = announced.as_mut().map(|announced| announced.add(&addresses)) {
            let text = format!("an address of this host is not announced: {e}");
            let _ = self.events.send(Event::Notice(text));
        }
        addresses
    }
}

/// An agent, which runs until this is dropped. Machines that run here go on.
pub struct Agent {
    shared: Arc<Shared>,
    local: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    _lock: Flock<fs::File>,
}

impl Agent {
    /// Starts an agent: what an earlier one left is settled first.
    ///
    /// # Errors
    /// `Failed` if another agent uses this directory, or it cannot listen; `NotFound` or `Refused` if there
    /// is no QEMU that is new enough.
    pub fn start(store: &Store, settings: Settings, events: Sender<Event>) -> Result<Self> {
        let clock = Clock::start();
        let lock = store.lock_agent()?;
        let lock =
            lock.ok_or_else(|| Error::Failed("another agent uses this directory for state".to_owned()))?;
        let (arrivals, done) = Arrivals::recover(store.clone(), settings.allowed, clock)?;
        done.into_iter().for_each(|text| drop(events.send(Event::Notice(text))));
        let announced = Announced::begin();
        if let Err(e) = &announced {
            let text = format!("machines come over one path only, for addresses cannot be announced: {e}");
            let _ = events.send(Event::Notice(text));
        }
        let listeners: Result<Vec<TcpListener>> = settings.listen.iter().map(|at| listen(*at)).collect();
        let listeners = listeners?;
        let local = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let shared = Shared {
            arrivals,
            addresses: settings.addresses,
            announced: Mutex::new(announced.ok()),
            events,
            clock,
            strangers: Connections::new(STRANGERS_MAX, clock),
            clients: Connections::new(CONNECTIONS_MAX, clock),
            is_over: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        shared.own_addresses();
        let accept = |listener| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("agent".to_owned()).spawn(move || accept(&shared, &listener))
        };
        let keep = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("keeper".to_owned()).spawn(move || keep(&shared))
        };
        let threads: io::Result<Vec<_>> = listeners.into_iter().map(accept).chain([keep]).collect();
        let threads = threads.map_err(|e| Error::Failed(e.to_string()))?;
        Ok(Self { shared, local, threads, _lock: lock })
    }

    /// Returns the addresses at which it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.local
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Listens for connections of Multipath TCP, or of TCP where the kernel has none. Accepting never waits.
///
/// # Errors
/// `Failed` if the address is taken or is none of this host.
pub fn listen(at: SocketAddr) -> Result<TcpListener> {
    let failed = |e: io::Error| Error::Failed(format!("cannot listen at {at}: {e}"));
    let domain = Domain::for_address(at);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP))
        .or_else(|_| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)))
        .map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.bind(&at.into()).and_then(|()| socket.listen(64)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket.into())
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    while !shared.is_over.load(Ordering::SeqCst) {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled, PollTimeout::from(100_u8));
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                // There are no descriptors left, for instance, and the connection is still there.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let until = shared.clock.now() + Span::from_millis(HANDSHAKE_TIMEOUT.as_millis() as u64);
        let Some(held) = shared.strangers.take(host_of(peer.ip()), &stream, Some(until)) else { continue };
        let theirs = Arc::clone(shared);
        let serve = move || {
            if let Err(e) = serve(&theirs, stream, held) {
                let _ =
                    theirs.events.send(Event::Refused { client: peer.ip().to_string(), text: e.to_string() });
            }
        };
        let _ = thread::Builder::new().name("client".to_owned()).spawn(serve);
    }
}

/// Ends connections that take too long to show whose they are, and keeps logs short.
fn keep(shared: &Shared) {
    let mut next_look = shared.clock.now();
    while !shared.is_over.load(Ordering::SeqCst) {
        shared.strangers.end_late();
        if shared.clock.now() >= next_look {
            shared.arrivals.shorten_logs(LOG_BYTES_MAX);
            next_look = shared.clock.now() + LOGS;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Serves a connection until it ends. A client that was removed from the list is not let in any more, as the
/// list is read for each connection.
fn serve(shared: &Arc<Shared>, stream: TcpStream, stranger: Held<IpAddr>) -> Result {
    let failed = |e: io::Error| Error::Failed(e.to_string());
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
    let store = &shared.arrivals.store;
    let tls = ServerTls::new(&store.key()?, store.clients()?, ALPN);
    let (stream, client) = tls.accept_blocking(stream)?;
    let full = || Error::Refused(format!("{client} has all connections that a client may have"));
    let held = shared.clients.take(client.clone(), &stream.sock, None).ok_or_else(full)?;
    drop(stranger);
    stream.sock.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    let mut connection = Connection { shared, client, prepared: BTreeSet::new(), lines: Lines::new(stream) };
    connection.serve(&held);
    drop(held);
    connection.leave();
    Ok(())
}

/// A connection of a client.
struct Connection<'a> {
    shared: &'a Shared,
    client: String,
    /// The moves that were prepared here.
    prepared: BTreeSet<MoveId>,
    lines: Lines<ServerStream>,
}

impl Connection<'_> {
    fn serve(&mut self, held: &Held<String>) {
        while let Ok(Some(ask)) = self.lines.receive::<Ask>() {
            held.heard(!self.prepared.is_empty());
            let at = self.shared.clock.now();
            let told = self.answer(ask, at).unwrap_or_else(|e| {
                self.report(Event::Refused { client: self.client.clone(), text: e.to_string() });
                Told::Refused { text: e.to_string() }
            });
            held.heard(!self.prepared.is_empty());
            if self.lines.send(&told).is_err() {
                return;
            }
        }
    }

    fn report(&self, event: Event) {
        let _ = self.shared.events.send(event);
    }

    fn answer(&mut self, ask: Ask, at: Time) -> Result<Told> {
        let arrivals = &self.shared.arrivals;
        match ask {
            Ask::Hello => Ok(arrivals.hello(self.shared.own_addresses())),
            Ask::Measure => self.measure(),
            Ask::Have { sha256 } => {
                let is_there = is_hash(&sha256) && arrivals.store.image(&sha256).is_file();
                Ok(Told::Have { is_there })
            }
            Ask::Put { sha256, bytes } => self.take_image(&sha256, bytes),
            Ask::Prepare(prepare) => {
                let ready = arrivals.prepare(&self.client, &prepare)?;
                let (name, client) = (prepare.config.name.clone(), self.client.clone());
                self.report(Event::Comes { name, client });
                self.prepared.insert(prepare.id);
                Ok(ready)
            }
            Ask::Shadow(prepare) => arrivals.shadow(&self.client, &prepare),
            Ask::Follow { id, is_whole, lag_ms } => arrivals.follow(&self.client, &id, is_whole, lag_ms),
            Ask::Decide { id, asked } => {
                let Decided { told, name, note } = arrivals.decide(&self.client, &id, asked, at)?;
                note.into_iter().for_each(|note| self.report(Event::Notice(note)));
                match (&told, name) {
                    (Told::Decided { runs_after_us: Some(_), .. }, Some(name)) => {
                        self.report(Event::Runs { name });
                    }
                    (Told::Decided { state: Arrival::Refused, .. }, Some(name)) => {
                        self.report(Event::GivenUp { name });
                    }
                    _ => {}
                }
                Ok(told)
            }
            Ask::Beat { id, wait_ms } => Ok(arrivals.beat(&id, Span::from_millis(wait_ms.min(30_000)))),
        }
    }

    /// Notes when bytes come, until the client has sent all.
    fn measure(&mut self) -> Result<Told> {
        let failed = |e: io::Error| Error::Failed(e.to_string());
        let (mut ticks, mut bytes, mut first) = (Vec::new(), 0, None);
        let mut block = vec![0; BLOCK];
        loop {
            let mut len = [0; 4];
            self.lines.receive_bytes(&mut len).map_err(failed)?;
            let len = u32::from_be_bytes(len) as usize;
            if len == 0 {
                return Ok(Told::Measured { ticks });
            }
            let place =
                block.get_mut(..len).ok_or_else(|| Error::Refused("a block is too long".to_owned()))?;
            self.lines.receive_bytes(place).map_err(failed)?;
            let now = self.shared.clock.now();
            bytes += len as u64;
            let at = now.since(*first.get_or_insert(now)).as_millis();
            let is_next = ticks.last().is_none_or(|(last, _)| at >= last + TICK.as_millis());
            if is_next && ticks.len() < 2_000 {
                ticks.push((at, bytes));
            }
        }
    }

    /// Stores an image under its hash, if it has it.
    fn take_image(&mut self, sha256: &str, bytes: u64) -> Result<Told> {
        if !is_hash(sha256) || bytes > IMAGE_BYTES_MAX {
            return Err(Error::Refused(format!("an image of {bytes} bytes is not taken: 2 GiB at most")));
        }
        let path = self.shared.arrivals.store.image(sha256);
        let draft = path.with_extension(format!("new-{}", self.shared.clock.now().as_nanos()));
        let stored = self
            .write_image(&draft, sha256, bytes)
            .and_then(|()| fs::rename(&draft, &path).map_err(|e| Error::of_path(&path, &e)));
        if stored.is_err() {
            let _ = fs::remove_file(&draft);
        }
        stored.map(|()| Told::Stored)
    }

    fn write_image(&mut self, draft: &std::path::Path, sha256: &str, bytes: u64) -> Result {
        let failed = |e: io::Error| Error::of_path(draft, &e);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft);
        let (mut written, mut left, mut context) = (file.map_err(failed), bytes, Context::new(&SHA256));
        let mut block = vec![0; BLOCK];
        while left > 0 {
            let len = left.min(BLOCK as u64) as usize;
            self.lines.receive_bytes(&mut block[..len]).map_err(|e| Error::Failed(e.to_string()))?;
            context.update(&block[..len]);
            // The rest is read in any case, because the next request comes after it.
            written =
                written.and_then(|mut file| file.write_all(&block[..len]).map(|()| file).map_err(failed));
            left -= len as u64;
        }
        written?.sync_all().map_err(failed)?;
        match data_encoding::HEXLOWER.encode(context.finish().as_ref()) == sha256 {
            true => Ok(()),
            false => Err(Error::Refused("the image has another hash".to_owned())),
        }
    }

    /// Gives machines up whose source does not come back.
    fn leave(&self) {
        let Shared { arrivals, clock, is_over, .. } = self.shared;
        let deadline = clock.now() + GRACE;
        let is_waiting = |id: &MoveId| {
            let known = arrivals.store.arrival(id).ok().flatten();
            known.is_some_and(|known| known.state == Arrival::Waiting)
        };
        while self.prepared.iter().any(is_waiting)
            && clock.now() < deadline
            && !is_over.load(Ordering::SeqCst)
        {
            thread::sleep(Duration::from_millis(200));
        }
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        // The source may have come back by another connection, and ask when the guest is heard.
        let deadline = clock.now() + BEAT;
        while self.prepared.iter().any(|id| arrivals.holds(id)) && clock.now() < deadline {
            thread::sleep(Duration::from_millis(200));
        }
        for id in &self.prepared {
            drop(arrivals.release(id));
            match arrivals.abandon(id) {
                Ok(Some(name)) => self.report(Event::GivenUp { name }),
                Ok(None) => {}
                Err(e) => self.report(Event::Notice(e.to_string())),
            }
        }
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}
