//! What a path is worth, for those who choose among links.

use anabranch_algo::Span;

/// How a path fares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathHealth {
    /// Its number; at the client, the place of its link among those that were named.
    pub path: u8,
    /// Whether it answers. One that never did does not.
    pub is_alive: bool,
    /// The smoothed round-trip time, once there is one.
    pub srtt: Option<Span>,
    /// The shortest one of the last minute or two.
    pub min_rtt: Option<Span>,
    /// The part of the packets of the last seconds that were lost, 0 to 1.
    pub loss: f64,
    /// Packets that may be under way at once.
    pub window_packets: u32,
    /// Bytes of packets that were sent.
    pub sent_bytes: u64,
    /// Bytes of packets that came, and were of this leg.
    pub received_bytes: u64,
}
