//! The state of a subflow, for people, measurements and the status of programs.

use std::net::SocketAddr;

use anabranch_algo::Span;

/// The state of a subflow at one time. Bytes are bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowReport {
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// Whether the handshakes are complete.
    pub is_up: bool,
    /// Whether either end wants the subflow to be a backup.
    pub is_backup: bool,
    /// The congestion window, packets.
    pub cwnd_packets: u32,
    /// The smoothed round-trip time; zero before the first sample.
    pub srtt: Span,
    /// Bytes sent, without repetitions.
    pub sent_bytes: u64,
    /// Bytes that have arrived in order, each counted once.
    pub received_bytes: u64,
    /// Packets sent again.
    pub resent_packets: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Timeouts of the sender since the last acknowledgement.
    pub timeouts_in_a_row: u32,
    /// Timeouts of the sender so far.
    pub timeouts: u32,
    /// Times that the sender reduced its window so far without a timeout.
    pub reductions: u32,
}
