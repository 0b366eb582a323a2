//! A scenario becomes a world.

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
use crate::observations::{FlowEnd, Observe, ObservedFlow};
use crate::packet_flows::{FlowConfig, FlowId};
use crate::packet_layout::PacketLayout;
use crate::scenario::{Flow, Groups, Path, Scenario, Transport};
use crate::sim_source::Misbehaviour;
use crate::simulation::{Fault, PathSpec, ReceiverId, SimSourceId, Simulation, WantId};

/// Blocks of the pattern that contents repeat.
const PATTERN_BLOCKS: usize = 64;
/// The most blocks of a content: its hashes take 64 MiB then, and it is 32 GiB.
const BLOCKS_MAX: u64 = 1 << 21;
/// Bytes of a block of a content.
const BLOCK_BYTES: u64 = anabranch_mmtp::id::BLOCK_BYTES as u64;

/// Links, flows and names.
pub(super) struct SimulatedScenario {
    pub(super) simulation: Simulation,
    links: Links,
    pub(super) flows: Vec<FlowHandle>,
    /// What is to be noted of each flow.
    pub(super) observed: Vec<ObservedFlow>,
}

/// A flow in the world; each of several copies is one.
pub(super) struct FlowHandle {
    pub(super) backend: FlowBackend,
    /// Which paths share a link.
    pub(super) topology: TopologyGroups,
}

/// Which machine runs a flow.
#[derive(Clone, Copy)]
pub(super) enum FlowBackend {
    PacketFlow(FlowId, PacketLayout),
    Receiver(ReceiverId, WantId),
}

impl SimulatedScenario {
    pub(super) fn new(scenario: &Scenario, controller: &str, seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let links = Links::build(scenario, simulation.net_mut());
        let mut world = Self { simulation, links, flows: Vec::new(), observed: Vec::new() };
        let sources = world.sources(scenario);
        for instance in flow_instances(scenario, controller, seed) {
            let backend = match instance.flow.transport {
                Transport::Packet | Transport::Mirrors => world.packet_flow(scenario, &instance),
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

    fn packet_flow(&mut self, scenario: &Scenario, instance: &FlowInstance<'_>) -> FlowBackend {
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
            // The senders of mirrors know nothing of each other.
            let group = if is_mirrors { p as u32 } else { groups[p] };
            paths.push((control.clone(), self.simulation.route(&down), up, group));
        }
        let config = FlowConfig {
            paths,
            packet_bytes: self.links.packet_bytes as u16,
            packets: instance
                .payload_bytes(self.links.packet_bytes)
                .map(|bytes| bytes.div_ceil(layout.payload_bytes).max(1)),
            start: instance.start,
            stop: flow.stop.map(|stop| stop.time()),
            detect: (is_auto && !is_mirrors).then(|| flow.uplinks()),
            mirrors,
        };
        FlowBackend::PacketFlow(self.simulation.packet_flows_mut().flow(&config), layout)
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

    /// The sources of mmTP: each has what every flow asks of it.
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

    /// What a flow transfers: as much as it says, or more than its links can carry.
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

    // What can be read.

    pub(super) const fn packet_bytes(&self) -> u64 {
        self.links.packet_bytes
    }

    /// Packets that left links of the scenario with a rate, which queue.
    pub(super) fn link_packets(&self, scenario: &Scenario) -> u64 {
        let rated = scenario.link.iter().filter(|(_, link)| link.is_limited());
        rated.map(|(name, _)| self.simulation.stats(self.links.ids[name]).delivered).sum()
    }

    /// How a flow is at the end.
    pub(super) fn end(&self, flow: &FlowHandle) -> FlowEnd {
        match flow.backend {
            FlowBackend::PacketFlow(no, _) => {
                let packet_flows = self.simulation.packet_flows();
                let (began, ended) = packet_flows.times(no);
                FlowEnd {
                    began,
                    ended,
                    srtts: packet_flows.srtt(no).collect(),
                    timeouts: packet_flows.timeouts(no),
                    reductions: Some(packet_flows.reductions(no)),
                }
            }
            FlowBackend::Receiver(r, want) => {
                let (paths, progress) = (self.simulation.paths(r), self.simulation.progress(r, want));
                FlowEnd {
                    began: progress.since,
                    ended: progress.complete,
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
        self.bytes(flow).iter().sum()
    }

    fn bytes(&self, flow: usize) -> Vec<u64> {
        match self.flows[flow].backend {
            FlowBackend::PacketFlow(no, layout) => {
                let packets = self.simulation.packet_flows().delivered_packets(no);
                packets.map(|packets| packets * layout.payload_bytes).collect()
            }
            FlowBackend::Receiver(r, _) => {
                self.simulation.paths(r).iter().map(|path| path.counters.bytes).collect()
            }
        }
    }

    fn cwnds(&self, flow: usize) -> Vec<f32> {
        match self.flows[flow].backend {
            FlowBackend::PacketFlow(no, _) => {
                self.simulation.packet_flows().cwnd(no).map(|cwnd| cwnd as f32).collect()
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
        let groups = || match *backend {
            FlowBackend::PacketFlow(no, _) => self.simulation.packet_flows().groups(no),
            FlowBackend::Receiver(r, _) => self.simulation.paths(r).iter().map(|path| path.group).collect(),
        };
        Some(if topology.0.len() < 2 { (false, false) } else { topology.mismatches(&groups()) })
    }

    /// NMCC's factor m (Thomas, dissertation, equation (4.7)) of the largest group.
    fn factor(&self, flow: usize) -> Option<f32> {
        let FlowBackend::PacketFlow(no, _) = self.flows[flow].backend else { return Some(0.0) };
        let groups = self.simulation.packet_flows().published(no).filter(|members| members.len() > 1);
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

/// Sources by name, and what each flow of mmTP transfers.
struct Sources {
    named: BTreeMap<String, SimSourceId>,
    contents: BTreeMap<String, Content>,
}

/// What the source at the far end of a path is called: a name of its own unless the scenario gives one.
fn source_name(flow: &str, p: usize, path: &Path) -> String {
    path.source.clone().unwrap_or_else(|| format!("{flow}/{p}"))
}

fn controller_kind(scenario: &Scenario, instance: &FlowInstance<'_>) -> ControllerKind {
    scenario.controllers.known.kind(instance.controller).expect("checked: the controller exists")
}
