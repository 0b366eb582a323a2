//! The numbers of a subflow that measurements read.

use std::net::SocketAddr;

use anabranch_algo::Span;

/// The numbers of a subflow at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowReport {
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// The congestion window, packets.
    pub cwnd_packets: u32,
    /// The smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// Timeouts of the sender so far.
    pub timeouts: u32,
    /// Times that the sender reduced its window so far without a timeout.
    pub reductions: u32,
    /// Bytes of payload that have arrived in order, each counted once.
    pub received_bytes: u64,
}
