//! The view of subflows that schedulers get, and the trait that they implement.

use anabranch_algo::{Span, Time};

/// A subflow as schedulers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The subflow's slot.
    pub slot: usize,
    /// The round trip that a segment sent now is expected to take: the smoothed one, or as long as the oldest
    /// segment in flight has waited, if that is longer. Before the first sample it is the time that the
    /// handshake took.
    pub srtt: Span,
    /// The mean deviation of the round-trip time.
    pub rttvar: Span,
    /// The congestion window, packets.
    pub cwnd: u32,
    /// The packets in flight.
    pub in_flight: u32,
    /// The bytes of data in a packet.
    pub mss_bytes: u64,
    /// Whether the congestion window and the peer's window have room now.
    pub has_room: bool,
    /// Whether the subflow is a backup, which is used only if no other can be.
    pub backup: bool,
    /// Whether the subflow has carried the data that is to be sent.
    pub has_carried: bool,
    /// Whether nothing has been acknowledged on the subflow since a retransmission timeout.
    pub is_silent: bool,
}

/// The data that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The current time.
    pub now: Time,
    /// Whether the data has been sent on another subflow before.
    pub is_reinjection: bool,
    /// The bytes that no subflow has carried.
    pub unsent_bytes: u64,
    /// The bytes that the peer's window for the data has room for.
    pub window_bytes: u64,
    /// How many times data has been reinjected so far.
    pub reinjections: u64,
}

/// A rule that chooses subflows.
pub trait Schedule {
    /// Returns the slot of the subflow that must carry the next segment, or `None` if none must for now.
    /// `paths` has all established subflows.
    fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize>;

    /// Returns whether each subflow must also carry the data that the others have carried.
    fn is_redundant(&self) -> bool {
        false
    }
}

/// Returns the paths that may be used: no backup unless all others are silent, and no silent path unless all
/// are.
pub(super) fn usable(paths: &[PathView]) -> impl Iterator<Item = &PathView> {
    let rank = |path: &PathView| (path.is_silent, path.backup);
    let best = paths.iter().filter(|path| !path.has_carried).map(rank).min();
    paths.iter().filter(move |path| !path.has_carried && Some(rank(path)) == best)
}
