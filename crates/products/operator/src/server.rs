//! The agent towards the agents of other hosts: who may come in, and what they ask.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_algo::fair_share::host_of;
use anabranch_function::abi::Side;
use anabranch_house::tls::{HANDSHAKE_TIMEOUT, ServerStream, ServerTls};
use anabranch_machines::connections::{Connections, Held};
use anabranch_machines::journal::Arrival;
use anabranch_machines::paths::{Announced, own_addresses};
use anabranch_machines::store::Store;
use anabranch_machines::wire::{Lines, MoveId};
use anabranch_net::Clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::arrivals::Arrivals;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::manager::Manager;
use crate::wasm::MODULE_BYTES_MAX;
use crate::wire::{ALPN, Ask, FRAMES_MAX, STATE_BYTES_MAX, Told};

/// The most connections at once that have not shown whose they are, and of clients.
const CONNECTIONS_MAX: u64 = 64;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 2_048;

/// What the threads of a server share.
pub(crate) struct Shared {
    store: Store,
    arrivals: Arrivals,
    /// The addresses that the user gave.
    addresses: Vec<IpAddr>,
    announced: Mutex<Option<Announced>>,
    events: Sender<Event>,
    clock: Clock,
    strangers: Connections<IpAddr>,
    clients: Connections<String>,
    is_over: Arc<AtomicBool>,
}

impl Shared {
    pub(crate) fn new(
        store: Store,
        manager: Arc<Manager>,
        addresses: Vec<IpAddr>,
        (events, is_over): (Sender<Event>, Arc<AtomicBool>),
    ) -> Self {
        let clock = manager.host().clock();
        Self {
            store,
            arrivals: Arrivals::new(manager),
            addresses,
            announced: Mutex::new(Announced::begin().ok()),
            events,
            clock,
            strangers: Connections::new(CONNECTIONS_MAX, clock),
            clients: Connections::new(CONNECTIONS_MAX, clock),
            is_over,
        }
    }

    /// Returns the addresses of this host, and has Multipath TCP announce those that are new.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let addresses = if self.addresses.is_empty() { own_addresses() } else { self.addresses.clone() };
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(announced) = announced.as_mut() {
            // Without it, moves come over one path.
            let _ = announced.add(&addresses);
        }
        addresses
    }

    fn report(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Ends connections that take too long, and gives up instances whose source does not come back.
    fn keep(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            self.strangers.end_late();
            self.arrivals.give_up_late();
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Starts to serve agents at these addresses. Returns the threads, and the addresses.
///
/// # Errors
/// `Failed` if an address is taken or is none of this host.
pub(crate) fn start(
    shared: &Arc<Shared>,
    at: &[SocketAddr],
) -> Result<(Vec<JoinHandle<()>>, Vec<SocketAddr>)> {
    let failed = |e: io::Error| Error::Failed(e.to_string());
    let (mut threads, mut local) = (Vec::new(), Vec::new());
    for at in at {
        let listener = anabranch_machines::agent::listen(*at)?;
        local.push(listener.local_addr().map_err(failed)?);
        let theirs = Arc::clone(shared);
        let work = move || accept(&theirs, &listener);
        threads.push(thread::Builder::new().name("moves".to_owned()).spawn(work).map_err(failed)?);
    }
    shared.own_addresses();
    let theirs = Arc::clone(shared);
    let keep = thread::Builder::new().name("keeper".to_owned()).spawn(move || theirs.keep());
    threads.push(keep.map_err(failed)?);
    Ok((threads, local))
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
                theirs.report(Event::Refused { client: peer.ip().to_string(), text: e.to_string() });
            }
        };
        let _ = thread::Builder::new().name("client".to_owned()).spawn(serve);
    }
}

fn serve(shared: &Arc<Shared>, stream: TcpStream, stranger: Held<IpAddr>) -> Result {
    let failed = |e: io::Error| Error::Failed(e.to_string());
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
    // The list is read for each connection, so a client that was removed is not let in any more.
    let tls = ServerTls::new(&shared.store.key()?, shared.store.clients()?, ALPN);
    let accepted = tls.accept_blocking(stream).map_err(anabranch_machines::Error::from);
    let (stream, client) = accepted?;
    let full = || Error::Refused(format!("{client} has all connections that a client may have"));
    let held = shared.clients.take(client.clone(), &stream.sock, None).ok_or_else(full)?;
    drop(stranger);
    stream.sock.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    Client { shared, client, moves: BTreeSet::new(), lines: Lines::new(stream) }.serve(&held);
    Ok(())
}

/// The connection of a client.
struct Client<'a> {
    shared: &'a Shared,
    client: String,
    /// The moves that were prepared by it.
    moves: BTreeSet<MoveId>,
    lines: Lines<ServerStream>,
}

impl Client<'_> {
    fn serve(&mut self, held: &Held<String>) {
        while let Ok(Some(ask)) = self.lines.receive::<Ask>() {
            held.heard(!self.moves.is_empty());
            let told = match self.answer(ask) {
                Ok(told) => told,
                Err(Error::Unreachable(_)) => return,
                Err(e) => {
                    let text = e.to_string();
                    self.shared.report(Event::Refused { client: self.client.clone(), text: text.clone() });
                    Told::Refused { text }
                }
            };
            if self.lines.send(&told).is_err() {
                return;
            }
        }
    }

    /// Reads so many bytes that follow a request; more than `most` end the connection.
    fn bytes(&mut self, len: usize, most: usize) -> Result<Vec<u8>> {
        let ended = |e: io::Error| Error::Unreachable(e.to_string());
        if len > most {
            return Err(ended(io::Error::other("too much follows")));
        }
        let mut bytes = vec![0; len];
        self.lines.receive_bytes(&mut bytes).map_err(ended)?;
        Ok(bytes)
    }

    fn answer(&mut self, ask: Ask) -> Result<Told> {
        let (shared, client) = (self.shared, self.client.clone());
        match ask {
            Ask::Hello => Ok(Told::Hello { addresses: shared.own_addresses() }),
            Ask::Have { module } => Ok(Told::Have { is_there: shared.arrivals.has(&module) }),
            Ask::Module { bytes } => {
                let module = self.bytes(bytes, MODULE_BYTES_MAX)?;
                shared.arrivals.module(&module).map(|()| Told::Done)
            }
            Ask::Prepare { id, spec } => {
                let name = spec.name.clone();
                shared.arrivals.prepare(&client, &id, *spec)?;
                self.moves.insert(id);
                shared.report(Event::Comes { name, client });
                Ok(Told::Done)
            }
            Ask::State { id, age_ms, bytes } => {
                let delta = self.bytes(bytes, STATE_BYTES_MAX)?;
                shared.arrivals.state(&client, &id, age_ms, &delta).map(|()| Told::Done)
            }
            Ask::Decide { id, asked } => {
                let state = shared.arrivals.decide(&client, &id, asked)?;
                match state {
                    Arrival::Running => shared.report(Event::Runs { client, id: id.to_string() }),
                    Arrival::Refused => shared.report(Event::GivenUp { client, id: id.to_string() }),
                    Arrival::Waiting | Arrival::Starting => {}
                }
                Ok(Told::Decided { state })
            }
            Ask::Frames { id, frames } => {
                let is_right =
                    frames.len() <= FRAMES_MAX && frames.iter().all(|(_, len)| *len <= FRAME_BYTES_MAX);
                let most = if is_right { FRAMES_MAX * FRAME_BYTES_MAX } else { 0 };
                let total = frames.iter().fold(0_usize, |sum, (_, len)| sum.saturating_add(*len));
                let bytes = self.bytes(total.max(usize::from(!is_right)), most)?;
                let mut rest = bytes.as_slice();
                let take = |(side, len): (u32, usize)| {
                    let (frame, after) = rest.split_at(len);
                    rest = after;
                    (Side::of(side), frame.to_vec())
                };
                let frames = frames.into_iter().map(take).collect();
                shared.arrivals.frames(&client, &id, frames).map(|()| Told::Done)
            }
            Ask::Done { id } => {
                self.moves.remove(&id);
                shared.arrivals.done(&client, &id).map(|()| Told::Done)
            }
        }
    }
}
