//! A scenario becomes a world.

use std::collections::BTreeMap;

use algo::control::Algorithm;
use algo::{Rate, Span, Time};
use mmtp::subscriber::Grouping;
use sim::config::Discipline;
use sim::{Command, GilbertElliott, LinkConfig, LinkId, Rng, Stats, Trace, Who};

use super::groups::Truth;
use crate::content::Content;
use crate::crowd::{Burst, CbrConfig, FlowConfig, FlowNo};
use crate::peer::Lie;
use crate::scenario::{self, Amount, Flow, Groups, Link, Path, Scenario, Transport};
use crate::swarm::{
    FLOW_DATAGRAMS, Fault, OVERHEAD_BYTES, PAYLOAD_MAX, ReceiverNo, SourceNo, Swarm, WantNo, Wire,
};

/// What an access link's queue holds, packets: it never drops.
const ACCESS_QUEUE: u32 = 1_000_000;
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
    pub(super) links: BTreeMap<String, LinkId>,
    pub(super) flows: Vec<Placed>,
    pub(super) packet_bytes: u64,
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
        let packet_bytes = match scenario.packet {
            Amount::Bytes(bytes) => bytes,
            Amount::Packets(_) | Amount::Time(_) => unreachable!("checked: a packet's size is in bytes"),
        };
        let mut world =
            Self { swarm: Swarm::new(seed), links: BTreeMap::new(), flows: Vec::new(), packet_bytes };
        let mut media = BTreeMap::new();
        for (name, link) in &scenario.link {
            let mut config = world.link_config(scenario, link);
            config.medium = link.medium.as_ref().map(|medium| {
                let id =
                    *media.entry(medium).or_insert_with(|| world.swarm.medium(&format!("medium {medium}")));
                (id, link.weight.unwrap_or(1))
            });
            world.links.insert(name.clone(), world.swarm.link(name, config));
        }
        let sources = world.sources(scenario);
        for (name, flow) in &scenario.flow {
            for copy in 1..=flow.count {
                let own = if flow.count == 1 { name.clone() } else { format!("{name}-{copy}") };
                let mut luck = Rng::stream(seed, &format!("start of {own}"));
                let start =
                    flow.start.time() + Span::from_nanos(luck.below(flow.start_within.0.as_nanos() + 1));
                let several = flow.paths.len() > 1;
                let control = flow.controller.as_deref().unwrap_or(if several { controller } else { "reno" });
                let control = Algorithm::by_name(control).expect("checked: the controller exists");
                let place = Place { own: &own, flow, start, control };
                let at = match flow.transport {
                    Transport::Packet => world.packet_flow(scenario, &place),
                    Transport::Mmtp => world.mmtp_flow(scenario, name, &place, &sources),
                };
                let truth = Truth::new(scenario, flow);
                let (base, paths) = (name.clone(), flow.paths.len());
                world.flows.push(Placed { name: own, base, paths, at, truth });
            }
        }
        for (name, cbr) in &scenario.cbr {
            let via: Vec<LinkId> = cbr.via.iter().map(|link| world.links[link]).collect();
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

    fn link_config(&self, scenario: &Scenario, link: &Link) -> LinkConfig {
        let rate = link.rate.map(|rate| rate.rate(self.packet_bytes));
        let mut config = LinkConfig {
            rate,
            delay: link.delay.0,
            jitter: link.jitter.0,
            loss: link.loss,
            script: link.drop.clone(),
            duplicate: link.duplicate,
            reorder: link.reorder,
            reorder_by: link.reorder_by.0,
            mark_above_bytes: link.mark_above.map(|amount| self.bytes_in(amount, rate)),
            ..LinkConfig::default()
        };
        config.discipline = discipline(link);
        config.trace = link.trace.as_deref().map(|path| trace(path).expect("checked: it is one"));
        let numbers = link.drop_of.iter().map(|drop| (number(scenario, &drop.flow, drop.path), drop.nth));
        config.script_flows = numbers.collect();
        config.bursts = link.gilbert.as_ref().map(|gilbert| GilbertElliott {
            to_bad: gilbert.to_bad,
            to_good: gilbert.to_good,
            loss_good: gilbert.good,
            loss_bad: gilbert.bad,
        });
        match link.queue {
            None => {}
            Some(Amount::Packets(packets)) => {
                config.queue_packets = u32::try_from(packets.max(1)).unwrap_or(u32::MAX);
            }
            Some(amount) => {
                config = config.queue_bytes(self.bytes_in(amount, rate).max(2 * self.packet_bytes));
            }
        }
        config
    }

    fn bytes_in(&self, amount: Amount, rate: Option<Rate>) -> u64 {
        match amount {
            Amount::Bytes(bytes) => bytes,
            Amount::Packets(packets) => packets.saturating_mul(self.packet_bytes),
            Amount::Time(span) => rate.map_or(u64::MAX, |rate| rate.bytes_in(span)),
        }
    }

    /// The links of a path, there and back, whose delays add up to its round-trip time.
    fn path(&mut self, scenario: &Scenario, own: &str, p: usize, path: &Path) -> (Vec<LinkId>, Vec<LinkId>) {
        let ids = |names: &[String], links: &BTreeMap<String, LinkId>| -> Vec<LinkId> {
            names.iter().map(|name| links[name]).collect()
        };
        let mut down = ids(&path.via, &self.links);
        let mut up = ids(&path.back, &self.links);
        let delays = path.via.iter().chain(&path.back).map(|name| scenario.link[name].delay.0);
        let delay = delays.fold(Span::ZERO, |sum, delay| sum + delay);
        let rest = if path.rtt.0 > delay { path.rtt.0 - delay } else { Span::ZERO };
        if rest > Span::ZERO {
            up.push(self.swarm.pipe(rest));
        }
        if let Some(access) = path.access {
            let config =
                LinkConfig::new(access.rate(self.packet_bytes), Span::ZERO).queue_packets(ACCESS_QUEUE);
            down.insert(0, self.swarm.link(&format!("access of {own}/{p}"), config));
        }
        if down.is_empty() {
            down.push(self.swarm.pipe(Span::ZERO));
        }
        (down, up)
    }

    fn packet_flow(&mut self, scenario: &Scenario, place: &Place<'_>) -> Where {
        let flow = place.flow;
        let groups = Truth::groups(scenario, flow);
        let mut paths = Vec::new();
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, up) = self.path(scenario, place.own, p, path);
            let up = if up.is_empty() { None } else { Some(self.swarm.route(&up)) };
            paths.push((place.control, self.swarm.route(&down), up, groups[p]));
        }
        let config = FlowConfig {
            paths,
            packet_bytes: self.packet_bytes as u16,
            packets: flow.size.map(|size| self.bytes_in(size, None).div_ceil(self.packet_bytes).max(1)),
            start: place.start,
            stop: flow.stop.map(|stop| stop.time()),
            detect: flow.groups == Groups::Auto,
        };
        Where::Crowd(self.swarm.crowd_mut().flow(&config))
    }

    fn mmtp_flow(&mut self, scenario: &Scenario, name: &str, place: &Place<'_>, sources: &Sources) -> Where {
        let flow = place.flow;
        let receiver = self.swarm.receiver(Span::ZERO);
        if flow.groups == Groups::Auto {
            self.swarm.grouping(receiver, Grouping::Auto);
        }
        let groups = Truth::groups(scenario, flow);
        for (p, path) in flow.paths.iter().enumerate() {
            let (down, mut up) = self.path(scenario, place.own, p, path);
            if up.is_empty() {
                up.push(self.swarm.pipe(Span::ZERO));
            }
            let mut wire = Wire::new(&down, &up, place.control);
            wire.group = groups[p];
            wire.payload_max = usize::try_from(self.packet_bytes).unwrap_or(usize::MAX) - OVERHEAD_BYTES;
            wire.payload_max = wire.payload_max.min(PAYLOAD_MAX);
            let source = sources.named[&source_name(name, p, path)];
            let id = self.swarm.path(receiver, source, &wire);
            if let Some(stop) = flow.stop {
                self.swarm.at(stop.time(), Fault::Interface { receiver, path: id, up: false });
            }
        }
        let want = self.swarm.want(receiver, &sources.contents[name], place.start);
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
            Some(size) => self.bytes_in(size, None),
            None => {
                let rate = |link: &String| scenario.link[link].rate.map(|rate| rate.rate(self.packet_bytes));
                let narrowest = |path: &Path| path.via.iter().filter_map(rate).min();
                let rates = flow.paths.iter().map(|path| narrowest(path).unwrap_or(UNRATED));
                rates.map(|rate| rate.bytes_in(scenario.duration.0)).sum()
            }
        };
        Content::repeating(1, PATTERN_GROUPS, bytes.div_ceil(GROUP_BYTES).clamp(2, GROUPS_MAX))
    }

    fn faults(&mut self, scenario: &Scenario, sources: &Sources) {
        for fault in &scenario.fault {
            let at = fault.at.time();
            if let Some(link) = &fault.link {
                let link = self.links[link];
                let mut command = |at: Time, command| self.swarm.at(at, Fault::Link { link, command });
                if fault.down {
                    command(at, Command::Up(false));
                    if let Some(until) = fault.until {
                        command(until.time(), Command::Up(true));
                    }
                }
                if let Some(rate) = fault.rate {
                    command(at, Command::Rate(Some(rate.rate(self.packet_bytes))));
                }
                if let Some(delay) = fault.delay {
                    command(at, Command::Delay(delay.0));
                }
                if let Some(loss) = fault.loss {
                    command(at, Command::Loss(loss));
                }
            }
            if let Some(&source) = fault.source.as_ref().and_then(|name| sources.named.get(name)) {
                self.swarm.at(at, Fault::Kill { source, unreachable: false });
                if let Some(until) = fault.until {
                    self.swarm.at(until.time(), Fault::Restart { source });
                }
            }
        }
    }

    // What can be read.

    /// Links of the scenario with a rate, which queue.
    pub(super) fn limited(&self, scenario: &Scenario) -> impl Iterator<Item = LinkId> {
        let rated = scenario.link.iter().filter(|(_, link)| link.rate.is_some() || link.trace.is_some());
        rated.map(|(name, _)| self.links[name])
    }

    pub(super) fn stats(&self) -> Vec<Stats> {
        self.links.values().map(|link| self.swarm.stats(*link)).collect()
    }

    pub(super) fn bytes(&self) -> Vec<Vec<u64>> {
        self.flows.iter().map(|flow| self.bytes_of(flow)).collect()
    }

    /// Bytes delivered on each path.
    pub(super) fn bytes_of(&self, flow: &Placed) -> Vec<u64> {
        match flow.at {
            Where::Crowd(no) => self.swarm.crowd().delivered_bytes(no).collect(),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.counters.bytes).collect(),
        }
    }

    /// Window of each path, packets.
    pub(super) fn cwnds(&self, flow: &Placed) -> Vec<f32> {
        match flow.at {
            Where::Crowd(no) => self.swarm.crowd().cwnd(no).map(|cwnd| cwnd as f32).collect(),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.cwnd as f32).collect(),
        }
    }

    /// Smoothed RTT of each path.
    pub(super) fn srtts(&self, flow: &Placed) -> Vec<Span> {
        match flow.at {
            Where::Crowd(no) => self.swarm.crowd().srtt(no).collect(),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.srtt).collect(),
        }
    }

    /// Timeouts of all paths.
    pub(super) fn timeouts(&self, flow: &Placed) -> u64 {
        match flow.at {
            Where::Crowd(no) => self.swarm.crowd().timeouts(no),
            Where::Receiver(r, _) => self.swarm.paths(r).iter().map(|path| path.counters.timeouts).sum(),
        }
    }

    /// When it began and when it ended.
    pub(super) fn began_and_ended(&self, flow: &Placed) -> (Option<Time>, Option<Time>) {
        match flow.at {
            Where::Crowd(no) => self.swarm.crowd().times(no),
            Where::Receiver(r, want) => {
                let progress = self.swarm.progress(r, want);
                (progress.since, progress.complete)
            }
        }
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

/// What a packet of a path is known by on links: the number of the path among those of its transport, which
/// are made in the order of the flows. Of several copies of a flow it is the first.
fn number(scenario: &Scenario, flow: &str, path: usize) -> u32 {
    let transport = scenario.flow[flow].transport;
    let before = scenario.flow.range(..flow.to_owned()).filter(|(_, other)| other.transport == transport);
    let paths: usize = before.map(|(_, other)| other.count as usize * other.paths.len()).sum();
    let number = (paths + path) as u32;
    if transport == Transport::Mmtp { FLOW_DATAGRAMS | number } else { number }
}

/// The trace in a file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn trace(path: &str) -> Result<Trace, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot be read: {e}"))?;
    Trace::parse(&text).map_err(|e| format!("is none: {e}"))
}

/// What a link's queue does before it is full.
fn discipline(link: &Link) -> Discipline {
    if let Some(random) = &link.random {
        return Discipline::Random { last_packets: random.band, p: random.drop };
    }
    if let Some(codel) = &link.codel {
        return Discipline::CoDel { target: codel.target.0, interval: codel.interval.0, ecn: codel.mark };
    }
    link.victims.as_ref().map_or(Discipline::DropTail, |victims| Discipline::Victims {
        above_packets: victims.above,
        hold: victims.hold.0,
        who: match victims.who {
            scenario::Who::All => Who::All,
            scenario::Who::Share => Who::Share,
            scenario::Who::Largest => Who::Largest,
        },
    })
}

/// A flow to be placed.
struct Place<'a> {
    own: &'a str,
    flow: &'a Flow,
    start: Time,
    control: Algorithm,
}
