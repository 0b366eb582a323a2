//! Sends all data on each subflow (Froemmgen et al., "ReMP TCP: low latency Multipath TCP", ICC 2016). New
//! data goes to the subflow with the shortest round trip that has room. Each other subflow carries the data
//! that it has not carried and that is not acknowledged, oldest first.

use super::min_rtt::MinRtt;
use super::view::{PathView, Schedule, Work};

/// The scheduler `redundant`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redundant(MinRtt);

impl Schedule for Redundant {
    fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize> {
        self.0.pick(work, paths)
    }

    fn is_redundant(&self) -> bool {
        true
    }
}
