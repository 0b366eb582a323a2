//! Builds the simulated world of a scenario.

mod tcp;

use std::collections::BTreeMap;

use anabranch_algo::Span;
use anabranch_algo::control::Window;
use anabranch_algo::controller::ControllerKind;
use anabranch_mirror::receive_windows::Sharing;
use anabranch_mmtp::subscriber::Grouping;
use anabranch_sim::{Histogram, Stats};

use super::flow_instances::{FlowInstance, flow_instances, udp_payload_max};
use super::groups::TopologyGroups;
use super::links::{Links, UNRATED};
use crate::content::Content;
use crate::observations::{FlowEnd, Observe, ObservedFlow, Transfer};
use crate::packet_flows::{FlowConfig, FlowId};
use crate::packet_layout::PacketLayout;
use crate::scenario::{Flow, Groups, Path, Scenario, Transport};
use crate::sim_source::Misbehaviour;
use crate::simulation::{Fault, PathSpec, ReceiverId, SimSourceId, Simulation, WantId};
use crate::tcp_flows::TcpFlowId;

/// Blocks of the pattern that contents repeat.
const PATTERN_BLOCKS: usize = 64;
/// Most blocks of a content, 32 GiB: its hashes then take 64 MiB.
const BLOCKS_MAX: u64 = 1 << 21;
/// Bytes of a block of a content.
const BLOCK_BYTES: u64 = anabranch_mmtp::id::BLOCK_BYTES as u64;

/// The simulation of a scenario, with its links and flows.
pub(super) struct SimulatedScenario {
    pub(super) simulation: Simulation,
    links: Links,
    pub(super) flows: Vec<FlowHandle>,
    /// State to be recorded of each flow.
    pub(super) observed: Vec<ObservedFlow>,
}

/// A flow in the world. Each copy of a flow with a `count` is a flow here.
pub(super) struct FlowHandle {
    pub(super) backend: FlowBackend,
    /// Groups of the paths that share a link.
    pub(super) topology: TopologyGroups,
}

/// The machine that runs a flow.
#[derive(Clone, Copy)]
pub(super) enum FlowBackend {
    /// Packet flows, one for each transfer: the first one and their number.
    PacketFlows(FlowId, usize, PacketLayout),
    Receiver(ReceiverId, WantId),
    Tcp(TcpFlowId),
}

impl SimulatedScenario {
    pub(super) fn new(scenario: &Scenario, controller: &str, seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let links = Links::build(scenario, simulation.net_mut());
        let mut world = Self { simulation, links, flows: Vec::new(), observed: Vec::new() };
        let sources = world.sources(scenario);
        for instance in flow_instances(scenario, controller, seed) {
            let backend = match instance.flow.transport {
                Transport::Packet | Transport::Mirrors => world.packet_flows(scenario, &instance, seed),
                Transport::Tcp | Transport::Mptcp => world.tcp_flow(scenario, &instance, seed),
                Transport::Mmtp => world.mmtp_flow(scenario, &instance, &sources),
            };
            let topology = TopologyGroups::new(scenario, instance.flow);
            world.flows.push(FlowHandle { backend, topology });
            world.observed.push(instance.observed(world.links.packet_bytes));
        }
        for (name, cbr) in &scenario.cbr {
            let config = world.links.cross_traffic(world.simulation.net_mut(), seed, name, cbr);
            world.simulation.packet_flows_mut().cross_traffic(config);
        }
        world.faults(scenario, &sources);
        world
    }

    fn packet_flows(&mut self, scenario: &Scenario, instance: &FlowInstance<'_>, seed: u64) -> FlowBackend {
        let (flow, control) = (instance.flow, controller_kind(scenario, instance));
        let layout = instance.layout(self.links.packet_bytes);
        let groups = TopologyGroups::initial(scenario, flow);
        let is_mirrors = flow.transport == Transport::Mirrors;
        let is_auto = flow.groups == Groups::Auto;
        let sharing = |uplink: Option<u32>, group: u32| {
            if is_auto { Sharing::Detected { uplink } } else { Sharing::Given(group) }
        };
        let uplinks = flow.uplinks().into_iter().zip(&groups);
        let mirrors = is_mirrors.then(|| uplinks.map(|(uplink, group)| sharing(uplink, *group)).collect());
        let mut paths = Vec::new();
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, up) = self.links.path(scenario, self.simulation.net_mut(), &instance.name, p, path);
            let up = if up.is_empty() { None } else { Some(self.simulation.route(&up)) };
            // The senders of mirrors do not know each other.
            let group = if is_mirrors { p as u32 } else { groups[p] };
            paths.push((control.clone(), self.simulation.route(&down), up, group));
        }
        let mut config = FlowConfig {
            paths,
            packet_bytes: self.links.packet_bytes as u16,
            packets: None,
            start: instance.start,
            // No transfer arrives after `stop`; those that have arrived continue.
            stop: flow.stop.filter(|_| flow.arrivals.is_none()).map(|stop| stop.time()),
            detect: (is_auto && !is_mirrors).then(|| flow.uplinks()),
            ack_delay: flow.delayed_acks.map(|longest| longest.0),
            mirrors,
            steering: self.links.steering(scenario, flow, &instance.name, seed),
        };
        let transfers = instance.transfers(scenario, self.links.packet_bytes, seed);
        let packet_flows = self.simulation.packet_flows_mut();
        let first = packet_flows.count();
        for (start, bytes) in &transfers {
            config.start = *start;
            config.packets = bytes.map(|bytes| bytes.div_ceil(layout.payload_bytes).max(1));
            packet_flows.flow(&config);
        }
        FlowBackend::PacketFlows(first, transfers.len(), layout)
    }

    fn tcp_flow(&mut self, scenario: &Scenario, instance: &FlowInstance<'_>, seed: u64) -> FlowBackend {
        let config = tcp::config(&mut self.simulation, &self.links, scenario, instance, seed);
        FlowBackend::Tcp(self.simulation.tcp_flow(&instance.name, config))
    }

    fn mmtp_flow(
        &mut self,
        scenario: &Scenario,
        instance: &FlowInstance<'_>,
        sources: &Sources,
    ) -> FlowBackend {
        let (flow, control) = (instance.flow, controller_kind(scenario, instance));
        let receiver = self.simulation.receiver(flow.coalesce.0);
        if flow.groups == Groups::Auto {
            self.simulation.grouping(receiver, Grouping::Auto);
        }
        let (groups, uplinks) = (TopologyGroups::initial(scenario, flow), flow.uplinks());
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, mut up) =
                self.links.path(scenario, self.simulation.net_mut(), &instance.name, p, path);
            if up.is_empty() {
                up.push(self.simulation.pipe(Span::ZERO));
            }
            let mut spec = PathSpec::new(&down, &up, control.clone());
            spec.group = groups[p];
            spec.uplink = uplinks[p];
            spec.payload_max = udp_payload_max(self.links.packet_bytes);
            let source = sources.named[&source_name(instance.base, p, path)];
            let id = self.simulation.path(receiver, source, &spec);
            if let Some(stop) = flow.stop {
                self.simulation.at(stop.time(), Fault::Interface { receiver, path: id, up: false });
            }
        }
        let want = self.simulation.want(receiver, &sources.contents[instance.base], instance.start);
        FlowBackend::Receiver(receiver, want)
    }

    /// Adds the sources of mmTP: each has the content that every flow requests from it.
    fn sources(&mut self, scenario: &Scenario) -> Sources {
        let mut sources = Sources { named: BTreeMap::new(), contents: BTreeMap::new() };
        let mut has: BTreeMap<String, Vec<Content>> = BTreeMap::new();
        for (name, flow) in scenario.flow.iter().filter(|(_, flow)| flow.transport == Transport::Mmtp) {
            let content = self.content(scenario, flow);
            for (p, path) in flow.paths.iter().enumerate() {
                let contents = has.entry(source_name(name, p, path)).or_default();
                if contents.iter().all(|other| other.id() != content.id()) {
                    contents.push(content.clone());
                }
            }
            sources.contents.insert(name.clone(), content);
        }
        for (name, contents) in has {
            sources.named.insert(name, self.simulation.source(&contents, Misbehaviour::Honest));
        }
        sources
    }

    /// Returns the content that a flow transfers: of the flow's size, or more than its links can carry.
    fn content(&self, scenario: &Scenario, flow: &Flow) -> Content {
        let bytes = match flow.size {
            Some(size) => self.links.bytes_in(size, None),
            None => {
                let rate =
                    |link: &String| scenario.link[link].rate.map(|rate| rate.rate(self.links.packet_bytes));
                let narrowest = |path: &Path| path.via.iter().filter_map(rate).min();
                let rates = flow.paths.iter().map(|path| narrowest(path).unwrap_or(UNRATED));
                rates.map(|rate| rate.bytes_in(scenario.duration.0)).sum()
            }
        };
        Content::repeating(1, PATTERN_BLOCKS, bytes.div_ceil(BLOCK_BYTES).clamp(2, BLOCKS_MAX))
    }

    fn faults(&mut self, scenario: &Scenario, sources: &Sources) {
        for fault in &scenario.fault {
            for (at, link, change) in self.links.changes(fault) {
                self.simulation.at(at, Fault::Link { link, change });
            }
            if let Some(&source) = fault.source.as_ref().and_then(|name| sources.named.get(name)) {
                self.simulation.at(fault.at.time(), Fault::Kill { source, unreachable: false });
                if let Some(until) = fault.until {
                    self.simulation.at(until.time(), Fault::Restart { source });
                }
            }
        }
    }

    // Readers.

    pub(super) const fn packet_bytes(&self) -> u64 {
        self.links.packet_bytes
    }

    /// Returns the packets that left links with a rate or a trace, which have queues.
    pub(super) fn link_packets(&self, scenario: &Scenario) -> u64 {
        let rated = scenario.link.iter().filter(|(_, link)| link.is_limited());
        rated.map(|(name, _)| self.simulation.stats(self.links.ids[name]).delivered).sum()
    }

    /// Returns the number of paths of a flow.
    fn observed_paths(&self, flow: usize) -> usize {
        self.flows[flow].topology.0.len()
    }

    /// Returns the transfers of a packet flow that are in progress. A flow with only one transfer always
    /// returns it, even before its start and after its end.
    fn under_way(&self, flow: usize) -> impl Iterator<Item = FlowId> {
        let (first, count) = match self.flows[flow].backend {
            FlowBackend::PacketFlows(first, count, _) => (first, count),
            FlowBackend::Receiver(..) | FlowBackend::Tcp(_) => (0, 0),
        };
        let flows = self.simulation.packet_flows();
        (first..first + count).filter(move |no| count == 1 || matches!(flows.times(*no), (Some(_), None)))
    }

    /// Returns the state of a flow at the end of the run.
    pub(super) fn end(&self, flow: &FlowHandle) -> FlowEnd {
        match flow.backend {
            FlowBackend::PacketFlows(first, count, _) => {
                let (packet_flows, all) = (self.simulation.packet_flows(), first..first + count);
                let times = all.clone().map(|no| packet_flows.times(no));
                let transfers: Vec<Transfer> =
                    times.filter_map(|(began, ended)| Some(Transfer { began: began?, ended })).collect();
                // Of several transfers, the RTT is that of the one that began last.
                let last = first + transfers.len().saturating_sub(1);
                FlowEnd {
                    srtts: if count > 0 { packet_flows.srtt(last).collect() } else { Vec::new() },
                    timeouts: all.clone().map(|no| packet_flows.timeouts(no)).sum(),
                    reductions: Some(all.map(|no| packet_flows.reductions(no)).sum()),
                    transfers,
                }
            }
            FlowBackend::Tcp(no) => {
                let transfers = self.simulation.tcp_flows().transfers(no);
                FlowEnd {
                    transfers: transfers
                        .iter()
                        .filter_map(|t| Some(Transfer { began: t.began?, ended: t.ended }))
                        .collect(),
                    srtts: self.simulation.tcp_flows().srtts(no),
                    timeouts: transfers.iter().map(|transfer| transfer.timeouts).sum(),
                    reductions: Some(transfers.iter().map(|transfer| transfer.reductions).sum()),
                }
            }
            FlowBackend::Receiver(r, want) => {
                let (paths, progress) = (self.simulation.paths(r), self.simulation.progress(r, want));
                FlowEnd {
                    transfers: progress
                        .since
                        .map(|began| Transfer { began, ended: progress.complete })
                        .into_iter()
                        .collect(),
                    srtts: paths.iter().map(|path| path.srtt).collect(),
                    timeouts: paths.iter().map(|path| path.counters.timeouts).sum(),
                    reductions: None,
                }
            }
        }
    }
}

impl Observe for SimulatedScenario {
    fn total(&self, flow: usize) -> u64 {
        match self.flows[flow].backend {
            // What has arrived twice, or waits for data on another path, does not count.
            FlowBackend::Tcp(no) => self.simulation.tcp_flows().read_bytes(no),
            _ => self.bytes(flow).iter().sum(),
        }
    }

    fn bytes(&self, flow: usize) -> Vec<u64> {
        match self.flows[flow].backend {
            FlowBackend::PacketFlows(first, count, layout) => {
                let flows = self.simulation.packet_flows();
                let mut bytes = vec![0; self.observed_paths(flow)];
                for no in first..first + count {
                    for (sum, packets) in bytes.iter_mut().zip(flows.delivered_packets(no)) {
                        *sum += packets * layout.payload_bytes;
                    }
                }
                bytes
            }
            FlowBackend::Tcp(no) => self.simulation.tcp_flows().delivered_bytes(no).to_vec(),
            FlowBackend::Receiver(r, _) => {
                self.simulation.paths(r).iter().map(|path| path.counters.bytes).collect()
            }
        }
    }

    fn cwnds(&self, flow: usize) -> Vec<f32> {
        match self.flows[flow].backend {
            FlowBackend::PacketFlows(..) => {
                let flows = self.simulation.packet_flows();
                let mut windows = vec![0.0; self.observed_paths(flow)];
                for no in self.under_way(flow) {
                    windows.iter_mut().zip(flows.cwnd(no)).for_each(|(sum, cwnd)| *sum += cwnd as f32);
                }
                windows
            }
            FlowBackend::Tcp(no) => {
                self.simulation.tcp_flows().cwnds(no).iter().map(|cwnd| *cwnd as f32).collect()
            }
            FlowBackend::Receiver(r, _) => {
                self.simulation.paths(r).iter().map(|path| path.cwnd as f32).collect()
            }
        }
    }

    fn links(&self) -> Vec<Stats> {
        self.links.ids.values().map(|link| self.simulation.stats(*link)).collect()
    }

    fn sojourns(&self) -> Vec<Option<Histogram>> {
        self.links.ids.values().map(|link| self.simulation.sojourns(*link).cloned()).collect()
    }

    fn queued_bytes(&self, link: usize) -> f64 {
        let id = self.links.ids.values().nth(link);
        id.map_or(0.0, |id| self.simulation.queued_bytes(*id) as f64)
    }

    fn misgrouped(&self, flow: usize) -> Option<(bool, bool)> {
        let FlowHandle { backend, topology } = &self.flows[flow];
        if topology.0.len() < 2 {
            return Some((false, false));
        }
        Some(match *backend {
            FlowBackend::PacketFlows(..) => {
                let wrong = |no| topology.mismatches(&self.simulation.packet_flows().groups(no));
                let any = |a: (bool, bool), b: (bool, bool)| (a.0 || b.0, a.1 || b.1);
                self.under_way(flow).map(wrong).fold((false, false), any)
            }
            // All subflows of a connection are coupled.
            FlowBackend::Tcp(_) => topology.mismatches(&vec![0; topology.0.len()]),
            FlowBackend::Receiver(r, _) => {
                let paths = self.simulation.paths(r);
                topology.mismatches(&paths.iter().map(|path| path.group).collect::<Vec<_>>())
            }
        })
    }

    /// Returns NMCC's factor m (Thomas, dissertation, equation (4.7)) of the largest group.
    fn factor(&self, flow: usize) -> Option<f32> {
        if !matches!(self.flows[flow].backend, FlowBackend::PacketFlows(..)) {
            return Some(0.0);
        }
        let groups = self.under_way(flow).flat_map(|no| self.simulation.packet_flows().published(no));
        let groups = groups.filter(|members| members.len() > 1);
        let m2 = groups.map(|members| {
            let counted = members.iter().filter(|member| member.srtt > Span::ZERO);
            let omegas: Vec<f64> = counted
                .map(|member| {
                    let w =
                        if member.slow_start { member.cwnd.units() as f64 / Window::ONE as f64 } else { 1.0 };
                    w / (member.srtt.as_nanos() as f64).powi(2)
                })
                .collect();
            let most = omegas.iter().copied().fold(0.0, f64::max);
            if most > 0.0 { omegas.iter().sum::<f64>() / most } else { 0.0 }
        });
        Some(m2.fold(0.0, f64::max).sqrt() as f32)
    }
}

/// Sources by name, and the content that each flow of mmTP transfers.
struct Sources {
    named: BTreeMap<String, SimSourceId>,
    contents: BTreeMap<String, Content>,
}

/// Returns the name of the source at the far end of a path: the given one, or else one for this path alone.
fn source_name(flow: &str, p: usize, path: &Path) -> String {
    path.source.clone().unwrap_or_else(|| format!("{flow}/{p}"))
}

fn controller_kind(scenario: &Scenario, instance: &FlowInstance<'_>) -> ControllerKind {
    scenario.controllers.known.kind(instance.controller).expect("checked: the controller exists")
}
