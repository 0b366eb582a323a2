//! Random worlds and what must hold in all of them: a seed decides links, flows, controllers, sources, lies,
//! faults and restarts.
//!
//! A run has two parts, as TigerBeetle's simulator has. In the **turmoil** anything may fail, and only safety
//! is asked for: content intact, windows within their bounds, packets conserved, no event storm, memory
//! bounded. Then comes the **calm**: some of the world works and stays so, the rest may be broken for ever.
//! Who has a path that works must get on then, and finish.
//!
//! Two kinds of world ([`Kind`]): mmTP with content, sources and liars (`soak/swarm.rs`), and flows of
//! packets over meshes of links (`soak/crowd.rs`). Every [`TWICE_EVERY`]th seed is run twice and must give
//! the same digest.

mod crowd;
mod draw;
mod mesh;
mod swarm;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use algo::{Span, Time};
use sim::{LinkId, Rng};

use crate::Swarm;

/// Every so many seeds, one is run twice.
pub const TWICE_EVERY: u64 = 16;
/// The most entries the queue of timers may hold, by path.
pub const TIMERS_MAX: usize = 4_096;
/// Failures kept of one seed.
const FAILURES_MAX: usize = 16;
/// Lines kept of what happened last.
const TAIL_MAX: usize = 80;

/// What kind of world a seed stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sources, honest or not, receivers and content.
    Swarm,
    /// Flows of packets without content.
    Crowd,
}

impl Kind {
    /// Its name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swarm => "swarm",
            Self::Crowd => "crowd",
        }
    }
}

/// What came out of a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which.
    pub seed: u64,
    /// What kind of world it was.
    pub kind: Kind,
    /// What this world was, in a paragraph.
    pub description: String,
    /// What must hold and did not; empty if all is well.
    pub failures: Vec<String>,
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
        first.failures.push(what);
    }
    first
}

fn once(seed: u64, log: bool) -> Report {
    let kind = if Rng::stream(seed, "soak").chance(0.4) { Kind::Swarm } else { Kind::Crowd };
    let mut notes = Notes { log, ..Notes::default() };
    let play = || match kind {
        Kind::Swarm => swarm::play(seed, &mut notes),
        Kind::Crowd => crowd::play(seed, &mut notes),
    };
    let end = catch_unwind(AssertUnwindSafe(play)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        notes.fail(format!("panicked: {}", text.unwrap_or_default()));
        End::default()
    });
    let Notes { description, failures, details, tail, .. } = notes;
    let log = details.into_iter().chain(tail).collect();
    let End { digest, virtual_time, packets } = end;
    Report { seed, kind, description, failures, digest, virtual_time, packets, log }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    digest: u64,
    virtual_time: Span,
    packets: u64,
}

impl End {
    fn of(swarm: &Swarm, links: &[LinkId]) -> Self {
        let stats = || links.iter().map(|link| swarm.stats(*link));
        let mix =
            |digest: u64, value: u64| (digest.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let seen = stats().flat_map(|stats| [stats.offered_bytes, stats.delivered, stats.dropped.total()]);
        Self {
            digest: seen.fold(swarm.digest() ^ swarm.clock().as_nanos(), mix),
            virtual_time: swarm.clock().since(Time::ZERO),
            packets: stats().map(|stats| stats.delivered).sum(),
        }
    }
}

/// What is said about a run while it goes on.
#[derive(Debug, Default)]
struct Notes {
    /// Whether anybody wants details and the tail.
    log: bool,
    description: String,
    failures: Vec<String>,
    details: Vec<String>,
    tail: VecDeque<String>,
}

impl Notes {
    fn fail(&mut self, what: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(what);
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
fn conserved(swarm: &Swarm, links: &[LinkId], room: impl Fn(usize) -> usize, notes: &mut Notes) {
    for (l, link) in links.iter().enumerate() {
        let (stats, inside) = (swarm.stats(*link), swarm.inside(*link));
        let gone = stats.delivered + stats.dropped.total() + inside as u64;
        if stats.offered + stats.duplicated != gone {
            notes.fail(format!("link {l} is not conserved: {inside} inside, {stats:?}"));
        }
        if inside > room(l) {
            notes.fail(format!("link {l} holds {inside} packets"));
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
            assert_eq!(run.failures, Vec::<String>::new(), "seed {seed}");
            assert!(run.log.is_empty() && !watch.log.is_empty() && !run.description.is_empty());
            assert_eq!(Report { log: Vec::new(), ..watch }, run);
        }
    }

    #[test]
    fn a_difference_is_a_failure() {
        let report = run(3);
        let other = Report { digest: report.digest + 1, ..report.clone() };
        assert_eq!(compared(report.clone(), &report).failures.len(), 0);
        assert_eq!(compared(report, &other).failures.len(), 1);
    }

    #[test]
    fn both_kinds_come() {
        let kinds: Vec<Kind> = (0..30).map(|seed| once(seed, false).kind).collect();
        assert!(kinds.contains(&Kind::Swarm) && kinds.contains(&Kind::Crowd));
    }
}
