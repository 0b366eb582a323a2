//! Many subflows against one single-path flow behind one bottleneck: how much does the one keep?
//!
//! ```text
//!  source 0 ── access 0 ──┐
//!  source 1 ── access 1 ──┤                    ┌── receiver: one subflow to each source
//!  source 2 ── access 2 ──┼── the bottleneck ──┤
//!  competitor's ─ access ─┘                    └── competitor: one subflow, Reno
//! ```
//!
//! If each subflow is a TCP of its own (`reno`), n of them leave the competitor 1/(n+1) where all round trips
//! are equal; that row is the control, and if it fails so does the testbed. Coupled, all together should take
//! no more than one TCP on the best of their paths: with the competitor's round trip there, one half.
//!
//! A run proves its conditions ([`FairnessRun::violations`]): packets were dropped at the bottleneck, its
//! queue was full, and the round trips lay between the propagation delay and that plus a full queue.

use std::fmt::Write as _;

use algo::control::Algorithm;
use algo::{Rate, Span, Time};
use sim::{LinkConfig, LinkId, Rng, Stats};

use crate::content::Content;
use crate::sim_source::Misbehaviour;
use crate::simulation::{OVERHEAD_BYTES, PathSpec, ReceiverId, Simulation};
use crate::table::summary;

/// Rate of every link but the bottleneck.
const ACCESS: Rate = Rate::from_bits(1_000_000_000);
/// The access links' jitter, which breaks the phase effects of a drop-tail queue.
const JITTER: Span = Span::from_micros(1_000);
/// Of each round trip this much is the bottleneck's own propagation delay.
const BOTTLENECK_DELAY: Span = Span::from_millis(2);
/// Receivers start within this time, at random.
const STARTS: Span = Span::from_secs(2);
/// Frame of a full packet at the usual MTU: what queues are counted in, bytes.
const FRAME_BYTES: u64 = 1_386 + OVERHEAD_BYTES as u64;
/// Blocks of the pattern that contents repeat.
const PATTERN_BLOCKS: usize = 256;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name in [`algo::control::ALGORITHMS`] of the receiver with many paths.
    pub algorithm: String,
    /// Round-trip propagation delay of each of its paths, ms.
    pub rtts_ms: Vec<u64>,
    /// And of its competitor's, ms.
    pub competitor_ms: u64,
    /// The bottleneck's rate.
    pub rate: Rate,
    /// The bottleneck's queue, in bandwidth-delay products of the competitor, percent.
    pub queue_percent: u64,
    /// How long it runs, and how much of the end counts, seconds.
    pub secs: u64,
    /// See there.
    pub counted_secs: u64,
    /// What arrives at a receiver is handed over together when it came within this time (interrupt
    /// moderation, GRO).
    pub coalesce: Span,
}

impl Setup {
    /// Three sources at 20, 35 and 50 ms against one at 35 ms behind 20 Mbit/s and a queue of one BDP; 60 s,
    /// of which the last 40 count.
    #[must_use]
    pub fn new(algorithm: &str) -> Self {
        Self {
            algorithm: algorithm.into(),
            rtts_ms: vec![20, 35, 50],
            competitor_ms: 35,
            rate: Rate::from_bits(20_000_000),
            queue_percent: 100,
            secs: 60,
            counted_secs: 40,
            coalesce: Span::ZERO,
        }
    }

    /// What the queue holds, bytes.
    #[must_use]
    pub fn queue_bytes(&self) -> u64 {
        let bdp = self.rate.bytes_in(Span::from_millis(self.competitor_ms));
        (bdp * self.queue_percent / 100).max(4 * FRAME_BYTES)
    }

    /// A content that no receiver finishes.
    #[must_use]
    pub fn content(&self) -> Content {
        let bytes = self.rate.bytes_in(Span::from_secs(self.secs + 1));
        Content::repeating(1, PATTERN_BLOCKS, bytes.div_ceil(mmtp::id::BLOCK_BYTES as u64).max(2))
    }

    /// The competitor's share where every flow is a TCP of its own and gets a rate in proportion to 1/RTT,
    /// the queue's mean delay included.
    #[must_use]
    pub fn uncoupled_share(&self, queue_ms: f64) -> f64 {
        let rate = |rtt_ms: u64| 1.0 / (rtt_ms as f64 + queue_ms);
        let all: f64 = self.rtts_ms.iter().map(|rtt| rate(*rtt)).sum();
        rate(self.competitor_ms) / (all + rate(self.competitor_ms))
    }
}

/// What came out of one run.
#[derive(Clone, Debug)]
pub struct FairnessRun {
    /// The competitor's share of the payload, 0 to 1.
    pub share: f64,
    /// What each path of the other carried, of all payload, 0 to 1.
    pub parts: Vec<f64>,
    /// What the bottleneck carried of what it can, 0 to 1.
    pub utilisation: f64,
    /// Packets dropped at the bottleneck of those offered, 0 to 1.
    pub loss: f64,
    /// Mean queue at the bottleneck, ms.
    pub queue_ms: f64,
    /// Smoothed RTT at the end: each path's, then the competitor's, ms.
    pub srtt_ms: Vec<f64>,
    /// Packets in a source's answer: mean and most. What an acknowledgement clock would send one by one
    /// leaves in such bursts.
    pub burst: (f64, u64),
    /// Timeouts of all paths.
    pub timeouts: u64,
    /// Conditions that were not met; empty if the run counts.
    pub violations: Vec<String>,
}

struct Bench {
    simulation: Simulation,
    many: ReceiverId,
    one: ReceiverId,
    bottleneck: LinkId,
}

impl Bench {
    fn new(setup: &Setup, content: &Content, seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let queue = setup.queue_bytes();
        let bottleneck = LinkConfig::new(setup.rate, BOTTLENECK_DELAY).queue_bytes(queue);
        let bottleneck = simulation.link("bottleneck", bottleneck);
        let (many, one) = (simulation.receiver(setup.coalesce), simulation.receiver(setup.coalesce));
        let coupled = Algorithm::by_name(&setup.algorithm).expect("an algorithm of the table");
        let reno = Algorithm::by_name("reno").expect("reno is in the table");
        let paths = setup.rtts_ms.iter().map(|rtt| (many, *rtt, coupled));
        for (i, (receiver, rtt_ms, algorithm)) in paths.chain([(one, setup.competitor_ms, reno)]).enumerate()
        {
            // Half of the delay before the bottleneck, half on the way back; jitter adds half of its width.
            let rest = Span::from_millis(rtt_ms) - BOTTLENECK_DELAY - JITTER.over(2);
            let there = LinkConfig { jitter: JITTER, ..LinkConfig::new(ACCESS, rest.over(2)) };
            let back = LinkConfig::new(ACCESS, rest - rest.over(2));
            let source = simulation.source(std::slice::from_ref(content), Misbehaviour::Honest);
            let there = simulation.link(&format!("access {i}"), there);
            let back = simulation.link(&format!("back {i}"), back);
            simulation.path(receiver, source, &PathSpec::new(&[there, bottleneck], &[back], algorithm));
        }
        let mut rng = Rng::stream(seed, "starts");
        for receiver in [many, one] {
            let start = Time::ZERO + Span::from_nanos(rng.below(STARTS.as_nanos()));
            simulation.want(receiver, content, start);
        }
        Self { simulation, many, one, bottleneck }
    }

    /// New payload bytes of every path so far: the many, then the one.
    fn payload(&self) -> Vec<u64> {
        let of = |receiver| self.simulation.paths(receiver).into_iter().map(|path| path.counters.bytes);
        of(self.many).chain(of(self.one)).collect()
    }
}

/// Runs `setup` once; the content is [`Setup::content`], made once for all runs.
#[must_use]
pub fn run(setup: &Setup, content: &Content, seed: u64) -> FairnessRun {
    let mut bench = Bench::new(setup, content, seed);
    bench.simulation.run_until(Time::ZERO + Span::from_secs(setup.secs - setup.counted_secs));
    let (before, stats_before) = (bench.payload(), bench.simulation.stats(bench.bottleneck));
    bench.simulation.run_until(Time::ZERO + Span::from_secs(setup.secs));
    let payload: Vec<u64> = bench.payload().iter().zip(&before).map(|(now, then)| now - then).collect();
    let stats = bench.simulation.stats(bench.bottleneck);
    let all = payload.iter().sum::<u64>().max(1) as f64;
    let mut parts: Vec<f64> = payload.iter().map(|bytes| *bytes as f64 / all).collect();
    let share = parts.pop().unwrap_or(0.0);
    let span_ns = stats.until.since(stats_before.until).as_nanos().max(1) as f64;
    let carried = (stats.delivered_bytes - stats_before.delivered_bytes) as f64;
    let mean_queue = (stats.queue_byte_ns - stats_before.queue_byte_ns) as f64 / span_ns;
    let offered = (stats.offered - stats_before.offered).max(1) as f64;
    let rate = setup.rate.as_bytes() as f64;
    let reports: Vec<_> =
        [bench.many, bench.one].into_iter().flat_map(|r| bench.simulation.paths(r)).collect();
    let source_stats: Vec<_> =
        (0..reports.len()).map(|source| bench.simulation.source_stats(source)).collect();
    let sum = |f: fn(&crate::SourceStats) -> u64| source_stats.iter().map(f).sum::<u64>();
    let srtt_ms: Vec<f64> = reports.iter().map(|path| path.srtt.as_nanos() as f64 / 1e6).collect();
    let mut run = FairnessRun {
        share,
        parts,
        utilisation: carried / (rate * setup.counted_secs as f64),
        loss: (stats.dropped.queue - stats_before.dropped.queue) as f64 / offered,
        queue_ms: mean_queue / rate * 1e3,
        srtt_ms,
        burst: (
            sum(|t| t.packets) as f64 / sum(|t| t.bursts).max(1) as f64,
            source_stats.iter().map(|t| t.burst_max).max().unwrap_or(0),
        ),
        timeouts: reports.iter().map(|path| path.counters.timeouts).sum(),
        violations: bench.simulation.violations(),
    };
    run.violations.extend(violations(setup, &run, &stats, &stats_before));
    run
}

/// Which of the conditions were not there.
fn violations(setup: &Setup, run: &FairnessRun, stats: &Stats, before: &Stats) -> Vec<String> {
    let mut violations = Vec::new();
    if stats.dropped.queue == before.dropped.queue {
        violations.push("nothing was dropped at the bottleneck".into());
    }
    if stats.queue_max_bytes + FRAME_BYTES < setup.queue_bytes() {
        violations.push(format!("the queue had {} bytes at most", stats.queue_max_bytes));
    }
    let full_ms = setup.queue_bytes() as f64 / setup.rate.as_bytes() as f64 * 1e3;
    let coalesce_ms = setup.coalesce.as_nanos() as f64 / 1e6;
    let base = setup.rtts_ms.iter().chain([&setup.competitor_ms]);
    for (i, (srtt, base)) in run.srtt_ms.iter().zip(base).enumerate() {
        let (least, most) = (*base as f64 - 1.0, *base as f64 + full_ms + coalesce_ms + 3.0);
        if !(least..=most).contains(srtt) {
            violations.push(format!("path {i} had an RTT of {srtt:.1} ms, expected {least:.0} to {most:.0}"));
        }
    }
    violations
}

/// A row of the table: several runs of one setup.
#[derive(Clone, Debug)]
pub struct FairnessRow {
    /// What was measured.
    pub setup: Setup,
    /// One run a seed.
    pub runs: Vec<FairnessRun>,
}

/// Mean and standard deviation (of the sample).
#[must_use]
pub fn mean_sd(values: &[f64]) -> (f64, f64) {
    summary(values).map_or((0.0, 0.0), |summary| (summary.mean, summary.sd.unwrap_or(0.0)))
}

impl FairnessRow {
    /// Runs `setup` with the seeds 1 to `seeds`.
    #[must_use]
    pub fn measure(setup: Setup, seeds: u64) -> Self {
        let content = setup.content();
        let runs = (1..=seeds).map(|seed| run(&setup, &content, seed)).collect();
        Self { setup, runs }
    }

    /// Mean and standard deviation over the seeds.
    #[must_use]
    pub fn mean_sd(&self, of: impl Fn(&FairnessRun) -> f64) -> (f64, f64) {
        mean_sd(&self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// Mean over the seeds.
    #[must_use]
    pub fn mean(&self, of: impl Fn(&FairnessRun) -> f64) -> f64 {
        self.mean_sd(of).0
    }

    /// What the conditions of all runs lacked.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let of = |(seed, run): (usize, &FairnessRun)| -> Vec<String> {
            run.violations.iter().map(|violation| format!("seed {}: {violation}", seed + 1)).collect()
        };
        self.runs.iter().enumerate().flat_map(of).collect()
    }

    /// The columns of [`text`](Self::text).
    #[must_use]
    pub fn head() -> String {
        format!(
            "{:<13} {:<12} {:>4} {:>6} | {:>6} {:>5} {:>6} | {:<17} | {:>5} {:>6} {:>8} | {:>11} {:>4} {}",
            "algorithm",
            "RTTs ms",
            "vs",
            "Mbit/s",
            "share",
            "sd",
            "1/RTT",
            "parts",
            "util",
            "loss",
            "queue ms",
            "burst",
            "RTOs",
            "conditions"
        )
    }

    /// One line: the competitor's share with its deviation, what uncoupled TCPs would leave it, and the rest.
    #[must_use]
    pub fn text(&self) -> String {
        let setup = &self.setup;
        let (share, sd) = self.mean_sd(|run| run.share);
        let rtts: Vec<String> = setup.rtts_ms.iter().map(u64::to_string).collect();
        let parts: Vec<String> = (0..setup.rtts_ms.len())
            .map(|i| format!("{:.1}", 100.0 * self.mean(|run| run.parts[i])))
            .collect();
        let queue_ms = self.mean(|run| run.queue_ms);
        let burst_max = self.runs.iter().map(|run| run.burst.1).max().unwrap_or(0);
        let violations = self.violations();
        let conditions =
            if violations.is_empty() { "met".into() } else { format!("NOT MET: {}", violations.join("; ")) };
        format!(
            "{:<13} {:<12} {:>4} {:>6} | {:>5.1}% {:>5.1} {:>5.1}% \
             | {:<17} | {:>4.1}% {:>5.2}% {:>8.1} | {:>4.1} max {:>2} {:>4.1} {conditions}",
            setup.algorithm,
            rtts.join("/"),
            setup.competitor_ms,
            setup.rate.as_bits() / 1_000_000,
            100.0 * share,
            100.0 * sd,
            100.0 * setup.uncoupled_share(queue_ms),
            parts.join(" "),
            100.0 * self.mean(|run| run.utilisation),
            100.0 * self.mean(|run| run.loss),
            queue_ms,
            self.mean(|run| run.burst.0),
            burst_max,
            self.mean(|run| run.timeouts as f64),
        )
    }

    /// The same as a JSON object, with every seed's share.
    #[must_use]
    pub fn json(&self) -> String {
        let setup = &self.setup;
        let (share, sd) = self.mean_sd(|run| run.share);
        let shares: Vec<String> = self.runs.iter().map(|run| format!("{:.4}", run.share)).collect();
        let mut out = String::new();
        let _ = write!(
            out,
            "{{\"algorithm\":\"{}\",\"rtts_ms\":{:?},\"competitor_ms\":{},\"rate_bits\":{},\
             \"queue_bytes\":{},\"coalesce_us\":{},\"secs\":{},\"counted_secs\":{},\
             \"share\":{share:.4},\"share_sd\":{sd:.4},\
             \"shares\":[{}],\"utilisation\":{:.4},\"loss\":{:.5},\"queue_ms\":{:.2},\"burst_mean\":{:.2},\
             \"timeouts\":{:.1},\"conditions_met\":{}}}",
            setup.algorithm,
            setup.rtts_ms,
            setup.competitor_ms,
            setup.rate.as_bits(),
            setup.queue_bytes(),
            setup.coalesce.as_micros(),
            setup.secs,
            setup.counted_secs,
            shares.join(","),
            self.mean(|run| run.utilisation),
            self.mean(|run| run.loss),
            self.mean(|run| run.queue_ms),
            self.mean(|run| run.burst.0),
            self.mean(|run| run.timeouts as f64),
            self.violations().is_empty(),
        );
        out
    }
}
