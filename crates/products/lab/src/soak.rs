//! Random worlds and what must hold in all of them: a seed decides links, flows, controllers, sources,
//! misbehaviours, faults and restarts.
//!
//! A run has two parts, as TigerBeetle's simulator has. In the **fault phase** anything may fail, and only
//! safety is asked for: content intact, windows within their bounds, packets conserved, no event storm,
//! memory bounded. Then comes the **recovery phase**: some of the world works and stays so, the rest may be
//! broken for ever. Who has a path that works must get on then, and finish.
//!
//! Two kinds of world ([`SoakKind`]): mmTP with content, sources and liars (`soak/transfers.rs`), and flows
//! of packets over meshes of links (`soak/packet_flows.rs`). Every [`TWICE_EVERY`]th seed is run twice and
//! must give the same digest.

mod generate;
mod packet_flows;
mod random_links;
mod transfers;

use std::collections::VecDeque;

use anabranch_algo::{Span, Time};
use anabranch_sim::{LinkId, Rng};

use crate::Simulation;
use crate::sweep::caught;

/// Every so many seeds, one is run twice.
pub const TWICE_EVERY: u64 = 16;
/// The most entries the queue of timers may hold, by path.
pub const TIMERS_MAX: usize = 4_096;
/// Failures kept of one seed.
const VIOLATIONS_MAX: usize = 16;
/// Lines kept of what happened last.
const TAIL_MAX: usize = 80;

/// What kind of world a seed stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoakKind {
    /// Sources, honest or not, receivers and content.
    Transfers,
    /// Flows of packets without content.
    PacketFlows,
}

impl SoakKind {
    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transfers => "swarm",
            Self::PacketFlows => "crowd",
        }
    }
}

/// What came out of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which.
    pub seed: u64,
    /// What kind of world it was.
    pub kind: SoakKind,
    /// What this world was, in a paragraph.
    pub description: String,
    /// What must hold and did not; empty if all is well.
    pub violations: Vec<String>,
    /// A digest of everything that happened.
    pub digest: u64,
    /// How long it was, in its own time.
    pub virtual_time: Span,
    /// Packets that came to the end of a link.
    pub packets: u64,
    /// With [`watch`]: what there was, and what happened last.
    pub log: Vec<String>,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64) -> Report {
    let report = once(seed, false);
    if seed.is_multiple_of(TWICE_EVERY) { compared(report, &once(seed, false)) } else { report }
}

/// Runs a seed as [`run`] does, and keeps a log.
#[must_use]
pub fn watch(seed: u64) -> Report {
    compared(once(seed, true), &once(seed, false))
}

/// Notes if a second run was not the same.
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

/// How a run ended.
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

/// What is said about a run while it goes on.
#[derive(Debug, Default)]
struct RunLog {
    /// Whether anybody wants details and the tail.
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

    /// Something this world is made of.
    fn detail(&mut self, what: impl FnOnce() -> String) {
        if self.log {
            self.details.push(what());
        }
    }

    /// Something that happened.
    fn happened(&mut self, at: Time, what: impl FnOnce() -> String) {
        if self.log {
            self.tail.push_back(format!("{:>10.3} ms  {}", at.as_nanos() as f64 / 1e6, what()));
            if self.tail.len() > TAIL_MAX {
                self.tail.pop_front();
            }
        }
    }
}

/// What must hold of every link at any moment: no packet appears or vanishes, and it holds no more than there
/// is room for.
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
