//! Defines the metrics: one row a kind of measure, with its unit and its computation from the records.
//!
//! A new kind needs a variant of [`MeasureKind`], whose comment is its documentation, a row of [`metric`],
//! and its required keys in `scenario/check/needs.rs`.

use serde::Deserialize as _;
use serde::de::value::{Error as Unknown, StrDeserializer};

use crate::observations::{MeasurementWindow, Observations, ObservedFlow};
use crate::scenario::schema::measure_kinds;
use crate::scenario::{Measure, MeasureKind, Scenario, Statistic};
use crate::share_curve::ShareCurve;
use crate::stats::summary;

/// The unit and the computation of a kind of measure.
pub struct Metric {
    /// Unit of the values.
    pub unit: &'static str,
    /// Computes the value, or the reason why there is none.
    value: fn(&MeasureContext<'_>) -> Measured,
    /// Reason that is given if the value is not finite: a division by nothing.
    by_nothing: &'static str,
}

/// A value, or the reason why there is none.
pub(crate) type Measured = Result<f64, String>;

/// Returns all kinds with their names in scenarios.
pub fn kinds() -> impl Iterator<Item = (&'static str, MeasureKind)> {
    let kind = |name: &'static str| MeasureKind::deserialize(StrDeserializer::<Unknown>::new(name)).ok();
    measure_kinds().iter().copied().filter_map(move |name| Some((name, kind(name)?)))
}

/// Returns the unit and computation of a kind.
#[must_use]
pub fn metric(kind: MeasureKind) -> Metric {
    use MeasureKind as Kind;
    let row = |unit, by_nothing, value| Metric { unit, value, by_nothing };
    match kind {
        Kind::Share => row("%", "no packet of the flows `of` arrived", |m| {
            Ok(100.0 * m.throughput() / m.window.throughput(&m.measure.of, &[]))
        }),
        Kind::OfRate => {
            row("%", NOTHING_OFFERED, |m| Ok(100.0 * m.throughput() / m.window.rate_bytes(&m.measure.of)))
        }
        Kind::Goodput => row("Mbit/s", NO_TIME, |m| Ok(m.goodput() * 8.0 / 1e6)),
        Kind::GoodputEach => row("Mbit/s", NO_FLOW, |m| {
            let rates = m.each_goodput();
            Ok(rates.iter().sum::<f64>() / rates.len() as f64 * 8.0 / 1e6)
        }),
        Kind::Packets => row("pkt/s", NO_TIME, |m| Ok(m.throughput() / m.observations.packet_bytes as f64)),
        Kind::Utilisation => row("%", NOTHING_OFFERED, |m| Ok(m.window.utilisation(&m.measure.links))),
        Kind::LeastUsed => row("%", NOTHING_OFFERED, |m| Ok(m.window.least_used(&m.measure.links))),
        Kind::SpreadFastest => {
            row("%", NOTHING_ARRIVED, |m| m.spread(|rates| rates.iter().copied().fold(0.0, f64::max)))
        }
        Kind::SpreadMean => {
            row("%", NOTHING_ARRIVED, |m| m.spread(|rates| rates.iter().sum::<f64>() / rates.len() as f64))
        }
        Kind::Jain => row("", NOTHING_ARRIVED, |m| {
            let rates = m.each_throughput();
            let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
            Ok(rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares))
        }),
        Kind::Loss => {
            row("%", "no packet came to the links", |m| Ok(100.0 * m.window.loss(&m.measure.links)))
        }
        Kind::LossRatio => row("", "no packet was lost on the links `of`, or none came to a link", |m| {
            let of = &m.measure.of;
            let others = of.iter().map(|link| m.window.loss(std::slice::from_ref(link)));
            Ok(m.window.loss(&m.measure.links) / (others.sum::<f64>() / of.len() as f64))
        }),
        Kind::Gap => row("s", NO_TIME, |m| Ok(m.gap())),
        Kind::Queue => row("ms", "no packet left the links", |m| Ok(m.window.queue_ms(&m.measure.links))),
        Kind::QueueP99 => row("ms", NOTHING_OFFERED, |m| m.window.queue_p99_ms(&m.measure.links)),
        Kind::Completion => row("s", NO_FLOW, |m| m.completion()),
        Kind::CompletionP50 => row("s", NO_FLOW, |m| m.completion_percentile(50)),
        Kind::CompletionP95 => row("s", NO_FLOW, |m| m.completion_percentile(95)),
        Kind::CompletionP99 => row("s", NO_FLOW, |m| m.completion_percentile(99)),
        Kind::Converged => {
            row("s", NO_TIME, |m| m.share_curve().settled(m.measure.mean).ok_or_else(|| NOT_SETTLED.into()))
        }
        Kind::Grouped => row("s", NO_TIME, |m| m.grouped()),
        Kind::WrongSplit => row("%", NO_TIME, |m| m.misgrouped(|(split, _)| split)),
        Kind::WrongMerge => row("%", NO_TIME, |m| m.misgrouped(|(_, merge)| merge)),
        Kind::Timeouts => row("", NO_FLOW, |m| {
            let flows = m.window.flows(&m.measure.flows);
            Ok(flows.map(|(_, flow)| flow.end.timeouts).sum::<u64>() as f64)
        }),
        Kind::TimeoutShare => row("%", NO_FLOW, |m| m.timeout_share()),
        Kind::Window => row("pkt", NO_TIME, |m| m.mean_window()),
        Kind::FactorM => row("", NO_TIME, |m| m.factor()),
    }
}

const NOTHING_OFFERED: &str = "the links offered nothing in that time";
const NOTHING_ARRIVED: &str = "no packet of the flows arrived";
const NO_TIME: &str = "there is no time between `from` and `until`";
const NO_FLOW: &str = "there is no such flow";
const NOT_SEEN: &str = "this world cannot see it";
/// Reason that is given if a share never settles.
pub(crate) const NOT_SETTLED: &str = "the share did not settle";

/// Computes the value of a measure, or the reason why there is none.
pub(crate) fn value(scenario: &Scenario, observations: &Observations, measure: &Measure) -> Measured {
    let metric = metric(measure.kind);
    let value = (metric.value)(&context(scenario, observations, measure))?;
    if value.is_finite() { Ok(value) } else { Err(metric.by_nothing.into()) }
}

fn context<'a>(
    scenario: &'a Scenario,
    observations: &'a Observations,
    measure: &'a Measure,
) -> MeasureContext<'a> {
    let from = measure.from.unwrap_or(scenario.count_from).time();
    let until = measure.until.unwrap_or(scenario.duration).time();
    MeasureContext { scenario, observations, measure, window: observations.window(scenario, from, until) }
}

/// Returns the share curve of this run if the measure makes one value from all runs together.
pub(crate) fn curve(
    scenario: &Scenario,
    observations: &Observations,
    measure: &Measure,
) -> Option<ShareCurve> {
    (measure.statistic == Statistic::Pooled).then(|| context(scenario, observations, measure).share_curve())
}

/// The records that a measure reads.
struct MeasureContext<'a> {
    scenario: &'a Scenario,
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

    fn spread(&self, norm: impl Fn(&[f64]) -> f64) -> Measured {
        let rates = self.each_throughput();
        let sd = summary(&rates).and_then(|summary| summary.sd).ok_or("a spread is of two flows at least")?;
        Ok(100.0 * sd / norm(&rates))
    }

    /// Returns the time that each transfer of the flows took, s, in no order; infinite if it was not
    /// complete at the end. For transfers that arrive one after the other, only those count that began in
    /// the window.
    fn completion_times(&self) -> Result<Vec<f64>, String> {
        let mut times = Vec::new();
        for (_, flow) in self.window.flows(&self.measure.flows) {
            let arrive = self.arrive(flow);
            if flow.end.transfers.is_empty() {
                return Err(format!("flow {} had not started", flow.name));
            }
            let counted = flow.end.transfers.iter().filter(|one| !arrive || self.window.has(one.began));
            times.extend(counted.map(|one| {
                one.ended.map_or(f64::INFINITY, |ended| ended.since(one.began).as_nanos() as f64 / 1e9)
            }));
        }
        match times.len() {
            0 => Err("no transfer began between `from` and `until`".into()),
            _ => Ok(times),
        }
    }

    /// Whether the transfers of a flow arrive one after the other.
    fn arrive(&self, flow: &ObservedFlow) -> bool {
        self.scenario.flow.get(&flow.base).is_some_and(|flow| flow.arrivals.is_some())
    }

    /// Returns the reason why a completion time is infinite.
    fn incomplete(&self, times: &[f64]) -> String {
        let left =
            |(_, flow): &(usize, &ObservedFlow)| flow.end.transfers.iter().any(|one| one.ended.is_none());
        let name = self.window.flows(&self.measure.flows).find(left).map_or("", |(_, flow)| &flow.name);
        match times.iter().filter(|time| time.is_infinite()).count() {
            1 => format!("flow {name} was not complete at the end"),
            n => format!("{n} of {} transfers, as of flow {name}, were not complete at the end", times.len()),
        }
    }

    fn completion(&self) -> Measured {
        let times = self.completion_times()?;
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        if mean.is_finite() { Ok(mean) } else { Err(self.incomplete(&times)) }
    }

    /// Returns the least time in which `percent` percent of the transfers were complete, s.
    fn completion_percentile(&self, percent: usize) -> Measured {
        let mut times = self.completion_times()?;
        times.sort_unstable_by(f64::total_cmp);
        let time = times[(times.len() * percent).div_ceil(100) - 1];
        if time.is_finite() { Ok(time) } else { Err(self.incomplete(&times)) }
    }

    fn step_s(&self) -> f64 {
        self.observations.step.as_nanos() as f64 / 1e9
    }

    /// Returns the share of the flows at every step, of the packets that had been delivered by then.
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

    /// Returns the longest time in which the flows together got less than a twentieth of their mean rate, s.
    fn gap(&self) -> f64 {
        let total = |step: usize| -> u64 {
            self.window.flows(&self.measure.flows).map(|(f, _)| self.observations.totals[f][step]).sum()
        };
        let totals: Vec<u64> = self.window.steps().map(total).collect();
        let steps = totals.len().saturating_sub(1).max(1) as f64;
        let all = totals.last().zip(totals.first()).map_or(0, |(last, first)| last - first);
        // A flow that got nothing waited all the time.
        let least = (all as f64 / steps / 20.0).max(f64::MIN_POSITIVE);
        let (mut longest, mut gap) = (0, 0);
        for pair in totals.windows(2) {
            gap = if ((pair[1] - pair[0]) as f64) < least { gap + 1 } else { 0 };
            longest = longest.max(gap);
        }
        longest as f64 * self.step_s()
    }

    fn timeout_share(&self) -> Measured {
        let (mut timeouts, mut all) = (0, 0);
        for (_, flow) in self.window.flows(&self.measure.flows) {
            timeouts += flow.end.timeouts;
            all += flow.end.timeouts + flow.end.reductions.ok_or(NOT_SEEN)?;
        }
        if all == 0 {
            Err("there was no congestion event".into())
        } else {
            Ok(100.0 * timeouts as f64 / all as f64)
        }
    }

    fn mean_window(&self) -> Measured {
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
        Ok(sum / count as f64)
    }

    /// Returns the records of each step in the window, for each flow of the measure; an error if this world
    /// records none.
    fn noted<'a, T>(&'a self, notes: &'a [Vec<T>]) -> Result<Vec<(usize, &'a [T])>, String> {
        let steps = self.window.steps();
        let flows = self.window.flows(&self.measure.flows);
        let of = |(f, flow): (usize, &ObservedFlow)| {
            Ok((flow.paths, notes[f].get(steps.clone()).ok_or(NOT_SEEN)?))
        };
        flows.map(of).collect()
    }

    fn grouped(&self) -> Measured {
        let flows = self.noted(&self.observations.groups)?;
        let steps = self.window.steps().len();
        let wrong = |step: usize| flows.iter().any(|(_, notes)| notes[step] != (false, false));
        let right = (0..steps).rev().find(|step| wrong(*step)).map_or(0, |last| last + 1);
        match right < steps {
            true => Ok(right as f64 * self.step_s()),
            false => Err("the groups were not those of the topology at the end".into()),
        }
    }

    fn misgrouped(&self, of: impl Fn((bool, bool)) -> bool) -> Measured {
        let (mut wrong, mut all) = (0, 0);
        for (_, notes) in self.noted(&self.observations.groups)?.iter().filter(|(paths, _)| *paths > 1) {
            wrong += notes.iter().filter(|step| of(**step)).count();
            all += notes.len();
        }
        if all == 0 { Err("no flow has several paths".into()) } else { Ok(100.0 * wrong as f64 / all as f64) }
    }

    fn factor(&self) -> Measured {
        let noted = self.noted(&self.observations.factors)?;
        let factors = noted.iter().flat_map(|(_, notes)| notes.iter());
        let factors: Vec<f64> = factors.filter(|m| **m > 0.0).map(|m| f64::from(*m)).collect();
        match factors.len() {
            0 => Err("no flow has coupled paths".into()),
            n => Ok(factors.iter().sum::<f64>() / n as f64),
        }
    }
}
