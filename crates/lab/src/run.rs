//! One run: a scenario's case, a controller and a seed become a world, and an [`Outcome`].
//!
//! ```text
//!  Scenario ── build ──▶ Swarm (links, flows, faults) ── step by step ──▶ Seen ── measure ──▶ Outcome
//! ```
//!
//! The world is stopped at every step of the log and at every time that a measure counts from or until; what
//! has been delivered, dropped and queued by then is noted. Measures and conditions only read those notes,
//! and so do not know in which world the run was.

mod build;
mod conditions;
pub(crate) mod copies;
pub(crate) mod groups;
pub(crate) mod links;
mod measure;
pub(crate) mod seen;

use algo::Span;

use crate::outcome::{Outcome, Series};
use crate::scenario::{Kind, Scenario};
use build::World;
use seen::{Recorder, Seen};

/// Steps in which a run is noted.
pub const STEPS: u64 = 1_000;
/// The shortest step.
pub const STEP_MIN: Span = Span::from_millis(50);
/// Lines kept of one run for the report.
pub const LINES_MAX: usize = 96;

/// The unit of a measure's values.
#[must_use]
pub const fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Share
        | Kind::OfRate
        | Kind::Utilisation
        | Kind::SpreadFastest
        | Kind::SpreadMean
        | Kind::Loss
        | Kind::WrongSplit
        | Kind::WrongMerge => "%",
        Kind::Goodput => "Mbit/s",
        Kind::Packets => "pkt/s",
        Kind::Queue => "ms",
        Kind::Completion | Kind::Converged | Kind::Grouped => "s",
        Kind::Jain | Kind::LossRatio | Kind::FactorM => "",
    }
}

/// Runs `scenario` once in the simulator, as it stands: its cases are not looked at.
///
/// # Panics
/// If the scenario would not pass [`Scenario::check`].
#[must_use]
pub fn run(scenario: &Scenario, controller: &str, seed: u64) -> Outcome {
    let mut world = World::new(scenario, controller, seed);
    let mut recorder = Recorder::new(scenario, world.packet_bytes(), world.noted());
    while let Some(at) = recorder.next() {
        world.swarm.run_until(at);
        recorder.look(at, &world);
    }
    let mut broken = world.swarm.violations();
    broken.extend(world.swarm.crowd().violations());
    let ends: Vec<_> = world.flows.iter().map(|flow| world.end(flow)).collect();
    let outcome = outcome(scenario, controller, recorder.finish(ends, broken));
    Outcome { digest: world.swarm.digest(), link_packets: world.link_packets(scenario), ..outcome }
}

/// What comes out of what was noted.
pub(crate) fn outcome(scenario: &Scenario, controller: &str, seen: Seen) -> Outcome {
    let values = scenario.measure.iter().map(|measure| measure::value(scenario, &seen, measure));
    Outcome {
        values: values.map(|value| value.filter(|value| value.is_finite())).collect(),
        faults: conditions::faults(scenario, controller, &seen),
        series: Series { step_s: seen.step.as_nanos() as f64 / 1e9, lines: seen.lines },
        ..Outcome::default()
    }
}
