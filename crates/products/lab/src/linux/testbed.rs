//! Builds the hosts of a scenario, joined by its links: namespaces with real network stacks, and the
//! emulator.
//!
//! Every flow F has two hosts: `F.tx` sends and connects, `F.rx` receives and listens. Path p of the flow is
//! a device `p{p}` in both. With n the number of the flow, from 1:
//!
//! * `F.tx` has the address 10.n.p.1 on `p{p}`, and routes to 10.n.255.1 over `p0`, `p1`, ... in this order
//!   of preference; MPTCP opens a subflow over each path but the first, on its device. With several paths,
//!   packets with the source address 10.n.p.1 leave by `p{p}`: each address has a rule with table 100 + p.
//! * `F.rx` has only the address 10.n.255.1, and a route back to 10.n.p.1 over `p{p}`.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use anabranch_algo::Span;
use anabranch_emulator::{Driver, Emulator, EmulatorHandle, IpPacket, PortId, Snapshot};
use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, Netlink, PathManager, Route, Rule};
use anabranch_net::{Namespace, Tun};
use anabranch_sim::{LinkId, Net};

use crate::run::flow_instances::{FlowInstance, flow_instances};
use crate::run::links::{Links, UNRATED, number};
use crate::scenario::{Path, Scenario};

/// Receive buffers hold this multiple of the bytes that all paths have in flight and in queues, so that
/// buffers are never the limit.
const BUFFER_PARTS: u64 = 8;
/// Least and greatest size of a receive buffer, bytes.
const BUFFER_BYTES_MIN: u64 = 4 << 20;
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Size of a host's table of sockets, entries.
const SOCKETS: &str = "64";
/// Routing table of the first address of a host with several addresses; the next address has the next table.
const SOURCE_TABLES: u32 = 100;
/// Packets in a queue without a given time or size ([`anabranch_sim::config::QUEUE_PACKETS`]).
const QUEUE_PACKETS: u64 = anabranch_sim::config::QUEUE_PACKETS as u64;

/// The two hosts of a flow.
#[derive(Debug)]
pub struct HostPair {
    /// Name of this copy of the flow: with several copies `NAME-1`, `NAME-2`, ...
    pub name: String,
    /// The sending host.
    pub tx: Namespace,
    /// The receiving host.
    pub rx: Namespace,
    /// The flow's number, which is part of its addresses.
    pub number: u8,
    /// Round-trip time of each path without queues.
    pub rtts: Vec<Span>,
    /// Indices of each path's connections there and back in [`Snapshot::connections`].
    pub connections: Vec<(usize, usize)>,
}

impl HostPair {
    /// Returns the sender's address on a path.
    #[must_use]
    pub fn sender(&self, path: usize) -> IpAddr {
        address(self.number, path as u8)
    }

    /// Returns the receiver's address.
    #[must_use]
    pub fn receiver(&self) -> IpAddr {
        address(self.number, u8::MAX)
    }
}

fn address(flow: u8, path: u8) -> IpAddr {
    Ipv4Addr::new(10, flow, path, 1).into()
}

/// Hosts and links of a scenario; see the [module](self). They vanish with this value, or with the process.
#[derive(Debug)]
pub struct Testbed {
    /// Hosts, in the order of the flows and their copies.
    pub pairs: Vec<HostPair>,
    /// The running links.
    pub running: EmulatorHandle,
    /// Links of the scenario.
    pub(crate) links: Links,
}

/// Checks whether this process may make namespaces and devices.
///
/// # Errors
/// If it may not; the error says why in a sentence.
pub fn allowed() -> io::Result<()> {
    let space = Namespace::new()?;
    Tun::new(&space, "p0", 1_500, false)?;
    space.run(|| PathManager::open().map(drop))?.map_err(|_| io::Error::other("this kernel has no MPTCP"))?;
    Ok(())
}

/// Makes a namespace whose children have small socket tables of their own. To list the sockets of a
/// namespace the kernel reads the whole table, which is otherwise shared by all namespaces and has 100,000s
/// of entries: many runs side by side spent a third of the machine on it.
fn nursery() -> io::Result<Namespace> {
    let nursery = Namespace::new()?;
    // Kernels before Linux 6.1 have no such setting.
    let _ = nursery.sysctl("net.ipv4.tcp_child_ehash_entries", SOCKETS);
    Ok(nursery)
}

/// Settings of a flow's hosts.
struct HostConfig {
    number: u8,
    paths: usize,
    /// Largest size of buffers, bytes.
    buffer_bytes: u64,
    /// Whether connections ask for ECN.
    ecn: bool,
}

/// Returns the thread that drives all testbeds of this process. With many threads, each due at the same
/// moments, each would delay the others.
pub(super) fn driver() -> io::Result<Driver> {
    static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    match &*driver {
        Some(driver) => Ok(driver.clone()),
        None => Ok(driver.insert(Driver::new()?).clone()),
    }
}

impl Testbed {
    /// Makes the hosts and starts the links, whose time zero is now; the seed decides everything random.
    ///
    /// # Errors
    /// If the system refuses a step; the error is a sentence.
    pub fn new(scenario: &Scenario, seed: u64) -> io::Result<Self> {
        let mut net = Net::<IpPacket>::new(seed);
        let links = Links::build(scenario, &mut net);
        let mtu = u32::try_from(links.packet_bytes).unwrap_or(u32::MAX);
        // Make all routes first: the emulator takes the whole net.
        let mut routes = Vec::new();
        for instance in flow_instances(scenario, "reno", seed) {
            for (p, path) in instance.flow.paths.iter().enumerate() {
                let (down, mut up) = links.path(scenario, &mut net, &instance.name, p, path);
                if up.is_empty() {
                    up.push(net.pipe(Span::ZERO));
                }
                routes.push((net.route(&down), net.route(&up)));
            }
        }
        let crossing = scenario.cbr.iter().map(|(name, cbr)| links.cross_traffic(&mut net, seed, name, cbr));
        let crossing: Vec<_> = crossing.collect();
        let mut emulator = Emulator::new(net);
        crossing.into_iter().for_each(|cross| emulator.add_cross_traffic(cross));
        let nursery = nursery()?;
        let (mut pairs, mut routes, mut connections) = (Vec::new(), routes.into_iter(), 0);
        for instance in flow_instances(scenario, "reno", seed) {
            let host = HostConfig {
                number: u8::try_from(pairs.len() + 1).map_err(io::Error::other)?,
                paths: instance.flow.paths.len(),
                buffer_bytes: buffer_bytes(scenario, &links, &instance),
                ecn: instance.asks_for_ecn(scenario),
            };
            let (tx, rx) = (nursery.run(Namespace::new)??, nursery.run(Namespace::new)??);
            let first = first_number(scenario, &instance);
            let mut ends = Vec::new();
            for p in 0..host.paths {
                let name = format!("p{p}");
                let near = emulator.add_port(Tun::new(&tx, &name, mtu, false)?);
                let far = emulator.add_port(Tun::new(&rx, &name, mtu, false)?);
                let (down, up) = routes.next().expect("a route for each path");
                let connect = |emulator: &mut Emulator, from: PortId, to: PortId, route, flow| {
                    emulator.connect(from, to, route, flow);
                };
                connect(&mut emulator, near, far, down, Some(first + p as u32));
                connect(&mut emulator, far, near, up, None);
                ends.push((connections, connections + 1));
                connections += 2;
            }
            tx.run(|| sender(&host))??;
            rx.run(|| receiver(&host))??;
            let rtts = instance.flow.paths.iter().map(|path| rtt(scenario, path)).collect();
            pairs.push(HostPair {
                name: instance.name,
                tx,
                rx,
                number: host.number,
                rtts,
                connections: ends,
            });
        }
        Ok(Self { pairs, running: driver()?.start(emulator)?, links })
    }

    /// Returns the names of the scenario's links with their numbers in [`Snapshot::links`].
    pub fn links(&self) -> impl Iterator<Item = (&str, LinkId)> {
        self.links.ids.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Returns the host with this name, such as `mp-1.tx`.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Namespace> {
        let (flow, end) = name.rsplit_once('.')?;
        let pair = self.pairs.iter().find(|pair| pair.name == flow)?;
        match end {
            "tx" => Some(&pair.tx),
            "rx" => Some(&pair.rx),
            _ => None,
        }
    }
}

/// Returns the number of the flow's first path among all paths, which links that drop chosen packets use.
/// The paths of a flow's copies have consecutive numbers.
fn first_number(scenario: &Scenario, instance: &FlowInstance<'_>) -> u32 {
    let before =
        instance.name.strip_prefix(instance.base).and_then(|end| end.strip_prefix('-')?.parse::<u32>().ok());
    let before = before.filter(|_| instance.flow.count > 1).unwrap_or(1) - 1;
    number(scenario, instance.base, 0) + before * instance.flow.paths.len() as u32
}

/// Returns the round-trip time of a path without queues.
fn rtt(scenario: &Scenario, path: &Path) -> Span {
    let delays = path.via.iter().chain(&path.back).map(|name| scenario.link[name].delay.0);
    delays.fold(Span::ZERO, |sum, delay| sum + delay).max(path.rtt.0)
}

/// Returns the size of a buffer that never limits a flow, bytes: several times the bytes that its paths hold
/// in flight and in queues.
fn buffer_bytes(scenario: &Scenario, links: &Links, instance: &FlowInstance<'_>) -> u64 {
    let of = |path: &Path| {
        let rates = path.via.iter().filter_map(|name| scenario.link[name].rate);
        let rate = rates.map(|rate| rate.rate(links.packet_bytes)).min().unwrap_or(UNRATED);
        let queues = path.via.iter().map(|name| {
            let link = &scenario.link[name];
            let limited = link.rate.is_some() || link.trace.is_some();
            let own = link.rate.map_or(UNRATED, |rate| rate.rate(links.packet_bytes));
            match link.queue {
                _ if !limited => 0,
                Some(queue) => links.bytes_in(queue, Some(own)),
                None => QUEUE_PACKETS * links.packet_bytes,
            }
        });
        rate.bytes_in(rtt(scenario, path)).saturating_add(queues.fold(0, u64::saturating_add))
    };
    let all = instance.flow.paths.iter().map(of).fold(0, u64::saturating_add);
    all.saturating_mul(BUFFER_PARTS).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)
}

/// Sets the sysctls of a host; both hosts of a flow have the same ones.
fn settings(host: &HostConfig) -> io::Result<()> {
    let set = |key: &str, value: &str| {
        let said = |e: io::Error| io::Error::new(e.kind(), format!("sysctl {key}={value}: {e}"));
        std::fs::write(format!("/proc/sys/{}", key.replace('.', "/")), value).map_err(said)
    };
    set("net.mptcp.enabled", "1")?;
    // 1: connections request ECN (RFC 3168). The default of Linux is 2: ECN only if the other end requests
    // it.
    if host.ecn {
        set("net.ipv4.tcp_ecn", "1")?;
    }
    // A connection must not profit from metrics of an earlier one.
    set("net.ipv4.tcp_no_metrics_save", "1")?;
    // Without this, packets over the second path would be dropped, because the routes lead back over the
    // first.
    set("net.ipv4.conf.all.rp_filter", "0")?;
    for p in 0..host.paths {
        set(&format!("net.ipv4.conf.p{p}.rp_filter"), "0")?;
    }
    let max = host.buffer_bytes;
    set("net.ipv4.tcp_rmem", &format!("4096 {max} {max}"))?;
    // As the default of Linux, except for the maximum: the buffer grows with the window.
    set("net.ipv4.tcp_wmem", &format!("4096 16384 {max}"))?;
    match set("net.ipv6.conf.all.disable_ipv6", "1") {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn limits(host: &HostConfig) -> io::Result<PathManager> {
    let manager = PathManager::open()?;
    // The default of Linux is 2. With fewer, a connection that loses its first subflow cannot join there
    // again.
    let further = host.paths.saturating_sub(1).max(2) as u32;
    manager.set_limits(Limits { subflows: further, add_addr_accepted: 0 })?;
    Ok(manager)
}

/// Sets up the sending host. Runs in its namespace.
fn sender(host: &HostConfig) -> io::Result<()> {
    settings(host)?;
    let (netlink, manager) = (Netlink::open()?, limits(host)?);
    for p in 0..host.paths {
        let (device, ip) = (netlink.index(&format!("p{p}"))?, address(host.number, p as u8));
        netlink.add_address(device, ip, 32)?;
        let to = Route::to(address(host.number, u8::MAX), 32);
        netlink.add_route(&Route { device: Some(device), source: Some(ip), metric: p as u32 + 1, ..to })?;
        if host.paths > 1 {
            // Without this rule, all packets of this host take the first path: answers to packets from
            // another path, and packets of sockets that are bound to another address.
            let table = source_table(p);
            let all = Route::to(Ipv4Addr::UNSPECIFIED.into(), 0);
            netlink.add_route(&Route { device: Some(device), source: Some(ip), table, ..all })?;
            netlink.add_rule(&Rule::from_address(ip, table, table))?;
        }
        if p > 0 {
            let flags = EndpointFlags::SUBFLOW;
            manager.add_endpoint(&Endpoint { ip, port: 0, id: 0, device: Some(device), flags })?;
        }
    }
    Ok(())
}

/// Returns the number of a path's routing table, which is also its rule's priority.
fn source_table(path: usize) -> u32 {
    SOURCE_TABLES + path as u32
}

/// Sets up the receiving host. Runs in its namespace.
fn receiver(host: &HostConfig) -> io::Result<()> {
    settings(host)?;
    let netlink = Netlink::open()?;
    limits(host)?;
    let own = address(host.number, u8::MAX);
    netlink.add_address(netlink.index("lo")?, own, 32)?;
    for p in 0..host.paths {
        let (device, to) = (netlink.index(&format!("p{p}"))?, Route::to(address(host.number, p as u8), 32));
        netlink.add_route(&Route { device: Some(device), source: Some(own), ..to })?;
    }
    Ok(())
}

/// Returns the reasons not to trust a run: packets lost that the links should have carried, and late packets
/// ([`LATE_PARTS`](super::LATE_PARTS)); and whether lateness is the only reason.
#[must_use]
pub fn violations(pairs: &[HostPair], snapshot: &Snapshot) -> (Vec<String>, bool) {
    let mut violations = losses(snapshot);
    let other = violations.len();
    for pair in pairs {
        for (p, (there, back)) in pair.connections.iter().enumerate() {
            if let Some((late, most)) = late_by(snapshot, &[*there, *back], pair.rtts[p].over(2)) {
                violations.push(format!(
                    "flow {}, path {p}: 99 % of the packets within {:.3} ms only, {:.3} ms wanted: the \
                     machine was busy, or too much ran side by side (--jobs)",
                    pair.name,
                    millis(late),
                    millis(most)
                ));
            }
        }
    }
    let late = violations.len() > other;
    (violations, late && other == 0)
}

/// Returns descriptions of packets that were lost although the links should have carried them.
pub(super) fn losses(snapshot: &Snapshot) -> Vec<String> {
    let mut losses: Vec<String> =
        snapshot.failure.iter().map(|e| format!("the emulator failed: {e}")).collect();
    for (no, port) in snapshot.ports.iter().enumerate() {
        let lost = port.malformed + port.unread + port.unrouted;
        if lost > 0 || port.overflowed > 0 {
            losses.push(format!("device {no}: {lost} packets unreadable, {} overflowed", port.overflowed));
        }
    }
    let unwritten: u64 = snapshot.connections.iter().map(|connection| connection.unwritten).sum();
    if unwritten > 0 {
        losses.push(format!("{unwritten} packets could not be handed over"));
    }
    losses
}

/// Returns the 99th percentile of packet lateness on these connections of a path with this delay, and the
/// limit; `None` if the lateness is within the limit.
pub(super) fn late_by(snapshot: &Snapshot, connections: &[usize], delay: Span) -> Option<(Span, Span)> {
    let most = delay.over(super::LATE_PARTS).max(LATE_FLOOR);
    let late = connections.iter().map(|no| snapshot.connections[*no].lateness.quantile(0.99)).max();
    late.filter(|late| *late > most).map(|late| (late, most))
}

/// Returns a time in milliseconds.
pub(super) fn millis(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e6
}

/// Lateness of the 99th percentile that is always allowed: the limit of paths without delay.
const LATE_FLOOR: Span = Span::from_micros(500);
