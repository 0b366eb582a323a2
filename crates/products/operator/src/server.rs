//! The agent towards the agents of other hosts: who may come in, and what they ask.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_function::abi::Side;
use anabranch_house::tls::ServerStream;
use anabranch_machines::connections::Held;
use anabranch_machines::door::{Door, Guest, Rules, listen};
use anabranch_machines::journal::Arrival;
use anabranch_machines::paths::Announced;
use anabranch_machines::store::Store;
use anabranch_machines::wire::{Lines, MoveId};

use crate::arrivals::Arrivals;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::manager::Manager;
use crate::wasm::MODULE_BYTES_MAX;
use crate::wire::{ALPN, Ask, FRAMES_MAX, STATE_BYTES_MAX, Told};

/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 2_048;

/// What the threads of a server share.
pub(crate) struct Shared {
    arrivals: Arrivals,
    door: Door,
    events: Sender<Event>,
}

impl Shared {
    pub(crate) fn new(
        store: Store,
        manager: Arc<Manager>,
        addresses: Vec<IpAddr>,
        (events, is_over): (Sender<Event>, Arc<AtomicBool>),
    ) -> Self {
        let clock = manager.host().clock();
        let rules = Rules { alpn: ALPN, silence: SILENCE, addresses, announced: Announced::begin().ok() };
        Self { arrivals: Arrivals::new(manager), door: Door::new(store, rules, is_over, clock), events }
    }

    /// Returns the addresses of this host. Without announcements, moves come over one path.
    fn own_addresses(&self) -> Vec<IpAddr> {
        self.door.own_addresses().0
    }

    fn report(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Ends connections that take too long, and gives up instances whose source does not come back.
    fn keep(&self) {
        while !self.door.is_over() {
            self.door.end_late();
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
        let listener = listen(*at)?;
        local.push(listener.local_addr().map_err(failed)?);
        let theirs = Arc::clone(shared);
        let work = move || {
            let of_each = Arc::clone(&theirs);
            theirs.door.accept(&listener, move |stream, peer, held| serve(&of_each, stream, peer, held));
        };
        threads.push(thread::Builder::new().name("moves".to_owned()).spawn(work).map_err(failed)?);
    }
    shared.own_addresses();
    let theirs = Arc::clone(shared);
    let keep = thread::Builder::new().name("keeper".to_owned()).spawn(move || theirs.keep());
    threads.push(keep.map_err(failed)?);
    Ok((threads, local))
}

/// Serves a connection until it ends.
fn serve(shared: &Shared, stream: TcpStream, peer: SocketAddr, stranger: Held<IpAddr>) {
    match shared.door.let_in(stream, stranger) {
        Ok(Guest { client, lines, held }) => {
            Client { shared, client, moves: BTreeSet::new(), lines }.serve(&held);
        }
        Err(e) => shared.report(Event::Refused { client: peer.ip().to_string(), text: e.to_string() }),
    }
}

/// Returns the error for a request after which more follows than may: it ends the connection.
fn too_much() -> Error {
    Error::Unreachable("too much follows".to_owned())
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
        if len > most {
            return Err(too_much());
        }
        let mut bytes = vec![0; len];
        self.lines.receive_bytes(&mut bytes).map_err(|e| Error::Unreachable(e.to_string()))?;
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
                if !is_right {
                    return Err(too_much());
                }
                let total = frames.iter().map(|(_, len)| *len).sum();
                let bytes = self.bytes(total, FRAMES_MAX * FRAME_BYTES_MAX)?;
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
