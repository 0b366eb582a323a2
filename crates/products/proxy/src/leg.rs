//! One end of a leg: datagrams of programs between client and server, beside the trunks, over several paths.
//! A machine: no clock, no socket. `docs/wire-proxy.md` has the format.
//!
//! A *path* is one UDP socket of the client and what the server sees of it. Each has a window, an estimator
//! and loss detection of its own ([`anabranch_algo::subflow::Subflow`]), all of one leg a group: their
//! windows are coupled. What is lost is not sent again: programs that want that do it themselves. Each side
//! probes its paths, and [says](Leg::health) which answer.
//!
//! A *flow* is what one program sends and gets; its datagrams have numbers. Which path one takes is
//! [decided](Mode) when it leaves, as late as possible. Everything has a limit: what waits to be sent in
//! bytes and in time ([`queue`]), what waits for datagrams before it the same ([`reorder`]).
//!
//! The world hands in packets as they came ([`receive`](Leg::receive)), datagrams of its programs
//! ([`send`](Leg::send)), takes packets ([`poll_transmit`](Leg::poll_transmit)) until there is none, and
//! comes back at the [`deadline`](Leg::deadline).

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

/// Flows of one leg, at most: a client opens no more, and a server gives each a socket.
pub const FLOWS_MAX: usize = 1_024;
/// Flows that a server's end knows of, at most, some of which are about to end.
const KNOWN_FLOWS_MAX: usize = 4 * FLOWS_MAX;
/// The highest number of a flow: 24 bits.
pub const FLOW_MAX: u32 = 0xff_ffff;

/// How a leg works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The congestion controller of each path.
    pub control: Algorithm,
    /// Paths are probed so often while nothing moves.
    pub idle_probe: Span,
}

impl Default for Settings {
    /// The default controller; a probe each 25 s, so that address translators do not forget the path.
    ///
    /// # Panics
    /// Never: the name is in the table.
    fn default() -> Self {
        let name = anabranch_algo::control::ALGORITHMS[0].name;
        let control = Algorithm::by_name(name).expect("a name of the table");
        Self { control, idle_probe: Span::from_secs(25) }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A datagram has come: from there (at the client), or for there (at the server).
    Datagram {
        /// The flow.
        flow: u32,
        /// The program's peer.
        peer: Destination,
        /// The payload.
        bytes: Bytes,
    },
    /// A path answers, or does not any more.
    Path {
        /// Its number.
        path: u8,
        /// Whether it answers.
        is_alive: bool,
    },
}

/// What was dropped, and why, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were not of this leg's other end: forged, damaged, or of another leg.
    pub forged: u64,
    /// Packets that came twice, or much too late.
    pub replayed: u64,
    /// Packets that are not as in the format.
    pub malformed: u64,
    /// Second copies of datagrams.
    pub copies: u64,
    /// Datagrams that waited too long to be sent, or found no place.
    pub queue_drops: u64,
    /// Datagrams that no packet can hold.
    pub too_long: u64,
    /// Datagrams of flows that are not there.
    pub strays: u64,
    /// Datagrams that came after those behind them.
    pub late: u64,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not of this leg's other end.
    Forged,
    /// It came before, or comes much too late.
    Replayed,
    /// It is not as in the format.
    Malformed,
}

/// A packet that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Over which path.
    pub path: u8,
    /// Where to.
    pub to: SocketAddr,
    /// How many bytes were appended.
    pub bytes: usize,
}

/// One flow as its leg sees it.
#[derive(Debug)]
struct Flow {
    mode: Mode,
    /// Number of the next datagram to be sent.
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
    /// In the order of their numbers.
    paths: Vec<Path>,
    /// What each of them publishes for the others.
    members: Vec<SubflowStats>,
    queue: Queue,
    /// Second copies that are to leave: path and datagram.
    copies: VecDeque<(u8, Numbered)>,
    flows: BTreeMap<u32, Flow>,
    /// Those with datagrams that wait for others before them.
    holding: BTreeSet<u32>,
    events: VecDeque<Event>,
    /// The path that the last datagram took.
    last_path: Option<u8>,
    /// Datagrams that were sent in all: where the numbers of a new flow begin.
    sent_datagrams: u64,
    /// Makes challenges that nobody can guess.
    secret: [u8; SECRET_BYTES],
    challenges: u64,
    /// When a datagram was last sent or received, or a trunk moved bytes.
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

    /// The client's end, without paths yet.
    #[must_use]
    pub fn client(association: u32, protection: Protection, settings: Settings) -> Self {
        Self::new(Side::Client, association, protection, settings)
    }

    /// The server's end. `secret` is nobody else's: challenges are made of it.
    #[must_use]
    pub fn server(
        association: u32,
        protection: Protection,
        settings: Settings,
        secret: [u8; SECRET_BYTES],
    ) -> Self {
        Self { secret, ..Self::new(Side::Server, association, protection, settings) }
    }

    /// The number that both ends know it by.
    #[must_use]
    pub const fn association(&self) -> u32 {
        self.association
    }

    /// The client has one more path, to the server at this address. `None`: there are
    /// [`packet::PATHS_MAX`] already.
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

    /// The client begins a flow in this mode. Whether there is room for it.
    pub fn open(&mut self, flow: u32, mode: Mode) -> bool {
        self.flow(flow, mode).is_some()
    }

    /// The flow; a new one if there is room.
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

    /// Nobody uses the flow any more.
    pub fn forget(&mut self, flow: u32) {
        self.flows.remove(&flow);
        self.holding.remove(&flow);
        self.queue.forget(flow);
        self.copies.retain(|(_, copy)| copy.flow != flow);
    }

    /// Takes a datagram of a flow, which waits for its turn: for `peer` (at the client), or from it. The
    /// flow's mode is that of [`open`](Self::open), at the server that of what came last.
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

    /// The client's path has this rank: the lowest one that has room is used, the last one ([`u8::MAX`])
    /// if no other answers. The server learns it with the next probe.
    pub fn set_rank(&mut self, path: u8, rank: u8) {
        if let Some(path) = self.paths.iter_mut().find(|other| other.number == path) {
            path.is_probe_due |= std::mem::replace(&mut path.rank, rank) != rank;
        }
    }

    /// Something moves on the trunks beside this leg: paths are probed often.
    pub const fn note_traffic(&mut self, now: Time) {
        self.traffic_at = Some(now);
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was dropped in all.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// How each path fares.
    #[must_use]
    pub fn health(&self) -> Vec<PathHealth> {
        self.paths.iter().map(Path::health).collect()
    }

    /// Whether something that was sent has an answer on some path, or may still get one.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.paths.iter().any(|path| path.is_alive)
    }

    /// When anything last came from the other end.
    #[must_use]
    pub fn heard_at(&self) -> Option<Time> {
        self.paths.iter().filter_map(|path| path.heard_at).max()
    }
}

#[cfg(test)]
mod tests;
