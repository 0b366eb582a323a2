//! One end of a leg, which carries programs' datagrams between client and server over several paths, beside
//! the trunks. It is a machine without a clock or a socket. `docs/wire-proxy.md` has the format.
//!
//! A *path* is one UDP socket of the client, as both ends see it. Each path has its own window, round-trip
//! estimator and loss detection ([`anabranch_algo::subflow::Subflow`]). All paths of a leg are one group
//! whose windows are coupled. Lost datagrams are not sent again: programs that want that do it themselves.
//! Each side probes its paths and [reports](Leg::health) which answer.
//!
//! A *flow* holds the datagrams of one program, which have numbers. The path of a datagram is [chosen](Mode)
//! when it leaves, as late as possible. Datagrams that wait to be sent ([`queue`]) or wait for earlier ones
//! ([`reorder`]) are limited in bytes and in time.
//!
//! The world passes in the packets that arrive ([`receive`](Leg::receive)) and the programs' datagrams
//! ([`send`](Leg::send)). It then takes packets ([`poll_transmit`](Leg::poll_transmit)) until there is none,
//! and comes back at the [`deadline`](Leg::deadline).

mod health;
mod incoming;
mod liveness;
mod mode;
mod numbered;
mod outgoing;
pub mod packet;
mod path;
pub mod queue;
mod received;
pub mod reorder;
mod schedule;
mod seal;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use anabranch_algo::control::{Algorithm, SubflowStats};
use anabranch_algo::{Span, Time};
use bytes::Bytes;

pub use health::PathHealth;
pub use mode::Mode;
use numbered::Numbered;
use path::Path;
use queue::Queue;
use received::Received;
use reorder::Reorder;
pub use seal::{Protection, SECRET_BYTES};

use crate::trunk::{Destination, Side};

/// The most flows of a leg. A client opens no more, and a server has a socket for each.
pub const FLOWS_MAX: usize = 1_024;
/// The most flows that a server's end knows, including those that are about to end.
const KNOWN_FLOWS_MAX: usize = 4 * FLOWS_MAX;
/// The highest number of a flow, which has 24 bits.
pub const FLOW_MAX: u32 = 0xff_ffff;

/// The settings of a leg.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The congestion controller of each path.
    pub control: Algorithm,
    /// The time between two probes of a path while nothing moves.
    pub idle_probe: Span,
}

impl Default for Settings {
    /// Returns the default controller, and a probe every 25 s, so that address translators do not forget the
    /// path.
    ///
    /// # Panics
    /// Never: the name is in the table.
    fn default() -> Self {
        let name = anabranch_algo::control::ALGORITHMS[0].name;
        let control = Algorithm::by_name(name).expect("a name of the table");
        Self { control, idle_probe: Span::from_secs(25) }
    }
}

/// An event of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A datagram has arrived: at the client from `peer`, at the server for `peer`.
    Datagram {
        /// The flow.
        flow: u32,
        /// The host with which the program exchanges datagrams.
        peer: Destination,
        /// The payload.
        bytes: Bytes,
    },
    /// A path begins to answer, or stops.
    Path {
        /// The number of the path.
        path: u8,
        /// Whether the path answers.
        is_alive: bool,
    },
}

/// The numbers of dropped packets and datagrams, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that did not come from this leg's other end: forged, damaged, or of another leg.
    pub forged: u64,
    /// Packets that came twice or much too late.
    pub replayed: u64,
    /// Packets that violate the format.
    pub malformed: u64,
    /// Second copies of datagrams.
    pub copies: u64,
    /// Datagrams that waited too long to be sent, or for which the queue had no room.
    pub queue_drops: u64,
    /// Datagrams that do not fit into a packet.
    pub too_long: u64,
    /// Datagrams of unknown flows.
    pub strays: u64,
    /// Datagrams that arrived after later ones had been passed on.
    pub late: u64,
}

/// The reason why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The packet is not from this leg's other end.
    Forged,
    /// The packet came before, or much too late.
    Replayed,
    /// The packet violates the format.
    Malformed,
}

/// A packet that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The number of the path.
    pub path: u8,
    /// The destination address.
    pub to: SocketAddr,
    /// The number of bytes that were appended.
    pub bytes: usize,
}

/// The state of one flow.
#[derive(Debug)]
struct Flow {
    mode: Mode,
    /// The number of the next datagram to be sent.
    next: u64,
    received: Received,
    has_received: bool,
    reorder: Reorder,
}

/// One end of a leg; see the [module](self).
#[derive(Debug)]
pub struct Leg {
    side: Side,
    association: u32,
    protection: Protection,
    settings: Settings,
    /// The paths, ordered by number.
    paths: Vec<Path>,
    /// The numbers that each path publishes for the others, in the same order.
    members: Vec<SubflowStats>,
    queue: Queue,
    /// Second copies that are to be sent, each with its path.
    copies: VecDeque<(u8, Numbered)>,
    flows: BTreeMap<u32, Flow>,
    /// The flows with datagrams that wait for earlier ones.
    holding: BTreeSet<u32>,
    events: VecDeque<Event>,
    /// The path of the last datagram.
    last_path: Option<u8>,
    /// The number of datagrams that were sent in all, which is also the first number of a new flow.
    sent_datagrams: u64,
    /// The key from which challenges are made, so that they cannot be guessed.
    secret: [u8; SECRET_BYTES],
    challenges: u64,
    /// When a datagram was last sent or received, or a trunk last moved bytes.
    traffic_at: Option<Time>,
    counters: Counters,
}

impl Leg {
    fn new(side: Side, association: u32, protection: Protection, settings: Settings) -> Self {
        Self {
            side,
            association,
            protection,
            settings,
            paths: Vec::new(),
            members: Vec::new(),
            queue: Queue::default(),
            copies: VecDeque::new(),
            flows: BTreeMap::new(),
            holding: BTreeSet::new(),
            events: VecDeque::new(),
            last_path: None,
            sent_datagrams: 0,
            secret: [0; SECRET_BYTES],
            challenges: 0,
            traffic_at: None,
            counters: Counters::default(),
        }
    }

    /// Creates the client's end, without paths yet.
    #[must_use]
    pub fn client(association: u32, protection: Protection, settings: Settings) -> Self {
        Self::new(Side::Client, association, protection, settings)
    }

    /// Creates the server's end. Challenges are made from `secret`, so no other host may know it.
    #[must_use]
    pub fn server(
        association: u32,
        protection: Protection,
        settings: Settings,
        secret: [u8; SECRET_BYTES],
    ) -> Self {
        Self { secret, ..Self::new(Side::Server, association, protection, settings) }
    }

    /// Returns the number by which both ends know the leg.
    #[must_use]
    pub const fn association(&self) -> u32 {
        self.association
    }

    /// Adds a path of the client to the server at this address. Returns its number, or `None` if there are
    /// [`packet::PATHS_MAX`] paths already.
    pub fn add_path(&mut self, now: Time, server: SocketAddr) -> Option<u8> {
        let number = u8::try_from(self.paths.len()).ok().filter(|n| usize::from(*n) < packet::PATHS_MAX)?;
        self.insert_path(Path::new(number, server, self.settings.control, now));
        Some(number)
    }

    fn insert_path(&mut self, path: Path) {
        let place = self.paths.partition_point(|other| other.number < path.number);
        self.members.insert(place, path.subflow.stats());
        self.paths.insert(place, path);
    }

    /// Opens a flow of the client in this mode. Returns whether there is room for it.
    pub fn open(&mut self, flow: u32, mode: Mode) -> bool {
        self.flow(flow, mode).is_some()
    }

    /// Returns the flow, or makes a new one if there is room.
    fn flow(&mut self, flow: u32, mode: Mode) -> Option<&mut Flow> {
        let most = if self.side == Side::Client { FLOWS_MAX } else { KNOWN_FLOWS_MAX };
        if self.flows.len() >= most && !self.flows.contains_key(&flow) {
            return None;
        }
        let next = self.sent_datagrams;
        Some(self.flows.entry(flow).or_insert_with(|| Flow {
            mode,
            next,
            received: Received::default(),
            has_received: false,
            reorder: Reorder::default(),
        }))
    }

    /// Forgets a flow that is no longer used.
    pub fn forget(&mut self, flow: u32) {
        self.flows.remove(&flow);
        self.holding.remove(&flow);
        self.queue.forget(flow);
        self.copies.retain(|(_, copy)| copy.flow != flow);
    }

    /// Queues a datagram of a flow: at the client to `peer`, at the server from `peer`. The flow's mode is
    /// that given to [`open`](Self::open), at the server that of the last datagram that arrived.
    pub fn send(&mut self, now: Time, flow: u32, peer: &Destination, bytes: Bytes) {
        if !self.flows.contains_key(&flow) {
            self.counters.strays += 1;
        } else if packet::datagram_bytes(peer, bytes.len()) > packet::FRAMES_BYTES_MAX {
            self.counters.too_long += 1;
        } else {
            self.traffic_at = Some(now);
            self.counters.queue_drops += self.queue.push(now, flow, peer.clone(), bytes);
        }
    }

    /// Sets the rank of a client's path. The path with the lowest rank that has room is used, and a path of
    /// rank [`u8::MAX`] only if no other answers. The server learns the rank with the next probe.
    pub fn set_rank(&mut self, path: u8, rank: u8) {
        if let Some(path) = self.paths.iter_mut().find(|other| other.number == path) {
            path.is_probe_due |= std::mem::replace(&mut path.rank, rank) != rank;
        }
    }

    /// Notes that bytes move on the trunks beside this leg, so that its paths are probed often.
    pub const fn note_traffic(&mut self, now: Time) {
        self.traffic_at = Some(now);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the numbers of dropped packets and datagrams.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the health of each path.
    #[must_use]
    pub fn health(&self) -> Vec<PathHealth> {
        self.paths.iter().map(Path::health).collect()
    }

    /// Whether any path answers.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.paths.iter().any(|path| path.is_alive)
    }

    /// Returns when the last packet came from the other end.
    #[must_use]
    pub fn heard_at(&self) -> Option<Time> {
        self.paths.iter().filter_map(|path| path.heard_at).max()
    }
}

#[cfg(test)]
mod tests;
