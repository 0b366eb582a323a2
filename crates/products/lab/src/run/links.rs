//! Builds the links of a scenario, in the simulation or in the emulator's net.

use std::collections::{BTreeMap, BTreeSet};

use anabranch_algo::{Rate, Span, Time};
use anabranch_sim::config::Discipline;
use anabranch_sim::{
    CrossTraffic, GilbertElliott, LinkChange, LinkConfig, LinkId, MediumId, Net, Packet, Rng, Station, Trace,
    VictimPolicy,
};

use crate::packet_flows::{AccessPoint, SteeringConfig};
use crate::scenario::{
    self, Cbr, Fault, Link, Path, Radio, RadioReceiver, Scenario, SizeSpec, Steering, Transport, queueing,
};
use crate::simulation::FLOW_DATAGRAMS;
use crate::tcp_flows::FLOW_TCP;

/// Rate that is assumed for a path or link without a rate (with a trace, with an access link). It decides
/// only the length of endless contents and the size of buffers.
pub(crate) const UNRATED: Rate = Rate::from_bits(1_000_000_000);
/// Size of an access link's queue, packets: it never drops.
const ACCESS_QUEUE: u32 = 1_000_000;

/// The links of a scenario, built.
#[derive(Debug)]
pub(crate) struct Links {
    /// Links by name.
    pub(crate) ids: BTreeMap<String, LinkId>,
    /// Size of the scenario's packet, bytes.
    pub(crate) packet_bytes: u64,
}

impl Links {
    /// Builds the scenario's links and media.
    pub(crate) fn build(scenario: &Scenario, net: &mut Net<impl Packet>) -> Self {
        let packet_bytes = match scenario.packet {
            SizeSpec::Bytes(bytes) => bytes,
            SizeSpec::Packets(_) | SizeSpec::Time(_) => unreachable!("checked: a packet's size is in bytes"),
        };
        let mut links = Self { ids: BTreeMap::new(), packet_bytes };
        let mut media = BTreeMap::new();
        for (name, link) in &scenario.link {
            let mut config = links.config(scenario, link);
            config.station = link.medium.as_ref().map(|medium| {
                let id = *media.entry(medium).or_insert_with(|| net.medium(&format!("medium {medium}")));
                links.station(scenario, id, &link.radio.clone().unwrap_or_default())
            });
            links.ids.insert(name.clone(), net.link(name, config));
        }
        links
    }

    fn config(&self, scenario: &Scenario, link: &Link) -> LinkConfig {
        let rate = link.rate.map(|rate| rate.rate(self.packet_bytes));
        let mut config = LinkConfig {
            rate,
            delay: link.delay.0,
            jitter: link.jitter.0,
            loss: link.loss,
            scripted_drops: link.drop.clone(),
            duplicate: link.duplicate,
            reorder: link.reorder.as_ref().map_or(0.0, |reorder| reorder.probability),
            reorder_by: link.reorder.as_ref().map_or(Span::ZERO, |reorder| reorder.by.0),
            mark_above_bytes: link.mark_above.map(|amount| self.bytes_in(amount, rate)),
            ..LinkConfig::default()
        };
        config.trace = link.trace.as_ref().map(|file| file.read().expect("checked: it is one").0.clone());
        config.discipline = self.discipline(link, rate.or(config.trace.as_ref().map(Trace::mean_rate)));
        let numbers = link.drop_of.iter().map(|drop| (number(scenario, &drop.flow, drop.path), drop.nth));
        config.scripted_flow_drops = numbers.collect();
        config.bursts = link.gilbert.as_ref().map(|gilbert| GilbertElliott {
            to_bad: gilbert.to_bad,
            to_good: gilbert.to_good,
            loss_good: gilbert.good,
            loss_bad: gilbert.bad,
        });
        match link.queue {
            None => {}
            Some(SizeSpec::Packets(packets)) => {
                config.queue_packets = u32::try_from(packets.max(1)).unwrap_or(u32::MAX);
            }
            Some(amount) => {
                config = config.queue_bytes(self.bytes_in(amount, rate).max(2 * self.packet_bytes));
            }
        }
        config
    }

    /// Returns the discipline that a link's queue applies before it is full. `rate` is the mean rate.
    fn discipline(&self, link: &Link, rate: Option<Rate>) -> Discipline {
        if let Some(random) = &link.queueing.random {
            return Discipline::Random { last_packets: random.band, p: random.drop };
        }
        if let Some(codel) = &link.queueing.codel {
            let (target, interval, ecn) = (codel.target.0, codel.interval.0, codel.mark);
            let SizeSpec::Bytes(quantum) = codel.quantum else {
                unreachable!("checked: a quantum is in bytes")
            };
            return match codel.flows {
                0 => Discipline::CoDel { target, interval, ecn },
                flows => Discipline::FqCodel { target, interval, ecn, flows, quantum_bytes: quantum as u32 },
            };
        }
        if let Some(pie) = &link.queueing.pie {
            return Discipline::Pie { target: pie.target.0, burst: pie.burst.0, ecn: pie.mark };
        }
        if let Some(red) = &link.queueing.red {
            return Discipline::Red {
                min_bytes: self.bytes_in(red.min, rate),
                max_bytes: self.bytes_in(red.max, rate),
                drop: red.drop,
                weight: red.weight,
                ecn: red.mark,
            };
        }
        link.queueing.victims.as_ref().map_or(Discipline::DropTail, |victims| Discipline::TargetedDrop {
            above_packets: victims.above,
            hold: victims.hold.0,
            policy: match victims.who {
                queueing::VictimPolicy::All => VictimPolicy::All,
                queueing::VictimPolicy::Share => VictimPolicy::Share,
                queueing::VictimPolicy::Largest => VictimPolicy::Largest,
            },
        })
    }

    fn station(&self, scenario: &Scenario, medium: MediumId, radio: &Radio) -> Station {
        let receiver = |receiver: &RadioReceiver| anabranch_sim::Receiver {
            flow: number(scenario, &receiver.flow, receiver.path),
            loss: receiver.loss,
            rate: receiver.rate.map(|rate| rate.rate(self.packet_bytes)),
        };
        Station {
            medium,
            weight: radio.weight,
            loss: radio.loss,
            retries: radio.retries,
            receivers: radio.receivers.iter().map(receiver).collect(),
        }
    }

    /// Returns an amount in bytes; a time means the bytes that `rate` sends in it.
    pub(crate) fn bytes_in(&self, amount: SizeSpec, rate: Option<Rate>) -> u64 {
        match amount {
            SizeSpec::Bytes(bytes) => bytes,
            SizeSpec::Packets(packets) => packets.saturating_mul(self.packet_bytes),
            SizeSpec::Time(span) => rate.map_or(u64::MAX, |rate| rate.bytes_in(span)),
        }
    }

    /// Returns the links of path `p` of the flow `own`, there and back, whose delays add up to its
    /// round-trip time. The way back may have no links.
    pub(crate) fn path(
        &self,
        scenario: &Scenario,
        net: &mut Net<impl Packet>,
        own: &str,
        p: usize,
        path: &Path,
    ) -> (Vec<LinkId>, Vec<LinkId>) {
        let ids = |names: &[String]| -> Vec<LinkId> { names.iter().map(|name| self.ids[name]).collect() };
        let (mut down, mut up) = (ids(&path.via), ids(&path.back));
        let delays = path.via.iter().chain(&path.back).map(|name| scenario.link[name].delay.0);
        let delay = delays.fold(Span::ZERO, |sum, delay| sum + delay);
        let rest = if path.rtt.0 > delay { path.rtt.0 - delay } else { Span::ZERO };
        if rest > Span::ZERO {
            up.push(net.pipe(rest));
        }
        if let Some(access) = path.access {
            let config =
                LinkConfig::new(access.rate(self.packet_bytes), Span::ZERO).queue_packets(ACCESS_QUEUE);
            down.insert(0, net.link(&format!("access of {own}/{p}"), config));
        }
        if down.is_empty() {
            down.push(net.pipe(Span::ZERO));
        }
        (down, up)
    }

    /// Returns the access points of a flow whose receiver steers: of each path, the last link that is on a
    /// medium. The medium is the channel.
    pub(crate) fn steering(
        &self,
        scenario: &Scenario,
        flow: &scenario::Flow,
        name: &str,
        seed: u64,
    ) -> Option<SteeringConfig> {
        if flow.steering == Steering::None {
            return None;
        }
        let media: BTreeSet<&String> =
            scenario.link.values().filter_map(|link| link.medium.as_ref()).collect();
        let radio = |path: &Path| {
            let name = scenario.access_point(path)?;
            let link = &scenario.link[name];
            let channel = media.iter().position(|other| Some(*other) == link.medium.as_ref())?;
            let retries = link.radio.as_ref().map_or(anabranch_sim::radio::RETRIES, |radio| radio.retries);
            Some(AccessPoint { link: self.ids[name], channel: channel as u16, retries })
        };
        Some(SteeringConfig {
            steering: flow.steering,
            access_points: flow.paths.iter().map(radio).collect(),
            seed: Rng::stream(seed, &format!("steering of {name}")).bits(),
        })
    }

    /// Returns the cross traffic of `cbr`, called `name`; the seed decides its bursts.
    pub(crate) fn cross_traffic(
        &self,
        net: &mut Net<impl Packet>,
        seed: u64,
        name: &str,
        cbr: &Cbr,
    ) -> CrossTraffic {
        let via: Vec<LinkId> = cbr.via.iter().map(|link| self.ids[link]).collect();
        CrossTraffic {
            route: net.route(&via),
            rate: cbr.rate.rate(self.packet_bytes),
            packet_bytes: u32::try_from(self.packet_bytes).unwrap_or(u32::MAX),
            burst: cbr.on.map(|on| (on.0, cbr.off.0)),
            start: cbr.start.time(),
            stop: cbr.stop.map_or(Time::NEVER, |stop| stop.time()),
            rng: Rng::stream(seed, &format!("cbr {name}")),
        }
    }

    /// Returns the changes of links that a fault causes, with their times.
    pub(crate) fn changes(&self, fault: &Fault) -> Vec<(Time, LinkId, LinkChange)> {
        let Some(&link) = fault.link.as_ref().and_then(|name| self.ids.get(name)) else { return Vec::new() };
        let at = fault.at.time();
        let up = fault.until.map(|until| (until.time(), link, LinkChange::Up(true)));
        let down = fault.down.then_some((at, link, LinkChange::Up(false)));
        let rate = fault.rate.map(|rate| (at, link, LinkChange::Rate(Some(rate.rate(self.packet_bytes)))));
        let delay = fault.delay.map(|delay| (at, link, LinkChange::Delay(delay.0)));
        let loss = fault.loss.map(|loss| (at, link, LinkChange::Loss(loss)));
        [down, up.filter(|_| fault.down), rate, delay, loss].into_iter().flatten().collect()
    }
}

/// Returns the number by which links know the packets of a path: the number of the path among those of its
/// kind (mmTP, TCP or packet flows), in the order of the flows. With several copies of a flow it is that of
/// the first copy.
pub(crate) fn number(scenario: &Scenario, flow: &str, path: usize) -> u32 {
    let base = |flow: &scenario::Flow| match flow.transport {
        Transport::Mmtp => FLOW_DATAGRAMS,
        Transport::Tcp | Transport::Mptcp => FLOW_TCP,
        Transport::Packet | Transport::Mirrors => 0,
    };
    let own = base(&scenario.flow[flow]);
    let before = scenario.flow.range(..flow.to_owned()).filter(|(_, other)| base(other) == own);
    let paths: usize = before.map(|(_, other)| other.count as usize * other.paths.len()).sum();
    own | (paths + path) as u32
}
