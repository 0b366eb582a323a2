//! All connections of one host: segments go in, segments and events come out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Time};
use anabranch_mptcp_wire::{Join, MptcpOption, OptionBuffer, Reset, TcpOption};

use crate::config::Config;
use crate::connection::{Connection, ConnectionEvent};
use crate::handshake_options::join;
use crate::listener::Listener;
use crate::path_manager::{LocalAddress, PathManager};
use crate::payload::Payload;
use crate::report::SubflowReport;
use crate::secrets::{Secrets, Seed};
use crate::segment::{EcnField, Flags, Segment};
use crate::wakes::Wakes;

/// The name of a connection of a [`Stack`]. No name is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// The first port for connections that this end begins, and the number of such ports (RFC 6335 section 6).
const EPHEMERAL_PORTS: (u16, u16) = (49_152, 16_384);
/// The most resets that wait to be sent in answer to segments of no connection; further ones are dropped.
const REPLIES_MAX: usize = 64;

/// An input of a stack.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A segment has arrived.
    Segment(&'a Segment),
    /// Time has passed.
    Wake,
}

/// An event that a stack reports, with the connection to which it happened.
pub type StackEvent = (ConnectionId, ConnectionEvent);

/// All connections of one host; see the [crate].
///
/// Programs call [`connect`](Self::connect), [`listen`](Self::listen), [`write`](Self::write) and so on.
/// These calls are inputs like [`handle`](Machine::handle): after them the stack must be
/// [polled](Machine::poll) until it waits.
#[derive(Debug)]
pub struct Stack {
    config: Arc<Config>,
    secrets: Secrets,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The connection to which a subflow belongs, by the subflow's local and remote end.
    subflows: BTreeMap<(SocketAddr, SocketAddr), ConnectionId>,
    tokens: BTreeMap<u32, ConnectionId>,
    listeners: BTreeMap<u16, Listener<ConnectionId>>,
    replies: Vec<Segment>,
    next_id: u64,
    next_port: u16,
    /// When each connection next has something to do.
    wakes: Wakes<ConnectionId>,
}

impl Stack {
    /// Creates a stack without connections. `seed` must be random and secret.
    #[must_use]
    pub fn new(config: Config, seed: Seed) -> Self {
        let mut secrets = Secrets::new(seed);
        let next_port = (secrets.draw() % u64::from(EPHEMERAL_PORTS.1)) as u16;
        Self {
            config: Arc::new(config),
            secrets,
            connections: BTreeMap::new(),
            subflows: BTreeMap::new(),
            tokens: BTreeMap::new(),
            listeners: BTreeMap::new(),
            replies: Vec::new(),
            next_id: 0,
            next_port,
            wakes: Wakes::new(),
        }
    }

    /// Accepts connections at `port`, on all addresses, from now on.
    pub fn listen(&mut self, port: u16) {
        let max = self.config.half_open_max;
        self.listeners.entry(port).or_insert_with(|| Listener::new(max));
    }

    /// Returns how many half-open connections of `port` gave way to newer ones.
    #[must_use]
    pub fn displaced(&self, port: u16) -> u64 {
        self.listeners.get(&port).map_or(0, Listener::displaced)
    }

    /// Begins a connection from `local` to `remote`. Returns `None` if all ports are in use.
    pub fn connect(&mut self, now: Time, local: IpAddr, remote: SocketAddr) -> Option<ConnectionId> {
        let local = SocketAddr::new(local, self.free_port(local, remote)?);
        let connection = Connection::connect(now, &self.config, local, remote, &mut self.secrets);
        Some(self.insert(connection))
    }

    fn free_port(&mut self, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let (first, count) = EPHEMERAL_PORTS;
        for _ in 0..count {
            let port = first + self.next_port;
            self.next_port = (self.next_port + 1) % count;
            if !self.subflows.contains_key(&(SocketAddr::new(local, port), remote)) {
                return Some(port);
            }
        }
        None
    }

    fn insert(&mut self, connection: Connection) -> ConnectionId {
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        self.subflows.extend(connection.ends().map(|ends| (ends, id)));
        if connection.offers_multipath() {
            self.tokens.insert(connection.token(), id);
        }
        self.connections.insert(id, connection);
        self.wakes.set(id, Time::ZERO);
        id
    }

    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.wakes.set(id, Time::ZERO);
        self.connections.get_mut(&id)
    }

    /// Gives a connection bytes to send. Returns how many it took, which is 0 once it is over or finished.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        self.get_mut(id).map_or(0, |connection| connection.write(bytes))
    }

    /// Moves received bytes of a connection into `out` and returns their number.
    pub fn read(&mut self, id: ConnectionId, out: &mut [u8]) -> usize {
        self.get_mut(id).map_or(0, |connection| connection.read(out))
    }

    /// Gives a connection a view of bytes to send, without copying them. Returns how many it took, which is 0
    /// once it is over or finished.
    pub fn write_view(&mut self, id: ConnectionId, bytes: Payload) -> usize {
        self.get_mut(id).map_or(0, |connection| connection.write_view(bytes))
    }

    /// Returns a view of the next received bytes of a connection, or `None` if there are none.
    pub fn read_view(&mut self, id: ConnectionId) -> Option<Payload> {
        self.get_mut(id)?.read_view()
    }

    /// Declares that the program writes no more to a connection.
    pub fn finish(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.finish();
        }
    }

    /// Ends a connection at once and tells the peer.
    pub fn abort(&mut self, id: ConnectionId) {
        if let Some(connection) = self.get_mut(id) {
            connection.abort();
        }
    }

    /// Adds a local address of the host. Connections make subflows from it and tell their peers of it, as
    /// their path managers and `own` say. Later connections know it, too.
    pub fn add_address(&mut self, now: Time, own: LocalAddress) {
        let config = Arc::make_mut(&mut self.config);
        config.addresses.retain(|known| known.address != own.address);
        config.addresses.push(own);
        for (&id, connection) in &mut self.connections {
            connection.add_address(now, own);
            self.wakes.set(id, Time::ZERO);
        }
    }

    /// Removes an address that the host has lost. Subflows from it end and peers are told (REMOVE_ADDR). A
    /// connection that has no other subflow waits for one, as long as its last one has not timed out.
    pub fn remove_address(&mut self, now: Time, address: IpAddr) {
        Arc::make_mut(&mut self.config).addresses.retain(|known| known.address != address);
        for (&id, connection) in &mut self.connections {
            connection.remove_address(now, address);
            self.wakes.set(id, Time::ZERO);
        }
    }

    /// Sets whether a connection's subflows from an address are backups, which carry data only where no other
    /// subflow can. This holds in both directions, because the peer is told (MP_PRIO). Returns the number of
    /// subflows from the address.
    pub fn set_backup(&mut self, now: Time, id: ConnectionId, address: IpAddr, backup: bool) -> usize {
        self.get_mut(id).map_or(0, |connection| connection.set_backup(now, address, backup))
    }

    /// Has a connection make further subflows by the rule `manager`; existing subflows stay.
    pub fn set_path_manager(&mut self, id: ConnectionId, manager: PathManager) {
        if let Some(connection) = self.get_mut(id) {
            connection.set_path_manager(manager);
        }
    }

    /// Returns the bytes that can be read now.
    #[must_use]
    pub fn readable(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, Connection::readable)
    }

    /// Returns the bytes that can be written now.
    #[must_use]
    pub fn writable(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, Connection::writable)
    }

    /// Returns the bytes that were written and that no subflow has sent yet.
    #[must_use]
    pub fn unsent(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, Connection::unsent)
    }

    /// Returns whether a subflow has this local end.
    #[must_use]
    pub fn has_subflow_at(&self, local: SocketAddr) -> bool {
        let lowest = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        self.subflows.range((local, lowest)..).next().is_some_and(|((end, _), _)| *end == local)
    }

    /// Returns the bytes that were written and that the peer has not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, Connection::unacknowledged)
    }

    /// Returns whether a connection is Multipath TCP.
    #[must_use]
    pub fn is_multipath(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(Connection::is_multipath)
    }

    /// Returns a report of each subflow of a connection.
    pub fn subflows(&self, id: ConnectionId) -> impl Iterator<Item = SubflowReport> {
        self.connections.get(&id).into_iter().flat_map(Connection::reports)
    }

    /// Returns the report of the subflow between `local` and `remote`, or `None` if there is none.
    #[must_use]
    pub fn subflow(&self, local: SocketAddr, remote: SocketAddr) -> Option<SubflowReport> {
        let id = self.subflows.get(&(local, remote))?;
        self.connections.get(id)?.report((local, remote))
    }

    /// Returns the connection of the subflow between `local` and `remote`, or `None` if there is none.
    #[must_use]
    pub fn connection(&self, local: SocketAddr, remote: SocketAddr) -> Option<ConnectionId> {
        self.subflows.get(&(local, remote)).copied()
    }

    /// Returns the bytes that have arrived in order on the subflow between `local` and `remote`, each counted
    /// once; zero if there is no such subflow.
    #[must_use]
    pub fn received_bytes(&self, local: SocketAddr, remote: SocketAddr) -> u64 {
        let connection = self.connection(local, remote).and_then(|id| self.connections.get(&id));
        connection.map_or(0, |connection| connection.received_bytes((local, remote)))
    }

    /// Returns the number of subflows of all connections, those included that are not up yet.
    #[must_use]
    pub fn subflow_count(&self) -> usize {
        self.subflows.len()
    }

    /// Returns the number of connections, those included that only remember their addresses.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    fn segment(&mut self, now: Time, segment: &Segment) {
        let ends = (segment.target, segment.source);
        if let Some(&id) = self.subflows.get(&ends) {
            if let Some(connection) = self.get_mut(id) {
                connection.segment(now, segment);
            }
            self.release(id);
        } else if segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK) {
            self.syn(now, segment);
        } else {
            self.refuse(segment, None);
        }
    }

    /// Handles a SYN, which begins a connection or a subflow.
    fn syn(&mut self, now: Time, segment: &Segment) {
        if let Some(Join::Syn { backup, address_id, token, nonce }) = join(segment) {
            let owner = self.tokens.get(&token).copied();
            let connection = owner.and_then(|id| Some((id, self.connections.get_mut(&id)?)));
            let joined = connection.and_then(|(id, connection)| {
                let terms = (backup, address_id, nonce);
                connection.accept_join(now, segment, terms, &mut self.secrets).then_some(id)
            });
            match joined {
                Some(id) => {
                    self.subflows.insert((segment.target, segment.source), id);
                    self.wakes.set(id, Time::ZERO);
                }
                None => self.refuse(segment, Some(Reset::MPTCP_SPECIFIC)),
            }
            return;
        }
        let port = segment.target.port();
        if !self.listeners.contains_key(&port) {
            self.refuse(segment, None);
            return;
        }
        let connection = Connection::accept(now, &self.config, segment, &mut self.secrets);
        let id = self.insert(connection);
        let (listener, peer) = (self.listeners.get_mut(&port), segment.source.ip());
        if let Some(displaced) = listener.and_then(|listener| listener.begin(now, id, peer)) {
            self.remove(displaced);
        }
    }

    /// Answers a segment of no connection with a reset (RFC 9293 section 3.10.7.1).
    fn refuse(&mut self, segment: &Segment, reason: Option<u8>) {
        if segment.flags.has(Flags::RST) || self.replies.len() >= REPLIES_MAX {
            return;
        }
        let mut options = OptionBuffer::default();
        if let Some(reason) = reason {
            options.push(&TcpOption::Mptcp(MptcpOption::Reset(Reset { flags: 0, reason })));
        }
        let has_ack = segment.flags.has(Flags::ACK);
        self.replies.push(Segment {
            source: segment.target,
            target: segment.source,
            seq: if has_ack { segment.ack } else { 0 },
            ack: if has_ack { 0 } else { segment.seq.wrapping_add(segment.sequence_len() as u32) },
            flags: if has_ack { Flags::RST } else { Flags::RST.and(Flags::ACK) },
            window: 0,
            ecn: EcnField::NotEct,
            options,
            payload: Payload::default(),
        });
    }

    /// Forgets the addresses of a connection's subflows that have ended, whether they were ever up or not.
    fn release(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            for ends in connection.ended() {
                self.subflows.remove(&ends);
            }
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        self.release(id);
        self.wakes.remove(id);
        let Some(connection) = self.connections.remove(&id) else { return };
        for ends in connection.ends() {
            self.subflows.remove(&ends);
        }
        if self.tokens.get(&connection.token()) == Some(&id) {
            self.tokens.remove(&connection.token());
        }
        self.listeners.values_mut().for_each(|listener| listener.end(id));
    }

    /// Makes the subflows that a connection's path manager wants. Returns whether there were any.
    fn make_subflows(&mut self, now: Time, id: ConnectionId) -> bool {
        let mut any = false;
        while let Some((local, remote)) =
            self.connections.get_mut(&id).and_then(|connection| connection.next_attempt(now))
        {
            let Some(port) = self.free_port(local, remote) else { return any };
            let local = SocketAddr::new(local, port);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.attempt(now, local, remote, &self.secrets);
                self.subflows.insert((local, remote), id);
                any = true;
            }
        }
        while let Some(plan) = self.connections.get_mut(&id).and_then(Connection::next_join) {
            let Some(port) = self.free_port(plan.local, plan.remote) else { return any };
            let local = SocketAddr::new(plan.local, port);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.join(now, &plan, local, &mut self.secrets);
                self.subflows.insert((local, plan.remote), id);
                any = true;
            }
        }
        any
    }

    /// Updates the tables after an event of a connection.
    fn note(&mut self, id: ConnectionId, event: ConnectionEvent) {
        if let ConnectionEvent::Established { .. } = event {
            self.listeners.values_mut().for_each(|listener| listener.end(id));
        }
    }
}

impl Machine for Stack {
    type Input<'a> = Input<'a>;
    type Transmit = Segment;
    type Event = StackEvent;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Segment(segment) => self.segment(now, segment),
            Input::Wake => {}
        }
    }

    fn poll(&mut self, now: Time) -> Output<Segment, StackEvent> {
        if let Some(reply) = self.replies.pop() {
            return Output::Send(reply);
        }
        while let Some(id) = self.wakes.due(now) {
            let Some(connection) = self.connections.get_mut(&id) else {
                self.wakes.remove(id);
                continue;
            };
            let output = connection.poll(now);
            self.release(id);
            match output {
                Output::Send(segment) => return Output::Send(segment),
                Output::Event(event) => {
                    self.note(id, event);
                    return Output::Event((id, event));
                }
                Output::Wait(_) if self.make_subflows(now, id) => {}
                Output::Wait(at) => {
                    debug_assert!(at > now, "what is due at {at:?} has been done at {now:?}");
                    // A deadline in the past would be polled again without end.
                    self.wakes.set(id, at.max(now + anabranch_algo::rtt::GRANULARITY));
                    if self.connections.get(&id).is_some_and(Connection::is_gone) {
                        self.remove(id);
                    }
                }
            }
        }
        Output::Wait(self.wakes.next())
    }
}
