//! The agent: waits at the destination for machines of clients that are paired with it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_house::tls::ServerStream;
use anabranch_net::Clock;
use nix::fcntl::Flock;
use ring::digest::{Context, SHA256};

use crate::arrivals::{Arrivals, Decided};
use crate::connections::Held;
use crate::door::{Door, Guest, Rules, listen};
use crate::error::{Error, Result};
use crate::journal::Arrival;
use crate::limits::Allowed;
use crate::paths::Announced;
use crate::store::Store;
use crate::wire::{ALPN, Ask, BLOCK, Lines, MoveId, Told};

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
    door: Door,
    events: Sender<Event>,
    clock: Clock,
}

impl Shared {
    /// Returns the addresses of this host, which are announced.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let (addresses, announced) = self.door.own_addresses();
        if let Err(e) = announced {
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
        let rules =
            Rules { alpn: ALPN, silence: SILENCE, addresses: settings.addresses, announced: announced.ok() };
        let door = Door::new(store.clone(), rules, Arc::default(), clock);
        let shared = Shared { arrivals, door, events, clock };
        let shared = Arc::new(shared);
        shared.own_addresses();
        let accept = |listener| {
            let shared = Arc::clone(&shared);
            let work = move || {
                let theirs = Arc::clone(&shared);
                shared.door.accept(&listener, move |stream, peer, held| serve(&theirs, stream, peer, held));
            };
            thread::Builder::new().name("agent".to_owned()).spawn(work)
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
        self.shared.door.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Ends connections that take too long to show whose they are, and keeps logs short.
fn keep(shared: &Shared) {
    let mut next_look = shared.clock.now();
    while !shared.door.is_over() {
        shared.door.end_late();
        if shared.clock.now() >= next_look {
            shared.arrivals.shorten_logs(LOG_BYTES_MAX);
            next_look = shared.clock.now() + LOGS;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Serves a connection until it ends.
fn serve(shared: &Shared, stream: TcpStream, peer: SocketAddr, stranger: Held<IpAddr>) {
    match shared.door.let_in(stream, stranger) {
        Ok(Guest { client, lines, held }) => {
            let mut connection = Connection { shared, client, prepared: BTreeSet::new(), lines };
            connection.serve(&held);
            drop(held);
            connection.leave();
        }
        Err(e) => {
            let _ = shared.events.send(Event::Refused { client: peer.ip().to_string(), text: e.to_string() });
        }
    }
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
        let Shared { arrivals, clock, door, .. } = self.shared;
        let deadline = clock.now() + GRACE;
        let is_waiting = |id: &MoveId| {
            let known = arrivals.store.arrival(id).ok().flatten();
            known.is_some_and(|known| known.state == Arrival::Waiting)
        };
        while self.prepared.iter().any(is_waiting) && clock.now() < deadline && !door.is_over() {
            thread::sleep(Duration::from_millis(200));
        }
        if door.is_over() {
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
