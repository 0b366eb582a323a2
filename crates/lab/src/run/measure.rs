//! Numbers from notes.

use super::observations::{MeasurementWindow, Observations};
use crate::scenario::{Duration, Measure, MeasureKind, Scenario};
use crate::table::summary;

/// Seconds over which a share is averaged before it is called steady, unless the measure says otherwise, and
/// by how many points it may differ.
const CONVERGED_MEAN_S: f64 = 5.0;
const CONVERGED_POINTS: f64 = 3.0;

/// What a measure looks at.
struct MeasureContext<'a> {
    observations: &'a Observations,
    measure: &'a Measure,
    window: MeasurementWindow<'a>,
}

/// The value of a measure, if there is one; in the unit of [`super::unit`].
pub(super) fn value(scenario: &Scenario, observations: &Observations, measure: &Measure) -> Option<f64> {
    let from = measure.from.unwrap_or(scenario.count_from).time();
    let until = measure.until.unwrap_or(scenario.duration).time();
    MeasureContext { observations, measure, window: observations.window(scenario, from, until) }.value()
}

impl MeasureContext<'_> {
    fn value(&self) -> Option<f64> {
        let Measure { flows, links, of, paths, .. } = self.measure;
        let window = &self.window;
        match self.measure.kind {
            MeasureKind::Share => Some(100.0 * window.goodput(flows, paths) / window.goodput(of, &[])),
            MeasureKind::OfRate => Some(100.0 * window.goodput(flows, paths) / window.rate_bytes(of)),
            MeasureKind::Goodput => Some(window.goodput(flows, paths) * 8.0 / 1e6),
            MeasureKind::Packets => {
                Some(window.goodput(flows, paths) / self.observations.packet_bytes as f64)
            }
            MeasureKind::Utilisation => Some(window.utilisation(links)),
            MeasureKind::SpreadFastest => self.spread(|rates| rates.iter().copied().fold(0.0, f64::max)),
            MeasureKind::SpreadMean => self.spread(|rates| rates.iter().sum::<f64>() / rates.len() as f64),
            MeasureKind::Jain => {
                let rates = self.each_goodput();
                let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
                Some(rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares))
            }
            MeasureKind::Loss => Some(100.0 * window.loss(links)),
            MeasureKind::LossRatio => {
                let others = of.iter().map(|link| window.loss(std::slice::from_ref(link)));
                Some(window.loss(links) / (others.sum::<f64>() / of.len() as f64))
            }
            MeasureKind::Queue => Some(window.queue_ms(links)),
            MeasureKind::Completion => self.completion(),
            MeasureKind::Converged => self.converged(),
            MeasureKind::Grouped => self.grouped(),
            MeasureKind::WrongSplit => self.misgrouped(|(split, _)| split),
            MeasureKind::WrongMerge => self.misgrouped(|(_, merge)| merge),
            MeasureKind::FactorM => self.factor(),
        }
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

    fn converged(&self) -> Option<f64> {
        let steps = self.window.steps();
        let sum = |names: &[String], step: usize| -> u64 {
            let named =
                |flow: &&super::observations::ObservedFlow| names.is_empty() || names.contains(&flow.base);
            let flows =
                self.observations.flows.iter().zip(&self.observations.totals).filter(|(flow, _)| named(flow));
            flows.map(|(_, totals)| totals[step]).sum()
        };
        let share = |from: usize, to: usize| {
            let part = sum(&self.measure.flows, to) - sum(&self.measure.flows, from);
            let whole = sum(&self.measure.of, to) - sum(&self.measure.of, from);
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let mean_s = self.measure.mean.map_or(CONVERGED_MEAN_S, Duration::secs);
        let width = (mean_s / self.step_s()).ceil() as usize;
        let last = steps.end.checked_sub(1)?;
        let settled = share(last - steps.len() / 3, last);
        let off = |from: usize| (share(from, from + width) - settled).abs() > CONVERGED_POINTS;
        let starts = steps.start..last.checked_sub(width)?;
        if starts.is_empty() {
            return None;
        }
        // The end of the last window that was off: from there on it holds.
        let wrong = starts.clone().rev().find(|from| off(*from));
        let steps = wrong.map_or(0, |from| from + 1 + width - starts.start);
        (wrong.is_none_or(|from| from + 1 < starts.end)).then(|| steps as f64 * self.step_s())
    }

    /// What was noted of groups between the times, of the flows that the measure is about; none if this world
    /// noted nothing.
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
