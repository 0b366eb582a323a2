//! The nodes and lines of a domain of the overlay in this kernel: a namespace a node, the emulator between.
//!
//! A line is a device at each end, with the line's address there and a route to the other one: nothing else
//! can be reached by IP, and no node passes packets on. Which way something takes through the domain is for
//! the overlay to say.

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

/// The largest packet of a line, bytes.
const MTU_BYTES: u32 = 1_500;
/// A line's queue holds what it sends in this time,
const QUEUE_TIME: Span = Span::from_millis(50);
/// and at least this, bytes: a burst of the largest size that senders pace at.
const QUEUE_BYTES_MIN: u64 = 64 << 10;
/// How the names of devices begin that have the neighbour's name.
const TO: &str = "to-";
/// The longest name of a device, bytes.
const DEVICE_NAME_MAX: usize = 15;

/// Nodes and lines; see the [module](self). All of it goes with this value, or with the process.
#[derive(Debug)]
pub struct DomainBed {
    /// The nodes, in the domain's order.
    pub nodes: Vec<Namespace>,
    /// Of each link of the domain the device where it begins.
    pub devices: Vec<String>,
    /// The lines at work. A link of the domain has its number in [`Snapshot::links`], and in
    /// [`Snapshot::connections`].
    pub running: EmulatorHandle,
}

impl DomainBed {
    /// Makes the nodes and starts the lines. `named` is told of each node before there is a line to it.
    ///
    /// # Errors
    /// What the system refuses, in a sentence.
    pub fn new(domain: &Domain, named: impl Fn(&Namespace) -> io::Result<()>) -> io::Result<Self> {
        let graph = &domain.graph;
        // Nothing is left to chance, so any seed will do.
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

    /// What a snapshot has that should not be trusted: packets lost beyond what the lines lose, or too late.
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
        // Nothing waits.
        None => config,
    }
}

/// Of each link the device where it begins: `to-` and the neighbour's name, or else the line's number.
fn device_names(domain: &Domain) -> Vec<String> {
    let mut taken: BTreeSet<(NodeId, String)> = BTreeSet::new();
    let name = |id: LinkId| {
        let link = domain.graph.link(id);
        let plain = format!("{TO}{}", domain.graph.node(link.to).name);
        // There may be several lines to one neighbour.
        let fits = plain.len() <= DEVICE_NAME_MAX && taken.insert((link.from, plain.clone()));
        if fits { plain } else { format!("line{}", id.index() / 2) }
    };
    domain.graph.link_ids().map(name).collect()
}

/// Keeps a node from passing IP packets on, whatever this machine does.
fn ends_here(node: &Namespace) -> io::Result<()> {
    node.sysctl("net.ipv4.ip_forward", "0")?;
    match node.sysctl("net.ipv6.conf.all.forwarding", "0") {
        // A kernel without IPv6.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Gives a device the address of its end of a line, and the way to the other one; in the node's namespace.
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
