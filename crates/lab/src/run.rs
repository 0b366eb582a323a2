//! One run: a scenario's case, a controller and a seed become a world, and an [`Outcome`].
//!
//! ```text
//!  Scenario ── build ──▶ Simulation ── step by step ──▶ Observations ── measure ──▶ Outcome
//! ```
//!
//! The world is stopped at every step of the log and at every time that a measure counts from or until; what
//! has been delivered, dropped and queued by then is noted. Measures and conditions only read those notes,
//! and so do not know in which world the run was.

mod build;
mod conditions;
pub(crate) mod flow_instances;
pub(crate) mod groups;
pub(crate) mod links;
mod measure;
pub(crate) mod observations;

use algo::Span;

use crate::outcome::{Outcome, Series};
use crate::scenario::{MeasureKind, Scenario};
use build::SimulatedScenario;
use observations::{Observations, Recorder};

/// Steps in which a run is noted.
pub const STEPS: u64 = 1_000;
/// The shortest step.
pub const STEP_MIN: Span = Span::from_millis(50);
/// Lines kept of one run for the report.
pub const LINES_MAX: usize = 96;

/// The unit of a measure's values.
#[must_use]
pub const fn unit(kind: MeasureKind) -> &'static str {
    match kind {
        MeasureKind::Share
        | MeasureKind::OfRate
        | MeasureKind::Utilisation
        | MeasureKind::SpreadFastest
        | MeasureKind::SpreadMean
        | MeasureKind::Loss
        | MeasureKind::WrongSplit
        | MeasureKind::WrongMerge => "%",
        MeasureKind::Goodput => "Mbit/s",
        MeasureKind::Packets => "pkt/s",
        MeasureKind::Queue => "ms",
        MeasureKind::Completion | MeasureKind::Converged | MeasureKind::Grouped => "s",
        MeasureKind::Jain | MeasureKind::LossRatio | MeasureKind::FactorM => "",
    }
}

/// Runs `scenario` once in the simulator, as it stands: its cases are not looked at.
///
/// # Panics
/// If the scenario would not pass [`Scenario::check`].
#[must_use]
pub fn run(scenario: &Scenario, controller: &str, seed: u64) -> Outcome {
    let mut world = SimulatedScenario::new(scenario, controller, seed);
    let mut recorder = Recorder::new(scenario, world.packet_bytes(), world.noted());
    while let Some(at) = recorder.next() {
        world.simulation.run_until(at);
        recorder.record(at, &world);
    }
    let mut violations = world.simulation.violations();
    violations.extend(world.simulation.packet_flows().violations());
    let ends: Vec<_> = world.flows.iter().map(|flow| world.end(flow)).collect();
    let outcome = outcome(scenario, controller, recorder.finish(ends, violations));
    Outcome { digest: world.simulation.digest(), link_packets: world.link_packets(scenario), ..outcome }
}

/// What comes out of what was noted.
pub(crate) fn outcome(scenario: &Scenario, controller: &str, observations: Observations) -> Outcome {
    let values = scenario.measure.iter().map(|measure| measure::value(scenario, &observations, measure));
    Outcome {
        values: values.map(|value| value.filter(|value| value.is_finite())).collect(),
        violations: conditions::violations(scenario, controller, &observations),
        series: Series { step_s: observations.step.as_nanos() as f64 / 1e9, lines: observations.lines },
        ..Outcome::default()
    }
}
