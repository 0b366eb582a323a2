//! Runs one scenario: a case, a controller and a seed become a world, and an [`Outcome`].
//!
//! ```text
//!  Scenario ── build ──▶ Simulation ── step by step ──▶ Observations ── measure ──▶ Outcome
//! ```
//!
//! The world stops at every step of the record and at every time at which a measure begins or ends;
//! delivered, dropped and queued packets are then recorded. Measures and conditions read only these records,
//! and so do not depend on the kind of world.

mod build;
mod conditions;
pub(crate) mod flow_instances;
pub(crate) mod groups;
pub(crate) mod links;
mod transfer_draw;

use crate::metric;
pub use crate::observations::{LINES_MAX, STEP_MIN, STEPS};
use crate::observations::{Observations, Recorder};
use crate::outcome::{Outcome, Series};
use crate::scenario::Scenario;
use build::SimulatedScenario;

/// Runs `scenario` once in the simulator, without its cases.
///
/// # Panics
/// If [`Scenario::check`] would refuse the scenario.
#[must_use]
pub fn run(scenario: &Scenario, controller: &str, seed: u64) -> Outcome {
    let mut world = SimulatedScenario::new(scenario, controller, seed);
    let mut recorder = Recorder::new(scenario, world.packet_bytes(), std::mem::take(&mut world.observed));
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

/// Computes the outcome from the records of a run.
pub(crate) fn outcome(scenario: &Scenario, controller: &str, observations: Observations) -> Outcome {
    let values = scenario.measure.iter().map(|measure| metric::value(scenario, &observations, measure));
    let values: Vec<metric::Measured> = values.collect();
    let why = |(i, value): (usize, &metric::Measured)| Some((i, value.as_ref().err()?.clone()));
    let curve = |(i, measure)| Some((i, metric::curve(scenario, &observations, measure)?));
    Outcome {
        curves: scenario.measure.iter().enumerate().filter_map(curve).collect(),
        no_value: values.iter().enumerate().filter_map(why).collect(),
        values: values.into_iter().map(Result::ok).collect(),
        violations: conditions::violations(scenario, controller, &observations),
        series: Series { step_s: observations.step.as_nanos() as f64 / 1e9, lines: observations.lines },
        ..Outcome::default()
    }
}
