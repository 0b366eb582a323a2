//! What can be measured: a row for each kind, with its unit and how it is computed from notes.
//!
//! A new kind is a variant of [`MeasureKind`], whose comment is its documentation, a row of [`metric`], and
//! what a measure of it must say in `scenario/check/needs.rs`.

use serde::Deserialize as _;
use serde::de::value::{Error as Unknown, StrDeserializer};

use crate::observations::{MeasurementWindow, Observations};
use crate::scenario::schema::measure_kinds;
use crate::scenario::{Measure, MeasureKind, Scenario, Statistic};
use crate::share_curve::ShareCurve;
use crate::stats::summary;

/// A kind of measure.
pub struct Metric {
    /// The unit of its values.
    pub unit: &'static str,
    /// The value, if there is one.
    value: fn(&MeasureContext<'_>) -> Option<f64>,
}

/// All kinds, by the names that scenarios have for them.
pub fn kinds() -> impl Iterator<Item = (&'static str, MeasureKind)> {
    let kind = |name: &'static str| MeasureKind::deserialize(StrDeserializer::<Unknown>::new(name)).ok();
    measure_kinds().iter().copied().filter_map(move |name| Some((name, kind(name)?)))
}

/// The row of a kind.
#[must_use]
pub fn metric(kind: MeasureKind) -> Metric {
    use MeasureKind as Kind;
    let row = |unit, value: fn(&MeasureContext<'_>) -> Option<f64>| Metric { unit, value };
    match kind {
        Kind::Share => row("%", |m| Some(100.0 * m.throughput() / m.window.throughput(&m.measure.of, &[]))),
        Kind::OfRate => row("%", |m| Some(100.0 * m.throughput() / m.window.rate_bytes(&m.measure.of))),
        Kind::Goodput => row("Mbit/s", |m| Some(m.goodput() * 8.0 / 1e6)),
        Kind::GoodputEach => row("Mbit/s", |m| {
            let rates = m.each_goodput();
            Some(rates.iter().sum::<f64>() / rates.len() as f64 * 8.0 / 1e6)
        }),
        Kind::Packets => row("pkt/s", |m| Some(m.throughput() / m.observations.packet_bytes as f64)),
        Kind::Utilisation => row("%", |m| Some(m.window.utilisation(&m.measure.links))),
        Kind::LeastUsed => row("%", |m| m.window.least_used(&m.measure.links)),
        Kind::SpreadFastest => row("%", |m| m.spread(|rates| rates.iter().copied().fold(0.0, f64::max))),
        Kind::SpreadMean => row("%", |m| m.spread(|rates| rates.iter().sum::<f64>() / rates.len() as f64)),
        Kind::Jain => row("", |m| {
            let rates = m.each_throughput();
            let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
            Some(rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares))
        }),
        Kind::Loss => row("%", |m| Some(100.0 * m.window.loss(&m.measure.links))),
        Kind::LossRatio => row("", |m| {
            let of = &m.measure.of;
            let others = of.iter().map(|link| m.window.loss(std::slice::from_ref(link)));
            Some(m.window.loss(&m.measure.links) / (others.sum::<f64>() / of.len() as f64))
        }),
        Kind::Queue => row("ms", |m| Some(m.window.queue_ms(&m.measure.links))),
        Kind::QueueP99 => row("ms", |m| m.window.queue_p99_ms(&m.measure.links)),
        Kind::Completion => row("s", |m| m.completion()),
        Kind::Converged => row("s", |m| m.share_curve().settled(m.measure.mean)),
        Kind::Grouped => row("s", |m| m.grouped()),
        Kind::WrongSplit => row("%", |m| m.misgrouped(|(split, _)| split)),
        Kind::WrongMerge => row("%", |m| m.misgrouped(|(_, merge)| merge)),
        Kind::Timeouts => row("", |m| {
            let flows = m.window.flows(&m.measure.flows);
            Some(flows.map(|(_, flow)| flow.end.timeouts).sum::<u64>() as f64)
        }),
        Kind::TimeoutShare => row("%", |m| m.timeout_share()),
        Kind::Window => row("pkt", |m| m.mean_window()),
        Kind::FactorM => row("", |m| m.factor()),
    }
}

/// The value of a measure, if there is one.
pub(crate) fn value(scenario: &Scenario, observations: &Observations, measure: &Measure) -> Option<f64> {
    (metric(measure.kind).value)(&context(scenario, observations, measure))
}

fn context<'a>(
    scenario: &'a Scenario,
    observations: &'a Observations,
    measure: &'a Measure,
) -> MeasureContext<'a> {
    let from = measure.from.unwrap_or(scenario.count_from).time();
    let until = measure.until.unwrap_or(scenario.duration).time();
    MeasureContext { observations, measure, window: observations.window(scenario, from, until) }
}

/// What a measure needs of this run to make one value of all runs together, if that is what it does.
pub(crate) fn curve(
    scenario: &Scenario,
    observations: &Observations,
    measure: &Measure,
) -> Option<ShareCurve> {
    (measure.statistic == Statistic::Pooled).then(|| context(scenario, observations, measure).share_curve())
}

/// What a measure looks at.
struct MeasureContext<'a> {
    observations: &'a Observations,
    measure: &'a Measure,
    window: MeasurementWindow<'a>,
}

impl MeasureContext<'_> {
    fn goodput(&self) -> f64 {
        self.window.goodput(&self.measure.flows, &self.measure.paths)
    }

    fn each_goodput(&self) -> Vec<f64> {
        let flows = self.window.flows(&self.measure.flows);
        flows.map(|(f, _)| self.window.goodput_of(f, &self.measure.paths)).collect()
    }

    fn throughput(&self) -> f64 {
        self.window.throughput(&self.measure.flows, &self.measure.paths)
    }

    fn each_throughput(&self) -> Vec<f64> {
        let flows = self.window.flows(&self.measure.flows);
        flows.map(|(f, _)| self.window.throughput_of(f, &self.measure.paths)).collect()
    }

    fn spread(&self, norm: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let rates = self.each_throughput();
        Some(100.0 * summary(&rates)?.sd? / norm(&rates))
    }

    fn completion(&self) -> Option<f64> {
        let times = self.window.flows(&self.measure.flows).map(|(_, flow)| {
            let (Some(began), Some(ended)) = (flow.end.began, flow.end.ended) else { return None };
            Some(ended.since(began).as_nanos() as f64 / 1e9)
        });
        let times = times.collect::<Option<Vec<f64>>>()?;
        Some(times.iter().sum::<f64>() / times.len() as f64)
    }

    fn step_s(&self) -> f64 {
        self.observations.step.as_nanos() as f64 / 1e9
    }

    /// The share of the flows at every step, of the packets that had been delivered by then.
    fn share_curve(&self) -> ShareCurve {
        let totals = |names: &[String]| -> Vec<u64> {
            let flows = || self.window.flows(names);
            let on_wire = |step: usize| {
                flows().map(|(f, flow)| flow.layout.on_wire(self.observations.totals[f][step])).sum()
            };
            self.window.steps().map(on_wire).collect()
        };
        let step_s = self.step_s();
        ShareCurve { step_s, part: totals(&self.measure.flows), whole: totals(&self.measure.of) }
    }

    fn timeout_share(&self) -> Option<f64> {
        let (mut timeouts, mut all) = (0, 0);
        for (_, flow) in self.window.flows(&self.measure.flows) {
            timeouts += flow.end.timeouts;
            all += flow.end.timeouts + flow.end.reductions?;
        }
        (all > 0).then(|| 100.0 * timeouts as f64 / all as f64)
    }

    fn mean_window(&self) -> Option<f64> {
        let paths = &self.measure.paths;
        let (mut sum, mut count) = (0.0, 0_u64);
        for (_, steps) in self.noted(&self.observations.windows)? {
            for (_, window) in steps
                .iter()
                .flat_map(|cwnds| cwnds.iter().enumerate())
                .filter(|(path, _)| paths.is_empty() || paths.contains(path))
            {
                (sum, count) = (sum + f64::from(*window), count + 1);
            }
        }
        (count > 0).then(|| sum / count as f64)
    }

    /// What was noted at each step between the times, of the flows that the measure is about; none if this
    /// world noted nothing.
    fn noted<'a, T>(&'a self, notes: &'a [Vec<T>]) -> Option<Vec<(usize, &'a [T])>> {
        let steps = self.window.steps();
        let flows = self.window.flows(&self.measure.flows);
        flows.map(|(f, flow)| Some((flow.paths, notes[f].get(steps.clone())?))).collect()
    }

    fn grouped(&self) -> Option<f64> {
        let flows = self.noted(&self.observations.groups)?;
        let steps = self.window.steps().len();
        let wrong = |step: usize| flows.iter().any(|(_, notes)| notes[step] != (false, false));
        let right = (0..steps).rev().find(|step| wrong(*step)).map_or(0, |last| last + 1);
        (right < steps).then(|| right as f64 * self.step_s())
    }

    fn misgrouped(&self, of: impl Fn((bool, bool)) -> bool) -> Option<f64> {
        let (mut wrong, mut all) = (0, 0);
        for (_, notes) in self.noted(&self.observations.groups)?.iter().filter(|(paths, _)| *paths > 1) {
            wrong += notes.iter().filter(|step| of(**step)).count();
            all += notes.len();
        }
        (all > 0).then(|| 100.0 * wrong as f64 / all as f64)
    }

    fn factor(&self) -> Option<f64> {
        let noted = self.noted(&self.observations.factors)?;
        let factors = noted.iter().flat_map(|(_, notes)| notes.iter());
        let factors: Vec<f64> = factors.filter(|m| **m > 0.0).map(|m| f64::from(*m)).collect();
        (!factors.is_empty()).then(|| factors.iter().sum::<f64>() / factors.len() as f64)
    }
}
