//! The caches of this LAN, if the settings want any: their sockets, what they are asked for, and what is
//! served to them. `crate::neighbours` decides.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch::serve::{ObjectServer, Objects};
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::tree::ChainingValue;
use anabranch_mmtp::uri::Uri;
use anabranch_net::lan::is_local;
use anabranch_net::{Clock, Interest, LanSocket, Poller, WakeReceiver, Waker};

use super::status::{Count, Counters};
use crate::config::NeighbourConfig;
use crate::digest::Digest;
use crate::neighbours::{
    Asked, Event, Holder, Input, Neighbours, PACKET_BYTES_MAX, PacketKey, Ticket, Transmit,
};
use crate::store::{Key, Object, Store};

/// The group of all caches, of the block for sites (RFC 2365), and its port.
const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 84, 70), 8_471);
/// How often interfaces that came or went are looked for.
const INTERFACES_EVERY: Span = Span::from_secs(20);
/// The most packets that are taken at once.
const PACKETS_MAX: usize = 256;
/// How long a question is waited for beyond what the machine promises.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most objects of which is known by which name neighbours may fetch them, and the most that are open.
const OFFERED_MAX: usize = 4_096;
const OPEN_MAX: usize = 16;

/// An object that neighbours have, as they say.
#[derive(Debug)]
pub(super) struct Offer {
    /// The URI by which it is fetched from all of them.
    pub(super) uri: String,
    /// The length in bytes.
    pub(super) length: u64,
    /// The neighbours.
    pub(super) holders: Vec<IpAddr>,
}

/// The neighbours of a cache. It leaves them when it is dropped.
pub(super) struct Lan {
    shared: Arc<Shared>,
    wake: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Whether only neighbours that know a secret are asked.
    is_keyed: bool,
    _server: ObjectServer,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    socket: LanSocket,
    clock: Clock,
    stop: AtomicBool,
    shelf: Arc<Shelf>,
    /// The port at which mmTP serves the shelf.
    port: u16,
}

struct State {
    machine: Neighbours,
    next: Ticket,
    ended: BTreeMap<Ticket, Vec<Holder>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lan {
    pub(super) fn start(
        config: &NeighbourConfig,
        store: Store,
        counters: Arc<Counters>,
    ) -> Result<Self, String> {
        let failed = |e: io::Error| format!("neighbours: {e}");
        let secret = match &config.key_file {
            Some(path) => anabranch_net::private_file::read_secret(path, SECRET_BYTES_MAX)
                .map_err(|e| format!("neighbours: key_file: {}: {e}", path.display()))?,
            None => Vec::new(),
        };
        let is_keyed = config.key_file.is_some();
        if is_keyed && secret.len() < SECRET_BYTES_MIN {
            return Err(format!("neighbours: key_file: it has less than {SECRET_BYTES_MIN} bytes"));
        }
        let seed = anabranch::secret().map_err(|e| e.to_string())?;
        let shelf = Arc::new(Shelf { store, counters, known: Mutex::default() });
        // Two ports, one after the other, so that a firewall can let both in.
        let mmtp = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.port.map_or(0, |port| port + 1)));
        let server = ObjectServer::start(Arc::clone(&shelf), mmtp).map_err(failed)?;
        let socket = LanSocket::open(GROUP, config.port.unwrap_or(0)).map_err(failed)?;
        let interfaces = config.interfaces.clone();
        socket.join(&interfaces).map_err(failed)?;
        let clock = Clock::start();
        let machine = Neighbours::new(clock.now(), PacketKey::of(&secret), seed);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { machine, next: 0, ended: BTreeMap::new() }),
            changed: Condvar::new(),
            socket,
            clock,
            stop: AtomicBool::new(false),
            shelf,
            port: server.address().port(),
        });
        let (wake, runs) = (WakeReceiver::new().map_err(failed)?, Arc::clone(&shared));
        let waker = wake.waker();
        let run = move || runs.run(&wake, &interfaces);
        let thread = thread::Builder::new().name("neighbours".into()).spawn(run).map_err(failed)?;
        Ok(Self { shared, wake: waker, thread: Some(thread), is_keyed, _server: server })
    }

    /// Returns whether neighbours know the secret of the settings.
    pub(super) const fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// Returns the number of neighbours that are known.
    pub(super) fn count(&self) -> u64 {
        lock(&self.shared.state).machine.count() as u64
    }

    /// Asks the neighbours for the object with this hash. Returns at once if there are none, else when they
    /// have answered, at the latest after a tenth of a second.
    pub(super) fn find(&self, digest: &Digest) -> Option<Offer> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        state.next += 1;
        let ticket = state.next;
        state.machine.handle(shared.clock.now(), Input::Ask(ticket, *digest));
        // What others ask is never found here: the thread drains after each packet.
        shared.drain(&mut state);
        if !state.ended.contains_key(&ticket) {
            self.wake.wake();
            let waited = shared.changed.wait_timeout_while(state, PATIENCE, |state| {
                !state.ended.contains_key(&ticket) && !shared.stop.load(Ordering::SeqCst)
            });
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let holders = state.ended.remove(&ticket)?;
        drop(state);
        offer(&holders)
    }

    /// Stops asking caches at these addresses for a while.
    pub(super) fn leave_alone(&self, holders: &[IpAddr]) {
        let mut state = lock(&self.shared.state);
        for address in holders {
            state.machine.handle(self.shared.clock.now(), Input::LeaveAlone(*address));
        }
    }
}

/// The fewest and the most bytes of a secret.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: u64 = 4_096;

/// Returns the object that most of the neighbours say they have: all names of one hash but one are wrong.
fn offer(holders: &[Holder]) -> Option<Offer> {
    let votes = |content: &ContentId| holders.iter().filter(|holder| holder.content == *content).count();
    let content = holders.iter().map(|holder| holder.content).max_by_key(votes)?;
    let its: Vec<&Holder> = holders.iter().filter(|holder| holder.content == content).collect();
    let from = its.iter().map(|holder| holder.address.to_string()).collect();
    let uri = Uri { from, ..Uri::new(content) }.to_string();
    let length = content.length;
    Some(Offer { uri, length, holders: its.iter().map(|holder| holder.address.ip()).collect() })
}

impl Drop for Lan {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, wake: &WakeReceiver, interfaces: &[String]) -> io::Result<()> {
        let (mut poller, mut buffer) = (Poller::new(self.clock), [0; PACKET_BYTES_MAX + 1]);
        let mut look_at = self.clock.now() + INTERFACES_EVERY;
        let mut until = self.drain(&mut lock(&self.state)).1;
        while !self.stop.load(Ordering::SeqCst) {
            let [heard, own] = self.socket.fds();
            let set = [heard, own, wake.as_fd()].map(|fd| (fd, Interest::Read));
            poller.wait(set, until.min(look_at))?;
            wake.drain();
            let now = self.clock.now();
            if now >= look_at {
                look_at = now + INTERFACES_EVERY;
                let _ = self.socket.join(interfaces);
            }
            until = self.receive(&mut buffer);
        }
        let mut state = lock(&self.state);
        state.machine.handle(self.clock.now(), Input::Leave);
        self.drain(&mut state);
        Ok(())
    }

    /// Takes the packets that wait, and answers. Returns when the machine wants to be woken.
    fn receive(&self, buffer: &mut [u8]) -> Time {
        let mut state = lock(&self.state);
        for _ in 0..PACKETS_MAX {
            let Some((length, from)) = self.socket.receive(buffer) else { break };
            state.machine.handle(self.clock.now(), Input::Packet(from, &buffer[..length]));
            let (asked, _) = self.drain(&mut state);
            if !asked.is_empty() {
                // Opening an object may take a while, and others ask meanwhile.
                drop(state);
                let has: Vec<_> = asked
                    .iter()
                    .map(|asked| self.shelf.offer(&asked.digest).map(|id| (id, self.port)))
                    .collect();
                state = lock(&self.state);
                for (asked, has) in asked.into_iter().zip(has) {
                    state.machine.handle(self.clock.now(), Input::Have(asked, has));
                }
                self.drain(&mut state);
            }
        }
        self.drain(&mut state).1
    }

    /// Does what the machine wants. Returns what it is asked for, and when it wants to be woken.
    fn drain(&self, state: &mut State) -> (Vec<Asked>, Time) {
        let mut asked = Vec::new();
        loop {
            match state.machine.poll(self.clock.now()) {
                Output::Wait(until) => return (asked, until),
                Output::Send(Transmit { to: Some(to), bytes }) => self.socket.send(to, &bytes),
                Output::Send(Transmit { to: None, bytes }) => self.socket.send_to_all(&bytes),
                Output::Event(Event::Asked(one)) => asked.push(one),
                Output::Event(Event::Holders(ticket, holders)) => {
                    state.ended.insert(ticket, holders);
                    self.changed.notify_all();
                }
            }
        }
    }
}

/// The objects of the store that neighbours may have.
struct Shelf {
    store: Store,
    counters: Arc<Counters>,
    known: Mutex<Known>,
}

/// The objects that have been offered, the oldest first, and those that are open.
#[derive(Default)]
struct Known {
    keys: BTreeMap<[u8; 32], Key>,
    offered: VecDeque<[u8; 32]>,
    open: VecDeque<([u8; 32], Arc<Object>)>,
}

impl Shelf {
    /// Returns the name that the object with this hash has in mmTP, if it is here and was verified.
    fn offer(&self, digest: &Digest) -> Option<ContentId> {
        let key = Key::of_digest(digest);
        let object = self.store.peek(&key).filter(|object| object.meta().is_for_all())?;
        let id = object.tree().id();
        let mut known = lock(&self.known);
        if known.keys.insert(id.root, key).is_none() {
            known.offered.push_back(id.root);
        }
        while known.offered.len() > OFFERED_MAX {
            if let Some(oldest) = known.offered.pop_front() {
                known.keys.remove(&oldest);
            }
        }
        Some(id)
    }

    /// Returns an object that was offered. A transfer of one is a request for it.
    fn open(&self, root: &[u8; 32]) -> Option<Arc<Object>> {
        let mut known = lock(&self.known);
        if let Some((_, object)) = known.open.iter().find(|(open, _)| open == root) {
            return Some(Arc::clone(object));
        }
        let key = known.keys.get(root)?.clone();
        let object = self.store.get(&key).filter(|object| object.tree().id().root == *root)?;
        self.counters.count(Count::Shared);
        known.open.push_back((*root, Arc::clone(&object)));
        if known.open.len() > OPEN_MAX {
            known.open.pop_front();
        }
        Some(object)
    }
}

impl Objects for Shelf {
    fn find(&self, root: &[u8; 32]) -> Option<ContentId> {
        self.open(root).map(|object| object.tree().id())
    }

    fn hashes(&self, content: &ContentId, level: u8, first: u64, count: usize) -> Option<Vec<ChainingValue>> {
        self.open(&content.root)?.tree().cvs(level, first, count).map(<[_]>::to_vec)
    }

    fn read(&self, content: &ContentId, range: Range<u64>, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        out.resize((range.end - range.start) as usize, 0);
        self.open(&content.root)?.read_at(range.start, out).ok()
    }

    /// The socket is open to all that can reach this host.
    fn answers(&self, host: IpAddr) -> bool {
        matches!(host.to_canonical(), IpAddr::V4(host) if is_local(host))
    }

    fn sent(&self, _: u64, bytes: u64) {
        self.counters.add(Count::SharedBytes, bytes);
    }
}
