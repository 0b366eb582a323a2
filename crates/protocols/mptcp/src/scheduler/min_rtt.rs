//! Picks the subflow with the shortest smoothed round-trip time that has room (Raiciu et al., NSDI 2012,
//! section 4.2; the default of Linux MPTCP 0.9x). A subflow without a round-trip sample counts as fast as its
//! handshake was. In Linux MPTCP 0.9x it comes first, and so a path with a full queue, whose SYN had to be
//! repeated, gets data that arrives seconds later.

use super::view::{PathView, Schedule, Work, usable};

/// The scheduler `minrtt`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinRtt;

impl Schedule for MinRtt {
    fn pick(&mut self, _work: &Work, paths: &[PathView]) -> Option<usize> {
        let with_room = usable(paths).filter(|path| path.has_room);
        with_room.min_by_key(|path| path.srtt).map(|path| path.slot)
    }
}
