//! One connection: a stream of bytes each way over one or more subflows, or over one plain TCP connection.
//!
//! [`input`] handles arriving segments, [`output`] decides what is sent and when. The first subflow decides
//! whether the connection is Multipath TCP at all ([`Mode`]). If a middlebox removes options during its
//! handshake, the connection becomes [`Mode::Plain`] and never hangs (RFC 8684 section 3.7).

mod input;
mod output;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anabranch_algo::control::SubflowStats;
use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::{Key, Reset, Version};

use crate::config::{Config, SUBFLOWS_MAX};
use crate::notices::Notices;
use crate::path::{Backup, Handshake, Path, ResetReason, Signal};
use crate::path_manager::{AddressBook, JoinPlan, LocalAddress, PathManager, UNKNOWN_ID};
use crate::payload::Payload;
use crate::receive::ReceiveQueue;
use crate::report::SubflowReport;
use crate::scheduler::Scheduler;
use crate::secrets::Secrets;
use crate::segment::Segment;
use crate::send::SendQueue;
use crate::subflow::{Setup, Subflow, SubflowError};

/// An event that a connection reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The handshake is complete.
    Established {
        /// Whether the peer speaks Multipath TCP, so that further subflows are possible.
        multipath: bool,
    },
    /// The connection was offered as Multipath TCP and goes on as plain TCP.
    FellBack,
    /// A subflow carries data from now on.
    SubflowUp {
        /// The subflow's local end.
        local: SocketAddr,
        /// The subflow's remote end.
        remote: SocketAddr,
    },
    /// A subflow has ended.
    SubflowDown {
        /// The last state of the subflow.
        last: SubflowReport,
        /// Why the subflow ended, if it was not closed with FINs.
        error: Option<SubflowError>,
    },
    /// There are bytes to read.
    Readable,
    /// The peer has sent its last byte, and all its data has arrived.
    PeerFinished,
    /// The connection is over. No event follows.
    Closed {
        /// Why the connection ended, if not because both ends had finished.
        error: Option<SubflowError>,
    },
}

/// The protocol of the connection.
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

/// The keys and initial numbers of a Multipath TCP connection.
#[derive(Clone, Copy, Debug)]
struct Keys {
    own: Key,
    peer: Option<Key>,
    /// The initial data sequence numbers of both ends.
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
    /// When data is sent again that subflows have delivered and the peer has not acknowledged.
    retransmit_at: Time,
    /// When subflows that have ended are made again.
    rejoin_at: Time,
    /// When data is overdue that another subflow may carry, too.
    overtake_at: Time,
}

impl Default for DataTimers {
    fn default() -> Self {
        let never = Time::NEVER;
        Self { fin_due: never, retransmit_at: never, rejoin_at: never, overtake_at: never }
    }
}

/// Events and ended subflows that the stack has not fetched yet.
#[derive(Debug, Default)]
struct Reports {
    events: VecDeque<ConnectionEvent>,
    /// The two ends of subflows that have ended, whether they were ever up or not.
    ended: Vec<(SocketAddr, SocketAddr)>,
}

/// The state of the connection's end.
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
    notices: Notices,
    timers: DataTimers,
    ending: Ending,
    reports: Reports,
    /// The slot whose turn it is to send retransmissions and handshakes.
    turn: usize,
    /// The lost tail that another subflow was asked to carry.
    tail_probe: Option<TailProbe>,
}

/// The last segment of a silent subflow, which another subflow carries, too.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    slot: usize,
    seq: u64,
}

impl Connection {
    fn new(config: &Arc<Config>, key: Key, local: IpAddr, remote: SocketAddr, is_client: bool) -> Self {
        let others = config.addresses.iter().copied();
        Self {
            mode: if config.mptcp { Mode::Offered } else { Mode::Plain },
            is_client,
            keys: Keys::new(key, config.checksums),
            paths: (0..SUBFLOWS_MAX).map(|_| None).collect(),
            send: SendQueue::new(config.send_buffer_bytes),
            receive: ReceiveQueue::new(config.receive_buffer_bytes),
            scheduler: config.scheduler.make(),
            addresses: AddressBook::new(config.path_manager, local, others, remote),
            notices: Notices::default(),
            timers: DataTimers::default(),
            ending: Ending::default(),
            reports: Reports::default(),
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
            algorithm: config.congestion_control,
            buffer_bytes: config.receive_buffer_bytes,
            secrets,
        }
    }

    /// Begins a connection from `local` to `remote`.
    pub(crate) fn connect(
        now: Time,
        config: &Arc<Config>,
        local: SocketAddr,
        remote: SocketAddr,
        secrets: &mut Secrets,
    ) -> Self {
        let mut connection = Self::new(config, secrets.key(), local.ip(), remote, true);
        if let Some(wait) = config.race_after {
            connection.addresses.begin_race(now, wait);
        }
        connection.attempt(now, local, remote, secrets);
        connection
    }

    /// Returns the address from which the next first SYN must go out now, because the earlier ones were not
    /// answered, with the peer's address.
    pub(crate) fn next_attempt(&mut self, now: Time) -> Option<(IpAddr, SocketAddr)> {
        let local = self.addresses.next_attempt(now)?;
        self.free_slot()?;
        self.paths.iter().flatten().next().map(|path| (local, path.subflow.remote))
    }

    /// Has the first SYN go out from `local`.
    pub(crate) fn attempt(&mut self, now: Time, local: SocketAddr, remote: SocketAddr, secrets: &Secrets) {
        let Some(slot) = self.free_slot() else { return };
        let subflow = Subflow::connect(now, &Self::setup(&self.config, local, remote, secrets));
        self.paths[slot] = Some(Path::new(subflow, Handshake::First, Backup::default(), (0, 0)));
    }

    /// Creates a connection that answers a SYN without MP_JOIN.
    pub(crate) fn accept(now: Time, config: &Arc<Config>, syn: &Segment, secrets: &mut Secrets) -> Self {
        let (local, remote) = (syn.target, syn.source);
        let mut connection = Self::new(config, secrets.key(), local.ip(), remote, false);
        let subflow = Subflow::accept(now, &Self::setup(config, local, remote, secrets), syn);
        connection.paths[0] = Some(Path::new(subflow, Handshake::First, Backup::default(), (0, 0)));
        connection.offered(syn);
        connection
    }

    /// Returns the token by which the peer's MP_JOIN names this connection, unless it is plain TCP.
    pub(crate) fn token(&self) -> u32 {
        self.keys.own.token(Version::V1)
    }

    /// Returns whether the connection is, or may become, Multipath TCP.
    pub(crate) fn offers_multipath(&self) -> bool {
        self.mode != Mode::Plain
    }

    /// Lets subflows that have ended be made again.
    fn rejoin(&mut self) {
        self.timers.rejoin_at = Time::NEVER;
        let present = self.paths.iter().flatten().map(|path| (path.local_id, path.remote_id)).collect();
        self.addresses.retry_all_but(&present);
    }

    /// Returns whether a client goes on without a subflow, because its last one was reset by a peer that may
    /// know the connection all the same, and joins again.
    fn may_rejoin(&self, was_up: bool, error: Option<SubflowError>) -> bool {
        let is_reset = was_up && error == Some(SubflowError::Reset);
        let is_joining = self.is_client && self.mode == (Mode::Multipath { confirmed: true });
        is_reset && is_joining && !self.is_ending()
    }

    /// Returns the next subflow that is to be made, if there is a slot for it.
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
        let backup = Backup { own: plan.backup, peer: false };
        self.paths[slot] = Some(Path::new(subflow, Handshake::JoinSent { nonce }, backup, ids));
    }

    fn free_slot(&self) -> Option<usize> {
        let slots = self.config.subflows_max.min(SUBFLOWS_MAX);
        self.paths.iter().take(slots).position(Option::is_none)
    }

    /// Returns whether both ends have finished and no data is missing in either direction.
    fn is_finished(&self) -> bool {
        self.send.is_finished() && self.receive.is_finished()
    }

    /// Returns whether further subflows are useless, because the connection is over or both ends have
    /// finished.
    fn is_ending(&self) -> bool {
        self.ending.is_over || self.is_finished()
    }

    /// Returns whether the connection is over and has nothing left to send, to report or to read.
    pub(crate) fn is_gone(&self) -> bool {
        let is_read = self.receive.readable() == 0 || self.ending.error.is_some();
        self.ending.is_over
            && is_read
            && self.reports.events.is_empty()
            && self.paths.iter().all(Option::is_none)
    }

    /// Returns the two ends of each subflow, the local one first.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.paths.iter().flatten().map(|path| (path.subflow.local, path.subflow.remote))
    }

    /// Returns the two ends of each subflow that has ended since the last call, the local one first.
    pub(crate) fn ended(&mut self) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
        self.reports.ended.drain(..)
    }

    /// Makes further subflows by the rule `manager`; existing subflows stay.
    pub(crate) const fn set_path_manager(&mut self, manager: PathManager) {
        self.addresses.set_manager(manager);
    }

    /// Adds a local address. Subflows are made from it as the path manager says, and the peer is told of it
    /// if `own` asks for that.
    pub(crate) fn add_address(&mut self, now: Time, own: LocalAddress) {
        let added = self.addresses.add_local(own).is_some();
        if added && own.announce && self.is_multipath() {
            self.announce(now);
        }
    }

    /// Removes a local address. The peer is told, and subflows from the address end, unless there is no other
    /// subflow: then they end as soon as there is one (break before make).
    pub(crate) fn remove_address(&mut self, now: Time, address: IpAddr) {
        let Some(id) = self.addresses.remove_local(address) else { return };
        let has_subflow = self.paths.iter().flatten().any(|path| path.subflow.local.ip() == address);
        if self.is_multipath() && !has_subflow {
            self.notices.add(now, Signal::Remove { id }, None);
        }
        self.leave(now);
    }

    /// Ends subflows from addresses that this end has lost, and tells the peer.
    fn leave(&mut self, now: Time) {
        let is_left = |path: &Path| {
            path.local_id != UNKNOWN_ID && self.addresses.local(path.subflow.local.ip()).is_none()
        };
        let mut paths = self.paths.iter().flatten();
        if !self.is_multipath() || !paths.any(|path| path.carries_signals() && !is_left(path)) {
            return;
        }
        let left: Vec<bool> = self.paths.iter().map(|path| path.as_ref().is_some_and(is_left)).collect();
        for path in self.paths.iter_mut().zip(left).filter_map(|(path, left)| path.as_mut().filter(|_| left))
        {
            path.abort(ResetReason::Subflow(Reset::UNSPECIFIED));
            self.notices.add(now, Signal::Remove { id: path.local_id }, None);
        }
    }

    /// Sets whether existing and later subflows from an address are backups, which carry data only where no
    /// other subflow can. The peer is told. Returns the number of existing subflows from the address.
    pub(crate) fn set_backup(&mut self, now: Time, address: IpAddr, backup: bool) -> usize {
        self.addresses.set_backup(address, backup);
        let mut count = 0;
        for slot in 0..self.paths.len() {
            let path = self.paths[slot].as_mut().filter(|path| path.subflow.local.ip() == address);
            if let Some(path) = path {
                path.backup.own = backup;
                self.notices.add(now, Signal::Prio { backup }, Some(slot));
                count += 1;
            }
        }
        count
    }

    /// Returns whether the connection is Multipath TCP.
    pub(crate) const fn is_multipath(&self) -> bool {
        matches!(self.mode, Mode::Multipath { .. })
    }

    /// Returns the bytes that can be read now.
    pub(crate) const fn readable(&self) -> u64 {
        self.receive.readable()
    }
    /// Returns the bytes that can be written now.
    pub(crate) fn writable(&self) -> u64 {
        if self.ending.is_over { 0 } else { self.send.writable() }
    }
    /// Returns the bytes that were written and that no subflow has sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.send.unsent()
    }
    /// Returns the bytes that were written and are not acknowledged.
    pub(crate) const fn unacknowledged(&self) -> u64 {
        self.send.unsent() + (self.send.next() - self.send.una())
    }

    /// Takes bytes from the program and returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        if self.ending.is_over { 0 } else { self.send.write(bytes) }
    }

    /// Takes a view of bytes from the program without copying them, and returns how many it took.
    pub(crate) fn write_view(&mut self, bytes: Payload) -> usize {
        if self.ending.is_over { 0 } else { self.send.write_view(bytes) }
    }

    /// Moves received bytes into `out` and returns their number.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.receive.read(out);
        if count > 0 {
            self.tell_window();
        }
        count
    }

    /// Returns a view of the next received bytes, or `None` if there are none.
    pub(crate) fn read_view(&mut self) -> Option<Payload> {
        let view = self.receive.read_view()?;
        self.tell_window();
        Some(view)
    }

    /// Has the peer told of a window that has opened much, because the program has read.
    fn tell_window(&mut self) {
        if self.receive.opens() {
            self.paths.iter_mut().flatten().for_each(|path| path.subflow.ack_now());
        }
    }

    /// Returns a report of each subflow.
    pub(crate) fn reports(&self) -> impl Iterator<Item = SubflowReport> {
        self.paths.iter().flatten().map(Path::report)
    }

    /// Returns the report of the subflow between these ends, the local one first.
    pub(crate) fn report(&self, ends: (SocketAddr, SocketAddr)) -> Option<SubflowReport> {
        let mut paths = self.paths.iter().flatten();
        paths.find(|path| path.ends() == ends).map(Path::report)
    }

    /// Returns the bytes that have arrived in order on the subflow between these ends, the local one first.
    pub(crate) fn received_bytes(&self, ends: (SocketAddr, SocketAddr)) -> u64 {
        let mut paths = self.paths.iter().flatten();
        paths.find(|path| path.ends() == ends).map_or(0, |path| path.subflow.received_bytes())
    }

    /// Records that the program writes no more.
    pub(crate) fn finish(&mut self) {
        self.send.finish();
    }

    /// Ends the connection at once and tells the peer (RFC 8684 section 3.5).
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
            self.reports.events.push_back(ConnectionEvent::Closed { error });
        }
    }

    /// Returns the numbers that all subflows publish for each other, and the index of those of the subflow in
    /// `slot`.
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

    /// Makes the connection plain TCP over its first subflow.
    fn fall_back(&mut self) {
        let was_offered = self.mode != Mode::Plain;
        self.mode = Mode::Plain;
        self.notices.clear();
        self.send.set_window_end(u64::MAX);
        if was_offered {
            self.reports.events.push_back(ConnectionEvent::FellBack);
        }
    }

    /// Returns the slot of the subflow that carries signals: of the established ones, the one with the fewest
    /// timeouts and then the shortest round trip.
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

    /// Has the best subflow carry a signal. Returns whether a subflow can.
    fn signal(&mut self, signal: Signal) -> bool {
        let path = self.signal_slot().and_then(|slot| self.paths[slot].as_mut());
        path.map(|path| path.signal(signal)).is_some()
    }

    /// Has the subflow in `slot` carry a signal. Returns whether it can.
    fn signal_on(&mut self, slot: usize, signal: Signal) -> bool {
        let path = self.paths[slot].as_mut().filter(|path| path.carries_signals());
        path.map(|path| path.signal(signal)).is_some()
    }

    /// Returns the longest retransmission timeout of the subflows.
    fn slowest_rto(&self) -> Span {
        let rtos = self.paths.iter().flatten().map(|path| path.subflow.sender().rtt().rto());
        rtos.max().unwrap_or(Span::from_secs(1))
    }
}
