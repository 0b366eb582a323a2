//! Checks transfers: if an honest source can be reached in the end, the content arrives intact. Every window
//! is kept, nothing is reported twice, and no honest source is banned.

use anabranch_algo::{Rate, Span, Time};
use anabranch_mmtp::subscriber::{Event, Grouping};
use anabranch_sim::{CrossTraffic, LinkChange, LinkConfig, LinkId, Rng};

use super::generate::{between, controller, few, often, pick, within};
use super::{RunLog, SoakTotals, check_conservation};
use crate::packet_flows::FlowConfig;
use crate::{Content, Fault, Misbehaviour, PathSpec, Simulation};

/// Length of the fault phase: all faults happen in it.
const FAULT_PHASE: Span = Span::from_secs(20);
/// Time from which working parts are left alone.
const RECOVERY_AT: Time = Time::from_nanos(40_000_000_000);
/// Time by which the transfers must be complete.
const LIMIT: Time = Time::from_nanos(1_000_000_000_000);

/// Most packets that one link may hold, queued and on the wire.
const INSIDE_MAX: usize = 200_000;

const MISBEHAVIOURS: &[Misbehaviour] = &[
    Misbehaviour::Flip { every: 100_000 },
    Misbehaviour::Flip { every: 3_000_000 },
    Misbehaviour::Stale,
    Misbehaviour::Random,
    Misbehaviour::Unresponsive,
    Misbehaviour::Triplicate,
    Misbehaviour::WrongHashes,
    Misbehaviour::Garbage,
];

struct TransferSoak<'a> {
    simulation: Simulation,
    rng: Rng,
    /// Misbehaviour of each source.
    misbehaviours: Vec<Misbehaviour>,
    receiver: usize,
    links: Vec<LinkId>,
    rates: Vec<Rate>,
    /// Source and links of each path.
    paths: Vec<(usize, Vec<usize>)>,
    /// Whether a flipped bit can make an honest source look like a liar.
    corrupting: bool,
    run_log: &'a mut RunLog,
}

pub(super) fn simulate(seed: u64, run_log: &mut RunLog) -> SoakTotals {
    let mut rng = Rng::stream(seed, "soak swarm");
    let mut simulation = Simulation::new(seed);
    simulation.check_every_step();
    let sizes = [0, 1, 1_366, 16_384, 16_385, 200_000, 1_048_576, 3_000_000];
    let contents: Vec<Content> = (0..1 + rng.below(3))
        .map(|i| {
            let most = pick(&mut rng, &sizes) as u64;
            let bytes = if rng.chance(0.5) { most } else { rng.below(most + 1) };
            Content::random(seed << 8 | i, bytes as usize)
        })
        .collect();
    // Source 0 is honest, and has everything.
    let mut misbehaviours = vec![Misbehaviour::Honest];
    simulation.source(&contents, Misbehaviour::Honest);
    for _ in 0..rng.below(4) {
        let misbehaviour = if rng.chance(0.5) { Misbehaviour::Honest } else { pick(&mut rng, MISBEHAVIOURS) };
        let some = if rng.chance(0.8) { &contents[..] } else { &contents[1..] };
        simulation.source(some, misbehaviour);
        misbehaviours.push(misbehaviour);
    }
    let coalesce = Span::from_micros(pick(&mut rng, &[0, 0, 100, 2_000]));
    let receiver = simulation.receiver(coalesce);
    let grouping = if rng.chance(0.5) { Grouping::Auto } else { Grouping::Given };
    simulation.grouping(receiver, grouping);
    let (links, rates, paths) = (Vec::new(), Vec::new(), Vec::new());
    let mut soak = TransferSoak {
        simulation,
        rng,
        misbehaviours,
        receiver,
        links,
        rates,
        paths,
        corrupting: false,
        run_log,
    };
    let mut names = soak.paths();
    names.sort_unstable();
    names.dedup();
    for content in &contents {
        let at = if soak.rng.chance(0.7) { Time::ZERO } else { soak.moment() };
        soak.simulation.want(receiver, content, at);
    }
    let others = soak.others(seed);
    let faults = soak.inject_faults();
    let dead = soak.recover();
    let bytes: Vec<u64> = contents.iter().map(|content| content.id().length).collect();
    soak.run_log.description = format!(
        "contents of {bytes:?} bytes, sources {:?}, {} paths by {}, {others} flows beside them, groups \
         {grouping:?}; {faults} faults in {} s; then {}",
        soak.misbehaviours,
        soak.paths.len(),
        names.join(" "),
        FAULT_PHASE.as_millis() / 1_000,
        if dead.is_empty() { "all works".to_owned() } else { format!("paths {dead:?} are dead for ever") },
    );
    let done = soak.simulation.run_to_end(LIMIT);
    soak.check_outcome(done);
    check_conservation(&soak.simulation, &soak.links, |_| INSIDE_MAX, soak.run_log);
    SoakTotals::of(&soak.simulation, &soak.links)
}

impl TransferSoak<'_> {
    fn link(&mut self, slow: bool) -> usize {
        let l = self.links.len();
        let config = config(&mut self.rng, slow);
        self.corrupting |= config.corrupt > 0.0;
        self.rates.extend(config.rate);
        self.run_log.detail(|| format!("link {l}: {config:?}"));
        self.links.push(self.simulation.link(&format!("link {l}"), config));
        l
    }

    /// Adds one or two paths to each source, some over a shared link; returns the controllers' names.
    fn paths(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        let shared = self.link(true);
        for source in 0..self.misbehaviours.len() {
            for _ in 0..1 + self.rng.below(2) {
                let mut down = vec![self.link(true)];
                down.extend(self.rng.chance(0.3).then_some(shared));
                let up = self.link(false);
                let (name, algorithm) = controller(&mut self.rng);
                let ids: Vec<LinkId> = down.iter().map(|l| self.links[*l]).collect();
                let mut spec = PathSpec::new(&ids, &[self.links[up]], algorithm);
                spec.group = self.rng.below(2) as u32;
                spec.payload_max = pick(&mut self.rng, &[1_472, 1_472, 8_972, 1_200]);
                self.simulation.path(self.receiver, source, &spec);
                let (p, group, payload) = (self.paths.len(), spec.group, spec.payload_max);
                self.run_log.detail(|| {
                    format!(
                        "path {p}: source {source}, {name}, {down:?} {up}, group {group}, {payload} bytes"
                    )
                });
                down.push(up);
                self.paths.push((source, down));
                names.push(name);
            }
        }
        names
    }

    /// Adds flows of packets and bursts over the links, until the end of the fault phase; returns their
    /// number.
    fn others(&mut self, seed: u64) -> usize {
        let count = if self.rng.chance(0.15) { few(&mut self.rng, 3) } else { 0 };
        for i in 0..count {
            let l = self.rng.below(self.links.len() as u64) as usize;
            let route = self.simulation.route(&[self.links[l]]);
            let stop = self.moment();
            if self.rng.chance(0.5) {
                let (_, control) = controller(&mut self.rng);
                let back = self.simulation.pipe(Span::from_millis(10));
                let paths = vec![(control.into(), route, Some(self.simulation.route(&[back])), 0)];
                let (packet_bytes, packets, start, detect, ack_delay) = (1_200, None, Time::ZERO, None, None);
                let stop = Some(stop);
                let config = FlowConfig {
                    paths,
                    packet_bytes,
                    packets,
                    start,
                    stop,
                    detect,
                    ack_delay,
                    mirrors: None,
                    steering: None,
                };
                self.simulation.packet_flows_mut().flow(&config);
            } else {
                let rate = Rate::from_bytes((self.rates[l].as_bytes() / 2).min(5_000_000));
                let on = Span::from_millis(200);
                let (burst, packet_bytes, start) = (Some((on, on)), 1_200, Time::ZERO);
                let rng = Rng::stream(seed, &format!("burst {i}"));
                let config = CrossTraffic { route, rate, packet_bytes, burst, start, stop, rng };
                self.simulation.packet_flows_mut().cross_traffic(config);
            }
        }
        count as usize
    }

    /// Returns a time of the fault phase, often in its first seconds, which contain most of a transfer.
    fn moment(&mut self) -> Time {
        let span = pick(&mut self.rng, &[Span::from_millis(300), Span::from_secs(3), FAULT_PHASE]);
        Time::ZERO + within(&mut self.rng, span)
    }

    fn at(&mut self, at: Time, fault: Fault) {
        self.run_log.detail(|| format!("fault: {:.3} ms, {fault:?}", at.as_nanos() as f64 / 1e6));
        self.simulation.at(at, fault);
    }

    fn inject_faults(&mut self) -> u64 {
        let count = self.rng.below(8);
        for _ in 0..count {
            let at = self.moment();
            let until = at + within(&mut self.rng, Span::from_secs(10));
            let source = self.rng.below(self.misbehaviours.len() as u64) as usize;
            let path = self.rng.below(self.paths.len() as u64) as usize;
            let l = self.rng.below(self.links.len() as u64) as usize;
            let link = self.links[l];
            match self.rng.below(6) {
                0 => {
                    let unreachable = self.rng.chance(0.5);
                    self.at(at, Fault::Kill { source, unreachable });
                    // Source 0 always comes back; another may stay away.
                    if source == 0 || self.rng.chance(0.7) {
                        self.at(until, Fault::Restart { source });
                    }
                }
                1 => {
                    let receiver = self.receiver;
                    self.at(at, Fault::Interface { receiver, path, up: false });
                    self.at(until, Fault::Interface { receiver, path, up: true });
                }
                2 => {
                    self.at(at, Fault::Link { link, change: LinkChange::Up(false) });
                    self.at(until, Fault::Link { link, change: LinkChange::Up(true) });
                }
                3 => {
                    let delay = within(&mut self.rng, Span::from_millis(200));
                    self.at(at, Fault::Link { link, change: LinkChange::Delay(delay) });
                }
                4 => {
                    let percent = pick(&mut self.rng, &[0, 1, 10, 50]);
                    let rate = Rate::from_bytes(self.rates[l].as_bytes() * percent / 100);
                    self.at(at, Fault::Link { link, change: LinkChange::Rate(Some(rate)) });
                    self.at(until, Fault::Link { link, change: LinkChange::Rate(Some(self.rates[l])) });
                }
                _ => {
                    let loss = pick(&mut self.rng, &[0.2, 0.5, 1.0]);
                    let later = often(&mut self.rng, 0.4, 0.08);
                    self.at(at, Fault::Link { link, change: LinkChange::Loss(loss) });
                    self.at(until, Fault::Link { link, change: LinkChange::Loss(later) });
                }
            }
        }
        count
    }

    /// Ends the faults: source 0 lives and can be reached by at least one path, others may be dead for ever.
    /// Returns the dead paths.
    fn recover(&mut self) -> Vec<usize> {
        self.at(RECOVERY_AT, Fault::Restart { source: 0 });
        let ways: Vec<usize> = (0..self.paths.len()).filter(|p| self.paths[*p].0 == 0).collect();
        let core = pick(&mut self.rng, &ways);
        let all = self.rng.chance(0.5);
        let mut dead = Vec::new();
        let spared = self.paths[core].1.clone();
        for l in 0..self.links.len() {
            let works = all || spared.contains(&l) || self.rng.chance(0.6);
            let (link, rate) = (self.links[l], self.rates[l]);
            self.at(RECOVERY_AT, Fault::Link { link, change: LinkChange::Rate(Some(rate)) });
            self.at(RECOVERY_AT, Fault::Link { link, change: LinkChange::Up(works) });
            if spared.contains(&l) {
                self.at(RECOVERY_AT, Fault::Link { link, change: LinkChange::Loss(0.02) });
            }
            if !works {
                dead.extend((0..self.paths.len()).filter(|p| self.paths[*p].1.contains(&l)));
            }
        }
        for path in 0..self.paths.len() {
            let up = all || path == core || self.rng.chance(0.8);
            dead.extend((!up).then_some(path));
            let receiver = self.receiver;
            let at = if up { RECOVERY_AT } else { between(&mut self.rng, Time::ZERO, RECOVERY_AT) };
            self.at(at, Fault::Interface { receiver, path, up });
        }
        dead.sort_unstable();
        dead.dedup();
        dead
    }

    fn check_outcome(&mut self, done: bool) {
        let Self { simulation, misbehaviours, receiver, run_log, .. } = self;
        for what in simulation.violations().into_iter().chain(simulation.packet_flows().violations()) {
            run_log.violation(what);
        }
        for (at, event) in simulation.events(*receiver) {
            run_log.happened(*at, || format!("{event:?}"));
        }
        let banned: Vec<usize> = simulation
            .events(*receiver)
            .iter()
            .filter_map(|(_, event)| match event {
                Event::Banned { source, .. } => simulation.source_of(*receiver, *source),
                _ => None,
            })
            .collect();
        // A bit that the network flips looks like one that the source flips.
        let innocent = |source: &&usize| {
            matches!(
                misbehaviours[**source],
                Misbehaviour::Honest | Misbehaviour::Triplicate | Misbehaviour::Unresponsive
            )
        };
        if !self.corrupting
            && let Some(source) = banned.iter().find(innocent)
        {
            run_log.violation(format!("source {source} is banned, and is {:?}", misbehaviours[*source]));
        }
        // An answer that a flipped bit turns into a refusal is no violation either.
        let refuses = |event: &Event| match event {
            Event::Refused { source, .. } => simulation.source_of(*receiver, *source) == Some(0),
            _ => false,
        };
        let refused = self.corrupting && simulation.events(*receiver).iter().any(|(_, event)| refuses(event));
        if !done && !banned.contains(&0) && !refused {
            let at = simulation.clock().as_nanos() / 1_000_000_000;
            run_log.violation(format!("not done at {at} s; paths {:?}", simulation.paths(*receiver)));
        }
    }
}

fn config(rng: &mut Rng, slow: bool) -> LinkConfig {
    let mbits = pick(rng, if slow { &[1, 2, 5, 10, 20, 50][..] } else { &[100, 1_000][..] });
    let rate = Rate::from_bits(mbits * 1_000_000);
    let delay_max_us = pick(rng, &[100, 5_000, 100_000]);
    let delay = Span::from_micros(rng.below(delay_max_us));
    LinkConfig {
        jitter: Span::from_micros(rng.below(2_000)),
        loss: often(rng, 0.4, 0.08),
        // Corrupt only packets to the receiver: a source rightly refuses a request whose broken name slips
        // past the checksum.
        corrupt: if slow { often(rng, 0.2, 0.01) } else { 0.0 },
        duplicate: often(rng, 0.2, 0.05),
        reorder: often(rng, 0.2, 0.1),
        reorder_by: Span::from_micros(rng.below(10_000)),
        mtu_bytes: pick(rng, &[1_514, 1_514, 1_394, 1_294, 9_014]),
        mark_above_bytes: rng.chance(0.2).then(|| 10_000 + rng.below(50_000)),
        ..LinkConfig::new(rate, delay).queue_bytes(6_000 + rng.below(200_000))
    }
}
