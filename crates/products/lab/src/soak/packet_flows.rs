//! Checks flows of packets over random links: many controllers, many paths, cross traffic, faults.

use anabranch_algo::control::Window;
use anabranch_algo::{Rate, Span, Time};
use anabranch_sim::{CrossTraffic, LinkId, Rng, RouteId};

use super::generate::{between, controller, few, pick, within};
use super::random_links::{PACKET_MAX, PATHS_MAX, RandomLinks};
use super::{RunLog, SoakTotals, TIMERS_MAX, check_conservation};
use crate::Simulation;
use crate::packet_flows::{FlowConfig, FlowId};

/// Least and greatest length of the fault phase.
const FAULT_PHASE: (Span, Span) = (Span::from_millis(300), Span::from_secs(20));
/// Number of checks in the fault phase.
const LOOKS: u64 = 64;
/// Longest step of the recovery phase.
const STEP_MAX: Span = Span::from_secs(1);
/// Time without progress after which a flow with a working path gets the world to itself in the recovery
/// phase: first flows without such a path leave, then those that make progress. Sixty flows on a slow link
/// can starve one, and two timers of the longest kind can be in step for ever, so that one packet always
/// fills the queue just before the other. That is unfair, but no standstill.
const YIELD_AFTER: [Span; 2] = [Span::from_secs(100), Span::from_secs(200)];
/// Time without progress after which the flow counts as hanging: ten of the longest timeouts.
const STALL_MAX: Span = Span::from_secs(300);
/// Longest time from the end of the last flow to quiescence: a full queue of a slow link.
const QUIESCENCE_MAX: Span = Span::from_secs(7_200);
/// Amount by which an RTT may be less than its links' delays, because its mean is rounded.
const ROUNDING: Span = Span::from_micros(1);
/// Largest window allowed, packets.
const CWND_MAX: u32 = 1 << 23;

/// A flow and its progress.
struct FlowCheck {
    no: FlowId,
    paths: Vec<MeshPath>,
    packet_bytes: u64,
    packets: Option<u64>,
    stops: bool,
    /// Bytes delivered so far; `since` is the time of the last progress.
    delivered: u64,
    since: Time,
    /// Whether the flow is no longer checked.
    settled: bool,
}

/// The indices of a path's random links there and back, and the delay beyond them.
struct MeshPath {
    down: Vec<usize>,
    up: Vec<usize>,
    pipe: Span,
}

struct PacketFlowSoak<'a> {
    simulation: Simulation,
    random_links: RandomLinks,
    links: Vec<LinkId>,
    flows: Vec<FlowCheck>,
    run_log: &'a mut RunLog,
}

pub(super) fn simulate(seed: u64, run_log: &mut RunLog) -> SoakTotals {
    let mut rng = Rng::stream(seed, "soak crowd");
    let mut simulation = Simulation::new(seed);
    let mut random_links = RandomLinks::generate(&mut rng, &mut simulation, run_log);
    let packet = pick(&mut rng, &[100, 576, 1_500, 1_500, 1_500, PACKET_MAX]);
    // A seed costs about as much as the packets that its links can carry.
    let budget = pick(&mut rng, &[1_000, 3_000, 10_000, 30_000]) * if rng.chance(0.01) { 10 } else { 1 };
    let rates = random_links.links.iter().map(|link| link.rate.as_bytes()).sum::<u64>();
    let fault_phase = Rate::from_bytes(rates).time_for(budget * packet).max(FAULT_PHASE.0).min(FAULT_PHASE.1);
    let end = Time::ZERO + fault_phase;
    let faults = random_links.inject_faults(&mut rng, &mut simulation, end, run_log);
    let mut soak =
        PacketFlowSoak { links: random_links.ids(), simulation, random_links, flows: Vec::new(), run_log };
    for _ in 0..few(&mut rng, 30) {
        let bytes = if rng.chance(0.8) { packet } else { pick(&mut rng, &[100, 1_500, PACKET_MAX]) };
        soak.flow(&mut rng, bytes, end);
    }
    let bursts = rng.below(4) as usize;
    (0..bursts).for_each(|b| soak.burst(&mut rng, seed, b, packet, end));
    let broken: Vec<usize> = (0..soak.links.len()).filter(|l| !soak.random_links.links[*l].works).collect();
    soak.run_log.description = format!(
        "{} links, {} flows over {} paths, {bursts} of cross traffic, packets of {packet} bytes; {faults} \
         faults in {:.3} s; then links {broken:?} are of no use for ever",
        soak.links.len(),
        soak.flows.len(),
        soak.flows.iter().map(|flow| flow.paths.len()).sum::<usize>(),
        fault_phase.as_nanos() as f64 / 1e9,
    );
    let step = fault_phase.over(LOOKS);
    for _ in 0..LOOKS {
        soak.step(step);
    }
    soak.recover(step);
    soak.check_quiescence();
    SoakTotals::of(&soak.simulation, &soak.links)
}

impl PacketFlowSoak<'_> {
    fn flow(&mut self, rng: &mut Rng, packet_bytes: u64, end: Time) {
        let count = few(rng, PATHS_MAX);
        let common = controller(rng);
        let groups = rng.below(3);
        let (mut paths, mut ways, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for p in 0..count {
            let down = self.random_links.route(rng, 4);
            let up = if rng.chance(0.3) { self.random_links.route(rng, 2) } else { Vec::new() };
            let most = pick(rng, &[0, 1_000, 20_000, 200_000]);
            let pipe = within(rng, Span::from_micros(most));
            let (name, control) = if rng.chance(0.15) { controller(rng) } else { common.clone() };
            let group = match groups {
                0 => 0,
                1 => p as u32,
                _ => rng.below(3) as u32,
            };
            paths.push((control.into(), self.route(&down), self.back(&up, pipe), group));
            names.push(name);
            ways.push(MeshPath { down, up, pipe });
        }
        let narrowest = |way: &MeshPath| way.down.iter().map(|l| self.random_links.links[*l].rate).min();
        let best = ways.iter().filter_map(narrowest).max().unwrap_or(Rate::from_bytes(0));
        let most = (best.bytes_in(end.since(Time::ZERO)) / packet_bytes).clamp(1, 20_000);
        let packets = rng.chance(0.7).then(|| few(rng, most));
        let start = if rng.chance(0.4) { Time::ZERO } else { between(rng, Time::ZERO, end) };
        let stop = rng.chance(0.1).then(|| between(rng, Time::ZERO, end));
        let detects = rng.chance(0.3);
        let detect = detects.then(|| vec![None; paths.len()]);
        let config = FlowConfig {
            paths,
            packet_bytes: packet_bytes as u16,
            packets,
            start,
            stop,
            detect,
            ack_delay: rng.chance(0.2).then(|| Span::from_millis(1 + rng.below(100))),
            mirrors: None,
            steering: None,
        };
        let no = self.simulation.packet_flows_mut().flow(&config);
        self.run_log.detail(|| {
            let of =
                |(way, name): (&MeshPath, String)| format!("{name} {:?} {:?}+{}", way.down, way.up, way.pipe);
            let paths: Vec<String> = ways.iter().zip(names).map(of).collect();
            let groups: Vec<u32> = config.paths.iter().map(|path| path.3).collect();
            format!(
                "flow {no}: {packets:?} of {packet_bytes} bytes, {start:?} to {stop:?}, groups {groups:?}, \
                 detection {detects}, paths {paths:?}"
            )
        });
        self.flows.push(FlowCheck {
            no,
            paths: ways,
            packet_bytes,
            packets,
            stops: stop.is_some(),
            delivered: 0,
            since: end,
            settled: false,
        });
    }

    fn burst(&mut self, rng: &mut Rng, seed: u64, b: usize, packet_bytes: u64, end: Time) {
        let via = self.random_links.route(rng, 3);
        let rate = self.random_links.links[via[0]].rate.as_bytes();
        let percent = 10 + rng.below(140);
        let span = end.since(Time::ZERO).over(10);
        let config = CrossTraffic {
            route: self.route(&via),
            rate: Rate::from_bytes((rate * percent / 100).max(1)),
            packet_bytes: packet_bytes as u32,
            burst: rng.chance(0.7).then(|| (within(rng, span), within(rng, span))),
            start: between(rng, Time::ZERO, end),
            stop: end,
            rng: Rng::stream(seed, &format!("burst {b}")),
        };
        self.run_log.detail(|| format!("cross traffic: {config:?}"));
        self.simulation.packet_flows_mut().cross_traffic(config);
    }

    fn route(&mut self, links: &[usize]) -> RouteId {
        let ids: Vec<LinkId> = links.iter().map(|l| self.links[*l]).collect();
        self.simulation.route(&ids)
    }

    /// Returns the route back; `None` if it has neither links nor delay.
    fn back(&mut self, links: &[usize], pipe: Span) -> Option<RouteId> {
        if links.is_empty() && pipe == Span::ZERO {
            return None;
        }
        let mut ids: Vec<LinkId> = links.iter().map(|l| self.links[*l]).collect();
        ids.push(self.simulation.pipe(pipe));
        Some(self.simulation.route(&ids))
    }

    /// Advances the time by `span`, and checks all invariants.
    fn step(&mut self, span: Span) {
        let now = self.simulation.clock() + span;
        self.simulation.run_until(now);
        self.check_invariants();
    }

    fn check_invariants(&mut self) {
        let Self { simulation, random_links, links, flows, run_log } = self;
        let (now, packet_flows) = (simulation.clock(), simulation.packet_flows());
        for what in packet_flows.violations() {
            run_log.violation(what);
        }
        check_conservation(simulation, links, |l| random_links.links[l].room(), run_log);
        let paths: usize = flows.iter().map(|flow| flow.paths.len()).sum();
        if packet_flows.timers_len() > TIMERS_MAX * paths {
            run_log.violation(format!("{} timers for {paths} paths", packet_flows.timers_len()));
        }
        let mut carried = vec![0; links.len()];
        for flow in flows.iter() {
            let mut total = 0;
            let rows = packet_flows
                .delivered_bytes(flow.no)
                .zip(packet_flows.cwnd(flow.no))
                .zip(packet_flows.srtt(flow.no));
            for (p, (way, ((bytes, cwnd), srtt))) in flow.paths.iter().zip(rows).enumerate() {
                total += bytes;
                way.down.iter().for_each(|l| carried[*l] += bytes);
                let delay = |l: &usize| random_links.links[*l].delay_min;
                let light = way.down.iter().chain(&way.up).map(delay).fold(way.pipe, |sum, d| sum + d);
                if srtt > Span::ZERO && srtt + ROUNDING < light {
                    run_log.violation(format!(
                        "flow {}, path {p}: srtt {srtt}, the links take {light}",
                        flow.no
                    ));
                }
                if !(1..=CWND_MAX).contains(&cwnd) {
                    run_log.violation(format!("flow {}, path {p}: a window of {cwnd}", flow.no));
                }
            }
            for member in packet_flows.published(flow.no).flatten() {
                if !(Window::packets(1)..=Window::MAX).contains(&member.cwnd) {
                    run_log.violation(format!("flow {} publishes a window of {:?}", flow.no, member.cwnd));
                }
            }
            let (_, done) = packet_flows.times(flow.no);
            let wanted = flow.packets.map(|packets| packets * flow.packet_bytes);
            if total < flow.delivered
                || wanted.is_some_and(|wanted| total > wanted || done.is_some() != (total == wanted))
            {
                run_log.violation(format!(
                    "flow {}: {total} bytes of {wanted:?} delivered, {} before, done at {done:?}",
                    flow.no, flow.delivered
                ));
            }
            run_log.happened(now, || {
                let windows: Vec<u32> = packet_flows.cwnd(flow.no).collect();
                let (no, timeouts) = (flow.no, packet_flows.timeouts(flow.no));
                format!("flow {no}: {total} bytes, windows {windows:?}, {timeouts} timeouts, done {done:?}")
            });
        }
        for (l, (link, bytes)) in random_links.links.iter().zip(carried).enumerate() {
            let stats = simulation.stats(link.id);
            let most = link.capacity_bytes(now) + (stats.duplicated + 1) * PACKET_MAX;
            if stats.delivered_bytes > most || bytes > stats.delivered_bytes {
                let (delivered, now) = (stats.delivered_bytes, now.as_nanos());
                run_log.violation(format!(
                    "link {l} at {now} ns: {bytes} bytes of flows, {delivered} delivered, {most} possible"
                ));
            }
        }
    }

    /// Checks that each flow with a working path progresses: finite flows to their end, endless ones a
    /// little.
    fn recover(&mut self, step: Span) {
        let links = &self.random_links.links;
        let all = |way: &MeshPath, ok: &dyn Fn(usize) -> bool| way.down.iter().chain(&way.up).all(|l| ok(*l));
        let mut lost = Vec::new();
        for flow in &mut self.flows {
            let some = |ok: &dyn Fn(usize) -> bool| flow.paths.iter().any(|way| all(way, ok));
            flow.settled = flow.stops || !some(&|l| links[l].serves(flow.packet_bytes));
            flow.delivered = self.simulation.packet_flows().delivered_bytes(flow.no).sum();
            if flow.settled && flow.packets.is_none() && some(&|l| links[l].works) {
                // The flow may be fast, and running it any longer shows nothing.
                self.simulation.packet_flows_mut().stop(flow.no);
            }
            lost.extend(flow.settled.then_some(flow.no));
        }
        let count = self.flows.iter().filter(|flow| !flow.settled).count();
        self.run_log.description += &format!("; {count} flows must get on");
        let mut step = step;
        loop {
            let now = self.simulation.clock();
            for flow in self.flows.iter_mut().filter(|flow| !flow.settled) {
                let total = self.simulation.packet_flows().delivered_bytes(flow.no).sum();
                let moved = total > flow.delivered;
                let (_, done) = self.simulation.packet_flows().times(flow.no);
                if done.is_some() || (flow.packets.is_none() && moved) {
                    flow.settled = true;
                    self.simulation.packet_flows_mut().stop(flow.no);
                } else if moved {
                    (flow.delivered, flow.since) = (total, now);
                } else if now.since(flow.since) > STALL_MAX {
                    flow.settled = true;
                    let (no, since) = (flow.no, flow.since.as_nanos() / 1_000_000);
                    let what = format!("flow {no} has a path that works, and has stood since {since} ms");
                    self.run_log.violation(format!("{what}; {total} bytes of {:?} packets", flow.packets));
                }
            }
            let stands = |flow: &FlowCheck, for_long| !flow.settled && now.since(flow.since) > for_long;
            if self.flows.iter().any(|flow| stands(flow, YIELD_AFTER[0])) {
                lost.drain(..).for_each(|flow| self.simulation.packet_flows_mut().stop(flow));
            }
            if self.flows.iter().any(|flow| stands(flow, YIELD_AFTER[1])) {
                for flow in &mut self.flows {
                    if !stands(flow, YIELD_AFTER[0]) {
                        flow.settled = true;
                        self.simulation.packet_flows_mut().stop(flow.no);
                    }
                }
            }
            if self.flows.iter().all(|flow| flow.settled) || self.simulation.packet_flows().storms() {
                return;
            }
            self.step(step);
            step = (step + step.over(8)).min(STEP_MAX);
        }
    }

    /// Checks that nothing happens any more when all flows have ended.
    fn check_quiescence(&mut self) {
        for _ in 0..30 {
            self.step(STEP_MAX);
        }
        for flow in &self.flows {
            self.simulation.packet_flows_mut().stop(flow.no);
        }
        let limit = self.simulation.clock() + QUIESCENCE_MAX;
        while self.simulation.next_wake() <= limit && !self.simulation.packet_flows().storms() {
            let next = self.simulation.next_wake();
            self.simulation.run_until(next + STEP_MAX);
        }
        self.check_invariants();
        let wake = self.simulation.next_wake();
        if wake != Time::NEVER {
            self.run_log
                .violation(format!("nobody wants anything, and something happens at {} ns", wake.as_nanos()));
        }
        if self.simulation.packet_flows().timers_len() > 0 {
            self.run_log
                .violation(format!("{} timers are left over", self.simulation.packet_flows().timers_len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_follows_the_rate() {
        let mut rng = Rng::stream(1, "test");
        let (mut simulation, mut run_log) = (Simulation::new(1), RunLog { log: true, ..RunLog::default() });
        let random_links = RandomLinks::generate(&mut rng, &mut simulation, &mut run_log);
        let link = &random_links.links[0];
        let second = link.capacity_bytes(Time::ZERO + Span::from_secs(1));
        assert!(second.abs_diff(link.rate.as_bytes()) <= 2);
        assert!(run_log.details.len() == random_links.links.len());
    }
}
