//! What schedulers see of subflows, and what they answer.

use anabranch_algo::{Span, Time};

/// A subflow as schedulers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Its slot.
    pub slot: usize,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// Mean deviation of the round-trip time.
    pub rttvar: Span,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Bytes of data in a packet.
    pub mss_bytes: u64,
    /// Whether its congestion window and the peer's window have room now.
    pub has_room: bool,
    /// Whether it is a backup: to be used if no other is there.
    pub backup: bool,
    /// Whether it has carried what is to be sent.
    pub has_carried: bool,
    /// Whether nothing has been acknowledged since a retransmission timeout.
    pub is_silent: bool,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The time.
    pub now: Time,
    /// Whether it has been sent on another subflow before.
    pub is_reinjection: bool,
    /// Bytes that no subflow has carried.
    pub unsent_bytes: u64,
    /// Bytes that the peer's window for the data has room for.
    pub window_bytes: u64,
    /// How many times data has been reinjected so far.
    pub reinjections: u64,
}

/// Chooses subflows.
pub trait Schedule {
    /// The slot of the subflow that is to carry the next segment; `None`: none, for now. `paths` has all
    /// subflows that are established.
    fn pick(&mut self, work: &Work, paths: &[PathView]) -> Option<usize>;

    /// Whether each subflow is to carry what the others have carried, too.
    fn is_redundant(&self) -> bool {
        false
    }
}

/// The paths that may be used: not backups, unless all others are silent; not silent ones, unless all are.
pub(super) fn usable(paths: &[PathView]) -> impl Iterator<Item = &PathView> {
    let rank = |path: &PathView| (path.is_silent, path.backup);
    let best = paths.iter().filter(|path| !path.has_carried).map(rank).min();
    paths.iter().filter(move |path| !path.has_carried && Some(rank(path)) == best)
}
