//! The flows of a run: each as often as the scenario says, with its start and its controller.

use algo::{Span, Time};
use sim::Rng;

use crate::scenario::{Flow, Scenario};

/// One of the copies of a flow.
pub(crate) struct Copy<'a> {
    /// Its own name,
    pub(crate) own: String,
    /// and the scenario's.
    pub(crate) base: &'a str,
    pub(crate) flow: &'a Flow,
    pub(crate) start: Time,
    /// The name of its controller.
    pub(crate) controller: &'a str,
}

/// All flows of a run with this controller under comparison; the seed decides when they start.
pub(crate) fn copies<'a>(
    scenario: &'a Scenario,
    controller: &'a str,
    seed: u64,
) -> impl Iterator<Item = Copy<'a>> {
    scenario.flow.iter().flat_map(move |(base, flow)| {
        (1..=flow.count).map(move |copy| {
            let own = if flow.count == 1 { base.clone() } else { format!("{base}-{copy}") };
            let mut luck = Rng::stream(seed, &format!("start of {own}"));
            let start = flow.start.time() + Span::from_nanos(luck.below(flow.start_within.0.as_nanos() + 1));
            let compared = if flow.paths.len() > 1 { controller } else { "reno" };
            Copy { own, base, flow, start, controller: flow.controller.as_deref().unwrap_or(compared) }
        })
    })
}
