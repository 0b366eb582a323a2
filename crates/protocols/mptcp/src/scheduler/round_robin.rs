//! Picks all subflows that have room in turn, for a segment each (Paasch et al., "Experimental evaluation of
//! Multipath TCP schedulers", CSWS 2014, section 3).

use super::view::{PathView, Schedule, Work, usable};

/// The scheduler `roundrobin`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    /// The slot after the one that was picked last.
    next: usize,
}

impl Schedule for RoundRobin {
    fn pick(&mut self, _work: &Work, paths: &[PathView]) -> Option<usize> {
        let turn = |path: &&PathView| (path.slot < self.next, path.slot);
        let slot = usable(paths).filter(|path| path.has_room).min_by_key(turn)?.slot;
        self.next = slot + 1;
        Some(slot)
    }
}
