//! How many round trips a short object takes: from a warm source, to a receiver that has no cookie of it, and
//! to one that has.

use algo::control::Algorithm;
use algo::{Rate, Span};
use sim::LinkConfig;

use crate::content::Content;
use crate::peer::Lie;
use crate::swarm::{Swarm, Wire};

/// Times of the objects, in round trips.
#[derive(Clone, Debug)]
pub struct Short {
    /// Each fetched by a new receiver.
    pub cold_rtts: Vec<f64>,
    /// All fetched by one receiver, one after the other; the first, which has no cookie, is not counted.
    pub warm_rtts: Vec<f64>,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

impl Short {
    /// The median of each.
    #[must_use]
    pub fn medians(&self) -> (f64, f64) {
        (median(&self.cold_rtts), median(&self.warm_rtts))
    }
}

/// The middle value, the upper one of two; not a number if there is none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Fetches `objects` of `bytes` each over a link of `rate` with a round trip of `rtt`, one after the other.
#[must_use]
pub fn measure(objects: u64, bytes: usize, rtt: Span, rate: Rate, seed: u64) -> Short {
    let contents: Vec<Content> = (0..objects).map(|i| Content::random(seed << 32 | i, bytes)).collect();
    let mut swarm = Swarm::new(seed);
    let source = swarm.source(&contents, Lie::Honest);
    let link = LinkConfig::new(rate, rtt.over(2));
    let (down, up) = (swarm.link("down", link.clone()), swarm.link("up", link));
    let wire = Wire::new(&[down], &[up], Algorithm::by_name("nmcc").expect("nmcc is in the table"));
    let patience = rtt.times(100) + Span::from_secs(60);
    let fetch = |swarm: &mut Swarm, receiver, content: &Content| {
        let start = swarm.clock() + rtt;
        let want = swarm.want(receiver, content, start);
        swarm.run_to_end(start + patience);
        let done = swarm.progress(receiver, want).complete;
        done.map_or(f64::INFINITY, |at| at.since(start).as_nanos() as f64 / rtt.as_nanos() as f64)
    };
    let mut cold_rtts = Vec::new();
    for content in &contents {
        let receiver = swarm.receiver(Span::ZERO);
        swarm.path(receiver, source, &wire);
        cold_rtts.push(fetch(&mut swarm, receiver, content));
    }
    let receiver = swarm.receiver(Span::ZERO);
    swarm.path(receiver, source, &wire);
    let mut warm_rtts: Vec<f64> =
        contents.iter().map(|content| fetch(&mut swarm, receiver, content)).collect();
    warm_rtts.remove(0);
    Short { cold_rtts, warm_rtts, violations: swarm.violations() }
}
