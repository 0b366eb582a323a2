//! One run: a scenario's case, a controller and a seed become a world, and an [`Outcome`].
//!
//! ```text
//!  Scenario ── build ──▶ Swarm (links, flows, faults) ── step by step ──▶ Log ── measure ──▶ Outcome
//! ```
//!
//! The world is stopped at every step of the log and at every time that a measure counts from or until; what
//! has been delivered, dropped and queued by then is noted. Measures and conditions only read those notes.

pub(crate) mod build;
mod conditions;
mod groups;
mod measure;

use algo::{Span, Time};
use sim::Stats;

use crate::outcome::{Line, Outcome, Series, What};
use crate::scenario::{Kind, Scenario};
use build::World;

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

/// What had happened by a time.
#[derive(Clone, Debug)]
struct Note {
    at: Time,
    /// Bytes delivered on each path of each flow.
    bytes: Vec<Vec<u64>>,
    links: Vec<Stats>,
}

/// What was noted in a run.
struct Log {
    /// At the times that measures ask for, in order.
    notes: Vec<Note>,
    step: Span,
    /// Of each flow: bytes delivered by the end of each step.
    totals: Vec<Vec<u64>>,
    /// Of each flow: whether paths were wrongly apart, wrongly together, at the end of each step.
    groups: Vec<Vec<(bool, bool)>>,
    /// Of each flow: NMCC's factor m at the end of each step; zero if it has no coupled paths.
    factors: Vec<Vec<f32>>,
    lines: Vec<Line>,
}

impl Log {
    fn note(&self, at: Time) -> &Note {
        self.notes.iter().find(|note| note.at == at).expect("every time that a measure asks for is noted")
    }
}

/// Runs `scenario` once, as it stands: its cases are not looked at.
///
/// # Panics
/// If the scenario would not pass [`Scenario::check`].
#[must_use]
pub fn run(scenario: &Scenario, controller: &str, seed: u64) -> Outcome {
    let mut world = World::new(scenario, controller, seed);
    let log = record(scenario, &mut world);
    let values = scenario.measure.iter().map(|measure| measure::value(scenario, &world, &log, measure));
    Outcome {
        values: values.map(|value| value.filter(|value| value.is_finite())).collect(),
        faults: conditions::faults(scenario, controller, &world, &log),
        digest: world.swarm.digest(),
        link_packets: world.limited(scenario).map(|link| world.swarm.stats(link).delivered).sum(),
        series: Series { step_s: log.step.as_nanos() as f64 / 1e9, lines: log.lines },
    }
}

/// The times at which everything is noted: where measures begin and end.
fn times(scenario: &Scenario) -> Vec<Time> {
    let measures = scenario.measure.iter().flat_map(|measure| [measure.from, measure.until]).flatten();
    let mut times: Vec<Time> =
        measures.chain([scenario.count_from, scenario.duration]).map(|duration| duration.time()).collect();
    times.sort_unstable();
    times.dedup();
    times
}

fn record(scenario: &Scenario, world: &mut World) -> Log {
    let end = scenario.duration.time();
    let step = scenario.duration.0.over(STEPS).max(STEP_MIN);
    let flows = world.flows.len();
    let mut log = Log {
        notes: Vec::new(),
        step,
        totals: vec![Vec::new(); flows],
        groups: vec![Vec::new(); flows],
        factors: vec![Vec::new(); flows],
        lines: world.lines(scenario),
    };
    let mut times = times(scenario).into_iter().peekable();
    let mut at = Time::ZERO;
    while at < end {
        at = (at + step).min(end);
        while let Some(time) = times.next_if(|time| *time <= at) {
            world.swarm.run_until(time);
            log.notes.push(Note { at: time, bytes: world.bytes(), links: world.stats() });
        }
        world.swarm.run_until(at);
        world.note(scenario, &mut log);
    }
    log
}

impl World {
    /// Empty lines for what is shown over time.
    fn lines(&self, scenario: &Scenario) -> Vec<Line> {
        let line = |what, name: &str| Line { what, name: name.into(), values: Vec::new() };
        let flows = self.flows.iter().map(|flow| line(What::Goodput, &flow.name));
        let paths = self
            .flows
            .iter()
            .flat_map(|flow| (0..flow.paths).map(move |p| line(What::Cwnd, &format!("{}/{p}", flow.name))));
        let links = scenario.link.iter().filter(|(_, link)| link.rate.is_some());
        let links = links.map(|(name, _)| line(What::Queue, name));
        let lines: Vec<Line> = flows.chain(paths).chain(links).take(LINES_MAX + 1).collect();
        if lines.len() > LINES_MAX { Vec::new() } else { lines }
    }

    /// Notes the end of a step.
    fn note(&self, scenario: &Scenario, log: &mut Log) {
        let step_s = log.step.as_nanos() as f64 / 1e9;
        let packet = self.packet_bytes as f64;
        let mut cwnds = Vec::new();
        let mut goodputs = Vec::new();
        for (f, flow) in self.flows.iter().enumerate() {
            let total: u64 = self.bytes_of(flow).iter().sum();
            let before = log.totals[f].last().copied().unwrap_or(0);
            log.totals[f].push(total);
            goodputs.push((total.saturating_sub(before) as f64 * 8.0 / 1e6 / step_s) as f32);
            log.groups[f].push(self.misgrouped(flow));
            log.factors[f].push(self.factor(flow));
            if !log.lines.is_empty() {
                cwnds.extend(self.cwnds(flow));
            }
        }
        if log.lines.is_empty() {
            return;
        }
        let queues = scenario.link.iter().filter(|(_, link)| link.rate.is_some());
        let queues =
            queues.map(|(name, _)| (self.swarm.queued_bytes(self.links[name]) as f64 / packet) as f32);
        let values = goodputs.into_iter().chain(cwnds).chain(queues);
        for (line, value) in log.lines.iter_mut().zip(values) {
            line.values.push(value);
        }
    }
}
