//! What can be seen of a run in the kernel at a moment.

use anabranch_sim::{Histogram, Stats};

use crate::observations::Observe;

/// A moment of a run.
#[derive(Debug, Default)]
pub(super) struct KernelSnapshot {
    /// Of each flow: bytes that its receiver has,
    pub(super) totals: Vec<u64>,
    /// and those that the receiver's kernel has acknowledged on each path.
    pub(super) bytes: Vec<Vec<u64>>,
    /// Of each flow: the window of each path, packets.
    pub(super) cwnds: Vec<Vec<f32>>,
    /// Of each of the scenario's links, by name.
    pub(super) links: Vec<Stats>,
    /// Of each of them that plays a trace: how long packets stayed there.
    pub(super) sojourns: Vec<Option<Histogram>>,
    /// Of each of them: its mean queue since the last look, bytes.
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
