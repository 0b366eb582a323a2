//! Draws random links and their faults, and computes bounds on the traffic that they can have carried.

use anabranch_algo::{Rate, Span, Time};
use anabranch_sim::config::VictimPolicy;
use anabranch_sim::{Discipline, GilbertElliott, LinkChange, LinkConfig, LinkId, Rng, Station};

use super::generate::{between, few, often, pick, within};
use super::{RunLog, Simulation};
use crate::Fault;
use crate::packet_flows::ACK_BYTES;

pub(super) const PACKET_MAX: u64 = 9_000;
/// Most paths of a flow.
pub(super) const PATHS_MAX: u64 = 8;
/// Longest queue, if it has room for two of the largest packets: a path's round trips must stay well below
/// twice the longest timeout, after which the sender no longer recognises an answer.
const QUEUE_MAX: Span = Span::from_millis(1_500);
/// Largest jitter, and longest time that a packet is held back.
const JITTER_MAX: Span = Span::from_millis(5);
const HELD_MAX: Span = Span::from_millis(20);
/// Most that a rate may rise to, percent of its first value.
const FASTER_MAX: u64 = 200;

/// The links of a world; packets may cross them in any order.
pub(super) struct RandomLinks {
    pub(super) links: Vec<RandomLink>,
}

pub(super) struct RandomLink {
    pub(super) id: LinkId,
    pub(super) rate: Rate,
    /// Shortest and longest delay at any time.
    pub(super) delay_min: Span,
    delay_max: Span,
    queue_packets: u32,
    /// Whether the link works in the recovery phase.
    pub(super) works: bool,
    queue_bytes: u64,
    /// Whether the link uses the shared medium.
    shares: bool,
    /// Rate from each time on.
    rates: Vec<(Time, Rate)>,
}

impl RandomLinks {
    pub(super) fn generate(rng: &mut Rng, simulation: &mut Simulation, run_log: &mut RunLog) -> Self {
        let medium = rng.chance(0.15).then(|| simulation.medium("medium"));
        let links = (0..few(rng, 20)).map(|l| {
            let kbits = pick(rng, &[100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000]);
            let kbits = if rng.chance(0.05) { pick(rng, &[1_000_000, 10_000_000]) } else { kbits };
            let rate = Rate::from_bits(kbits * 1_000);
            let delay = delay(rng);
            let mut config = LinkConfig {
                jitter: Span::from_nanos(often(rng, 0.3, JITTER_MAX.as_nanos() as f64) as u64),
                loss: often(rng, 0.4, 0.05),
                duplicate: often(rng, 0.15, 0.05),
                reorder: often(rng, 0.2, 0.1),
                reorder_by: within(rng, HELD_MAX),
                bursts: rng.chance(0.1).then(|| GilbertElliott::bursts(0.03 * rng.unit(), 8.0 * rng.unit())),
                discipline: discipline(rng),
                station: medium
                    .filter(|_| rng.chance(0.3))
                    .map(|medium| Station::new(medium, rng.below(3) as u32)),
                ..LinkConfig::new(rate, delay).queue_packets(few(rng, 300) as u32)
            };
            config.queue_bytes = if rng.chance(0.3) { rng.below(300_000) } else { u64::MAX };
            config.queue_bytes = config.queue_bytes.min(rate.bytes_in(QUEUE_MAX)).max(2 * PACKET_MAX);
            config.mark_above_bytes = rng.chance(0.2).then(|| rng.below(100_000));
            let (queue_packets, queue_bytes) = (config.queue_packets, config.queue_bytes);
            let shares = config.station.is_some();
            run_log.detail(|| format!("link {l}: {config:?}"));
            let id = simulation.link(&format!("link {l}"), config);
            let rates = vec![(Time::ZERO, rate)];
            RandomLink {
                id,
                rate,
                delay_min: delay,
                delay_max: delay,
                queue_packets,
                works: true,
                queue_bytes,
                shares,
                rates,
            }
        });
        Self { links: links.collect() }
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.links.iter().map(|link| link.id).collect()
    }

    /// Returns the indices of up to `most` different links.
    pub(super) fn route(&self, rng: &mut Rng, most: u64) -> Vec<usize> {
        let mut route: Vec<usize> = Vec::new();
        for _ in 0..few(rng, most) {
            let link = rng.below(self.links.len() as u64) as usize;
            if !route.contains(&link) {
                route.push(link);
            }
        }
        route
    }

    /// Schedules the faults until `end`, decides which links work from then on, and returns the number of
    /// faults.
    pub(super) fn inject_faults(
        &mut self,
        rng: &mut Rng,
        simulation: &mut Simulation,
        end: Time,
        run_log: &mut RunLog,
    ) -> usize {
        let all = rng.chance(0.5);
        let (mut count, mut blocked) = (0, false);
        for (l, link) in self.links.iter_mut().enumerate() {
            let id = link.id;
            let mut told = |at: Time, change: LinkChange| {
                run_log
                    .detail(|| format!("fault: {:.3} ms, link {l}: {change:?}", at.as_nanos() as f64 / 1e6));
                simulation.at(at, Fault::Link { link: id, change });
            };
            let faults = if rng.chance(0.4) { few(rng, 4) } else { 0 };
            let mut rates = Vec::new();
            for _ in 0..faults {
                let at = between(rng, Time::ZERO, end);
                let until = between(rng, at, end);
                match rng.below(4) {
                    0 => {
                        told(at, LinkChange::Up(false));
                        told(until, LinkChange::Up(true));
                    }
                    1 => {
                        let percent = pick(rng, &[0, 1, 10, 50, FASTER_MAX]);
                        let rate = Rate::from_bytes(link.rate.as_bytes() * percent / 100);
                        rates.extend([(at, rate), (until, link.rate)]);
                        told(at, LinkChange::Rate(Some(rate)));
                        told(until, LinkChange::Rate(Some(link.rate)));
                    }
                    2 => {
                        let delay = delay(rng);
                        link.delay_min = link.delay_min.min(delay);
                        link.delay_max = link.delay_max.max(delay);
                        told(at, LinkChange::Delay(delay));
                    }
                    _ => {
                        told(at, LinkChange::Loss(pick(rng, &[0.1, 0.5, 1.0])));
                        told(until, LinkChange::Loss(often(rng, 0.5, 0.05)));
                    }
                }
                count += 1;
            }
            link.works = all || rng.chance(0.75);
            rates.push((end, link.rate));
            told(end, LinkChange::Rate(Some(link.rate)));
            if link.works {
                told(end, LinkChange::Up(true));
                told(end, LinkChange::Loss(0.0));
            } else {
                match rng.below(3) {
                    0 => told(end, LinkChange::Up(false)),
                    1 => told(end, LinkChange::Loss(0.5 + 0.5 * rng.unit())),
                    _ => {
                        rates.push((end, Rate::from_bytes(0)));
                        // On a medium, its turn to send may last for ever.
                        blocked |= link.shares;
                        told(end, LinkChange::Rate(Some(Rate::from_bytes(0))));
                    }
                }
            }
            // The simulation applies changes of equal times in the order in which they were scheduled; this
            // stable sort keeps it.
            rates.sort_by_key(|(at, _)| *at);
            link.rates.extend(rates);
        }
        self.links.iter_mut().filter(|link| link.shares).for_each(|link| link.works &= !blocked);
        count
    }
}

impl RandomLink {
    /// Whether a flow with packets of this size can rely on the link in the recovery phase: the link works,
    /// and has room for a packet and an acknowledgement of each path. With less room, paths that are broken
    /// elsewhere and whose timers are in step can fill the queue for ever just before a working path.
    pub(super) fn serves(&self, packet_bytes: u64) -> bool {
        let row = 2 * PATHS_MAX;
        self.works && u64::from(self.queue_packets) >= row && self.queue_bytes >= row * packet_bytes
    }

    /// Returns the most packets that the link may hold: a full queue, and the smallest packets on the wire,
    /// some of them twice.
    pub(super) fn room(&self) -> usize {
        let rate = Rate::from_bytes(self.rate.as_bytes() * FASTER_MAX / 100);
        let flying = rate.bytes_in(self.delay_max + JITTER_MAX + HELD_MAX) / u64::from(ACK_BYTES);
        (u64::from(self.queue_packets) + 2 * flying + 16) as usize
    }

    /// Returns the most bytes that the link can have sent until `now`.
    pub(super) fn capacity_bytes(&self, now: Time) -> u64 {
        let ends = self.rates.iter().skip(1).map(|(at, _)| (*at).min(now)).chain([now]);
        let carried = |((at, rate), end): (&(Time, Rate), Time)| rate.bytes_in(end.since((*at).min(now))) + 1;
        self.rates.iter().zip(ends).map(carried).sum()
    }
}

fn discipline(rng: &mut Rng) -> Discipline {
    match rng.below(12) {
        0 => Discipline::Random { last_packets: few(rng, 20) as u32, p: 0.5 * rng.unit() },
        1 => Discipline::CoDel {
            target: Span::from_millis(1 + rng.below(20)),
            interval: Span::from_millis(20 + rng.below(200)),
            ecn: rng.chance(0.5),
        },
        2 => Discipline::TargetedDrop {
            above_packets: few(rng, 100) as u32,
            hold: Span::from_millis(rng.below(200)),
            policy: pick(rng, &[VictimPolicy::All, VictimPolicy::Share, VictimPolicy::Largest]),
        },
        3 => Discipline::FqCodel {
            target: Span::from_millis(1 + rng.below(20)),
            interval: Span::from_millis(20 + rng.below(200)),
            ecn: rng.chance(0.5),
            flows: few(rng, 1_024) as u32,
            quantum_bytes: 256 + rng.below(3_000) as u32,
        },
        4 => Discipline::Pie {
            target: Span::from_millis(1 + rng.below(40)),
            burst: Span::from_millis(rng.below(200)),
            ecn: rng.chance(0.5),
        },
        5 => {
            let min_bytes = rng.below(100_000);
            Discipline::Red {
                min_bytes,
                max_bytes: min_bytes + 1 + rng.below(100_000),
                drop: rng.unit(),
                weight: 0.0001 + 0.1 * rng.unit(),
                ecn: rng.chance(0.5),
            }
        }
        _ => Discipline::DropTail,
    }
}

fn delay(rng: &mut Rng) -> Span {
    let most = pick(rng, &[0, 100, 5_000, 50_000, 250_000]);
    within(rng, Span::from_micros(most))
}
