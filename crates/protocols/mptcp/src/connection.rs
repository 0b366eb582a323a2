//! One connection: a stream of bytes each way over one or more subflows, or over one plain TCP connection.
//!
//! [`input`] says what a segment does, [`output`] what is sent and when. The first subflow decides whether
//! the connection is Multipath TCP at all ([`Mode`]); whatever a middlebox takes away on the way there leads
//! to [`Mode::Plain`], never to a connection that hangs (RFC 8684 section 3.7).

mod input;
mod output;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anabranch_algo::control::{Algorithm, SubflowStats};
use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::{Key, Version};

use crate::config::{Config, SUBFLOWS_MAX};
use crate::path::{Handshake, Path, ResetReason, Signal};
use crate::path_manager::{AddressBook, JoinPlan};
use crate::receive::ReceiveQueue;
use crate::scheduler::Scheduler;
use crate::secrets::Secrets;
use crate::segment::Segment;
use crate::send::SendQueue;
use crate::subflow::{Setup, Subflow, SubflowError};

/// What a connection has to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The handshake is over; whether the peer speaks Multipath TCP.
    Established {
        /// Whether further subflows are possible.
        multipath: bool,
    },
    /// The connection goes on as plain TCP, which it was not offered as.
    FellBack,
    /// A subflow carries data from now on.
    SubflowUp {
        /// Its local end.
        local: SocketAddr,
        /// Its remote end.
        remote: SocketAddr,
    },
    /// A subflow is gone.
    SubflowDown {
        /// Its local end.
        local: SocketAddr,
        /// Its remote end.
        remote: SocketAddr,
        /// Why, if it was not closed in the regular way.
        error: Option<SubflowError>,
    },
    /// There are bytes to read.
    Readable,
    /// The peer has sent its last byte.
    PeerFinished,
    /// The connection is over. Nothing follows.
    Closed {
        /// Why, if not because both ends had finished.
        error: Option<SubflowError>,
    },
}

/// What kind of connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// MP_CAPABLE has been sent; the handshake is not over.
    Offered,
    /// Multipath TCP.
    Multipath {
        /// Whether the peer has shown, by an option on a later segment, that options pass in this direction.
        confirmed: bool,
    },
    /// Plain TCP.
    Plain,
}

/// What both ends of a connection of Multipath TCP know.
#[derive(Clone, Copy, Debug)]
struct Keys {
    own: Key,
    peer: Option<Key>,
    /// The initial data sequence numbers.
    own_base: u64,
    peer_base: u64,
    checksums: bool,
}

impl Keys {
    fn new(own: Key, checksums: bool) -> Self {
        Self { own, peer: None, own_base: own.initial_data_seq(Version::V1), peer_base: 0, checksums }
    }

    fn learn(&mut self, peer: Key) {
        self.peer = Some(peer);
        self.peer_base = peer.initial_data_seq(Version::V1);
    }
}

/// Timers of the data level.
#[derive(Clone, Copy, Debug)]
struct DataTimers {
    /// When the DATA_FIN is sent again.
    fin_due: Time,
    /// When data that subflows have delivered and the peer has not acknowledged is sent again.
    retransmit_at: Time,
    /// When addresses are announced again, and how often they were.
    announce_at: Time,
    announced: u32,
}

/// How it ends.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    peer_finished: bool,
    is_over: bool,
    error: Option<SubflowError>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    config: Arc<Config>,
    mode: Mode,
    is_client: bool,
    keys: Keys,
    paths: Vec<Option<Path>>,
    send: SendQueue,
    receive: ReceiveQueue,
    scheduler: Scheduler,
    addresses: AddressBook,
    /// Addresses to announce that were not echoed: identifier and address.
    unechoed: Vec<(u8, SocketAddr)>,
    timers: DataTimers,
    ending: Ending,
    events: VecDeque<ConnectionEvent>,
    /// The slot whose turn it is to send what is due.
    turn: usize,
    /// A lost tail that another subflow was asked for.
    tail_probe: Option<TailProbe>,
}

/// The last segment of a silent subflow, which another subflow carries, too.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    slot: usize,
    seq: u64,
}

fn algorithm(config: &Config) -> Algorithm {
    Algorithm::by_name(config.congestion_control).unwrap_or_else(|| {
        (anabranch_algo::control::ALGORITHMS[0].make)(anabranch_algo::control::SlowStart::standard())
    })
}

impl Connection {
    fn new(config: &Arc<Config>, key: Key, local: IpAddr, remote: SocketAddr, is_client: bool) -> Self {
        let others = config.addresses.iter().map(|own| (own.address, own.backup));
        Self {
            mode: if config.mptcp { Mode::Offered } else { Mode::Plain },
            is_client,
            keys: Keys::new(key, config.checksums),
            paths: (0..SUBFLOWS_MAX).map(|_| None).collect(),
            send: SendQueue::new(config.send_buffer_bytes),
            receive: ReceiveQueue::new(config.receive_buffer_bytes),
            scheduler: config.scheduler.make(),
            addresses: AddressBook::new(config.path_manager, local, others, remote),
            unechoed: Vec::new(),
            timers: DataTimers {
                fin_due: Time::NEVER,
                retransmit_at: Time::NEVER,
                announce_at: Time::NEVER,
                announced: 0,
            },
            ending: Ending::default(),
            events: VecDeque::new(),
            turn: 0,
            tail_probe: None,
            config: Arc::clone(config),
        }
    }

    fn setup<'a>(config: &Config, local: SocketAddr, remote: SocketAddr, secrets: &'a Secrets) -> Setup<'a> {
        Setup {
            local,
            remote,
            config: config.tcp,
            algorithm: algorithm(config),
            buffer_bytes: config.receive_buffer_bytes,
            secrets,
        }
    }

    /// Begins a connection.
    pub(crate) fn connect(
        now: Time,
        config: &Arc<Config>,
        local: SocketAddr,
        remote: SocketAddr,
        secrets: &mut Secrets,
    ) -> Self {
        let mut connection = Self::new(config, secrets.key(), local.ip(), remote, true);
        let subflow = Subflow::connect(now, &Self::setup(config, local, remote, secrets));
        connection.paths[0] = Some(Path::new(subflow, Handshake::First, false, (0, 0)));
        connection
    }

    /// Answers a SYN that is not to join another connection.
    pub(crate) fn accept(now: Time, config: &Arc<Config>, syn: &Segment, secrets: &mut Secrets) -> Self {
        let (local, remote) = (syn.target, syn.source);
        let mut connection = Self::new(config, secrets.key(), local.ip(), remote, false);
        let subflow = Subflow::accept(now, &Self::setup(config, local, remote, secrets), syn);
        connection.paths[0] = Some(Path::new(subflow, Handshake::First, false, (0, 0)));
        connection.offered(syn);
        connection
    }

    /// The token by which the peer's MP_JOIN names this connection; `None` if it is plain TCP.
    pub(crate) fn token(&self) -> Option<u32> {
        (self.mode != Mode::Plain).then(|| self.keys.own.token(Version::V1))
    }

    /// The next subflow that is to be made, if there is a slot for it.
    pub(crate) fn next_join(&mut self) -> Option<JoinPlan> {
        if self.mode != (Mode::Multipath { confirmed: true }) || !self.is_client || self.is_ending() {
            return None;
        }
        self.free_slot()?;
        self.addresses.next_join()
    }

    /// Makes a subflow from `local`, as planned.
    pub(crate) fn join(&mut self, now: Time, plan: &JoinPlan, local: SocketAddr, secrets: &mut Secrets) {
        let Some(slot) = self.free_slot() else { return };
        let nonce = secrets.draw() as u32;
        let subflow = Subflow::connect(now, &Self::setup(&self.config, local, plan.remote, secrets));
        let ids = (plan.local_id, plan.remote_id);
        self.paths[slot] = Some(Path::new(subflow, Handshake::JoinSent { nonce }, plan.backup, ids));
    }

    fn free_slot(&self) -> Option<usize> {
        let slots = self.config.subflows_max.min(SUBFLOWS_MAX);
        self.paths.iter().take(slots).position(Option::is_none)
    }

    /// Whether both ends have finished, so that no data is missing in either direction.
    fn is_finished(&self) -> bool {
        self.send.is_finished() && self.receive.is_finished()
    }

    /// Whether both ends have finished, so that no further subflows are of use.
    fn is_ending(&self) -> bool {
        self.ending.is_over || self.is_finished()
    }

    /// Whether it is over, and nothing is left to send, to report or to read.
    pub(crate) fn is_gone(&self) -> bool {
        let is_read = self.receive.readable() == 0 || self.ending.error.is_some();
        self.ending.is_over && is_read && self.events.is_empty() && self.paths.iter().all(Option::is_none)
    }

    /// The two ends of each subflow.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.paths.iter().flatten().map(|path| (path.subflow.local, path.subflow.remote))
    }

    /// Whether it is Multipath TCP.
    pub(crate) const fn is_multipath(&self) -> bool {
        matches!(self.mode, Mode::Multipath { .. })
    }

    /// Bytes that can be read now.
    pub(crate) const fn readable(&self) -> u64 {
        self.receive.readable()
    }
    /// Bytes that can be written now.
    pub(crate) fn writable(&self) -> u64 {
        if self.ending.is_over { 0 } else { self.send.writable() }
    }
    /// Bytes that were written and not acknowledged.
    pub(crate) const fn unacknowledged(&self) -> u64 {
        self.send.unsent() + (self.send.next() - self.send.una())
    }

    /// Takes bytes of the program; how many.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        if self.ending.is_over { 0 } else { self.send.write(bytes) }
    }

    /// Gives bytes to the program; how many.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.receive.read(out);
        if count > 0 && self.receive.opens() {
            self.paths.iter_mut().flatten().for_each(|path| path.subflow.ack_now());
        }
        count
    }

    /// The program writes no more.
    pub(crate) fn finish(&mut self) {
        self.send.finish();
    }

    /// Ends it at once, and tells the peer (RFC 8684 section 3.5).
    pub(crate) fn abort(&mut self) {
        let peer = self.keys.peer.filter(|_| self.is_multipath());
        for path in self.paths.iter_mut().flatten() {
            path.reset = peer.map(ResetReason::Connection);
            path.subflow.abort();
        }
        self.over(Some(SubflowError::Aborted));
    }

    fn over(&mut self, error: Option<SubflowError>) {
        if !self.ending.is_over {
            (self.ending.is_over, self.ending.error) = (true, error);
            self.events.push_back(ConnectionEvent::Closed { error });
        }
    }

    /// The numbers that all subflows publish for each other, and where that of the one in `slot` is.
    fn group(&self, slot: usize) -> (Vec<SubflowStats>, usize) {
        let (mut members, mut me) = (Vec::with_capacity(SUBFLOWS_MAX), 0);
        for (at, path) in self.paths.iter().enumerate() {
            let Some(path) = path else { continue };
            if at == slot {
                me = members.len();
            }
            if at == slot || path.subflow.is_synchronized() {
                members.push(path.subflow.sender().stats());
            }
        }
        (members, me)
    }

    /// It goes on as plain TCP over its first subflow.
    fn fall_back(&mut self) {
        let was_offered = self.mode != Mode::Plain;
        self.mode = Mode::Plain;
        self.unechoed.clear();
        self.send.set_window_end(u64::MAX);
        if was_offered {
            self.events.push_back(ConnectionEvent::FellBack);
        }
    }

    /// The slot of the subflow that carries signals: the established one with the shortest round trip.
    fn signal_slot(&self) -> Option<usize> {
        let usable = self.paths.iter().enumerate().filter_map(|(slot, path)| Some((slot, path.as_ref()?)));
        let usable = usable.filter(|(_, path)| path.carries_signals());
        usable
            .min_by_key(|(_, path)| {
                let sender = path.subflow.sender();
                (sender.timeouts(), sender.rtt().srtt())
            })
            .map(|(slot, _)| slot)
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(path) = self.signal_slot().and_then(|slot| self.paths[slot].as_mut()) {
            path.signal(signal);
        }
    }

    /// The longest retransmission timeout of the subflows.
    fn slowest_rto(&self) -> Span {
        let rtos = self.paths.iter().flatten().map(|path| path.subflow.sender().rtt().rto());
        rtos.max().unwrap_or(Span::from_secs(1))
    }
}
