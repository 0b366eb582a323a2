//! An emulator before it is started: its devices, and the connections between them.

use std::sync::Arc;

use anabranch_sim::{CrossTraffic, Histogram, LinkConfig, RouteId};

use super::cross_traffic::CrossTrafficGenerator;
use super::ip_packet::NO_ID;
use super::{ConnectionStats, IpPacket, PortId, PortStats};
use anabranch_net::Tun;

/// Links, and the devices between which they carry packets; see the [crate](crate).
#[derive(Debug)]
pub struct Emulator {
    pub(super) net: anabranch_sim::Net<IpPacket>,
    pub(super) links: u32,
    pub(super) ports: Vec<Port>,
    pub(super) connections: Vec<Connection>,
    pub(super) cross_traffic: CrossTrafficGenerator,
}

#[derive(Debug)]
pub(super) struct Port {
    pub(super) tun: Arc<Tun>,
    /// The connection that packets read from this device take.
    pub(super) connection: Option<u32>,
    pub(super) stats: PortStats,
    /// Whether the device may have something to read.
    pub(super) active: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) to: u32,
    pub(super) route: RouteId,
    pub(super) flow: u32,
    pub(super) stats: ConnectionStats,
}

impl Emulator {
    /// Makes an emulator of these links, without devices. Time zero of the net is the moment of
    /// [`start`](Self::start).
    #[must_use]
    pub fn new(mut net: anabranch_sim::Net<IpPacket>) -> Self {
        net.report_drops(true);
        // A net does not say how many links it has, but the number of one more link does. No route uses that
        // link.
        let links = net.link("", LinkConfig::default()).0;
        Self {
            net,
            links,
            ports: Vec::new(),
            connections: Vec::new(),
            cross_traffic: CrossTrafficGenerator::default(),
        }
    }

    /// Adds a device.
    ///
    /// # Panics
    /// If there are 2^32 devices.
    pub fn add_port(&mut self, tun: Tun) -> PortId {
        let id = u32::try_from(self.ports.len()).expect("fewer than 2^32 devices");
        let stats = PortStats::default();
        self.ports.push(Port { tun: Arc::new(tun), connection: None, stats, active: true });
        PortId(id)
    }

    /// Makes packets read at `from` travel over `route` and be written at `to`. Those with TCP or UDP payload
    /// count as data of `flow` on links that drop by number ([`LinkConfig::scripted_flow_drops`]).
    /// Connections are numbered in the order of these calls
    /// ([`Snapshot::connections`](super::Snapshot::connections)).
    ///
    /// # Panics
    /// If a port is not of this emulator, or `from` has a connection already. Also if only one of the two has
    /// offload, since the other cannot take its packets.
    pub fn connect(&mut self, from: PortId, to: PortId, route: RouteId, flow: Option<u32>) {
        let offload = self.ports[to.0 as usize].tun.offload();
        let port = &mut self.ports[from.0 as usize];
        assert!(port.connection.is_none(), "a port leads to one other only");
        assert!(port.tun.offload() == offload, "both ends of a connection have offload, or none");
        port.connection = Some(u32::try_from(self.connections.len()).expect("no more than ports"));
        let lateness = Histogram::new();
        let stats = ConnectionStats { from, to, route, packets: 0, bytes: 0, unwritten: 0, lateness };
        let flow = flow.unwrap_or(NO_ID);
        self.connections.push(Connection { to: to.0, route, flow, stats });
    }

    /// Adds cross traffic, at the exact times of the net's clock.
    pub fn add_cross_traffic(&mut self, cross_traffic: CrossTraffic) {
        self.cross_traffic.add(cross_traffic);
    }

    pub(super) fn tuns(&self) -> Vec<Arc<Tun>> {
        self.ports.iter().map(|port| port.tun.clone()).collect()
    }
}
