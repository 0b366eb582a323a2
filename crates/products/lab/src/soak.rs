//! Runs random worlds and checks invariants that must hold in all of them. A seed decides links, flows,
//! controllers, sources, misbehaviours, faults and restarts.
//!
//! A run has two parts, as in TigerBeetle's simulator. In the **fault phase** anything may fail, and only
//! safety is checked: content intact, windows within their bounds, packets conserved, no event storm, memory
//! bounded. In the **recovery phase** a part of the world works permanently, and the rest may stay broken
//! for ever. Each flow or receiver with a working path must then make progress and finish.
//!
//! There are two kinds of world ([`SoakKind`]): mmTP with content, sources and liars (`soak/transfers.rs`),
//! and flows of packets over meshes of links (`soak/packet_flows.rs`). Every [`TWICE_EVERY`]th seed is run
//! twice, and both runs must give equal digests.

mod generate;
mod packet_flows;
mod random_links;
mod transfers;

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use anabranch_sim::{LinkId, Rng};

use crate::Simulation;
use crate::sweep::caught;

/// One seed in this number is run twice.
pub const TWICE_EVERY: u64 = 16;
/// Most entries of the queue of timers, per path.
pub const TIMERS_MAX: usize = 4_096;
/// Most violations that are kept of one seed.
const VIOLATIONS_MAX: usize = 16;
/// Number of last log lines that are kept.
const TAIL_MAX: usize = 80;

/// The kind of world that a seed stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoakKind {
    /// Sources (honest or not), receivers and content.
    Transfers,
    /// Flows of packets without content.
    PacketFlows,
}

impl SoakKind {
    /// Returns the name of the kind, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transfers => "swarm",
            Self::PacketFlows => "crowd",
        }
    }
}

/// The result of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Kind of the world.
    pub kind: SoakKind,
    /// Description of the world, one paragraph.
    pub description: String,
    /// Invariants that were violated; empty if all is well.
    pub violations: Vec<String>,
    /// Digest of the whole event stream.
    pub digest: u64,
    /// Length of the run, in virtual time.
    pub virtual_time: Span,
    /// Packets that reached the end of a link.
    pub packets: u64,
    /// Parts of the world and its last events; filled by [`watch`].
    pub log: Vec<String>,
}

/// Runs the world of a seed; every [`TWICE_EVERY`]th seed twice, to compare the digests.
#[must_use]
pub fn run(seed: u64) -> Report {
    let report = once(seed, false);
    if seed.is_multiple_of(TWICE_EVERY) { compared(report, &once(seed, false)) } else { report }
}

/// Runs the world of a seed as [`run`] does, and keeps a log.
#[must_use]
pub fn watch(seed: u64) -> Report {
    compared(once(seed, true), &once(seed, false))
}

/// Adds a violation if the second run differs from the first.
fn compared(mut first: Report, second: &Report) -> Report {
    if (first.digest, first.packets, first.virtual_time)
        != (second.digest, second.packets, second.virtual_time)
    {
        let what = format!(
            "two runs differ: digest {:x} and {:x}, {} and {} packets",
            first.digest, second.digest, first.packets, second.packets
        );
        first.violations.push(what);
    }
    first
}

fn once(seed: u64, log: bool) -> Report {
    let kind =
        if Rng::stream(seed, "soak").chance(0.4) { SoakKind::Transfers } else { SoakKind::PacketFlows };
    let mut run_log = RunLog { log, ..RunLog::default() };
    let simulate = || match kind {
        SoakKind::Transfers => transfers::simulate(seed, &mut run_log),
        SoakKind::PacketFlows => packet_flows::simulate(seed, &mut run_log),
    };
    let end = caught(simulate).unwrap_or_else(|text| {
        run_log.violation(format!("panicked: {text}"));
        SoakTotals::default()
    });
    let RunLog { description, violations, details, tail, .. } = run_log;
    let log = details.into_iter().chain(tail).collect();
    let SoakTotals { digest, virtual_time, packets } = end;
    Report { seed, kind, description, violations, digest, virtual_time, packets, log }
}

/// The totals of a run at its end.
#[derive(Clone, Copy, Debug, Default)]
struct SoakTotals {
    digest: u64,
    virtual_time: Span,
    packets: u64,
}

impl SoakTotals {
    fn of(simulation: &Simulation, links: &[LinkId]) -> Self {
        let stats = || links.iter().map(|link| simulation.stats(*link));
        let mix =
            |digest: u64, value: u64| (digest.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seen = stats().flat_map(|stats| [stats.offered_bytes, stats.delivered, stats.dropped.total()]);
        Self {
            digest: seen.fold(simulation.digest() ^ simulation.clock().as_nanos(), mix),
            virtual_time: simulation.clock().since(Time::ZERO),
            packets: stats().map(|stats| stats.delivered).sum(),
        }
    }
}

/// The record of a run while it goes on.
#[derive(Debug, Default)]
struct RunLog {
    /// Whether details and the last events are kept.
    log: bool,
    description: String,
    violations: Vec<String>,
    details: Vec<String>,
    tail: VecDeque<String>,
}

impl RunLog {
    fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// Records a part of the world.
    fn detail(&mut self, what: impl FnOnce() -> String) {
        if self.log {
            self.details.push(what());
        }
    }

    /// Records an event at the time `at`.
    fn happened(&mut self, at: Time, what: impl FnOnce() -> String) {
        if self.log {
            self.tail.push_back(format!("{:>10.3} ms  {}", at.as_nanos() as f64 / 1e6, what()));
            if self.tail.len() > TAIL_MAX {
                self.tail.pop_front();
            }
        }
    }
}

/// Checks the invariants of every link: no packet appears or vanishes, and no link holds more packets than
/// it has room for.
fn check_conservation(
    simulation: &Simulation,
    links: &[LinkId],
    room: impl Fn(usize) -> usize,
    run_log: &mut RunLog,
) {
    for (l, link) in links.iter().enumerate() {
        let (stats, occupancy) = (simulation.stats(*link), simulation.occupancy(*link));
        let gone = stats.delivered + stats.dropped.total() + occupancy as u64;
        if stats.offered + stats.duplicated != gone {
            run_log.violation(format!("link {l} is not conserved: {occupancy} inside, {stats:?}"));
        }
        if occupancy > room(l) {
            run_log.violation(format!("link {l} holds {occupancy} packets"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_changes_nothing() {
        for seed in 1..9 {
            let (run, watch) = (run(seed), watch(seed));
            assert_eq!(run.violations, Vec::<String>::new(), "seed {seed}");
            assert!(run.log.is_empty() && !watch.log.is_empty() && !run.description.is_empty());
            assert_eq!(Report { log: Vec::new(), ..watch }, run);
        }
    }

    #[test]
    fn a_difference_is_a_failure() {
        let report = run(3);
        let other = Report { digest: report.digest + 1, ..report.clone() };
        assert_eq!(compared(report.clone(), &report).violations.len(), 0);
        assert_eq!(compared(report, &other).violations.len(), 1);
    }

    #[test]
    fn both_kinds_come() {
        let kinds: Vec<SoakKind> = (0..30).map(|seed| once(seed, false).kind).collect();
        assert!(kinds.contains(&SoakKind::Transfers) && kinds.contains(&SoakKind::PacketFlows));
    }
}
