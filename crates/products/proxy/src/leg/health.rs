//! The measured state of a path, for the choice of links.

use anabranch_algo::Span;

/// The measured state of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathHealth {
    /// The number of the path. At the client it is the index of its link among the named ones.
    pub path: u8,
    /// Whether the path answers. A path that never answered does not.
    pub is_alive: bool,
    /// The smoothed round-trip time, once it has been measured.
    pub srtt: Option<Span>,
    /// The shortest round-trip time of the last minute or two.
    pub min_rtt: Option<Span>,
    /// The part of the last seconds' packets that was lost, from 0 to 1.
    pub loss: f64,
    /// The most packets that may be in flight at once.
    pub window_packets: u32,
    /// The number of bytes of packets that were sent.
    pub sent_bytes: u64,
    /// The number of bytes of valid packets that arrived.
    pub received_bytes: u64,
}
