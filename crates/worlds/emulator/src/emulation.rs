//! An emulator at work: reads packets, advances the net, and writes packets.

use std::collections::VecDeque;
use std::io;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_sim::{Delivery, Histogram, LinkChange, LinkId, Packet as _, Stats, net};

use super::buffer_pool::{BufferPool, SMALL_BYTES};
use super::cross_traffic::CrossTrafficGenerator;
use super::setup::{Connection, Port};
use super::{ConnectionStats, Emulator, IpPacket, PortStats};
use anabranch_net::tun::HEADER_BYTES;
use anabranch_net::{Clock, Tun};

/// The most packets read from one device at a time, and about the number of packets written at a time.
const BATCH: usize = 64;
/// Nothing is read while more packets than this wait to be written. The devices' queues fill instead and
/// overflow.
const OUTBOX_PACKETS: usize = 4_096;

/// An emulator in its [driver](super::Driver). Its own time begins at `origin`.
#[derive(Debug)]
pub(super) struct Emulation {
    number: u32,
    clock: Clock,
    origin: Time,
    net: anabranch_sim::Net<IpPacket>,
    links: u32,
    ports: Vec<Port>,
    connections: Vec<Connection>,
    cross_traffic: CrossTrafficGenerator,
    /// Packets to be written, in the order of their time.
    outbox: VecDeque<Delivery<IpPacket>>,
    /// Ports that may have something to read.
    active: Vec<u32>,
    /// The time when the net or the cross traffic is due next.
    next: Time,
}

impl Emulation {
    pub(super) fn new(emulator: Emulator, number: u32, clock: Clock, origin: Time) -> Self {
        let Emulator { net, links, ports, connections, cross_traffic } = emulator;
        let active = (0..ports.len() as u32).collect();
        let (outbox, next) = (VecDeque::new(), Time::ZERO);
        Self { number, clock, origin, net, links, ports, connections, cross_traffic, outbox, active, next }
    }

    /// Returns the number of the emulator in its driver.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn tuns(&self) -> impl Iterator<Item = &Tun> {
        self.ports.iter().map(|port| &*port.tun)
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.now().since(self.origin).as_nanos())
    }

    /// Returns the time when [`work`](Self::work) must be called next, in the driver's time.
    pub(super) fn deadline(&self) -> Time {
        if !self.outbox.is_empty() || !self.active.is_empty() {
            return Time::ZERO;
        }
        Time::from_nanos(self.next.as_nanos().saturating_add(self.origin.as_nanos()))
    }

    /// Does the work that is due, up to a batch of each kind.
    pub(super) fn work(&mut self, pool: &mut BufferPool) {
        self.read(pool);
        self.next = self.advance_net(self.now(), pool);
        self.write(pool);
    }

    /// Records that port `no` may have something to read.
    pub(super) fn mark_readable(&mut self, no: u32) {
        if let Some(port) = self.ports.get_mut(no as usize)
            && !port.active
        {
            port.active = true;
            self.active.push(no);
        }
    }

    /// Reads from the devices that may have something to read.
    fn read(&mut self, pool: &mut BufferPool) {
        let mut i = 0;
        while let Some(no) = self.active.get(i).copied() {
            if self.outbox.len() > OUTBOX_PACKETS {
                return;
            }
            if self.read_port(no as usize, pool) {
                i += 1;
            } else {
                self.ports[no as usize].active = false;
                self.active.swap_remove(i);
            }
        }
    }

    /// Reads a batch from a device. Returns whether there may be more.
    fn read_port(&mut self, no: usize, pool: &mut BufferPool) -> bool {
        for _ in 0..BATCH {
            let Port { tun, connection, stats, .. } = &mut self.ports[no];
            let head = if tun.offload() { HEADER_BYTES } else { 0 };
            // The buffer has a spare byte, so that a packet that was cut off cannot look complete.
            let large = tun.offload() || tun.mtu_bytes() as usize >= SMALL_BYTES;
            let (data, len) = match pool.fill(large, |data| tun.read(data)) {
                Ok(filled) => filled,
                Err(e) => {
                    stats.unread += u64::from(e.kind() != io::ErrorKind::WouldBlock);
                    return false;
                }
            };
            stats.packets += 1;
            stats.bytes += len.saturating_sub(head) as u64;
            let Some(connection) = *connection else {
                stats.unrouted += 1;
                pool.recycle(data);
                continue;
            };
            let Connection { route, flow, .. } = self.connections[connection as usize];
            match IpPacket::parse(data, head, len, connection, flow) {
                Ok(packet) => {
                    let now = self.now();
                    // Everything before this time must have happened when the packet enters the net.
                    self.advance_net(now, pool);
                    self.net.send(now, route, packet);
                }
                Err(data) => {
                    stats.malformed += 1;
                    pool.recycle(data);
                }
            }
        }
        true
    }

    /// Makes everything happen that is due until `now`. Returns when the next event is due.
    fn advance_net(&mut self, now: Time, pool: &mut BufferPool) -> Time {
        loop {
            let cross_at = self.cross_traffic.next_at();
            match self.net.poll(now.min(cross_at)) {
                Output::Send(delivery) => self.outbox.push_back(delivery),
                Output::Event(net::Event::Dropped { packet, .. }) => pool.recycle(packet.into_data()),
                Output::Event(net::Event::State { .. }) => {}
                Output::Wait(next) if cross_at > now => return next.min(cross_at),
                Output::Wait(_) => {
                    if let Some((at, route, packet)) = self.cross_traffic.send(cross_at) {
                        self.net.send(at, route, packet);
                    }
                }
            }
        }
    }

    /// Writes packets whose time has come: a batch, or half of the waiting packets if that is more. So
    /// waiting packets do not pile up when many devices are read.
    fn write(&mut self, pool: &mut BufferPool) {
        for _ in 0..BATCH.max(self.outbox.len() / 2) {
            let Some(Delivery { at, packet, .. }) = self.outbox.pop_front() else { return };
            let now = self.now();
            if let Some(connection) = packet.connection() {
                let Connection { to, stats, .. } = &mut self.connections[connection];
                stats.lateness.record(now.since(at));
                match self.ports[*to as usize].tun.write(packet.as_written()) {
                    Ok(()) => {
                        stats.packets += 1;
                        stats.bytes += u64::from(packet.bytes());
                    }
                    Err(_) => stats.unwritten += 1,
                }
            }
            pool.recycle(packet.into_data());
        }
    }

    /// Changes a link.
    pub(super) fn command(&mut self, link: LinkId, command: LinkChange) {
        let now = self.now();
        let mut pool = BufferPool::default();
        self.advance_net(now, &mut pool);
        self.net.change(now, link, command);
        // The change may make the net due earlier, so look at it again.
        self.next = Time::ZERO;
    }

    /// Returns the time and the statistics of links, connections and ports.
    pub(super) fn stats(&mut self) -> (Time, Vec<Stats>, Vec<ConnectionStats>, Vec<PortStats>) {
        let at = self.now();
        let mut pool = BufferPool::default();
        self.next = self.advance_net(at, &mut pool);
        let links = (0..self.links).map(|no| self.net.stats(LinkId(no))).collect();
        let stats = self.connections.iter().map(|connection| connection.stats.clone()).collect();
        (at, links, stats, self.ports.iter().map(|port| port.stats).collect())
    }

    /// How long packets stayed at each link that plays a trace, as of the last look.
    pub(super) fn sojourns(&self) -> Vec<Option<Histogram>> {
        (0..self.links).map(|no| self.net.sojourns(LinkId(no)).cloned()).collect()
    }
}
