//! What can be measured: a row for each kind, with what it needs, its unit and how it is computed from notes.
//!
//! A new kind is a variant of [`MeasureKind`], whose comment is its documentation, and a row of [`metric`].

use serde::Deserialize as _;
use serde::de::value::{Error as Unknown, StrDeserializer};

use crate::run::observations::{MeasurementWindow, Observations};
use crate::scenario::schema::measure_kinds;
use crate::scenario::{Measure, MeasureKind, Scenario, Statistic};
use crate::share_curve::ShareCurve;
use crate::table::summary;

/// A kind of measure.
pub struct Metric {
    /// What a measure of it must say.
    pub(crate) needs: Needs,
    /// The unit of its values.
    pub unit: &'static str,
    /// The value, if there is one.
    value: fn(&MeasureContext<'_>) -> Option<f64>,
}

/// What a kind of measure needs.
#[derive(Clone, Copy)]
pub(crate) struct Needs {
    /// It is about flows; otherwise about links.
    pub(crate) flows: bool,
    /// They must be named; otherwise "all" makes sense.
    pub(crate) named: bool,
    /// What `of` may be.
    pub(crate) of: Reference,
    /// The links must have a rate.
    pub(crate) rates: bool,
    /// The flows must have a size.
    pub(crate) sizes: bool,
    /// It averages over `mean`.
    pub(crate) mean: bool,
}

/// In proportion to what a kind is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Reference {
    Flows,
    Links,
    Nothing,
}

const FLOWS: Needs =
    Needs { flows: true, named: false, of: Reference::Nothing, rates: false, sizes: false, mean: false };
const NAMED_FLOWS: Needs = Needs { named: true, ..FLOWS };
const LINKS: Needs = Needs { flows: false, ..NAMED_FLOWS };

/// All kinds, by the names that scenarios have for them.
pub fn kinds() -> impl Iterator<Item = (&'static str, Metric)> {
    let kind = |name: &'static str| MeasureKind::deserialize(StrDeserializer::<Unknown>::new(name)).ok();
    measure_kinds().iter().copied().filter_map(move |name| Some((name, metric(kind(name)?))))
}

/// The row of a kind.
#[must_use]
pub fn metric(kind: MeasureKind) -> Metric {
    use MeasureKind as Kind;
    let row = |needs, unit, value: fn(&MeasureContext<'_>) -> Option<f64>| Metric { needs, unit, value };
    match kind {
        Kind::Share => row(Needs { of: Reference::Flows, ..NAMED_FLOWS }, "%", |m| {
            Some(100.0 * m.goodput() / m.window.goodput(&m.measure.of, &[]))
        }),
        Kind::OfRate => row(Needs { of: Reference::Links, rates: true, ..FLOWS }, "%", |m| {
            Some(100.0 * m.goodput() / m.window.rate_bytes(&m.measure.of))
        }),
        Kind::Goodput => row(FLOWS, "Mbit/s", |m| Some(m.goodput() * 8.0 / 1e6)),
        Kind::GoodputEach => row(FLOWS, "Mbit/s", |m| {
            let rates = m.each_goodput();
            Some(rates.iter().sum::<f64>() / rates.len() as f64 * 8.0 / 1e6)
        }),
        Kind::Packets => row(FLOWS, "pkt/s", |m| Some(m.goodput() / m.observations.packet_bytes as f64)),
        Kind::Utilisation => {
            row(Needs { rates: true, ..LINKS }, "%", |m| Some(m.window.utilisation(&m.measure.links)))
        }
        Kind::LeastUsed => {
            row(Needs { rates: true, ..LINKS }, "%", |m| m.window.least_used(&m.measure.links))
        }
        Kind::SpreadFastest => {
            row(FLOWS, "%", |m| m.spread(|rates| rates.iter().copied().fold(0.0, f64::max)))
        }
        Kind::SpreadMean => {
            row(FLOWS, "%", |m| m.spread(|rates| rates.iter().sum::<f64>() / rates.len() as f64))
        }
        Kind::Jain => row(FLOWS, "", |m| {
            let rates = m.each_goodput();
            let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
            Some(rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares))
        }),
        Kind::Loss => row(LINKS, "%", |m| Some(100.0 * m.window.loss(&m.measure.links))),
        Kind::LossRatio => row(Needs { of: Reference::Links, ..LINKS }, "", |m| {
            let of = &m.measure.of;
            let others = of.iter().map(|link| m.window.loss(std::slice::from_ref(link)));
            Some(m.window.loss(&m.measure.links) / (others.sum::<f64>() / of.len() as f64))
        }),
        Kind::Queue => row(LINKS, "ms", |m| Some(m.window.queue_ms(&m.measure.links))),
        Kind::QueueP99 => {
            row(Needs { rates: true, ..LINKS }, "ms", |m| m.window.queue_p99_ms(&m.measure.links))
        }
        Kind::Completion => row(Needs { sizes: true, ..FLOWS }, "s", |m| m.completion()),
        Kind::Converged => {
            row(Needs { mean: true, ..NAMED_FLOWS }, "s", |m| m.share_curve().settled(m.measure.mean))
        }
        Kind::Grouped => row(FLOWS, "s", |m| m.grouped()),
        Kind::WrongSplit => row(FLOWS, "%", |m| m.misgrouped(|(split, _)| split)),
        Kind::WrongMerge => row(FLOWS, "%", |m| m.misgrouped(|(_, merge)| merge)),
        Kind::Timeouts => row(FLOWS, "", |m| {
            let flows = m.window.flows(&m.measure.flows);
            Some(flows.map(|(_, flow)| flow.end.timeouts).sum::<u64>() as f64)
        }),
        Kind::TimeoutShare => row(FLOWS, "%", |m| m.timeout_share()),
        Kind::Window => row(FLOWS, "pkt", |m| m.mean_window()),
        Kind::FactorM => row(FLOWS, "", |m| m.factor()),
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

    fn spread(&self, norm: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let rates = self.each_goodput();
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

    /// The share of the flows at every step, of what had been delivered by then.
    fn share_curve(&self) -> ShareCurve {
        let totals = |names: &[String]| -> Vec<u64> {
            let flows = || self.window.flows(names).map(|(f, _)| &self.observations.totals[f]);
            self.window.steps().map(|step| flows().map(|totals| totals[step]).sum()).collect()
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
