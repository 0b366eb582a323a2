//! Simulates sources, receivers, flows and links in one virtual time.
//!
//! Build it ([`Simulation::link`], [`source`](Simulation::source), [`receiver`](Simulation::receiver),
//! [`path`](Simulation::path), [`want`](Simulation::want), [`at`](Simulation::at)), run it, and read the
//! results. Equal seeds give equal runs, byte for byte ([`Simulation::digest`]).
//!
//! With a real clock ([`Simulation::step`] with the current time), the simulation processes each event at
//! the exact virtual time at which it was due: a late call only delays the moment at which the result is
//! seen.
//!
//! The simulation checks its invariants while it runs ([`Simulation::violations`]).

mod packet;
mod receiver_log;
mod results;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::subscriber::{Grouping, Input, PathId, SourceId, Subscriber};
use anabranch_sim::{Delivery, LinkConfig, LinkId, MediumId, Net, RouteId};

use crate::content::{Content, MemoryStore, fill};
use crate::digest::Digest;
use crate::packet_flows::PacketFlows;
use crate::sim_source::{Misbehaviour, SimSource};
use crate::tcp_flows::{TcpFlowConfig, TcpFlowId, TcpFlows};
use packet::{BoxedPacket, Datagram, Packet};
pub use packet::{FLOW_DATAGRAMS, Fault, OVERHEAD_BYTES, PAYLOAD_MAX, PathSpec, ReceiverId, SimSourceId};
use receiver_log::ReceiverLog;
pub use receiver_log::{FRUITLESS_MAX, Progress, STORM_MAX};

/// Bytes of an ICMP error in addition to headers of `OVERHEAD_BYTES` (RFC 792).
const ICMP_BYTES: usize = 8;

/// A want of a receiver, numbered in the order in which it was added.
pub type WantId = usize;

/// An event at a given time.
#[derive(Clone, Debug)]
enum ScheduledEvent {
    Fault(Fault),
    Want(ReceiverId, WantId),
}

/// The receiver, path and direction of an mmTP route.
#[derive(Clone, Copy, Debug)]
struct RouteEnd {
    receiver: ReceiverId,
    path: PathId,
    to_source: bool,
}

struct Receiver {
    subscriber: Subscriber,
    /// The subscriber's number of each source of the simulation.
    sources: BTreeMap<SimSourceId, SourceId>,
    paths: Vec<SimPath>,
    deadline: Time,
    coalesce: Span,
    inbox: Vec<(PathId, Datagram)>,
    inbox_due: Time,
    log: ReceiverLog,
}

#[derive(Clone, Copy, Debug)]
struct SimPath {
    source: SimSourceId,
    down: RouteId,
    up: RouteId,
    /// Number of the path among all paths of the simulation.
    no: u32,
    /// Address of the receiver, as the source sees it.
    address: SocketAddr,
}

/// A simulation of sources, receivers and links; see the [module](self).
pub struct Simulation {
    seed: u64,
    net: Net<Packet>,
    net_due: Time,
    /// Path of each route by the route's number; `None` for routes that are not mmTP's.
    route_ends: Vec<Option<RouteEnd>>,
    paths_made: u32,
    packet_flows: PacketFlows,
    tcp_flows: TcpFlows,
    sources: Vec<SimSource>,
    receivers: Vec<Receiver>,
    scheduled: BTreeMap<(Time, u64), ScheduledEvent>,
    next_seq: u64,
    clock: Time,
    digest: Digest,
    checks: bool,
}

impl Simulation {
    /// Creates an empty simulation; `seed` decides everything random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut net = Net::new(seed);
        // Links count the packets that they drop; the single packets are not needed.
        net.report_drops(false);
        Self {
            seed,
            net,
            net_due: Time::NEVER,
            route_ends: Vec::new(),
            paths_made: 0,
            packet_flows: PacketFlows::default(),
            tcp_flows: TcpFlows::default(),
            sources: Vec::new(),
            receivers: Vec::new(),
            scheduled: BTreeMap::new(),
            next_seq: 0,
            clock: Time::ZERO,
            digest: Digest::default(),
            checks: false,
        }
    }

    /// Adds one direction of a link, which any number of paths may share. Each link needs a name of its own.
    pub fn link(&mut self, name: &str, config: LinkConfig) -> LinkId {
        self.net_mut().link(name, config)
    }

    /// Returns the network of links, to be extended.
    pub(crate) const fn net_mut(&mut self) -> &mut Net<Packet> {
        self.net_due = self.clock;
        &mut self.net
    }

    /// Adds a shared medium, for [`LinkConfig::medium`].
    pub fn medium(&mut self, name: &str) -> MediumId {
        self.net.medium(name)
    }

    /// Returns a link of `delay` without a queue; calls with equal delays return one link.
    pub fn pipe(&mut self, delay: Span) -> LinkId {
        self.net_mut().pipe(delay)
    }

    /// Adds a route over these links, in order.
    pub fn route(&mut self, links: &[LinkId]) -> RouteId {
        self.net.route(links)
    }

    /// Returns the flows of packets without content.
    #[must_use]
    pub const fn packet_flows(&self) -> &PacketFlows {
        &self.packet_flows
    }

    /// Returns the flows of packets without content, to be extended.
    pub const fn packet_flows_mut(&mut self) -> &mut PacketFlows {
        &mut self.packet_flows
    }

    /// Returns the flows of TCP and Multipath TCP.
    #[must_use]
    pub const fn tcp_flows(&self) -> &TcpFlows {
        &self.tcp_flows
    }

    /// Adds a flow of TCP or Multipath TCP.
    ///
    /// # Panics
    /// If it has no path.
    pub fn tcp_flow(&mut self, name: &str, config: TcpFlowConfig) -> TcpFlowId {
        let mut seed = [0; 32];
        fill(&mut anabranch_sim::Rng::stream(self.seed, &format!("TCP flow {name}")), &mut seed);
        self.tcp_flows.flow(config, seed)
    }

    /// Adds a source that offers these contents.
    pub fn source(&mut self, contents: &[Content], misbehaviour: Misbehaviour) -> SimSourceId {
        let rng = anabranch_sim::Rng::stream(self.seed, &format!("source {}", self.sources.len()));
        self.sources.push(SimSource::new(MemoryStore(contents.to_vec()), misbehaviour, rng));
        self.sources.len() - 1
    }

    /// Adds a receiver. With `coalesce`, datagrams wait for this time after the first one and are then
    /// handed over together, in rows of equal packets, as by interrupt moderation and GRO.
    pub fn receiver(&mut self, coalesce: Span) -> ReceiverId {
        let mut seed = [0; 32];
        fill(
            &mut anabranch_sim::Rng::stream(self.seed, &format!("receiver {}", self.receivers.len())),
            &mut seed,
        );
        self.receivers.push(Receiver {
            subscriber: Subscriber::new(&seed),
            sources: BTreeMap::new(),
            paths: Vec::new(),
            deadline: Time::NEVER,
            coalesce,
            inbox: Vec::new(),
            inbox_due: Time::NEVER,
            log: ReceiverLog::default(),
        });
        self.receivers.len() - 1
    }

    /// Selects the way in which a receiver's paths are coupled: by [`PathSpec::group`] (the default) or by
    /// detection.
    pub fn grouping(&mut self, receiver: ReceiverId, grouping: Grouping) {
        self.receivers[receiver].subscriber.set_grouping(grouping);
    }

    /// Adds a path from `source` to `receiver`.
    ///
    /// # Panics
    /// If `receiver`, `source` or a link belongs to another simulation, or the receiver has no room for
    /// another path.
    pub fn path(&mut self, receiver: ReceiverId, source: SimSourceId, spec: &PathSpec) -> PathId {
        assert!(source < self.sources.len(), "a source of another simulation");
        let to = &mut self.receivers[receiver];
        let id = *to
            .sources
            .entry(source)
            .or_insert_with(|| to.subscriber.add_source().expect("room for a source"));
        let config = anabranch_mmtp::subscriber::PathConfig {
            group: spec.group,
            uplink: spec.uplink,
            control: spec.control.clone(),
            payload_max: spec.payload_max,
            receive_buffer: 4 << 20,
        };
        let path = to.subscriber.add_path(id, &config);
        let path = path.expect("room for a path");
        let (down, up) = (self.net.route(&spec.down), self.net.route(&spec.up));
        self.route_ends.resize(up.0 as usize + 1, None);
        self.route_ends[down.0 as usize] = Some(RouteEnd { receiver, path, to_source: false });
        self.route_ends[up.0 as usize] = Some(RouteEnd { receiver, path, to_source: true });
        // Each receiver is a host of its own, with one address for each path.
        let host = Ipv4Addr::new(10, (receiver >> 8) as u8, receiver as u8, path as u8 + 1);
        let address = SocketAddr::from((host, 40_000 + path as u16));
        to.paths.push(SimPath { source, down, up, no: self.paths_made, address });
        self.paths_made += 1;
        path
    }

    /// Lets `receiver` want `content` from `at` on.
    pub fn want(&mut self, receiver: ReceiverId, content: &Content, at: Time) -> WantId {
        let want = self.receivers[receiver].log.want(content.clone());
        self.schedule(at, ScheduledEvent::Want(receiver, want));
        want
    }

    /// Schedules a fault at the time `at`.
    pub fn at(&mut self, at: Time, fault: Fault) {
        self.schedule(at, ScheduledEvent::Fault(fault));
    }

    fn schedule(&mut self, at: Time, event: ScheduledEvent) {
        self.scheduled.insert((at, self.next_seq), event);
        self.next_seq += 1;
    }

    /// Enables a check after every step of a receiver: that it knows the state of everything missing
    /// ([`Subscriber::check`]). Each failure is a violation.
    pub const fn check_every_step(&mut self) {
        self.checks = true;
    }

    // Time.

    /// Returns the time up to which every event has been processed.
    #[must_use]
    pub const fn clock(&self) -> Time {
        self.clock
    }

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_wake(&self) -> Time {
        self.next_timer().min(self.net_due)
    }

    /// Processes everything that is due at `now`, in order and at the due times; returns the time of the
    /// next event.
    pub fn step(&mut self, now: Time) -> Time {
        while self.advance(now) {}
        self.next_wake()
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Time) {
        self.step(end);
        self.clock = self.clock.max(end);
    }

    /// Runs until all wanted content is complete, or until `limit`; returns whether it is complete.
    pub fn run_to_end(&mut self, limit: Time) -> bool {
        while !self.is_done() && self.advance(limit) {}
        self.is_done()
    }

    /// Whether all content that was wanted, or is scheduled to be wanted, is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.receivers.iter().all(|r| r.log.is_done())
    }

    /// Advances to the next event, if one is due by `limit` and no machine storms; returns whether it did.
    /// At one instant packets arrive first, then timers run.
    fn advance(&mut self, limit: Time) -> bool {
        let storm = self.packet_flows.storms() || self.tcp_flows.storms();
        if storm || self.receivers.iter().any(|r| r.log.storms()) {
            return false;
        }
        // Packets of packet flows and of TCP do not move the timers of others.
        let others = self.next_except_flows();
        loop {
            let timers = others.min(self.next_of_flows());
            match self.net.poll(timers.min(limit)) {
                Output::Send(Delivery { at, route, packet }) => match packet {
                    Packet::Segment(segment) => {
                        self.clock = at;
                        let Self { net, packet_flows, .. } = self;
                        let mut send = |route, segment| net.send(at, route, Packet::Segment(segment));
                        packet_flows.arrived(at, segment, &mut send);
                    }
                    Packet::Boxed(boxed) => match *boxed {
                        BoxedPacket::Tcp(packet) => {
                            self.clock = at;
                            let Self { net, tcp_flows, .. } = self;
                            tcp_flows.arrived(at, &packet, &mut |route, packet| {
                                net.send(at, route, Packet::from(packet));
                            });
                        }
                        BoxedPacket::Datagram(datagram) => {
                            self.tick(at);
                            self.arrived(at, route, datagram);
                            return true;
                        }
                    },
                },
                Output::Event(_) => {}
                Output::Wait(next) => {
                    self.net_due = next;
                    if timers > limit || timers == Time::NEVER {
                        return false;
                    }
                    self.tick(timers.max(self.clock));
                    self.run_timers(self.clock);
                    return true;
                }
            }
        }
    }

    /// Returns the time of the next event that is not a packet's arrival.
    fn next_timer(&self) -> Time {
        self.next_except_flows().min(self.next_of_flows())
    }

    /// Returns the next timer of packet flows and of TCP.
    fn next_of_flows(&self) -> Time {
        self.packet_flows.next_timer().min(self.tcp_flows.next_timer())
    }

    fn next_except_flows(&self) -> Time {
        let scheduled = self.scheduled.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let machines =
            self.receivers.iter().map(|r| r.deadline.min(r.inbox_due)).min().unwrap_or(Time::NEVER);
        let receivers = self.packet_flows.sense_due().unwrap_or(Time::NEVER);
        scheduled.min(machines).min(receivers)
    }

    fn tick(&mut self, now: Time) {
        self.clock = now;
        for receiver in &mut self.receivers {
            receiver.log.roll(now, &receiver.subscriber);
        }
    }

    fn run_timers(&mut self, now: Time) {
        while let Some(entry) = self.scheduled.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            self.run_event(now, event);
        }
        for r in 0..self.receivers.len() {
            if self.receivers[r].inbox_due <= now {
                self.deliver_inbox(now, r);
            }
            if self.receivers[r].deadline <= now {
                let busy = self.drain(now, r);
                self.receivers[r].log.woke(now, busy);
            }
        }
        let Self { net, packet_flows, tcp_flows, .. } = self;
        if packet_flows.sense_due().is_some_and(|due| due <= now) {
            packet_flows.sense(now, net);
        }
        packet_flows.timers(now, &mut |route, segment| net.send(now, route, Packet::Segment(segment)));
        tcp_flows.timers(now, &mut |route, packet| net.send(now, route, Packet::from(packet)));
    }

    fn run_event(&mut self, now: Time, event: ScheduledEvent) {
        match event {
            ScheduledEvent::Want(r, want) => {
                let Receiver { subscriber, log, .. } = &mut self.receivers[r];
                let id = log.content(want).id();
                let download = subscriber.add_download(id, false, |_| false);
                log.started(now, want, download);
                self.drain(now, r);
            }
            ScheduledEvent::Fault(Fault::Kill { source, unreachable }) => {
                (self.sources[source].alive, self.sources[source].unreachable) = (false, unreachable);
            }
            ScheduledEvent::Fault(Fault::Restart { source }) => self.sources[source].restart(),
            ScheduledEvent::Fault(Fault::Link { link, change }) => self.net.change(now, link, change),
            ScheduledEvent::Fault(Fault::Interface { receiver, path, up }) => {
                let input = if up { Input::Up { path } } else { Input::Down { path } };
                self.receivers[receiver].subscriber.handle(now, input);
                self.drain(now, receiver);
            }
        }
    }

    /// Handles a datagram that has reached the end of its route.
    fn arrived(&mut self, now: Time, route: RouteId, packet: Datagram) {
        let Some(RouteEnd { receiver, path, to_source }) = self.route_ends[route.0 as usize] else { return };
        if packet.broken {
            return;
        }
        if to_source {
            let Self { net, sources, receivers, .. } = self;
            let SimPath { source, down, no, address, .. } = receivers[receiver].paths[path];
            let sim_source = &mut sources[source];
            if !sim_source.alive && sim_source.unreachable {
                let bytes = vec![0; ICMP_BYTES + OVERHEAD_BYTES];
                net.send(now, down, Datagram { bytes, icmp: true, ..Datagram::default() }.into());
            }
            return sim_source.answer(now, address, &packet.bytes, |sent| {
                let (bytes, ect) = (sent.bytes, sent.ect);
                let content = Some(no);
                net.send(now, down, Datagram { bytes, ect, content, ..Datagram::default() }.into());
            });
        }
        let to = &mut self.receivers[receiver];
        if to.inbox.is_empty() {
            to.inbox_due = now + to.coalesce;
        }
        to.inbox.push((path, packet));
        if to.inbox_due <= now {
            self.deliver_inbox(now, receiver);
        }
    }

    /// Hands the datagrams in its inbox to a receiver, in rows of equal length on one path.
    fn deliver_inbox(&mut self, now: Time, r: ReceiverId) {
        let inbox = std::mem::take(&mut self.receivers[r].inbox);
        self.receivers[r].inbox_due = Time::NEVER;
        self.receivers[r].log.woke(now, true);
        let alike = |a: &(PathId, Datagram), b: &(PathId, Datagram)| {
            let plain = !a.1.icmp && !b.1.icmp;
            plain && a.0 == b.0 && a.1.bytes.len() == b.1.bytes.len() && a.1.marked == b.1.marked
        };
        let mut joined = Vec::new();
        for row in inbox.chunk_by(alike) {
            let (path, first) = (row[0].0, &row[0].1);
            let subscriber = &mut self.receivers[r].subscriber;
            if first.icmp {
                subscriber.handle(now, Input::Unreachable { path });
            } else {
                let bytes = if let [(_, one)] = row {
                    &one.bytes
                } else {
                    joined.clear();
                    row.iter().for_each(|(_, packet)| joined.extend_from_slice(&packet.bytes));
                    &joined
                };
                let (stride, marked) = (first.bytes.len().max(1), first.marked);
                subscriber.handle(now, Input::Datagrams { path, bytes, stride, marked });
            }
            self.drain(now, r);
        }
    }

    /// Processes all pending outputs of a subscriber; returns whether there were any.
    fn drain(&mut self, now: Time, r: ReceiverId) -> bool {
        let Self { receivers, net, digest, checks, .. } = self;
        let Receiver { subscriber, paths, deadline, log, .. } = &mut receivers[r];
        let mut busy = false;
        loop {
            let output = subscriber.poll(now);
            if log.polled(now) {
                return busy;
            }
            busy |= !matches!(output, Output::Wait(_));
            match output {
                Output::Wait(next) => {
                    *deadline = next;
                    if *checks && let Err(what) = subscriber.check() {
                        log.violated(now, what);
                    }
                    return busy;
                }
                Output::Send(transmit) => {
                    log.asked(now, transmit.path, subscriber);
                    digest.sent(now, r, transmit.path, &transmit.bytes);
                    let datagram = Datagram { bytes: transmit.bytes, ..Datagram::default() };
                    net.send(now, paths[transmit.path].up, datagram.into());
                }
                Output::Event(event) => {
                    digest.event(now, r, &event);
                    log.event(now, event);
                }
            }
        }
    }
}
