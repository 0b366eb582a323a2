//! Builds the nodes and lines of an overlay domain in this kernel: one namespace a node, joined by the
//! emulator.
//!
//! A line is a device at each end, with the line's address there and a route to the other end. Nothing else
//! can be reached by IP, and no node forwards packets: the overlay chooses the route through the domain.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use anabranch_algo::{Rate, Span};
use anabranch_emulator::{Emulator, EmulatorHandle, IpPacket, PortId, Snapshot};
use anabranch_net::netlink::{Netlink, Route};
use anabranch_net::{Namespace, Tun};
use anabranch_overlay::domain::Domain;
use anabranch_sim::{LinkConfig, Net};
use anabranch_topology::graph::{LinkId, NodeId};

use super::testbed::{driver, late_by, losses, millis};

/// Largest packet of a line, bytes.
const MTU_BYTES: u32 = 1_500;
/// A line's queue holds the bytes that the line sends in this time, but at least `QUEUE_BYTES_MIN`.
const QUEUE_TIME: Span = Span::from_millis(50);
/// Least queue of a line, bytes: a burst of the largest size at which senders pace.
const QUEUE_BYTES_MIN: u64 = 64 << 10;
/// Prefix of device names that contain the neighbour's name.
const TO: &str = "to-";
/// The longest name of a device, bytes.
const DEVICE_NAME_MAX: usize = 15;

/// Nodes and lines of a domain; see the [module](self). They vanish with this value, or with the process.
#[derive(Debug)]
pub struct DomainBed {
    /// The nodes, in the domain's order.
    pub nodes: Vec<Namespace>,
    /// Name of the device at the start of each link of the domain.
    pub devices: Vec<String>,
    /// The running lines. A link's number in the domain is its index in [`Snapshot::links`] and in
    /// [`Snapshot::connections`].
    pub running: EmulatorHandle,
}

impl DomainBed {
    /// Makes the nodes and starts the lines. `named` is called for each node before it has a line.
    ///
    /// # Errors
    /// If the system refuses a step; the error is a sentence.
    pub fn new(domain: &Domain, named: impl Fn(&Namespace) -> io::Result<()>) -> io::Result<Self> {
        let graph = &domain.graph;
        // Nothing is random here, so the seed does not matter.
        let mut net = Net::<IpPacket>::new(0);
        let routes: Vec<_> = graph
            .links()
            .iter()
            .map(|link| {
                let rate = link.capacity_bytes.map(Rate::from_bytes);
                let id = net.link("line", config(rate, Span::from_nanos(link.delay_ns)));
                net.route(&[id])
            })
            .collect();
        let nodes: Vec<Namespace> = graph.node_ids().map(|_| Namespace::new()).collect::<io::Result<_>>()?;
        for node in &nodes {
            named(node)?;
            ends_here(node)?;
        }
        let devices = device_names(domain);
        let mut emulator = Emulator::new(net);
        let mut ports: Vec<PortId> = Vec::new();
        for id in graph.link_ids() {
            let from = &nodes[graph.link(id).from.index()];
            ports.push(emulator.add_port(Tun::new(from, &devices[id.index()], MTU_BYTES, false)?));
        }
        for (id, route) in graph.link_ids().zip(routes) {
            let there = ports[domain.reverse(id).index()];
            emulator.connect(ports[id.index()], there, route, None);
        }
        for node in graph.node_ids() {
            let ends: Vec<(&str, IpAddr, IpAddr)> = graph
                .outgoing(node)
                .iter()
                .map(|id| (&*devices[id.index()], domain.address_here(*id), domain.address_there(*id).0))
                .collect();
            nodes[node.index()].run(|| ends.iter().try_for_each(|end| connect(*end)))??;
        }
        Ok(Self { nodes, devices, running: driver()?.start(emulator)? })
    }

    /// Returns the reasons not to trust a run: packets lost that the lines should have carried, and late
    /// packets.
    #[must_use]
    pub fn violations(domain: &Domain, snapshot: &Snapshot) -> Vec<String> {
        let mut violations = losses(snapshot);
        for id in domain.graph.link_ids() {
            let link = domain.graph.link(id);
            if let Some((late, most)) = late_by(snapshot, &[id.index()], Span::from_nanos(link.delay_ns)) {
                let name = |node: NodeId| &domain.graph.node(node).name;
                violations.push(format!(
                    "line {} – {}: 99 % of the packets within {:.3} ms only, {:.3} ms wanted: the \
                     machine was busy",
                    name(link.from),
                    name(link.to),
                    millis(late),
                    millis(most)
                ));
            }
        }
        violations
    }
}

fn config(rate: Option<Rate>, delay: Span) -> LinkConfig {
    let config = LinkConfig { rate, delay, ..LinkConfig::default() };
    match rate {
        Some(rate) => config.queue_bytes(rate.bytes_in(QUEUE_TIME).max(QUEUE_BYTES_MIN)),
        // A line without a rate has no queue.
        None => config,
    }
}

/// Returns the device at the start of each link: `to-` and the neighbour's name, or else the line's number.
fn device_names(domain: &Domain) -> Vec<String> {
    let mut taken: BTreeSet<(NodeId, String)> = BTreeSet::new();
    let name = |id: LinkId| {
        let link = domain.graph.link(id);
        let plain = format!("{TO}{}", domain.graph.node(link.to).name);
        // Several lines may lead to one neighbour.
        let fits = plain.len() <= DEVICE_NAME_MAX && taken.insert((link.from, plain.clone()));
        if fits { plain } else { format!("line{}", id.index() / 2) }
    };
    domain.graph.link_ids().map(name).collect()
}

/// Keeps a node from forwarding IP packets, whatever this machine's settings are.
fn ends_here(node: &Namespace) -> io::Result<()> {
    node.sysctl("net.ipv4.ip_forward", "0")?;
    match node.sysctl("net.ipv6.conf.all.forwarding", "0") {
        // This kernel has no IPv6.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Gives a device the address of its end of a line, and a route to the other end. Runs in the node's
/// namespace.
fn connect((device, here, there): (&str, IpAddr, IpAddr)) -> io::Result<()> {
    let netlink = Netlink::open()?;
    let (device, bits) = (netlink.index(device)?, if here.is_ipv4() { 32 } else { 128 });
    netlink.add_address(device, here, bits)?;
    netlink.add_route(&Route { device: Some(device), source: Some(here), ..Route::to(there, bits) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_hold_fifty_milliseconds_or_a_burst() {
        let queue = |mbit: u64| config(Some(Rate::from_bits(mbit * 1_000_000)), Span::ZERO).queue_bytes;
        assert_eq!((queue(1), queue(100)), (65_536, 625_000));
    }

    #[test]
    fn devices_have_the_names_of_neighbours_where_that_is_clear() {
        let text = "name = \"d\"\nforwarders = [\"all\"]\nrendezvous = { node = \"a-very-long-name\" }\n\
                    topology = { node = \"lo\" }\n\
                    line = [{ between = [\"all\", \"lo\"] }, { between = [\"all\", \"lo\"] }, \
                    { between = [\"a-very-long-name\", \"all\"] }]\n";
        let domain = anabranch_overlay::domain_file::read(text).expect("a domain");
        let names = ["to-lo", "to-all", "line1", "line1", "to-all", "line2"];
        assert_eq!(device_names(&domain), names);
    }
}
