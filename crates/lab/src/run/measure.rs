//! Numbers from notes.

use algo::Time;
use sim::Stats;

use super::build::{Placed, World};
use super::{Log, Note};
use crate::scenario::{Kind, Measure, Scenario};
use crate::table::summary;

/// Seconds over which a share is averaged before it is called steady, and by how many points it may differ.
const CONVERGED_MEAN_S: f64 = 5.0;
const CONVERGED_POINTS: f64 = 3.0;

/// What a measure looks at.
struct View<'a> {
    scenario: &'a Scenario,
    world: &'a World,
    log: &'a Log,
    measure: &'a Measure,
    before: &'a Note,
    after: &'a Note,
}

/// The value of a measure, if there is one; in the unit of [`super::unit`].
pub(super) fn value(scenario: &Scenario, world: &World, log: &Log, measure: &Measure) -> Option<f64> {
    let before = log.note(measure.from.unwrap_or(scenario.count_from).time());
    let after = log.note(measure.until.unwrap_or(scenario.duration).time());
    View { scenario, world, log, measure, before, after }.value()
}

impl View<'_> {
    fn value(&self) -> Option<f64> {
        let Measure { flows, links, of, .. } = self.measure;
        match self.measure.kind {
            Kind::Share => Some(100.0 * self.goodput(flows) / self.whole_goodput(of)),
            Kind::OfRate => Some(100.0 * self.goodput(flows) / self.rate_bytes(of)),
            Kind::Goodput => Some(self.goodput(flows) * 8.0 / 1e6),
            Kind::Packets => Some(self.goodput(flows) / self.world.packet_bytes as f64),
            Kind::Utilisation => {
                let carried: u64 =
                    self.stats(links).map(|(a, b)| b.delivered_bytes - a.delivered_bytes).sum();
                Some(100.0 * carried as f64 / self.secs() / self.rate_bytes(links))
            }
            Kind::SpreadFastest => self.spread(|rates| rates.iter().copied().fold(0.0, f64::max)),
            Kind::SpreadMean => self.spread(|rates| rates.iter().sum::<f64>() / rates.len() as f64),
            Kind::Jain => {
                let rates = self.each_goodput();
                let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
                Some(rates.iter().sum::<f64>().powi(2) / (rates.len() as f64 * squares))
            }
            Kind::Loss => Some(100.0 * self.loss(links)),
            Kind::LossRatio => {
                let others = of.iter().map(|link| self.loss(std::slice::from_ref(link)));
                Some(self.loss(links) / (others.sum::<f64>() / of.len() as f64))
            }
            Kind::Queue => {
                let bytes: f64 = self
                    .stats(links)
                    .map(|(a, b)| (b.queue_byte_ns - a.queue_byte_ns) as f64 / 1e9 / self.secs())
                    .sum();
                Some(bytes / self.rate_bytes(links) * 1e3)
            }
            Kind::Completion => self.completion(),
            Kind::Converged => self.converged(),
            Kind::Grouped => self.grouped(),
            Kind::WrongSplit => self.misgrouped(|(split, _)| split),
            Kind::WrongMerge => self.misgrouped(|(_, merge)| merge),
            Kind::FactorM => self.factor(),
        }
    }

    fn secs(&self) -> f64 {
        self.after.at.since(self.before.at).as_nanos() as f64 / 1e9
    }

    /// The flows of these names: all if there are none.
    fn flows(&self, names: &[String]) -> impl Iterator<Item = (usize, &Placed)> {
        let named = move |(_, flow): &(usize, &Placed)| names.is_empty() || names.contains(&flow.base);
        self.world.flows.iter().enumerate().filter(named)
    }

    /// Bytes a second delivered on the measure's paths of a flow.
    fn goodput_of(&self, flow: usize) -> f64 {
        let pairs = self.before.bytes[flow].iter().zip(&self.after.bytes[flow]).enumerate();
        let paths = &self.measure.paths;
        let bytes = pairs.filter(|(p, _)| paths.is_empty() || paths.contains(p)).map(|(_, (a, b))| b - a);
        bytes.sum::<u64>() as f64 / self.secs()
    }

    fn goodput(&self, names: &[String]) -> f64 {
        self.flows(names).map(|(f, _)| self.goodput_of(f)).sum()
    }

    /// The same on all paths.
    fn whole_goodput(&self, names: &[String]) -> f64 {
        let of = |note: &Note, f: usize| note.bytes[f].iter().sum::<u64>();
        self.flows(names).map(|(f, _)| (of(self.after, f) - of(self.before, f)) as f64 / self.secs()).sum()
    }

    fn each_goodput(&self) -> Vec<f64> {
        self.flows(&self.measure.flows).map(|(f, _)| self.goodput_of(f)).collect()
    }

    fn spread(&self, norm: impl Fn(&[f64]) -> f64) -> Option<f64> {
        let rates = self.each_goodput();
        Some(100.0 * summary(&rates)?.sd? / norm(&rates))
    }

    /// What the links of these names had seen before and after.
    fn stats(&self, names: &[String]) -> impl Iterator<Item = (&Stats, &Stats)> {
        let place = |name: &String| self.world.links.keys().position(|key| key == name);
        names.iter().filter_map(place).map(|i| (&self.before.links[i], &self.after.links[i]))
    }

    /// The rates of these links, bytes a second.
    fn rate_bytes(&self, names: &[String]) -> f64 {
        let rate = |name: &String| self.scenario.link[name].rate.map(|r| r.rate(self.world.packet_bytes));
        names.iter().filter_map(rate).map(|rate| rate.as_bytes() as f64).sum()
    }

    /// Packets dropped by queues, chance or script, of those offered.
    fn loss(&self, names: &[String]) -> f64 {
        let lost = |stats: &Stats| stats.dropped.congestion() + stats.dropped.loss + stats.dropped.script;
        let (dropped, offered) = self
            .stats(names)
            .fold((0, 0), |(d, o), (a, b)| (d + lost(b) - lost(a), o + b.offered - a.offered));
        dropped as f64 / offered as f64
    }

    fn completion(&self) -> Option<f64> {
        let times = self.flows(&self.measure.flows).map(|(_, flow)| {
            let (Some(began), Some(ended)) = self.world.began_and_ended(flow) else { return None };
            Some(ended.since(began).as_nanos() as f64 / 1e9)
        });
        let times = times.collect::<Option<Vec<f64>>>()?;
        Some(times.iter().sum::<f64>() / times.len() as f64)
    }

    /// The first and the last step that count.
    fn steps(&self) -> std::ops::Range<usize> {
        let step = |at: Time| (at.as_nanos() / self.log.step.as_nanos()) as usize;
        step(self.before.at)..step(self.after.at).min(self.log.totals.first().map_or(0, Vec::len))
    }

    fn step_s(&self) -> f64 {
        self.log.step.as_nanos() as f64 / 1e9
    }

    fn converged(&self) -> Option<f64> {
        let steps = self.steps();
        let sum = |names: &[String], step: usize| -> u64 {
            self.flows(names).map(|(f, _)| self.log.totals[f][step]).sum()
        };
        let share = |from: usize, to: usize| {
            let part = sum(&self.measure.flows, to) - sum(&self.measure.flows, from);
            let whole = sum(&self.measure.of, to) - sum(&self.measure.of, from);
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let width = (CONVERGED_MEAN_S / self.step_s()).ceil() as usize;
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

    fn grouped(&self) -> Option<f64> {
        let steps = self.steps();
        let wrong = |step: usize| {
            self.flows(&self.measure.flows).any(|(f, _)| self.log.groups[f][step] != (false, false))
        };
        let last = steps.clone().rev().find(|step| wrong(*step));
        let right = last.map_or(0, |last| last + 1 - steps.start);
        (right < steps.len()).then(|| right as f64 * self.step_s())
    }

    fn misgrouped(&self, of: impl Fn((bool, bool)) -> bool) -> Option<f64> {
        let steps = self.steps();
        let (mut wrong, mut all) = (0, 0);
        for (f, _) in self.flows(&self.measure.flows).filter(|(_, flow)| flow.paths > 1) {
            wrong += self.log.groups[f][steps.clone()].iter().filter(|step| of(**step)).count();
            all += steps.len();
        }
        (all > 0).then(|| 100.0 * wrong as f64 / all as f64)
    }

    fn factor(&self) -> Option<f64> {
        let steps = self.steps();
        let flows = self.flows(&self.measure.flows);
        let factors: Vec<f64> = flows
            .flat_map(|(f, _)| &self.log.factors[f][steps.clone()])
            .filter(|m| **m > 0.0)
            .map(|m| f64::from(*m))
            .collect();
        (!factors.is_empty()).then(|| factors.iter().sum::<f64>() / factors.len() as f64)
    }
}
