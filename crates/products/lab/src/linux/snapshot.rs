//! Holds the counters of a run in the kernel at one moment.

use anabranch_sim::{Histogram, Stats};

use crate::observations::Observe;

/// The counters of a run at one moment.
#[derive(Debug, Default)]
pub(super) struct KernelSnapshot {
    /// Bytes that each flow's receiver has read.
    pub(super) totals: Vec<u64>,
    /// Bytes that the receiver's kernel has acknowledged, by flow and path.
    pub(super) bytes: Vec<Vec<u64>>,
    /// Window of each path, packets, by flow.
    pub(super) cwnds: Vec<Vec<f32>>,
    /// Counters of the scenario's links, in the order of their names.
    pub(super) links: Vec<Stats>,
    /// Times that packets stayed at each link; `None` for a link without a trace.
    pub(super) sojourns: Vec<Option<Histogram>>,
    /// Mean queue of each link since the snapshot before, bytes.
    pub(super) queued_bytes: Vec<f64>,
}

impl Observe for KernelSnapshot {
    fn total(&self, flow: usize) -> u64 {
        self.totals[flow]
    }
    fn bytes(&self, flow: usize) -> Vec<u64> {
        self.bytes[flow].clone()
    }
    fn cwnds(&self, flow: usize) -> Vec<f32> {
        self.cwnds[flow].clone()
    }
    fn links(&self) -> Vec<Stats> {
        self.links.clone()
    }
    fn sojourns(&self) -> Vec<Option<Histogram>> {
        self.sojourns.clone()
    }
    fn queued_bytes(&self, link: usize) -> f64 {
        self.queued_bytes.get(link).copied().unwrap_or(0.0)
    }
    fn misgrouped(&self, _: usize) -> Option<(bool, bool)> {
        None
    }
    fn factor(&self, _: usize) -> Option<f32> {
        None
    }
}
