//! Measures the round trips that a short object takes from a warm source: to a receiver without a cookie of
//! the source, and to one with a cookie.

use anabranch_algo::control::Algorithm;
use anabranch_algo::{Rate, Span};
use anabranch_sim::LinkConfig;

use crate::content::Content;
use crate::sim_source::Misbehaviour;
use crate::simulation::{PathSpec, Simulation};

/// The times of the objects, in round trips.
#[derive(Clone, Debug)]
pub struct SmallObjectTimes {
    /// Times of objects that a new receiver fetched each.
    pub cold_rtts: Vec<f64>,
    /// Times of objects that one receiver fetched one after the other, without the first, for which it has
    /// no cookie.
    pub warm_rtts: Vec<f64>,
    /// Invariants that were violated.
    pub violations: Vec<String>,
}

impl SmallObjectTimes {
    /// Returns the medians of the cold and of the warm times.
    #[must_use]
    pub fn medians(&self) -> (f64, f64) {
        (median(&self.cold_rtts), median(&self.warm_rtts))
    }
}

/// Returns the middle value, the upper one of two; NaN for no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Fetches `objects` of `bytes` each, one after the other, over a link of `rate` with a round trip of `rtt`.
#[must_use]
pub fn measure(objects: u64, bytes: usize, rtt: Span, rate: Rate, seed: u64) -> SmallObjectTimes {
    let contents: Vec<Content> = (0..objects).map(|i| Content::random(seed << 32 | i, bytes)).collect();
    let mut simulation = Simulation::new(seed);
    let source = simulation.source(&contents, Misbehaviour::Honest);
    let link = LinkConfig::new(rate, rtt.over(2));
    let (down, up) = (simulation.link("down", link.clone()), simulation.link("up", link));
    let spec = PathSpec::new(&[down], &[up], Algorithm::by_name("nmcc").expect("nmcc is in the table"));
    let timeout = rtt.times(100) + Span::from_secs(60);
    let fetch = |simulation: &mut Simulation, receiver, content: &Content| {
        let start = simulation.clock() + rtt;
        let want = simulation.want(receiver, content, start);
        simulation.run_to_end(start + timeout);
        let done = simulation.progress(receiver, want).complete;
        done.map_or(f64::INFINITY, |at| at.since(start).as_nanos() as f64 / rtt.as_nanos() as f64)
    };
    let mut cold_rtts = Vec::new();
    for content in &contents {
        let receiver = simulation.receiver(Span::ZERO);
        simulation.path(receiver, source, &spec);
        cold_rtts.push(fetch(&mut simulation, receiver, content));
    }
    let receiver = simulation.receiver(Span::ZERO);
    simulation.path(receiver, source, &spec);
    let mut warm_rtts: Vec<f64> =
        contents.iter().map(|content| fetch(&mut simulation, receiver, content)).collect();
    warm_rtts.remove(0);
    SmallObjectTimes { cold_rtts, warm_rtts, violations: simulation.violations() }
}
