//! A scenario becomes a world.

use std::collections::BTreeMap;

use algo::control::Algorithm;
use algo::{Rate, Span};
use mmtp::subscriber::Grouping;
use sim::{LinkId, Stats};

use super::copies::{Copy, copies};
use super::groups::Truth;
use super::links::Links;
use super::seen::{End, Flow as Noted, Sight};
use crate::content::Content;
use crate::crowd::{Burst, CbrConfig, FlowConfig, FlowNo};
use crate::peer::Lie;
use crate::scenario::{Flow, Groups, Path, Scenario, Transport};
use crate::swarm::{Fault, OVERHEAD_BYTES, PAYLOAD_MAX, ReceiverNo, SourceNo, Swarm, WantNo, Wire};

/// What a path without a rate (of a trace, of its access link) is taken to carry at most: it decides only how
/// long an endless content is.
const UNRATED: Rate = Rate::from_bits(1_000_000_000);
/// Groups of the pattern that contents repeat.
const PATTERN_GROUPS: usize = 64;
/// The most groups of a content: its hashes take 64 MiB then, and it is 32 GiB.
const GROUPS_MAX: u64 = 1 << 21;
/// Bytes of a group of a content.
const GROUP_BYTES: u64 = mmtp::id::GROUP_BYTES as u64;

/// Links, flows and names.
pub(super) struct World {
    pub(super) swarm: Swarm,
    links: Links,
    pub(super) flows: Vec<Placed>,
}

/// A flow in the world; each of several copies is one.
pub(super) struct Placed {
    /// Its own name,
    pub(super) name: String,
    /// and the scenario's.
    pub(super) base: String,
    pub(super) paths: usize,
    pub(super) at: Where,
    /// Which paths share a link.
    pub(super) truth: Truth,
}

/// Which machine runs a flow.
#[derive(Clone, Copy)]
pub(super) enum Where {
    Crowd(FlowNo),
    Receiver(ReceiverNo, WantNo),
}

impl World {
    pub(super) fn new(scenario: &Scenario, controller: &str, seed: u64) -> Self {
        let mut swarm = Swarm::new(seed);
        let links = Links::lay(scenario, &mut swarm);
        let mut world = Self { swarm, links, flows: Vec::new() };
        let sources = world.sources(scenario);
        for copy in copies(scenario, controller, seed) {
            let at = match copy.flow.transport {
                Transport::Packet => world.packet_flow(scenario, &copy),
                Transport::Mmtp => world.mmtp_flow(scenario, &copy, &sources),
            };
            let (truth, paths) = (Truth::new(scenario, copy.flow), copy.flow.paths.len());
            world.flows.push(Placed { name: copy.own, base: copy.base.into(), paths, at, truth });
        }
        for (name, cbr) in &scenario.cbr {
            let via: Vec<LinkId> = cbr.via.iter().map(|link| world.links.ids[link]).collect();
            let packet_bytes = world.links.packet_bytes;
            let config = CbrConfig {
                name: format!("cbr {name}"),
                route: world.swarm.route(&via),
                rate: cbr.rate.rate(packet_bytes),
                packet_bytes: packet_bytes as u16,
                burst: cbr.on.map(|on| Burst { on: on.0, off: cbr.off.0 }),
                start: cbr.start.time(),
                stop: cbr.stop.map(|stop| stop.time()),
            };
            world.swarm.crowd_mut().cbr(&config);
        }
        world.faults(scenario, &sources);
        world
    }

    fn packet_flow(&mut self, scenario: &Scenario, copy: &Copy<'_>) -> Where {
        let (flow, control) = (copy.flow, algorithm(copy));
        let groups = Truth::groups(scenario, flow);
        let mut paths = Vec::new();
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, up) = self.links.path(scenario, &mut self.swarm, &copy.own, p, path);
            let up = if up.is_empty() { None } else { Some(self.swarm.route(&up)) };
            paths.push((control, self.swarm.route(&down), up, groups[p]));
        }
        let config = FlowConfig {
            paths,
            packet_bytes: self.links.packet_bytes as u16,
            packets: flow
                .size
                .map(|size| self.links.bytes_in(size, None).div_ceil(self.links.packet_bytes).max(1)),
            start: copy.start,
            stop: flow.stop.map(|stop| stop.time()),
            detect: flow.groups == Groups::Auto,
        };
        Where::Crowd(self.swarm.crowd_mut().flow(&config))
    }

    fn mmtp_flow(&mut self, scenario: &Scenario, copy: &Copy<'_>, sources: &Sources) -> Where {
        let (flow, control) = (copy.flow, algorithm(copy));
        let receiver = self.swarm.receiver(Span::ZERO);
        if flow.groups == Groups::Auto {
            self.swarm.grouping(receiver, Grouping::Auto);
        }
        let groups = Truth::groups(scenario, flow);
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, mut up) = self.links.path(scenario, &mut self.swarm, &copy.own, p, path);
            if up.is_empty() {
                up.push(self.swarm.pipe(Span::ZERO));
            }
            let mut wire = Wire::new(&down, &up, control);
            wire.group = groups[p];
            wire.payload_max =
                usize::try_from(self.links.packet_bytes).unwrap_or(usize::MAX) - OVERHEAD_BYTES;
            wire.payload_max = wire.payload_max.min(PAYLOAD_MAX);
            let source = sources.named[&source_name(copy.base, p, path)];
            let id = self.swarm.path(receiver, source, &wire);
            if let Some(stop) = flow.stop {
                self.swarm.at(stop.time(), Fault::Interface { receiver, path: id, up: false });
            }
        }
        let want = self.swarm.want(receiver, &sources.contents[copy.base], copy.start);
        Where::Receiver(receiver, want)
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
            sources.named.insert(name, self.swarm.source(&contents, Lie::Honest));
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
        Content::repeating(1, PATTERN_GROUPS, bytes.div_ceil(GROUP_BYTES).clamp(2, GROUPS_MAX))
    }

    fn faults(&mut self, scenario: &Scenario, sources: &Sources) {
        for fault in &scenario.fault {
            for (at, link, command) in self.links.commands(fault) {
                self.swarm.at(at, Fault::Link { link, command });
            }
            if let Some(&source) = fault.source.as_ref().and_then(|name| sources.named.get(name)) {
                self.swarm.at(fault.at.time(), Fault::Kill { source, unreachable: false });
                if let Some(until) = fault.until {
                    self.swarm.at(until.time(), Fault::Restart { source });
                }
            }
        }
    }

    // What can be read.

    pub(super) const fn packet_bytes(&self) -> u64 {
        self.links.packet_bytes
    }

    /// The flows, for notes of them.
    pub(super) fn noted(&self) -> Vec<Noted> {
        let noted = |flow: &Placed| Noted {
            name: flow.name.clone(),
            base: flow.base.clone(),
            paths: flow.paths,
            end: End::default(),
        };
        self.flows.iter().map(noted).collect()
    }

    /// Packets that left links of the scenario with a rate, which queue.
    pub(super) fn link_packets(&self, scenario: &Scenario) -> u64 {
        let rated = scenario.link.iter().filter(|(_, link)| link.rate.is_some() || link.trace.is_some());
        rated.map(|(name, _)| self.swarm.stats(self.links.ids[name]).delivered).sum()
    }

    /// How a flow is at the end.
    pub(super) fn end(&self, flow: &Placed) -> End {
        match flow.at {
            Where::Crowd(no) => {
                let crowd = self.swarm.crowd();
                let (began, ended) = crowd.times(no);
                End { began, ended, srtts: crowd.srtt(no).collect(), timeouts: crowd.timeouts(no) }
            }
            Where::Receiver(r, want) => {
                let (paths, progress) = (self.swarm.paths(r), self.swarm.progress(r, want));
                End {
                    began: progress.since,
                    ended: progress.complete,
                    srtts: paths.iter().map(|path| path.srtt).collect(),
                    timeouts: paths.iter().map(|path| path.counters.timeouts).sum(),
                }
            }
        }
    }
}

impl Sight for World {
    fn total(&self, flow: usize) -> u64 {
        self.bytes(flow).iter().sum()
    }

    fn bytes(&self, flow: usize) -> Vec<u64> {
        match self.flows[flow].at {
            Where::Crowd(no) => self.swarm.crowd().delivered_bytes(no).collect(),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.counters.bytes).collect(),
        }
    }

    fn cwnds(&self, flow: usize) -> Vec<f32> {
        match self.flows[flow].at {
            Where::Crowd(no) => self.swarm.crowd().cwnd(no).map(|cwnd| cwnd as f32).collect(),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.cwnd as f32).collect(),
        }
    }

    fn links(&self) -> Vec<Stats> {
        self.links.ids.values().map(|link| self.swarm.stats(*link)).collect()
    }

    fn queued_bytes(&self, link: usize) -> f64 {
        let id = self.links.ids.values().nth(link);
        id.map_or(0.0, |id| self.swarm.queued_bytes(*id) as f64)
    }

    fn misgrouped(&self, flow: usize) -> Option<(bool, bool)> {
        Some(self.misgrouped_of(&self.flows[flow]))
    }

    fn factor(&self, flow: usize) -> Option<f32> {
        Some(self.factor_of(&self.flows[flow]))
    }
}

/// Sources by name, and what each flow of mmTP transfers.
struct Sources {
    named: BTreeMap<String, SourceNo>,
    contents: BTreeMap<String, Content>,
}

/// What the source at the far end of a path is called: a name of its own unless the scenario gives one.
fn source_name(flow: &str, p: usize, path: &Path) -> String {
    path.source.clone().unwrap_or_else(|| format!("{flow}/{p}"))
}

fn algorithm(copy: &Copy<'_>) -> Algorithm {
    Algorithm::by_name(copy.controller).expect("checked: the controller exists")
}
