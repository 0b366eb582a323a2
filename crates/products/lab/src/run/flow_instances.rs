//! The flows of a run: each as often as the scenario says, with its start and its controller.

use anabranch_algo::{Span, Time};
use anabranch_sim::Rng;

use crate::observations::{FlowEnd, ObservedFlow};
use crate::scenario::{Flow, Scenario};

/// One of the instances of a flow.
pub(crate) struct FlowInstance<'a> {
    /// Its own name,
    pub(crate) name: String,
    /// and the scenario's.
    pub(crate) base: &'a str,
    pub(crate) flow: &'a Flow,
    pub(crate) start: Time,
    /// The name of its controller.
    pub(crate) controller: &'a str,
}

impl FlowInstance<'_> {
    /// What is noted of it.
    pub(crate) fn observed(&self) -> ObservedFlow {
        ObservedFlow {
            name: self.name.clone(),
            base: self.base.into(),
            paths: self.flow.paths.len(),
            end: FlowEnd::default(),
        }
    }
}

/// All flows of a run with this controller under comparison; the seed decides when they start.
pub(crate) fn flow_instances<'a>(
    scenario: &'a Scenario,
    controller: &'a str,
    seed: u64,
) -> impl Iterator<Item = FlowInstance<'a>> {
    scenario.flow.iter().flat_map(move |(base, flow)| {
        (1..=flow.count).map(move |instance| {
            let name = if flow.count == 1 { base.clone() } else { format!("{base}-{instance}") };
            let mut rng = Rng::stream(seed, &format!("start of {name}"));
            let start = flow.start.time() + Span::from_nanos(rng.below(flow.start_within.0.as_nanos() + 1));
            let compared = if flow.paths.len() > 1 { controller } else { "reno" };
            FlowInstance {
                name,
                base,
                flow,
                start,
                controller: flow.controller.as_deref().unwrap_or(compared),
            }
        })
    })
}
